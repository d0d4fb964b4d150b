"""Policies in Gymnasium environments of any kind, and logs of them."""

from pathlib import Path

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

import safemil
from safemil import environments, evaluation
from safemil.cli import main
from safemil.errors import InputError
from safemil.rollouts import environment_seeds

STEPS = 8


class Road(gymnasium.Env):
    """Hold a speed on a road: the action changes it, and each step above 1 costs."""

    def __init__(self, kind="box", *, low=-2.0, bad=None):
        numbers = spaces.Box(-np.inf, np.inf, (1,), np.float64)
        plain = spaces.Box(-np.inf, np.inf, (2,), np.float64)
        named = spaces.Dict({"speed": numbers, "gap": numbers})
        self.observation_space = named if kind == "named" else plain
        self.action_space = spaces.Discrete(3, start=-1) if kind == "discrete" else spaces.Box(low, 2.0, (1,))
        self.kind, self.bad = kind, bad
        self.closed = False

    def seen(self):
        gap = np.nan if self.bad == "observation" and self.time == 2 else self.gap
        if self.kind == "named":
            return {"speed": np.array([self.speed]), "gap": np.array([gap])}
        return np.array([self.speed, gap])

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.time, self.speed, self.gap = 0, float(self.np_random.uniform(-1, 1)), 5.0
        return self.seen(), {}

    def step(self, action):
        assert self.action_space.contains(action)
        self.speed += float(np.asarray(action).item()) / 2
        self.gap -= self.speed
        self.time += 1
        reward = np.nan if self.bad == "reward" else self.speed
        info = {} if self.bad == "cost" else {"cost": float(self.speed > 1), "gap": self.gap}
        return self.seen(), reward, self.gap < 0, self.time == STEPS, info

    def close(self):
        self.closed = True


def make():
    return Road()


def make_named():
    return Road("named")


def make_discrete():
    return Road("discrete")


def push(observation):
    return [0.5] if observation[0] < 1.5 else [-0.5]


def above(transition):
    return transition.next_observation[0] > 0.5


def train(env, **options):
    logs, _ = evaluation.record(env, episodes=12, **options)
    return safemil.train("bc", unlabeled=logs, updates=30, hidden_policy=[8], progress=False)


@pytest.fixture(scope="module")
def run():
    return train(make)


def by_hand(run, env, episodes, seed=0):
    """Return, cost and length of each episode of a run of one seed, one observation at a time."""
    found = []
    for start in environment_seeds(seed, episodes):
        observation, _ = env.reset(seed=start)
        totals, ended = np.zeros(3), False
        while not ended:
            action = run.act(np.float32(observation))
            observation, reward, terminated, truncated, info = env.step(np.float32(action))
            totals += reward, info["cost"], 1
            ended = terminated or truncated
        found.append(totals)
    return np.transpose(found)


@pytest.mark.filterwarnings("ignore:the observation is unlike")
@pytest.mark.parametrize("copies", [1, 4])
def test_copies_side_by_side_give_what_one_episode_after_another_gives(run, copies):
    found = safemil.evaluate(run, make, episodes=6, copies=copies)
    returns, costs, lengths = by_hand(run, make(), 6)
    np.testing.assert_allclose(found.returns, [returns], rtol=1e-5)
    np.testing.assert_array_equal(found.costs, [costs])
    np.testing.assert_array_equal(found.lengths, [lengths])
    assert (found.task, found.algorithm, found.seeds) == ("make", "bc", (0,))


def test_an_environment_itself_is_used_and_left_open_and_copies_are_closed(run, monkeypatch):
    env, made = Road(), []
    one = safemil.evaluate(run, env, episodes=3)

    def factory():
        made.append(Road())
        return made[-1]

    two = safemil.evaluate(run, factory, episodes=3)
    np.testing.assert_allclose(one.returns, two.returns, rtol=1e-6)
    assert not env.closed
    assert [each.closed for each in made] == [True] * 3


def test_every_seed_of_a_run_is_evaluated_in_the_same_episodes():
    logs, _ = evaluation.record(make, episodes=8)
    pair = safemil.train("bc", unlabeled=logs, seeds=2, updates=10, hidden_policy=[8], progress=False)
    found = safemil.evaluate(pair, make, episodes=4)
    alone = safemil.evaluate(pair[1], make, episodes=4)
    assert found.returns.shape == (2, 4)
    np.testing.assert_allclose(found.returns[1:], alone.returns, rtol=1e-5)


def test_sampled_actions_depend_on_the_seed_alone(run):
    first, again = (safemil.evaluate(run, make, episodes=3, stochastic=True) for _ in range(2))
    np.testing.assert_array_equal(first.returns, again.returns)
    assert (first.returns != safemil.evaluate(run, make, episodes=3).returns).any()


def test_a_cost_is_an_entry_of_info_or_a_function_of_the_step(run):
    gaps = safemil.evaluate(run, make, episodes=2, cost="gap").costs
    speeds = safemil.evaluate(run, make, episodes=2, cost=lambda step: step.reward)
    assert (gaps > 1).all()
    np.testing.assert_allclose(speeds.costs, speeds.returns)


def test_long_episodes_can_be_ended(run):
    assert safemil.evaluate(run, make, episodes=3, max_steps=3).lengths.max() == 3


def test_observations_of_a_dict_are_matched_by_name():
    run = train(make_named)
    assert run.observation_names == ("gap", "speed")  # Gymnasium sorts the entries of a Dict

    class More(Road):
        def __init__(self) -> None:
            super().__init__("named")
            extra = spaces.Box(-1, 1, (2,))
            assert isinstance(self.observation_space, spaces.Dict)
            self.observation_space = spaces.Dict({"camera": extra, **self.observation_space.spaces})

        def seen(self):
            return {"camera": np.zeros(2), **super().seen()}

    plain, more = (safemil.evaluate(run, env, episodes=3) for env in (make_named, More))
    np.testing.assert_array_equal(plain.returns, more.returns)


def test_choices_are_the_numbers_of_a_discrete_space():
    run = train(make_discrete)
    assert run.action_categories == (-1, 0, 1)
    found = safemil.evaluate(run, make_discrete, episodes=3)
    assert found.lengths.max() <= STEPS


@pytest.mark.parametrize(
    ("env", "message"),
    [
        (
            lambda: Road("named", bad="observation"),
            r"finite, got NaN or infinity in gap.* at step 2 of episode 0",
        ),
        (lambda: Road("named", bad="reward"), r"reward and cost must be finite, got nan and .* at step 0"),
        (
            lambda: Road("named", bad="cost"),
            r'its info has no "cost" but nothing; name another entry by `cost=',
        ),
        (make_discrete, r"actions of make_discrete are choices, but the run was trained on numbers"),
        (lambda: Road("named", low=-1.0), r"the run's actions go from -2 to 2, but those of .* from -1 to 2"),
        (lambda: 3, r"the factory must return a Gymnasium environment, got int"),
        ("nonsense:Road-v9", r"Gymnasium can't make \"nonsense:Road-v9\""),
        ("SafetyPointGoal1", r'no task "SafetyPointGoal1"; did you mean "SafetyPointGoal1-v0"'),
    ],
)
def test_what_does_not_fit_is_said(env, message):
    run = train(make_named)
    with pytest.raises(InputError, match=message):
        safemil.evaluate(run, env, episodes=2)


def test_columns_of_another_environment_are_refused(run):
    class Wide(Road):
        def __init__(self):
            super().__init__()
            self.observation_space = spaces.Box(-1, 1, (3,))

    with pytest.raises(InputError, match="Wide has 3 observation columns, but the run was trained on 2"):
        safemil.evaluate(run, Wide)
    lacking = train(make_named)
    with pytest.raises(InputError, match="actions of make_discrete are choices"):
        safemil.evaluate(lacking, make_discrete)


@pytest.mark.parametrize(
    ("space", "message"),
    [
        (spaces.Discrete(4), "the observation space must be a Box, got Discrete"),
        (spaces.Dict({"a": spaces.Discrete(2)}), '"a" of the observations must be a Box'),
    ],
)
def test_other_spaces_are_refused(space, message):
    env = Road()
    env.observation_space = space
    with pytest.raises(InputError, match=message):
        environments.Columns(env)


def test_an_action_space_without_bounds_is_refused():
    env = Road()
    env.action_space = spaces.Box(-np.inf, np.inf, (1,))
    with pytest.raises(InputError, match="has no bounds; wrap it"):
        evaluation.record(env)


def test_logs_hold_what_the_environment_gave():
    logs, truth = evaluation.record(make, push, episodes=3, cost=above, observation_names=["speed", "gap"])
    assert logs.observation_names == ("speed", "gap")
    assert [*logs.action_low, *logs.action_high] == [-2, 2]
    speeds = logs.by_episode(logs.observations[:, 0])
    actions = logs.by_episode(logs.recorded_actions()[:, 0])
    for speed, action, final in zip(speeds, actions, logs.final_observations[:, 0], strict=True):
        np.testing.assert_allclose(action, np.where(speed < 1.5, 0.5, -0.5), atol=1e-6)
        np.testing.assert_allclose(np.append(speed, final)[1:], speed + action / 2, rtol=1e-5)
    after = np.concatenate(
        [np.append(each, last)[1:] for each, last in zip(speeds, logs.final_observations[:, 0], strict=True)]
    )
    np.testing.assert_array_equal(truth.costs, after > 0.5)
    assert logs.terminated.tolist() == [bool(each < STEPS) for each in logs.lengths]


def test_record_and_evaluate_on_the_command_line(tmp_path, capsys, monkeypatch):
    here = "test_environments_module"
    (tmp_path / f"{here}.py").write_text(Path(__file__).read_text())
    monkeypatch.chdir(tmp_path)
    record = ["data", "record", "--env", f"{here}:make_discrete", "--out", "logs.parquet", "--episodes", "6"]
    assert main([*record, "--observation-names", "speed,gap"]) == 0
    assert "6 episodes" in capsys.readouterr().out
    flags = ["--unlabeled", "logs.parquet", "--set", "updates=10", "--set", "hidden_policy=[8]"]
    assert main(["train", "bc", *flags, "--out", "run"]) == 0
    evaluate = ["evaluate", "run", "--env", f"{here}:make_discrete", "--episodes", "3"]
    assert main([*evaluate, "--cost", f"{here}:above"]) == 0
    printed = capsys.readouterr().out
    assert "bc on make_discrete, 3 episodes of each seed" in printed
    assert evaluation.Evaluation.load("run").task == "make_discrete"
    again = ["data", "record", "--env", f"{here}:make_discrete", "--out", "again.csv", "--policy", "run"]
    assert main([*again, "--episodes", "2"]) == 0
    assert main(["evaluate", "run"]) == 2
    assert "give either --task or --env" in capsys.readouterr().err
    assert main(["evaluate", "run", "--env", f"{here}:nothing"]) == 2
    assert "give module:function" in capsys.readouterr().err
