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
def speed_run(speed, optimised):
    return safemil.train("safemil", nonpreferred=speed.nonpreferred, unlabeled=speed.unlabeled, updates=1800)


@pytest.mark.parametrize("problem", toy.RULES)
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


@pytest.mark.parametrize("problem", toy.RULES)
def test_careful_episodes_carry_no_risk_and_marks_are_where_the_risk_is(problem):
    reckless = np.arange(400) % 2 == 0
    episodes, truth = toy.make_episodes(problem, reckless, np.random.default_rng(1))
    _, costs = truth.episode_sums(episodes.lengths)
    assert costs[~reckless].max() == 0
    piles = toy.make_piles(problem, nonpreferred=20, unlabeled=10, heldout=2)
    speeds = np.linalg.norm(piles.nonpreferred.actions, axis=1)
    after = np.concatenate(
        [piles.nonpreferred.observations[1:], np.zeros((1, piles.unlabeled.observation_size))]
    )
    after[np.cumsum(piles.nonpreferred.lengths) - 1] = piles.nonpreferred.final_observations
    radius = np.linalg.norm(after[:, :2], axis=1)
    risky = {
        "speed": speeds > toy.SPEED_LIMIT,
        "disc": radius < toy.DISC_RADIUS,
        "style": np.linalg.norm(after[:, 4:], axis=1) < toy.TOUCH,
        "moment": np.abs(radius - toy.RING) > toy.HALF_WIDTH,
    }[problem]
    np.testing.assert_array_equal(piles.nonpreferred_marks, risky)


@pytest.mark.parametrize("problem", ["speed", "disc"])
def test_where_incidents_are_common_reckless_episodes_are_the_bad_ones(problem):
    piles = toy.make_piles(problem, nonpreferred=1, unlabeled=20, heldout=10)
    np.testing.assert_array_equal(piles.heldout_bad, piles.heldout_reckless)
    assert piles.unlabeled_bad.sum() == 10 == len(piles.unlabeled) - len(piles.careful)


def test_three_of_five_reckless_drivers_of_the_style_problem_touch_the_cart():
    piles = toy.make_piles("style", nonpreferred=50, unlabeled=1000, heldout=200)
    assert len(piles.careful) == 600
    assert 0.55 < piles.unlabeled_bad.sum() / 400 < 0.68
    assert (piles.heldout_bad <= piles.heldout_reckless).all()
    assert (per_episode(piles.nonpreferred, piles.nonpreferred_marks) > 0).all()
    touched = per_episode(piles.unlabeled, piles.unlabeled_truth.costs)
    np.testing.assert_array_equal(piles.unlabeled_bad, touched > 0)
    assert 3 < touched[piles.unlabeled_bad].mean() < 8


def test_three_of_five_walkers_of_the_moment_problem_lapse_once_for_about_ten_steps():
    piles = toy.make_piles("moment")
    assert piles.unlabeled_bad.mean() == 0.6
    steps_off = per_episode(piles.nonpreferred, piles.nonpreferred_marks)
    assert 8 < steps_off.mean() < 12
    off = [np.flatnonzero(marks) for marks in piles.nonpreferred.by_episode(piles.nonpreferred_marks)]
    np.testing.assert_array_equal([rows[-1] - rows[0] + 1 for rows in off], steps_off)  # without a break


def test_a_lap_of_the_moment_problem_pays_six_and_a_lap_back_costs_as_much():
    worlds = toy.MomentWorlds(2)
    worlds.xy[:] = toy.RING, 0
    total = np.zeros(2)
    for turn in np.arange(1, 61) * np.pi / 30:
        target = toy.RING * np.array([[np.cos(turn), np.sin(turn)], [np.cos(turn), -np.sin(turn)]])
        total += worlds.step((target - worlds.xy) / toy.STRIDE, np.arange(2)).reward
    np.testing.assert_allclose(total, [6, -6])


def test_the_cart_of_the_style_problem_moves_with_the_steps_of_its_own_walker():
    worlds = toy.StyleWorlds(2)
    for row in range(2):
        worlds.reset(row)
    before, angles = worlds.observe(), worlds.angles.copy()
    worlds.step(np.zeros((2, 2)), np.array([0]))
    np.testing.assert_allclose(worlds.angles - angles, [worlds.turns[0], 0])
    np.testing.assert_array_equal(worlds.observe()[1], before[1])
    assert (worlds.observe()[0, 4:] != before[0, 4:]).all()
    np.testing.assert_allclose(np.linalg.norm(worlds.xy + worlds.observe()[:, 4:], axis=1), toy.PATROL)


def per_episode(pile, values):
    return np.add.reduceat(values, pile.starts, dtype=int)


def test_walkers_have_streams_of_their_own():
    alone, together = (toy.DiscWorlds(n) for n in (1, 3))
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
    worlds = toy.DiscWorlds(2)
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
        "from safemil import evaluation, toy\n"
        "toy.make_piles('disc', nonpreferred=1, unlabeled=2, heldout=2)\n"
        "evaluation.roll_out('toy:disc', evaluation.random_policy(2), episodes=1)\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_the_piles_have_the_sizes_of_the_paper(speed):
    assert (len(speed.nonpreferred), len(speed.unlabeled), len(speed.careful)) == (50, 200, 100)
    assert len(set(speed.unlabeled.lengths)) > 10  # ragged


def test_the_cost_finds_risky_steps_of_episodes_it_never_saw(speed, speed_run):
    assert auc(np.concatenate(speed_run.cost(speed.heldout)), speed.heldout_truth.costs > 0) >= 0.95


def test_the_policy_is_risky_at_most_a_fifth_as_often_as_bc(speed, speed_run):
    bc = safemil.train("bc", unlabeled=speed.unlabeled, updates=800)
    ours, theirs = (toy.evaluate("speed", run.act, episodes=50)[0] for run in (speed_run, bc))
    assert theirs > 0.02
    assert ours <= theirs / 5


def test_the_cost_finds_the_disc_that_no_column_names(disc, optimised):
    run = safemil.train("safemil", nonpreferred=disc.nonpreferred, unlabeled=disc.unlabeled, updates=1601)
    costs, risky = run.cost(disc.heldout), disc.heldout_truth.costs > 0
    steps, bad = np.concatenate(costs), np.repeat(disc.heldout_reckless, disc.heldout.lengths)
    assert auc([episode.mean() for episode in costs], disc.heldout_reckless) >= 0.99
    assert auc(steps, risky) >= 0.97
    assert auc(steps[bad], risky[bad]) >= 0.93
    assert steps[risky].mean() > 0.85  # near 1 only where good episodes never go
    assert 0.3 < steps[~risky].mean() < 0.6  # about ½ where both do it
