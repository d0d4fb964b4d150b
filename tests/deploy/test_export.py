"""Export: ONNX files that give the numbers of the run, and nothing written if they don't."""

import json

import jax.numpy as jnp
import numpy as np
import onnxruntime
import pytest
from random_runs import random_run

import safemil
from safemil.cli import main
from safemil.data import Trajectories
from safemil.data.interchange import Options
from safemil.errors import InputError
from safemil.export import export
from safemil.runs import RunDirectory
from safemil.tracing import trace


@pytest.fixture(scope="module")
def logs(unlabeled):
    return named(unlabeled.observations, unlabeled.actions, unlabeled.lengths)


def named(observations, actions, lengths, first="speed"):
    names = {"observation_names": [first, "gap", "lane"], "action_names": ["steer", "gas"]}
    return Trajectories(observations, actions, lengths, **names)


@pytest.fixture(scope="module")
def run(logs):
    return random_run("safemil", logs)


def session(path):
    return onnxruntime.InferenceSession(path)


def test_the_graph_takes_any_number_of_rows_and_gives_action_and_risk(run, logs, tmp_path):
    written = export(run, tmp_path / "policy.onnx", logs)
    assert written.difference <= 1e-5
    assert written.outputs == ("action", "risk", "novelty")
    for rows in (1, logs.steps):
        seen = logs.observations[:rows]
        action, risk = session(written.path).run(["action", "risk"], {"observation": seen})
        np.testing.assert_allclose(action, run.act(seen), atol=1e-5)
        expected = run.cost(named(seen, action, [rows]))[0]
        np.testing.assert_allclose(risk, expected, atol=1e-5)


def test_columns_are_inputs_by_name_and_the_risk_is_that_of_the_action_taken(run, logs, tmp_path):
    export(run, tmp_path / "policy.onnx", logs, columns=True, taken=True)
    columns = np.concatenate([logs.observations, logs.recorded_actions().astype(np.float32)], axis=1).T
    names = ["speed", "gap", "lane", "steer", "gas"]
    fed = dict(zip(names, columns, strict=True)) | {"speed": columns[0] + 2}
    risk, novelty = session(tmp_path / "policy.onnx").run(["risk", "novelty"], fed)
    shifted = named(logs.observations + np.array([2, 0, 0]), logs.actions, logs.lengths)
    np.testing.assert_allclose(risk, np.concatenate(run.cost(shifted)), atol=1e-5)
    np.testing.assert_allclose(novelty, np.concatenate(run.novelty(shifted).deviations), atol=1e-5)
    assert novelty.max() > 0.5


def test_the_metadata_say_the_opset_the_versions_and_the_columns(run, logs, tmp_path):
    export(run, tmp_path / "policy.onnx", logs)
    held = session(tmp_path / "policy.onnx").get_modelmeta().custom_metadata_map
    found = json.loads(held["safemil"])
    assert (found["opset"], found["safemil"], found["seed"]) == (18, safemil.__version__, 0)
    assert found["observation_names"] == ["speed", "gap", "lane"]


def test_a_file_whose_numbers_differ_is_not_kept(run, logs, tmp_path, monkeypatch):
    def off(observation, taken):
        found = run.forward(observation, taken)
        return found | {"risk": found["risk"] + 1e-4}

    monkeypatch.setattr("safemil.export.graph_of", lambda run: trace(off, observation=3, taken=2))
    with pytest.raises(InputError, match=r"differ from those of the run by 0.0001.*nothing is written"):
        export(run, tmp_path / "policy.onnx", logs)
    assert not list(tmp_path.iterdir())


def test_a_column_named_as_an_output_is_refused(unlabeled, tmp_path):
    logs = named(unlabeled.observations, unlabeled.actions, unlabeled.lengths, first="risk")
    with pytest.raises(InputError, match='two inputs or outputs would be named "risk"'):
        export(random_run("trex-wbc", logs), tmp_path / "policy.onnx", logs, columns=True)


def test_what_export_does_not_know_is_named():
    with pytest.raises(InputError, match='computes "sort", which export does not know'):
        trace(lambda x: {"y": jnp.sort(x, axis=1)}, x=3)


def test_a_trace_computes_what_the_function_does():
    def function(x, z):
        parts = jnp.split(x, 2, axis=1)
        picked = jnp.take_along_axis(x, jnp.argmax(x, axis=1)[:, None], axis=1)[:, 0]
        total = jnp.where(parts[0] > parts[1], jnp.log1p(jnp.exp(parts[0])), jnp.clip(parts[1], -0.1, 0.1))
        return {"a": total @ jnp.eye(2)[::-1], "b": picked**3 - jnp.max(z, axis=1)}

    rng = np.random.default_rng(0)
    x, z = rng.normal(size=(7, 4)).astype(np.float32), rng.normal(size=(7, 2)).astype(np.float32)
    graph, expected = trace(function, x=4, z=2), function(x, z)
    for name in ("a", "b"):
        np.testing.assert_allclose(graph.run(name, x=x, z=z), expected[name], atol=1e-6)


def test_the_command_writes_both_forms_of_the_seed_asked_for(tmp_path, unlabeled, capsys):
    safemil.save(tmp_path / "logs.parquet", unlabeled)
    settings = {"updates": 2, "hidden_policy": [8]}
    safemil.train("bc", unlabeled=unlabeled, seeds=2, out=tmp_path / "run", progress=False, **settings)
    RunDirectory(tmp_path / "run").note_sources({"unlabeled": tmp_path / "logs.parquet"}, Options())
    for form in ("onnx", "safetensors"):
        capsys.readouterr()
        assert main(["export", f"{tmp_path}/run", "--out", f"{tmp_path}/p.{form}", "--seed", "1"]) == 0
        said = capsys.readouterr().out
        assert "seed 1 of 0, 1" in said
        assert "largest difference from the run" in said
        assert said.endswith(f"p.{form}\n")
    assert safemil.deploy.load(tmp_path / "p.safetensors").seed == 1
    assert main(["export", f"{tmp_path}/run", "--out", f"{tmp_path}/q.onnx", "--seed", "7"]) == 2
    assert main(["export", f"{tmp_path}/run", "--out", f"{tmp_path}/q.txt"]) == 2
    assert main(["export", f"{tmp_path}/run", "--out", f"{tmp_path}/p.onnx"]) == 2  # exists
