import hashlib
import json

import gymnasium
import h5py
import numpy as np
import pytest
import tyro

import safemil.tasks  # registers the tasks
from safemil.behaviour import fetching, making
from safemil.behaviour.making import make, record, recorded_seeds, share_out
from safemil.behaviour.policy import Policy, shipped
from safemil.cli.data import COMMANDS
from safemil.data import load_annotated
from safemil.data.formats import read_manifest
from safemil.errors import InputError

TASK = "SafetyPointCircle2-v0"  # the fastest


def run(verb, *arguments):
    return tyro.cli(
        COMMANDS[verb], args=[str(each) for each in arguments], config=(tyro.conf.OmitArgPrefixes,)
    )


@pytest.fixture(scope="module", autouse=True)
def two_policies():
    """Rolling out all of them takes a minute."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(making, "shipped", lambda task: shipped(task)[:2])
        yield


@pytest.fixture(scope="module")
def made():
    return make(TASK, episodes=5, seed=3)


def test_the_same_seed_makes_the_same_bytes_and_another_seed_others(made, tmp_path):
    def digest(path):
        return {each.name: hashlib.sha256(each.read_bytes()).hexdigest() for each in path.iterdir()}

    for name, seed in (("one", 3), ("two", 3), ("three", 4)):
        run("make", TASK, "--episodes", 5, "--seed", seed, "--out", tmp_path / name)
    one, two, three = (digest(tmp_path / name) for name in ("one", "two", "three"))
    assert one == two
    assert not set(one.values()) & set(three.values())
    assert sorted(one) == ["arrays.safetensors", "dataset.json", "scatter.png", "scatter.svg"]
    manifest = read_manifest(tmp_path / "one")
    assert manifest == json.loads(json.dumps(made[2]))
    assert manifest["content_hash"] == load_annotated(tmp_path / "one")[0].content_hash()
    assert {"task", "seed", "mujoco", "policies"} <= set(manifest)


def test_every_policy_has_its_episodes_in_the_order_of_the_manifest(made):
    trajectories, annotations, manifest = made
    returns, costs = annotations.episode_sums(trajectories.lengths)
    assert manifest["policies"][-1]["episodes"][1] == trajectories.episodes == 5
    for policy in manifest["policies"]:
        first, end = policy["episodes"]
        assert end > first
        np.testing.assert_allclose(returns[first:end].mean(), policy["return"], atol=2e-3)
        np.testing.assert_allclose(costs[first:end].mean(), policy["cost"], atol=2e-3)


def test_the_manifest_says_which_seed_each_episode_began_from(made):
    trajectories, _, manifest = made
    seeds = recorded_seeds(manifest)
    envs = safemil.tasks.make_vec(TASK, len(seeds))
    first, _ = envs.reset(seed=seeds)
    envs.close()
    np.testing.assert_array_equal(first.astype(np.float32), trajectories.observations[trajectories.starts])


def test_recorded_actions_give_the_recorded_episode_again():
    policy = shipped(TASK)[0]
    seen = record(TASK, policy, [7, 8], np.array([0.0, 1.0]), np.random.default_rng(0))
    env = gymnasium.make(f"safemil/{TASK}")
    observation, _ = env.reset(seed=8)
    for step in range(seen.lengths[1]):
        np.testing.assert_array_equal(observation.astype(np.float32), seen.observations[1, step])
        observation, reward, _, truncated, info = env.step(seen.actions[1, step].astype(np.float64))
        assert np.float32(reward) == seen.rewards[1, step]
        assert info["cost"] == seen.costs[1, step]
    assert truncated
    np.testing.assert_array_equal(observation.astype(np.float32), seen.observations[1, step + 1])
    likely = policy.act(seen.observations[:1, 0], np.zeros((1, 2)))[0]
    np.testing.assert_allclose(
        seen.actions[0, 0], likely, atol=1e-4
    )  # observations are kept in single precision


def test_an_episode_that_ends_early_holds_nothing_of_the_next():
    limp = Policy("limp", (np.zeros((17, 6)),), (np.zeros(6),), np.ones(6), {})
    seen = record("SafetyWalker2dVelocity-v1", limp, [0, 1, 2], np.ones(3), np.random.default_rng(0))
    assert seen.terminated.all()
    assert len(set(seen.lengths)) > 1
    for length, rewards, observations in zip(seen.lengths, seen.rewards, seen.observations, strict=True):
        assert not rewards[length:].any()
        assert observations[length].any()
        assert not observations[length + 1 :].any()


def test_shares_add_up_and_everyone_has_one():
    assert share_out(5, [1.0] * 5) == [1] * 5
    shared = share_out(801, [0.2] + [1.0] * 15)
    assert sum(shared) == 801
    assert shared[0] < 15
    assert max(shared[1:]) - min(shared[1:]) <= 1


def test_too_few_episodes_and_wrong_names_are_refused():
    with pytest.raises(InputError, match="at least one episode of each of"):
        make(TASK, episodes=1)
    with pytest.raises(InputError, match='did you mean "SafetyPointCircle2-v0"'):
        make("SafetyPointCircle2")


def test_dsrl_files_hold_the_same_with_the_manifest_beside(made, tmp_path, capsys):
    out = tmp_path / "circle.hdf5"
    run("make", TASK, "--episodes", 5, "--seed", 3, "--format", "dsrl", "--out", out)
    assert capsys.readouterr().out.splitlines()[-1] == str(out)
    trajectories, annotations = load_annotated(out)
    assert trajectories.content_hash() == made[0].content_hash()
    np.testing.assert_array_equal(annotations.costs, made[1].costs)
    assert json.loads((tmp_path / "circle.json").read_text())["seed"] == 3
    with pytest.raises(InputError, match="exists already"):
        run("make", TASK, "--format", "dsrl", "--out", out)


def test_info_names_the_plot_of_a_made_store_and_draws_another(tmp_path, capsys):
    run("make", TASK, "--episodes", 5, "--out", tmp_path / "circle")
    run("info", tmp_path / "circle")
    assert str(tmp_path / "circle" / "scatter.png") in capsys.readouterr().out.splitlines()
    run("info", tmp_path / "circle", "--plot", tmp_path / "drawn")
    shown = capsys.readouterr().out.splitlines()
    assert shown[-2:] == [str(tmp_path / "drawn.png"), str(tmp_path / "drawn.svg")]
    assert (tmp_path / "drawn.png").read_bytes().startswith(b"\x89PNG")
    assert "non-preferred" in (tmp_path / "drawn.svg").read_text()


def test_fetch_prints_where_the_file_is(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("DSRL_DATASET_DIR", str(tmp_path))
    there = tmp_path / fetching.FILES[TASK]
    h5py.File(there, "w").close()
    run("fetch", TASK)
    assert capsys.readouterr().out.splitlines() == [str(there)]
