"""Problems whose true risk is known: does the cost find it, and does the policy avoid it?"""

import numpy as np
import pytest
from scipy.stats import mannwhitneyu

import safemil
from safemil import toy


def auc(positive, negative):
    """The probability that a positive ranks above a negative."""
    return mannwhitneyu(positive, negative).statistic / (len(positive) * len(negative))


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


def test_the_piles_have_the_sizes_of_the_paper(speed):
    assert (len(speed.nonpreferred), len(speed.unlabeled), len(speed.careful)) == (50, 200, 100)
    assert len(set(speed.unlabeled.lengths)) > 10  # ragged


def test_the_cost_finds_risky_steps_of_episodes_it_never_saw(speed, speed_run):
    risky = speed.heldout_truth.costs > 0
    for member in range(5):
        costs = np.concatenate(speed_run[member].cost(speed.heldout))
        assert auc(costs[risky], costs[~risky]) >= 0.95


def test_the_policy_is_risky_at_most_a_fifth_as_often_as_bc(speed, speed_run):
    bc = safemil.train("bc", unlabeled=speed.unlabeled, seeds=5, updates=2000)
    ours, theirs = (
        [toy.evaluate("speed", run[member].act, episodes=50)[0] for member in range(5)]
        for run in (speed_run, bc)
    )
    assert np.mean(theirs) > 0.02
    assert np.mean(ours) <= np.mean(theirs) / 5


def test_reckless_episodes_rank_above_careful_ones_though_no_column_names_the_disc(disc):
    # As many updates as the cost has by default, so that the policy has none. Of three seeds, the mean.
    run = safemil.train(
        "safemil", nonpreferred=disc.nonpreferred, unlabeled=disc.unlabeled, updates=2000, seeds=3
    )
    means = np.array([episode.mean() for episode in run.cost(disc.heldout)])
    assert auc(means[disc.heldout_reckless], means[~disc.heldout_reckless]) >= 0.9
