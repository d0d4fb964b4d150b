"""Rollouts of runs: what they count, what they have in common, and learning curves."""

import json

import gymnasium
import numpy as np
import pytest

import safemil
import safemil.tasks
from safemil import catalog, evaluation, toy
from safemil.cli import main
from safemil.data import Trajectories
from safemil.errors import InputError
from safemil.evaluation import Evaluation, as_logged, by_position, policy
from safemil.rollouts import environment_seeds

WALKER = "SafetyWalker2dVelocity-v1"  # untrained, it falls after some dozen steps
TINY = {"updates": 40, "batch": 4, "hidden_policy": [8], "log_every": 10, "progress": False}


@pytest.fixture(scope="module")
def run():
    rng = np.random.default_rng(0)
    episodes = Trajectories(rng.normal(size=(50, 17)), rng.uniform(-1, 1, (50, 6)), [30, 20])
    return safemil.train("bc", unlabeled=episodes, seeds=2, **TINY)


@pytest.fixture(scope="module")
def found(run):
    return evaluation.evaluate(run, WALKER, episodes=3)


def one_episode(act, seed):
    env = gymnasium.make(f"safemil/{WALKER}")
    observation, _ = env.reset(seed=seed)
    total, cost, steps, ended = 0.0, 0.0, 0, False
    while not ended:
        observation, reward, terminated, truncated, info = env.step(act(observation))
        total, cost, steps = total + reward, cost + info["cost"], steps + 1
        ended = terminated or truncated
    return total, cost, steps


@pytest.mark.filterwarnings("ignore:the observation is unlike the training data:safemil.errors.InputWarning")
def test_an_episode_counts_until_it_ends_as_in_a_single_environment(run, found):
    seeds = environment_seeds(0, 3)
    for number in range(2):
        for episode, seed in enumerate(seeds):
            expected = one_episode(lambda observation, n=number: run[n].act(observation), seed)
            got = [values[number, episode] for values in (found.returns, found.costs, found.lengths)]
            np.testing.assert_allclose(got, expected, rtol=1e-4)
    assert (found.lengths < 1000).all()


def test_a_seed_does_the_same_alone(run, found):
    alone = evaluation.evaluate(run[1], WALKER, episodes=3)
    np.testing.assert_allclose(alone.returns[0], found.returns[1], rtol=1e-4)
    np.testing.assert_array_equal(alone.lengths[0], found.lengths[1])


def test_sampled_actions_differ_and_come_again(run, found):
    sampled = [evaluation.evaluate(run, WALKER, episodes=3, stochastic=True) for _ in range(2)]
    np.testing.assert_array_equal(sampled[0].returns, sampled[1].returns)
    assert (sampled[0].returns != found.returns).all()


def test_other_episodes_for_another_seed(run, found):
    assert not np.isin(evaluation.evaluate(run, WALKER, episodes=3, seed=1).returns, found.returns).any()


def test_a_run_of_other_columns_is_refused(run):
    with pytest.raises(
        InputError, match=r"60 observation columns, but.*trained on 17;.*2 action columns.*trained on 6"
    ):
        evaluation.evaluate(run, "SafetyPointGoal1-v0")


def test_an_unknown_task_is_answered_with_the_near_one(run):
    with pytest.raises(InputError, match='did you mean "SafetyPointGoal1-v0"'):
        evaluation.evaluate(run, "SafetyPointGoal-v0")


@pytest.mark.parametrize(("option", "value"), [("episodes", 0), ("seed", -1)])
def test_options_out_of_range_are_refused(run, option, value):
    with pytest.raises(InputError, match="at least"):
        evaluation.evaluate(run, WALKER, **{option: value})


def test_the_random_policy_needs_no_run():
    found = evaluation.roll_out(WALKER, evaluation.random_policy(6), seeds=2, episodes=2)
    assert found.returns.shape == found.costs.shape == found.lengths.shape == (2, 2)
    assert (found.lengths < 300).all()


def test_a_generated_problem_is_walked_as_the_toy_walks_it():
    def act(observations, step):
        return np.clip(observations[:, 2:], -0.3, 0.3) * np.repeat([1.0, 3.0], 10)[:, None]

    found = evaluation.roll_out("toy:speed", act, seeds=2, episodes=10)
    for number, gain in enumerate([1.0, 3.0]):
        risky, goals = toy.evaluate(
            "speed", lambda seen, g=gain: np.clip(seen[:, 2:], -0.3, 0.3) * g, episodes=10
        )
        np.testing.assert_allclose(found.returns[number].mean(), goals)
        np.testing.assert_allclose(found.costs[number].mean(), risky * toy.STEPS)


def test_the_verb_writes_every_episode_and_prints_a_table(run, found, tmp_path, capsys):
    run.save(tmp_path / "run")
    assert main(["evaluate", str(tmp_path / "run"), "--task", WALKER, "--episodes", "3"]) == 0
    written = json.loads((tmp_path / "run" / "evaluation.json").read_text())
    np.testing.assert_allclose(written["returns"], found.returns, atol=1e-5)
    assert written["lengths"] == found.lengths.tolist()
    assert (written["task"], written["seeds"], written["episodes"]) == (WALKER, [0, 1], 3)
    printed = capsys.readouterr().out
    assert "CVaR 20%" in printed
    assert printed.endswith("evaluation.json\n")


def test_an_evaluation_is_read_as_it_was_written(found, tmp_path):
    assert Evaluation.load(tmp_path) is None
    found.save(tmp_path)
    again = Evaluation.load(tmp_path)
    for name in ("returns", "costs", "lengths"):
        np.testing.assert_allclose(getattr(again, name), getattr(found, name), atol=1e-6)
    for name in ("task", "algorithm", "seeds", "seed", "stochastic"):
        assert getattr(again, name) == getattr(found, name)
    (tmp_path / evaluation.FILE).write_text('{"task": "toy:speed"}')
    with pytest.raises(InputError, match="is damaged"):
        Evaluation.load(tmp_path)


def test_a_learning_curve_leaves_the_training_as_it_is(tmp_path):
    """A run that is stopped at an evaluation and resumed writes the same lines and the same weights."""
    piles = toy.make_piles("speed", nonpreferred=2, unlabeled=4, heldout=2)
    curve = evaluation.curve("toy:speed", episodes=2)
    calls = []

    def stop_at_the_second(run):
        calls.append(run)
        if len(calls) == 2:
            raise KeyboardInterrupt
        return curve(run)

    def train(folder, **options):
        return safemil.train(
            "bc", unlabeled=piles.unlabeled, out=tmp_path / folder, evaluate_every=20, **TINY, **options
        )

    plain = train("plain")
    whole = train("whole", evaluate=curve)
    with pytest.raises(KeyboardInterrupt):
        train("stopped", evaluate=stop_at_the_second)
    resumed = train("stopped", evaluate=curve, resume=True)

    points = [line["update"] for line in whole.metrics if "evaluation/cost" in line]
    assert points == [20, 40]
    lines = [[line | {"seconds": 0} for line in run.metrics] for run in (whole, resumed)]
    assert lines[0] == lines[1]
    observations = piles.heldout.observations[:50]
    for other in (whole, resumed):
        np.testing.assert_array_equal(other.act(observations), plain.act(observations))


def test_columns_of_a_task_are_matched_with_those_of_the_run_by_name():
    names = catalog.task("toy:moment").make(1, 1).column_names()  # four observed, two acted
    rng = np.random.default_rng(0)
    mixed = Trajectories(
        rng.normal(size=(20, 4)),
        rng.uniform(-1, 1, (20, 2)),
        [20],
        action_low=[-2, -4],
        action_high=[2, 4],
        observation_names=[names[i] for i in (2, 0, 3, 1)],
        action_names=[names[5], names[4]],
    )
    run = safemil.train("bc", unlabeled=mixed, updates=2, hidden_policy=[4])
    seen = rng.uniform(-1, 1, (5, 4))
    chosen = run.act(dict(zip(names[:4], seen.T, strict=True)))
    np.testing.assert_allclose(policy(run, task="toy:moment")(seen, 0), chosen[:, ::-1], rtol=1e-6)
    drawn = Trajectories(seen, chosen[:, ::-1] / 10, [5])
    logged = as_logged(run, "toy:moment", drawn)
    assert logged.observation_names == run.observation_names
    np.testing.assert_allclose(logged.observations, seen[:, [2, 0, 3, 1]], rtol=1e-6)
    np.testing.assert_allclose(logged.recorded_actions(), chosen / 10, atol=1e-6)


def test_columns_that_a_task_lacks_are_named_and_names_that_are_numbers_go_by_position(tmp_path, capsys):
    names = catalog.task("toy:moment").make(1, 1).column_names()
    rng = np.random.default_rng(0)

    def trained(observed, acted):
        held = Trajectories(
            rng.normal(size=(20, len(observed or names[:4]))),
            rng.uniform(-1, 1, (20, len(acted or names[4:]))),
            [20],
            observation_names=observed,
            action_names=acted,
        )
        return safemil.train("bc", unlabeled=held, updates=2, hidden_policy=[4])

    fewer = trained(names[1:3], names[4:])  # further columns of the task are left out
    assert policy(fewer, task="toy:moment")(rng.normal(size=(5, 4)), 0).shape == (5, 2)
    with pytest.raises(InputError, match=f"has no speed among its observation columns.*{names[0]}"):
        policy(trained(["speed", names[0]], names[4:]), task="toy:moment")
    with pytest.raises(InputError, match=f"needs the action {names[5]}, which the run does not choose"):
        policy(trained(names[:4], names[4:5]), task="toy:moment")
    numbered = trained([f"obs_{i}" for i in range(4)], None)
    assert by_position(numbered, "toy:moment")
    assert not by_position(fewer, "toy:moment")
    numbered.save(tmp_path / "run")
    assert main(["evaluate", str(tmp_path / "run"), "--task", "toy:moment", "--episodes", "2"]) == 0
    assert "columns are matched by position" in capsys.readouterr().out
