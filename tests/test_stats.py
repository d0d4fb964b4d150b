"""Statistics on numbers a reader can check, and against scipy."""

import doctest

import numpy as np
import pytest
import scipy.stats

from safemil import ranks, stats
from safemil.errors import InputError


@pytest.fixture(scope="module")
def costs():
    rng = np.random.default_rng(0)
    return rng.gamma(2.0, 10.0, (5, 50)) + rng.normal(0, 5, (5, 1))


@pytest.mark.parametrize(("module", "least"), [(stats, 8), (ranks, 2)])
def test_the_examples_hold(module, least):
    failed, tried = doctest.testmod(module)
    assert tried >= least
    assert failed == 0


def test_the_random_policy_returns_zero_and_the_reference_one():
    random, reference = np.array([[0.0, 4.0]]), np.array([[10.0], [14.0]])
    assert stats.normalised_return(random, random, reference).mean() == 0
    assert stats.normalised_return(reference, random, reference).mean() == 1
    np.testing.assert_allclose(stats.normalised_return([[7.0]], random, reference), [[0.5]])


def test_a_scale_without_extent_is_refused():
    with pytest.raises(InputError, match="both return 3"):
        stats.normalised_return([[1.0]], [[3.0]], [[3.0]])


def test_the_worst_of_all_is_the_mean_and_of_one_episode_the_maximum(costs):
    np.testing.assert_allclose(stats.cvar(costs, 1.0), costs.mean(axis=1))
    np.testing.assert_allclose(stats.cvar(costs, 1 / 50), costs.max(axis=1))


@pytest.mark.parametrize("share", stats.WORST)
def test_cvar_is_the_mean_of_the_last_of_the_sorted(costs, share):
    count = round(share * 50)
    expected = [np.sort(seed)[-count:].mean() for seed in costs]
    np.testing.assert_allclose(stats.cvar(costs, share), expected)


def test_cvar_falls_as_the_share_grows(costs):
    values = [stats.mean_cvar(costs, share) for share in np.linspace(0.01, 1, 20)]
    assert (np.diff(values) < 0).all()


@pytest.mark.parametrize("share", [0.0, 1.1])
def test_a_share_outside_its_range_is_refused(share):
    with pytest.raises(InputError, match="share"):
        stats.cvar([[1.0]], share)


@pytest.mark.parametrize("size", [1, 2, 3, 4, 7, 10, 250])
def test_the_interquartile_mean_is_scipys_trimmed_mean(size):
    scores = np.random.default_rng(size).normal(size=size)
    np.testing.assert_allclose(stats.iqm(scores), scipy.stats.trim_mean(scores, 0.25))


def test_the_probability_of_improvement_is_scipys_mann_whitney():
    rng = np.random.default_rng(1)
    ours, theirs = rng.integers(0, 5, 20).astype(float), rng.integers(0, 6, 30).astype(float)
    statistic = scipy.stats.mannwhitneyu(ours, theirs).statistic
    np.testing.assert_allclose(stats.probability_of_improvement(ours, theirs), statistic / 600)
    assert stats.probability_of_improvement(ours, ours) == 0.5


def test_of_one_seed_the_interval_is_scipys_bootstrap():
    scores = np.random.default_rng(2).normal(3.0, 2.0, (1, 50))
    ours = stats.interval(scores, samples=4000)
    theirs = scipy.stats.bootstrap(
        (scores[0],), np.mean, n_resamples=4000, method="percentile", rng=np.random.default_rng(3)
    ).confidence_interval
    np.testing.assert_allclose([ours.low, ours.high], theirs, atol=0.05)
    assert ours.value == scores.mean()


def test_an_interval_knows_of_seeds_that_differ():
    same = np.tile(np.arange(50.0), (5, 1))
    apart = same + 100 * np.arange(5)[:, None]
    assert stats.interval(apart).half > 10 * stats.interval(same).half


def test_an_interval_covers_the_truth_about_as_often_as_it_says():
    rng = np.random.default_rng(4)
    data = rng.normal(0, 1, (200, 20, 1)) + rng.normal(0, 1, (200, 20, 5))  # 20 seeds of 5 episodes
    covers = [low <= 0 <= high for _, low, high in (stats.interval(each, samples=300) for each in data)]
    assert 0.88 <= np.mean(covers) <= 1.0


def test_the_same_seed_draws_the_same_samples(costs):
    assert stats.cvar_interval(costs) == stats.cvar_interval(costs)
    assert stats.interval(costs, seed=1) != stats.interval(costs, seed=2)


def test_scores_need_two_axes():
    with pytest.raises(InputError, match=r"\(seeds, episodes\)"):
        stats.interval(np.arange(3.0))


def test_the_papers_headline_follows_from_its_factors():
    """Appendix F: Walker2d, Swimmer, Ant and Goal1, from the costs in its tables."""
    pairs = [(1.19, 6.91), (10.16, 60.43), (0.86, 25.68), (5.61, 10.33), (39.18, 4.83)]
    factors = [stats.times_safer(ours, than=best) for ours, best in pairs]
    np.testing.assert_allclose(factors, [5.54, 5.97, 29.88, 1.86, 0.12], rtol=0.06)


def test_auc_is_the_share_of_pairs_ranked_rightly():
    rng = np.random.default_rng(0)
    risk, costly = rng.integers(0, 6, 60) / 6, rng.random(60) < 0.3
    pairs = [(a > b) + 0.5 * (a == b) for a in risk[costly] for b in risk[~costly]]
    np.testing.assert_allclose(stats.auc(risk, costly), np.mean(pairs))


def test_there_is_no_auc_if_nothing_costs():
    assert stats.auc([0.1, 0.2], [False, False]) is None
