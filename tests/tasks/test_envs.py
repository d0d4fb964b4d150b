import warnings

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env
from gymnasium.vector import AutoresetMode

import safemil.tasks
from safemil.errors import InputError
from safemil.tasks import TASKS, TaskEnv, make_vec

SIZES = {
    "SafetyWalker2dVelocity-v1": (17, 6, 1000),
    "SafetySwimmerVelocity-v1": (8, 2, 1000),
    "SafetyAntVelocity-v1": (27, 8, 1000),
    "SafetyPointCircle2-v0": (28, 2, 500),
    "SafetyPointGoal1-v0": (60, 2, 1000),
    "SafetyPointButton1-v0": (76, 2, 1000),
}
POINT = [name for name in TASKS if "Point" in name]


def make(name, **options):
    return gymnasium.make(f"safemil/{name}", **options)


def lively(rng, envs):
    """Actions that make robots run, fall, reach goals and bump into things."""
    actions = rng.uniform(-1, 1, envs.action_space.shape)
    if envs.single_action_space.shape == (2,):
        actions = actions * (0.2, 0.5) + (0.9, 0.0)
    return np.clip(actions, -1, 1).astype(envs.single_action_space.dtype)


@pytest.mark.parametrize("name", TASKS)
def test_gymnasium_finds_nothing_wrong(name):
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*(infinity|The environment is being initialised).*")
        warnings.filterwarnings("ignore", message=".*render.*")
        check_env(make(name).unwrapped, skip_render_check=True)


@pytest.mark.parametrize("name", SIZES)
def test_spaces_and_limits_are_those_of_the_original(name):
    env = make(name)
    observations, actions, limit = SIZES[name]
    assert env.observation_space.shape == (observations,)
    assert env.observation_space.dtype == np.float64
    assert env.action_space.shape == (actions,)
    assert env.action_space.dtype == (np.float64 if name in POINT else np.float32)
    assert env.spec.max_episode_steps == limit


@pytest.mark.parametrize("limit", [3, 600])
def test_gymnasium_may_set_another_limit(limit):
    env = make("SafetyPointCircle2-v0", max_episode_steps=limit)
    env.reset(seed=0)
    assert [env.step(np.zeros(2))[3] for _ in range(limit)] == [False] * (limit - 1) + [True]


@pytest.mark.parametrize("name", TASKS)
def test_seeds_repeat_and_resets_without_seed_go_on(name):
    env, twin = make(name), make(name)
    first, info = env.reset(seed=11)
    assert info == {}
    second, _ = env.reset()
    assert not np.array_equal(first, second)
    np.testing.assert_array_equal(twin.reset(seed=11)[0], first)
    np.testing.assert_array_equal(twin.reset()[0], second)


def test_unseeded_environments_differ():
    assert not np.array_equal(make("SafetyPointGoal1-v0").reset()[0], make("SafetyPointGoal1-v0").reset()[0])


@pytest.mark.parametrize("name", TASKS)
def test_a_batch_gives_what_single_environments_give(name):
    n, limit = 5, 40
    envs = make_vec(name, n, max_episode_steps=limit, threads=2)
    singles = [make(name, max_episode_steps=limit) for _ in range(n)]
    observations, _ = envs.reset(seed=5)
    for row, env in enumerate(singles):
        np.testing.assert_array_equal(env.reset(seed=5 + row)[0], observations[row])
    rng, ended = np.random.default_rng(0), np.zeros(n, bool)
    for _ in range(2 * limit + 10):
        actions = lively(rng, envs)
        observations, rewards, terminated, truncated, info = envs.step(actions)
        for row, env in enumerate(singles):
            if ended[row]:
                np.testing.assert_array_equal(env.reset()[0], observations[row])
                assert rewards[row] == info["cost"][row] == 0
                ended[row] = False
                continue
            observation, reward, *ends, single_info = env.step(actions[row])
            np.testing.assert_array_equal(observation, observations[row])
            assert (reward, ends) == (rewards[row], [terminated[row], truncated[row]])
            present = {key for key in info if not key.startswith("_") and info[f"_{key}"][row]}
            assert {key: info[key][row] for key in present} == single_info
            ended[row] = any(ends)
    envs.close()


@pytest.mark.parametrize("name", TASKS)
def test_threads_change_nothing(name):
    results = []
    for threads in (1, 2):
        envs = make_vec(name, 4, threads=threads)
        envs.reset(seed=1)
        rng = np.random.default_rng(3)
        results.append(np.stack([envs.step(lively(rng, envs))[0] for _ in range(15)]))
        envs.close()
    np.testing.assert_array_equal(*results)


def test_same_step_autoreset_keeps_the_last_observation():
    envs = make_vec("SafetyPointCircle2-v0", 2, max_episode_steps=3, autoreset_mode=AutoresetMode.SAME_STEP)
    twins = make_vec("SafetyPointCircle2-v0", 2, max_episode_steps=3)
    envs.reset(seed=0), twins.reset(seed=0)
    for _ in range(3):
        observation, _, _, truncated, info = envs.step(np.ones((2, 2)))
        last, *_ = twins.step(np.ones((2, 2)))
    assert truncated.all()
    np.testing.assert_array_equal(info["final_obs"], last)
    assert set(info["final_info"]) >= {"cost", "cost_sum"}
    assert not np.array_equal(observation, last)
    fresh, *_ = twins.step(np.ones((2, 2)))
    np.testing.assert_array_equal(observation, fresh)


def test_without_autoreset_ended_worlds_wait_for_their_mask():
    envs = make_vec("SafetySwimmerVelocity-v1", 2, max_episode_steps=1, autoreset_mode=AutoresetMode.DISABLED)
    envs.reset(seed=0)
    *_, truncated, _ = envs.step(np.zeros((2, 2)))
    with pytest.raises(InputError, match="reset_mask"):
        envs.step(np.zeros((2, 2)))
    envs.reset(options={"reset_mask": truncated})
    envs.step(np.zeros((2, 2)))
    with pytest.raises(InputError, match="2 booleans"):
        envs.reset(options={"reset_mask": np.array([True])})


def test_gymnasium_makes_the_batch_by_name():
    envs = gymnasium.make_vec(
        "safemil/SafetyPointCircle2-v0", num_envs=3, vectorization_mode="vector_entry_point"
    )
    assert envs.reset(seed=0)[0].shape == (3, 28)
    assert isinstance(envs.unwrapped, safemil.tasks.TaskVectorEnv)


def test_each_world_may_have_its_own_seed():
    envs = make_vec("SafetyPointCircle2-v0", 2)
    observations, _ = envs.reset(seed=[7, 7])
    np.testing.assert_array_equal(observations[0], observations[1])
    with pytest.raises(InputError, match="one seed for each of 2"):
        envs.reset(seed=[1, 2, 3])


@pytest.mark.parametrize("name", TASKS)
def test_actions_of_a_wrong_shape_or_not_finite_are_refused(name):
    env = make(name).unwrapped
    env.reset(seed=0)
    size = env.action_space.shape[0]
    with pytest.raises(ValueError, match=rf"shape \({size},\), got \({size + 1},\)"):
        env.step(np.zeros(size + 1))
    with pytest.raises(InputError, match="finite"):
        env.step(np.full(size, np.nan))
    with pytest.raises(InputError, match="shape"):
        make_vec(name, 2).step(np.zeros(size))


@pytest.mark.parametrize("name", TASKS)
def test_actions_out_of_range_act_as_the_nearest_in_range(name):
    wild, tame = make(name).unwrapped, make(name).unwrapped
    for env, size in ((wild, 2.5), (tame, 1.0)):
        env.reset(seed=4)
        env.last, *_ = env.step(np.full(env.action_space.shape, size))
    np.testing.assert_array_equal(wild.last, tame.last)


@pytest.mark.parametrize("name", POINT)
def test_point_tasks_refuse_to_go_on_after_the_end(name):
    env = TaskEnv(name)
    env.reset(seed=0)
    env.steps = env.task.limit - 2
    assert [env.step(np.zeros(2))[3] for _ in range(2)] == [False, True]
    with pytest.raises(InputError, match="call reset"):
        env.step(np.zeros(2))


def test_wrong_names_are_answered_with_near_ones():
    with pytest.raises(InputError, match='did you mean "SafetyPointGoal1-v0"'):
        make_vec("SafetyPointGoal-v0", 2)
    with pytest.raises(InputError, match="rgb_array"):
        TaskEnv("SafetyPointGoal1-v0", render_mode="human")
    with pytest.raises(InputError, match="at least one environment"):
        make_vec("SafetyPointGoal1-v0", 0)


def test_point_seeds_beyond_the_legacy_generator_are_refused():
    with pytest.raises(InputError, match="2\\^32"):
        TaskEnv("SafetyPointGoal1-v0").reset(seed=2**32)
