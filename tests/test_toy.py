"""Problems whose true risk is known: does the cost find it, and does the policy avoid it?"""

import subprocess
import sys

import numpy as np
import pytest

import safemil
from safemil import toy
from safemil.stats import auc


@pytest.fixture(scope="module")
def speed():
    return toy.make_piles("speed")


@pytest.fixture(scope="module")
def disc():
    return toy.make_piles("disc")


@pytest.fixture(scope="module")
def speed_run(speed):
    return safemil.train(
        "safemil", nonpreferred=speed.nonpreferred, unlabeled=speed.unlabeled, seeds=5, updates=4000
    )


@pytest.mark.parametrize("problem", ["speed", "disc"])
def test_the_same_seed_makes_the_same_piles(problem):
    ours, theirs = (toy.make_piles(problem, nonpreferred=3, unlabeled=4, heldout=2, seed=5) for _ in range(2))
    assert ours.unlabeled.content_hash() == theirs.unlabeled.content_hash()
    assert (
        ours.unlabeled.content_hash() != toy.make_piles(problem, unlabeled=4, seed=6).unlabeled.content_hash()
    )


@pytest.mark.parametrize(("problem", "low", "high"), [("speed", 0.7, 0.9), ("disc", 0.08, 0.12)])
def test_careful_walkers_take_no_risk_and_reckless_ones_do(problem, low, high):
    piles = toy.make_piles(problem)
    _, risky = piles.heldout_truth.episode_sums(piles.heldout.lengths)
    share = risky / piles.heldout.lengths
    assert share[~piles.heldout_reckless].max() == 0
    assert low < share[piles.heldout_reckless].mean() < high


def test_walkers_have_streams_of_their_own():
    alone, together = (toy.ToyWorlds("disc", n) for n in (1, 3))
    for worlds, row in ((together, 2), (together, 1), (together, 0), (alone, 0)):
        worlds.seed(row, row)
        worlds.reset(row)
    rng = np.random.default_rng(0)
    for _ in range(50):
        actions = rng.uniform(-1, 1, (3, 2))
        alone.step(actions[:1], np.arange(1))
        together.step(actions, np.arange(3))
    np.testing.assert_array_equal(alone.observe()[0], together.observe()[0])
    before = together.observe()
    together.step(np.ones((3, 2)), np.array([1]))
    np.testing.assert_array_equal(together.observe()[[0, 2]], before[[0, 2]])


def test_a_goal_pays_and_the_disc_costs():
    worlds = toy.ToyWorlds("disc", 2)
    for row in range(2):
        worlds.reset(row)
    worlds.xy[:] = toy.STATIONS[worlds.stations[0]], (0.0, toy.DISC_RADIUS - 0.01)
    station = worlds.stations[0]
    outcome = worlds.step(np.zeros((2, 2)), np.arange(2))
    assert outcome.reward.tolist() == [1, 0]
    assert outcome.cost.tolist() == [0, 1]
    assert worlds.stations[0] != station


def test_the_generated_problems_need_neither_mujoco_nor_gymnasium():
    code = (
        "import sys; sys.modules.update(mujoco=None, gymnasium=None)\n"
        "from safemil import evaluate, toy\n"
        "toy.make_piles('disc', nonpreferred=1, unlabeled=2, heldout=2)\n"
        "evaluate.roll_out('toy:disc', evaluate.random_policy(2), episodes=1)\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_the_piles_have_the_sizes_of_the_paper(speed):
    assert (len(speed.nonpreferred), len(speed.unlabeled), len(speed.careful)) == (50, 200, 100)
    assert len(set(speed.unlabeled.lengths)) > 10  # ragged


def test_the_cost_finds_risky_steps_of_episodes_it_never_saw(speed, speed_run):
    risky = speed.heldout_truth.costs > 0
    for member in range(5):
        costs = np.concatenate(speed_run[member].cost(speed.heldout))
        assert auc(costs, risky) >= 0.95


def test_the_policy_is_risky_at_most_a_fifth_as_often_as_bc(speed, speed_run):
    bc = safemil.train("bc", unlabeled=speed.unlabeled, seeds=5, updates=2000)
    ours, theirs = (
        [toy.evaluate("speed", run[member].act, episodes=50)[0] for member in range(5)]
        for run in (speed_run, bc)
    )
    assert np.mean(theirs) > 0.02
    assert np.mean(ours) <= np.mean(theirs) / 5


def test_the_cost_finds_the_disc_that_no_column_names(disc):
    run = safemil.train("safemil", nonpreferred=disc.nonpreferred, unlabeled=disc.unlabeled, updates=1601)
    costs, risky = run.cost(disc.heldout), disc.heldout_truth.costs > 0
    steps, bad = np.concatenate(costs), np.repeat(disc.heldout_reckless, disc.heldout.lengths)
    assert auc([episode.mean() for episode in costs], disc.heldout_reckless) >= 0.99
    assert auc(steps, risky) >= 0.97
    assert auc(steps[bad], risky[bad]) >= 0.93
    assert steps[risky].mean() > 0.85  # near 1 only where good episodes never go
    assert 0.3 < steps[~risky].mean() < 0.6  # about ½ where both do it
