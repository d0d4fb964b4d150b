"""The calibrated cost, on numbers a reader can check."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.stats import norm

from safemil.algorithms import calibrated
from safemil.algorithms.calibrated import Kinds, Ranking, draw_steps, kept
from safemil.algorithms.cloning import Optimiser
from safemil.data import Trajectories
from safemil.data.sampling import Dataset, Pile, Scaler, moments
from safemil.networks import ScalarNet

OPTIMISER = Optimiser(1e-3, 0.0, 10.0)


def shifted(incidents: int = 6, logs: int = 8) -> Dataset:
    """One column: incidents lie at 1, the first half of the unlabeled episodes too, the others at -1."""
    rng = np.random.default_rng(0)

    def pile(centres: list[float], lengths: list[int]) -> Trajectories:
        steps = np.repeat(centres, lengths)[:, None] + 0.3 * rng.standard_normal((sum(lengths), 1))
        return Trajectories(steps, np.zeros((sum(lengths), 1)), lengths)

    bad = pile([1.0] * incidents, [5] * incidents)
    mixed = pile([1.0] * (logs // 2) + [-1.0] * (logs - logs // 2), [4 + i for i in range(logs)])
    return Dataset.of(Scaler(jnp.zeros(1), jnp.ones(1)), mixed, bad)


@pytest.fixture(scope="module")
def data():
    return shifted()


@pytest.fixture(scope="module")
def learner(data):
    return jax.jit(lambda data: calibrated.init(4, (8,), 5, OPTIMISER, data, jax.random.key(0)))(data)


def test_every_episode_is_left_out_by_half_of_the_networks(learner):
    np.testing.assert_array_equal(learner.heldout.sum(axis=0), np.full(14, 2))
    np.testing.assert_array_equal(learner.heldout.sum(axis=1), np.full(4, 7))


def test_steps_are_drawn_by_the_weight_of_their_episode_and_found_in_its_pile(data, learner):
    """Episodes 0 (an incident of 5 steps) and 7 (an unlabeled one of 5 steps) with weights 1 and 3."""
    weights = jnp.zeros(14).at[0].set(1.0).at[7].set(3.0)
    (observations, _), episode = draw_steps(data, learner.moments, weights, 20_000, jax.random.key(0))
    assert set(np.unique(episode)) == {0, 7}
    np.testing.assert_allclose((episode == 7).mean(), 0.75, atol=0.01)
    first = data.unlabeled.starts[1]
    of_seven = {*np.asarray(data.unlabeled.observations[first : first + 5, 0]).tolist()}
    assert {*np.asarray(observations[episode == 7, 0]).tolist()} == of_seven
    of_zero = {*np.asarray(data.nonpreferred.observations[:5, 0]).tolist()}
    assert {*np.asarray(observations[episode == 0, 0]).tolist()} == of_zero


def test_networks_that_cannot_tell_have_a_loss_of_log_two():
    flat = jax.tree.map(jnp.zeros_like, ScalarNet(2, (4,), key=jax.random.key(0)))
    steps = jnp.ones((3, 1)), jnp.ones((3, 1))
    np.testing.assert_allclose(calibrated.logistic_loss(flat, steps, steps), np.log(2), rtol=1e-6)


def test_an_episode_is_scored_by_its_highest_steps(data):
    values = jnp.arange(len(data.unlabeled.observations), dtype=jnp.float32)
    scores = calibrated._episode_scores(values, data.unlabeled)
    first, length = np.asarray(data.unlabeled.starts)[-1], 11  # the last episode
    mean, fifth, twentieth = scores[:, -1]
    assert mean == first + (length - 1) / 2
    assert fifth == first + length - 2  # the mean of the highest ceil(2.2) = 3
    assert twentieth == first + length - 1


def test_the_clearest_good_episodes_are_kept():
    """With a share of at most one half, 80% of the other half: four of ten."""
    scores = jnp.arange(10.0)
    zero = jnp.zeros(())
    votes = jnp.zeros((2, 10), bool)
    ranking = Ranking(jnp.ones(3), scores, jnp.zeros((), jnp.int32), zero, zero, jnp.array(0.5), votes)
    np.testing.assert_array_equal(kept(ranking), np.arange(10) <= 3)


def test_known_good_episodes_are_cloned_and_do_not_count_among_the_unlabeled_ones():
    """The last two of ten are known to be good, whatever their scores."""
    zero, votes = jnp.zeros(()), jnp.zeros((2, 10), bool)
    scores = jnp.array([0.0, 1, 2, 3, 4, 5, 6, 7, 9, 9])
    ranking = Ranking(jnp.ones(3), scores, jnp.zeros((), jnp.int32), zero, zero, jnp.array(0.5), votes)
    np.testing.assert_array_equal(kept(ranking, 2), [1, 1, 1, 0, 0, 0, 0, 0, 1, 1])  # 40% of the first eight
    kinds = calibrated._sorted_out(ranking._replace(share=jnp.array(1.0)), jnp.array(False), 2)
    np.testing.assert_array_equal(kinds.good[3:], kept(ranking, 2))
    np.testing.assert_array_equal(kinds.bad, [1, 1, 1, 0, 0, 0, 1, 1, 1, 1, 1, 0, 0])


def ranked(incidents: list[float], logs: list[float]) -> Ranking:
    """Scores of the first round, by the mean, with a share of one half."""
    half, votes = jnp.array(0.5), jnp.zeros((2, len(logs)), bool)
    return Ranking(jnp.array(incidents), jnp.array(logs), jnp.zeros((), jnp.int32), half, half, half, votes)


def test_incidents_above_their_look_alikes_are_a_rare_outcome(data):
    """The second round finds all incidents and the last three of eight other episodes alike."""
    piles = data.nonpreferred, data.unlabeled
    ours, theirs = (jnp.full(len(pile.observations), 2.0) for pile in piles)
    theirs = jnp.where(jnp.arange(len(theirs)) < piles[1].starts[5], -2.0, theirs)
    above = ranked([5.0] * 6, [9.0] * 5 + [1.0] * 3)
    found = calibrated.look_alikes(above, ours, theirs, data)
    assert found.auc == 1  # whatever the five others score
    # 18 pairs of 6 and 3 scores: the deviation of the AUC is sqrt(10 / (12 * 18)) = 0.215.
    np.testing.assert_allclose(found.p_value, norm.sf(0.5 / np.sqrt(10 / 216)), rtol=1e-4)
    same = calibrated.look_alikes(ranked([5.0] * 6, [9.0] * 5 + [5.0] * 3), ours, theirs, data)
    assert (float(same.auc), float(same.p_value)) == (0.5, 0.5)


def trained(data: Dataset, seed: int = 0) -> calibrated.Learner:
    @jax.jit
    def rounds(data: Dataset, key: jax.Array) -> calibrated.Learner:
        keys = jax.random.split(key, 3)

        def fit(learner, second, key):
            def one(learner, key):
                learner, loss = calibrated.update(learner, data, OPTIMISER._replace(lr=1e-2), 32, key)
                return learner, loss

            learner, _ = jax.lax.scan(one, learner, jax.random.split(key, 100))
            judged, _ = calibrated.judge(learner, data, jnp.array(second))
            return calibrated.end_round(judged, jnp.array(second), (8,), OPTIMISER, data, key)

        learner = fit(calibrated.init(4, (8,), 5, OPTIMISER, data, keys[0]), False, keys[1])
        return fit(learner, True, keys[2])

    return rounds(data, jax.random.key(seed))


def test_two_rounds_sort_bad_from_good_and_calibrate_the_cost():
    data = shifted(incidents=20, logs=40)
    learner = trained(data)
    scores = np.asarray(learner.ranking.unlabeled)
    assert scores[:20].min() > scores[20:].max()  # every bad episode above every good one
    assert 0.3 <= learner.ranking.share <= 0.65
    np.testing.assert_array_equal(kept(learner.ranking)[:20], np.zeros(20))
    centres = jnp.array([[1.0], [-1.0], [0.0]])
    bad, good, middle = learner.cost(centres, jnp.zeros((3, 1)))
    assert bad > 0.75  # 20 incidents can't show that no good episode looks like this
    assert good < 0.05
    assert good < middle < bad


def test_the_second_round_learns_from_incidents_and_the_extremes_of_the_ranking():
    data = shifted(incidents=20, logs=40)
    kinds: Kinds = trained(data).kinds
    np.testing.assert_array_equal(kinds.bad[:20], np.ones(20))
    np.testing.assert_array_equal(kinds.good[:20], np.zeros(20))
    assert not (kinds.bad * kinds.good).any()
    assert kinds.bad[20:40].sum() > 10
    assert kinds.bad[40:].sum() == 0
    assert kinds.good[40:].sum() > 10


def with_marks(pile: Pile, rows: list[int]) -> Pile:
    return dataclasses.replace(
        pile, marks=jnp.zeros(len(pile.observations), bool).at[jnp.array(rows)].set(True)
    )


def test_incidents_with_marks_are_drawn_near_them_and_others_throughout(data):
    """The first of two incidents has a mark at its fourth step: a window of two steps ends there."""
    pile = with_marks(data.nonpreferred, [3])
    found = moments(pile, 2)
    np.testing.assert_array_equal(found.counts, [2, 5, 5, 5, 5, 5])
    np.testing.assert_array_equal(found.rows[:2], [2, 3])
    np.testing.assert_array_equal(found.rows[5:10], np.arange(5, 10))
    marked = data._replace(nonpreferred=pile)
    weights = jnp.zeros(14).at[0].set(1.0).at[1].set(1.0)
    (observations, _), episode = draw_steps(marked, found, weights, 10_000, jax.random.key(0))
    near = {*np.asarray(pile.observations[2:4, 0]).tolist()}
    assert {*np.asarray(observations[episode == 0, 0]).tolist()} == near
    np.testing.assert_allclose((episode == 0).mean(), 0.5, atol=0.02)  # as often as an incident without


def test_a_window_does_not_reach_into_the_episode_before(data):
    np.testing.assert_array_equal(moments(with_marks(data.nonpreferred, [5]), 3).counts, [5, 1, 5, 5, 5, 5])


def test_without_marks_every_step_is_drawn_from_its_own_row(data):
    found = moments(data.nonpreferred, 3)
    np.testing.assert_array_equal(found.rows, np.arange(30))
    np.testing.assert_array_equal(found.counts, data.nonpreferred.lengths)
