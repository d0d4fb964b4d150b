import numpy as np
import pytest
import tyro

from safemil.behaviour import drivers
from safemil.behaviour.drivers import SHIPPED, Driver, Habits, shipped_drivers
from safemil.behaviour.making import make, recorded_seeds
from safemil.behaviour.policy import Policy
from safemil.cli.data import COMMANDS
from safemil.data.splitting import kinds
from safemil.errors import InputError
from safemil.tasks import TASKS, make_vec

TASK = "SafetyPointCircle2-v0"  # the fastest
HAVE = [task for task in TASKS if any((SHIPPED / task).glob("*.safetensors"))]
SPEED = Habits("target speed, m/s", reckless=3.0, cautious=1.0, wander=0.25, stretch=50, noise=2.0)


def one(habits: Habits) -> Driver:
    """Act as the last input says, and on nothing else."""
    weights = np.zeros((29, 2))
    weights[-1] = 1.0, -1.0
    return Driver(Policy("one", (weights,), (np.zeros(2),), np.full(2, 0.5), {}), habits)


@pytest.fixture(scope="module")
def made():
    return make(TASK, behaviour="continuum", episodes=120, seed=3)


def test_each_episode_has_a_caution_and_an_amount_of_noise_of_its_own():
    manner = one(SPEED).manner(4000, 2, np.random.default_rng(0))
    assert len(set(manner.caution)) == 4000
    counts, _ = np.histogram(manner.caution, bins=4, range=(0, 1))
    assert counts.sum() == 4000
    np.testing.assert_allclose(counts, 1000, atol=120)  # four standard deviations
    np.testing.assert_allclose(manner.noise.mean(), 2.0, atol=0.13)
    assert manner.noise.min() >= 0


def test_the_input_strays_around_the_caution_and_stays_for_a_stretch():
    manner = one(SPEED).manner(200, 1000, np.random.default_rng(0))
    caution = (3.0 - manner.inputs) / 2.0  # from 3 m/s at caution 0 to 1 m/s at caution 1
    strays = caution - manner.caution[:, None]
    assert np.abs(strays).max() <= 0.25 + 1e-9
    assert strays.max() > 0.24
    assert strays.min() < -0.24
    changes = (np.diff(manner.inputs, axis=1) != 0).mean()
    np.testing.assert_allclose(changes, 1 / 50, rtol=0.1)


def test_without_wandering_the_input_is_that_of_the_episode():
    steady = Habits("speed", reckless=3.0, cautious=1.0, wander=0.0, stretch=50, noise=0.0)
    manner = one(steady).manner(3, 10, np.random.default_rng(0))
    np.testing.assert_allclose(manner.inputs, np.repeat(3.0 - 2.0 * manner.caution[:, None], 10, axis=1))


def test_the_network_sees_the_input_and_its_actions_are_recorded():
    habits = Habits("push", reckless=-0.8, cautious=0.8, wander=0.1, stretch=20, noise=0.0)
    driver = one(habits)
    manner = driver.manner(2, 500, np.random.default_rng(0))
    seen = driver.record(TASK, manner, [7, 8], np.random.default_rng(1))
    assert seen.observations.shape[2] == 28  # a clone does not see the caution
    np.testing.assert_allclose(seen.actions[..., 0], manner.inputs, rtol=1e-6)
    noisy = driver.record(TASK, manner._replace(noise=np.array([0.0, 0.2])), [7, 8], np.random.default_rng(1))
    np.testing.assert_array_equal(noisy.actions[0], seen.actions[0])
    deviation = (noisy.actions[1, :, 0] - manner.inputs[1]).std()
    np.testing.assert_allclose(deviation, 0.2 * 0.5, rtol=0.2)


def test_the_same_seed_makes_the_same_episodes_and_another_seed_others():
    first, again, other = (make(TASK, behaviour="continuum", episodes=4, seed=seed) for seed in (3, 3, 4))
    assert first[0].content_hash() == again[0].content_hash() == first[2]["content_hash"]
    assert first[2] == again[2]
    assert other[0].content_hash() != first[0].content_hash()


def test_the_manifest_says_how_each_episode_was_driven_and_where_it_began(made):
    trajectories, annotations, manifest = made
    assert len(set(manifest["caution"])) > 100
    assert len(manifest["caution"]) == len(manifest["noise"]) == trajectories.episodes == 120
    returns, _ = annotations.episode_sums(trajectories.lengths)
    for driver in manifest["policies"]:
        first, end = driver["episodes"]
        np.testing.assert_allclose(returns[first:end].mean(), driver["return"], atol=2e-3)
    seeds = recorded_seeds(manifest)
    envs = make_vec(TASK, len(seeds))
    began, _ = envs.reset(seed=seeds)
    envs.close()
    np.testing.assert_array_equal(began.astype(np.float32), trajectories.observations[trajectories.starts])


def test_good_and_bad_episodes_come_from_the_same_drivers_and_the_same_cautions(made):
    trajectories, annotations, manifest = made
    found, caution = kinds(trajectories, annotations), np.array(manifest["caution"])
    for driver in manifest["policies"]:
        own = slice(*driver["episodes"])
        preferred, nonpreferred = found.preferred[own].sum(), found.nonpreferred[own].sum()
        assert 0.1 <= preferred / (preferred + nonpreferred) <= 0.9
    assert np.corrcoef(caution, annotations.episode_sums(trajectories.lengths)[1])[0, 1] < -0.3
    # Most of the range is in both piles: the ranges of caution of the two overlap by more than half.
    low = max(caution[found.preferred].min(), caution[found.nonpreferred].min())
    high = min(caution[found.preferred].max(), caution[found.nonpreferred].max())
    assert high - low > 0.5


@pytest.mark.parametrize("task", HAVE)
def test_every_task_has_two_drivers_that_act_on_what_it_shows_and_on_their_input(task):
    envs = make_vec(task, 3)
    observations, _ = envs.reset(seed=0)
    found = shipped_drivers(task)
    assert len(found) >= 2
    for driver in found:
        habits, card = driver.habits, driver.network.card
        assert {"task", "signal", "method", "steps", "seed", "return", "cost", "length"} <= set(card)
        actions = [
            driver.network.mean(np.concatenate([observations, np.full((3, 1), setting)], axis=1))
            for setting in (habits.reckless, habits.cautious)
        ]
        assert actions[0].shape == (3, envs.worlds.action_size)
        assert np.abs(actions[0] - actions[1]).max() > 1e-3
    envs.close()


def test_networks_are_small():
    assert sum(each.stat().st_size for each in SHIPPED.rglob("*.*")) < 3e6


def test_a_task_without_drivers_says_which_have_some(tmp_path, monkeypatch):
    monkeypatch.setattr(drivers, "SHIPPED", tmp_path)
    (tmp_path / "SafetyPointGoal1-v0").mkdir()
    (tmp_path / "SafetyPointGoal1-v0" / "a.safetensors").touch()
    with pytest.raises(InputError, match=r"no drivers .* SafetyAnt.*: SafetyPointGoal1-v0"):
        shipped_drivers.__wrapped__("SafetyAntVelocity-v1")


def test_the_command_makes_them_and_generated_problems_refuse(tmp_path):
    def run(*arguments):
        config = (tyro.conf.OmitArgPrefixes,)
        tyro.cli(COMMANDS["make"], args=[str(each) for each in arguments], config=config)

    run(TASK, "--behaviour", "continuum", "--episodes", 4, "--out", tmp_path / "circle")
    assert (tmp_path / "circle" / "scatter.png").exists()
    with pytest.raises(InputError, match="leave --behaviour out"):
        run("toy:speed", "--behaviour", "continuum", "--out", tmp_path / "toy")
