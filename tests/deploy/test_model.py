"""The small form: the numbers of the run with NumPy alone, from files that may be damaged."""

import json
import subprocess
import sys

import numpy as np
import pytest
from random_runs import random_run

import safemil
from safemil.algorithms import ALGORITHMS
from safemil.data import Trajectories
from safemil.deploy import Model, storage
from safemil.deploy.graph import Graph, Node
from safemil.errors import InputError
from safemil.export import export


@pytest.fixture(scope="module")
def logs(unlabeled):
    """The unlabeled pile, as if its actions had been recorded between -30 and 10."""
    return Trajectories(
        unlabeled.observations, unlabeled.actions, unlabeled.lengths, action_low=[-30, -30], action_high=10
    )


@pytest.fixture(scope="module", params=ALGORITHMS)
def run(request, logs):
    return random_run(request.param, logs, seeds=3)[2]


@pytest.fixture(scope="module")
def file(tmp_path_factory, logs):
    path = tmp_path_factory.mktemp("model") / "policy.safetensors"
    export(random_run("safemil", logs), path, logs)
    return path


def test_actions_and_risks_are_those_of_the_run(run, logs, tmp_path):
    path = tmp_path / "policy.safetensors"
    written = export(run, path, logs)
    assert written.difference <= 1e-5
    model = safemil.deploy.load(path)
    assert (model.algorithm, model.seed, model.learns_cost) == (run.algorithm, run.seeds[0], run.learns_cost)
    np.testing.assert_allclose(model.act(logs.observations), run.act(logs.observations), atol=2e-4)  # of 40
    np.testing.assert_allclose(model.act(logs.observations[3]), run.act(logs.observations[3]), atol=2e-4)
    novelties = model.novelty(logs.observations + 1, logs.recorded_actions())
    shifted = Trajectories(
        logs.observations + 1,
        logs.actions,
        logs.lengths,
        action_low=logs.action_low,
        action_high=logs.action_high,
    )
    np.testing.assert_allclose(novelties, np.concatenate(run.novelty(shifted).deviations), atol=1e-5)
    if run.learns_cost:
        risks = model.risk(logs.observations, logs.recorded_actions())
        np.testing.assert_allclose(risks, np.concatenate(run.cost(logs)), atol=1e-5)
        assert model.risk(logs.observations[5], logs.recorded_actions()[5]) == pytest.approx(
            risks[5], abs=1e-6
        )


def test_many_rows_are_computed_in_blocks(file, logs, monkeypatch):
    model = Model.load(file)
    expected = model.risk(logs.observations, logs.recorded_actions())
    monkeypatch.setattr("safemil.deploy.model.ROWS_AT_ONCE", 5)
    found = model.risk(logs.observations, logs.recorded_actions())
    np.testing.assert_allclose(found, expected, atol=1e-6)


def test_an_algorithm_without_a_cost_has_no_risk(logs, tmp_path):
    export(random_run("bc", logs), tmp_path / "bc.safetensors", logs)
    model = Model.load(tmp_path / "bc.safetensors")
    with pytest.raises(InputError, match="bc learns no cost"):
        model.risk(logs.observations, logs.actions)


def test_a_choice_comes_back_as_logged_and_has_a_risk(unlabeled, tmp_path):
    columns = np.where(np.arange(2) == np.arange(unlabeled.steps)[:, None] % 2, 1, -1)
    logs = Trajectories(
        unlabeled.observations, columns, unlabeled.lengths, action_categories=["keep lane", "overtake"]
    )
    run = random_run("safemil", logs)
    export(run, tmp_path / "choices.safetensors", logs)
    export(run, tmp_path / "choices.onnx", logs)
    model = Model.load(tmp_path / "choices.safetensors")
    taken = np.array(["keep lane", "overtake"])[np.arange(logs.steps) % 2]
    assert model.act(logs.observations).tolist() == run.act(logs.observations).tolist()
    assert model.act(logs.observations[0]) == run.act(logs.observations[0])
    np.testing.assert_allclose(
        model.risk(logs.observations, taken), np.concatenate(run.cost(logs)), atol=1e-5
    )
    with pytest.raises(InputError, match=r"must be one of \['keep lane', 'overtake'\], got 'brake'"):
        model.risk(logs.observations[0], "brake")


def test_deployed_models_import_no_jax(file, logs):
    code = f"""
import sys
import safemil.deploy
model = safemil.deploy.load({str(file)!r})
print(model.act([0.0] * 3).shape, model.risk([0.0] * 3, [0.0] * 2) > 0)
heavy = {{"jax", "equinox", "scipy", "pyarrow", "h5py", "rich", "onnxruntime", "safetensors"}}
print(sorted(heavy & {{name.partition(".")[0] for name in sys.modules}}))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout == "(2,) True\n[]\n", done.stderr


@pytest.mark.parametrize(
    ("observation", "action", "message"),
    [
        ([0.0] * 4, [0.0] * 2, r"the observation must be \(3,\) or a batch \(N, 3\), got shape \(4,\)"),
        ([0.0, 0.0, np.nan], [0.0] * 2, "the observation must be finite"),
        ([0.0] * 3, [[0.0] * 2] * 2, "one action for each observation, got 2 for 1"),
    ],
)
def test_rows_that_do_not_fit_are_refused(file, observation, action, message):
    with pytest.raises(InputError, match=message):
        Model.load(file).risk(observation, action)


def test_the_safetensors_package_reads_the_file_too(file):
    from safetensors.numpy import load_file

    graph, _ = storage.read(file)
    arrays = load_file(file)
    assert arrays.keys() == graph.constants.keys()
    assert all(np.array_equal(arrays[name], graph.constants[name]) for name in arrays)


@pytest.mark.parametrize("cut", [0, 7, 8, 500, -1])
def test_a_file_that_is_cut_short_is_refused(file, tmp_path, cut):
    path = tmp_path / "cut.safetensors"
    path.write_bytes(file.read_bytes()[:cut])
    with pytest.raises(InputError, match=r"cut\.safetensors can't be used: .*; write it again"):
        Model.load(path)


def test_no_change_of_the_header_gets_past_the_reader_with_another_error(file, tmp_path):
    content, path = file.read_bytes(), tmp_path / "changed.safetensors"
    length = int.from_bytes(content[:8], "little")
    rng = np.random.default_rng(0)
    for place in rng.integers(0, 8 + length, 300):
        changed = bytearray(content)
        changed[place] = rng.integers(32, 127)
        path.write_bytes(changed)
        try:
            Model.load(path)
        except InputError:
            continue


def graph_json(*nodes, outputs=("y",)):
    return json.loads(json.dumps(Graph({"x": 2}, outputs, nodes, {}).to_json()))


@pytest.mark.parametrize(
    ("nodes", "message"),
    [
        ([Node("eval", ("x",), "y", {})], "does not know its operation"),
        ([Node("Reshape", ("x",), "y", {"order": [2]})], "does not know its operation"),
        ([Node("MatMul", ("tall", "wide"), "y", {})], "more than 16777216 products"),
        ([Node("Add", ("tall", "wide"), "y", {})], "more than 16777216 products"),
        ([Node("Concat", ("tall", "tall"), "y", {"axis": 0})], "is not one row"),
        ([Node("Exp", ("x",), f"y{n}", {}) for n in range(10_001)], "more than 10000 nodes"),
    ],
)
def test_nodes_that_are_unknown_or_too_large_are_refused(nodes, message):
    sizes = {"tall": np.zeros((10_000, 1), np.float32), "wide": np.zeros((1, 10_000), np.float32)}
    with pytest.raises(InputError, match=message):
        Graph.from_json(graph_json(*nodes), sizes)


def test_a_graph_that_fits_one_row_only_is_refused_where_it_is_computed():
    graph = Graph.from_json(graph_json(Node("Reshape", ("x",), "y", {"shape": [1, 2]})), {})
    np.testing.assert_array_equal(graph.run("y", x=np.float32([[1, 2]])), [[1, 2]])
    with pytest.raises(InputError, match=r"its y can't be computed .*: the file is damaged"):
        graph.run("y", x=np.ones((3, 2), np.float32))
