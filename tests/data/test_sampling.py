"""Draws of segments and bags: all that is valid, nothing else, each as often as it should be."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats
from hypothesis import given, settings
from hypothesis import strategies as st

from safemil.data import Trajectories
from safemil.data.sampling import (
    Dataset,
    Pile,
    Scaler,
    discounted_to_go,
    draw_steps,
    draw_steps_of,
    sample_bags,
    sample_segments,
    sample_steps,
    spread,
    transitions_at,
)

SAME = Scaler(jnp.zeros(1), jnp.ones(1))


def numbered(lengths):
    """Episodes whose observation is the row's number, so that a draw tells where it came from."""
    rows = np.arange(sum(lengths), dtype=np.float32)[:, None]
    return Pile.of(Trajectories(rows, np.zeros_like(rows), lengths), SAME)


@settings(max_examples=25, deadline=None)
@given(
    lengths=st.lists(st.integers(1, 6), min_size=1, max_size=4),
    length=st.integers(1, 4),
    seed=st.integers(0, 99),
)
def test_every_valid_segment_is_reached_and_none_crosses_a_border(lengths, length, seed):
    pile = numbered(lengths)
    segments = sample_segments(pile, 600, length, jax.random.key(seed))
    drawn = {
        tuple(r[m > 0].tolist())
        for r, m in zip(np.asarray(segments.rows), np.asarray(segments.mask), strict=True)
    }
    starts = np.cumsum(lengths) - lengths
    valid = {
        tuple(range(s + k, s + k + min(length, n)))
        for s, n in zip(starts, lengths, strict=True)
        for k in range(n - min(length, n) + 1)
    }
    assert drawn == valid


def test_rows_say_where_a_step_stands():
    pile = numbered([5, 3])
    segments = sample_segments(pile, 50, 4, jax.random.key(0))
    np.testing.assert_array_equal(segments.observations[..., 0], segments.rows)


def test_an_episode_is_drawn_as_often_as_another_whatever_its_length():
    segments = sample_segments(numbered([2, 50]), 4000, 2, jax.random.key(0))
    short = int((np.asarray(segments.rows)[:, 0] < 2).sum())
    assert scipy.stats.binomtest(short, 4000, 0.5).pvalue > 1e-3


def test_starts_are_uniform():
    segments = sample_segments(numbered([12]), 5000, 3, jax.random.key(0))
    counts = np.bincount(np.asarray(segments.rows)[:, 0], minlength=10)
    assert scipy.stats.chisquare(counts).pvalue > 1e-3


def test_full_length_draws_whole_episodes():
    segments = sample_segments(numbered([2, 5]), 20, "full", jax.random.key(0))
    assert segments.mask.shape == (20, 5)
    assert set(np.asarray(segments.mask).sum(axis=1)) == {2, 5}


def test_steps_are_uniform_over_the_pile():
    rows = sample_steps(numbered([1, 9]), 5000, jax.random.key(0))
    assert scipy.stats.chisquare(np.bincount(np.asarray(rows), minlength=10)).pvalue > 1e-3


@pytest.mark.parametrize("pool", [None, 16])
def test_a_bag_holds_its_size_in_segments(pool):
    bags = sample_bags(numbered([9, 4]), bags=3, size=5, length=2, pool=pool, key=jax.random.key(0))
    assert bags.members.shape == (3, 5)
    assert bags.pool.mask.shape == (pool or 15, 2)
    assert int(bags.members.max()) < len(bags.pool.mask)


def test_without_a_pool_no_two_bags_share_a_draw():
    bags = sample_bags(numbered([9, 4]), bags=3, size=5, length=2, pool=None, key=jax.random.key(0))
    assert len(np.unique(bags.members)) == 15


def test_cost_to_go_stops_at_the_end_of_an_episode():
    to_go = discounted_to_go(jnp.array([1.0, 2.0, 4.0, 8.0, 16.0]), numbered([2, 3]), 0.5)
    np.testing.assert_allclose(to_go, [2.0, 2.0, 12.0, 16.0, 16.0])


def test_observations_are_standardised_and_a_constant_column_keeps_its_scale():
    observations = np.array([[1.0, 7.0], [3.0, 7.0]])
    scaler = Scaler.of(Trajectories(observations, np.zeros((2, 1)), [2]))
    np.testing.assert_allclose(scaler(jnp.asarray(observations, jnp.float32)), [[-1, 0], [1, 0]])


def test_a_dataset_shows_annotations_only_where_given(unlabeled, nonpreferred):
    data = Dataset.of(Scaler.of(unlabeled), unlabeled, nonpreferred)
    assert data.rewards is None
    assert data.costs is None


@pytest.mark.parametrize("scale", [1e-7, 1e-20, 1e20])
def test_standardised_observations_do_not_depend_on_the_unit(scale):
    observations = np.random.default_rng(0).normal([0.0, 3.0, 0.0], [1.0, 0.01, 0.0], (50, 3))
    one, other = (
        Pile.of(pile, Scaler.of(pile)).observations
        for pile in (Trajectories(observations * unit, np.zeros((50, 1)), [50]) for unit in (1.0, scale))
    )
    np.testing.assert_allclose(one[:, :2].std(axis=0), 1, rtol=1e-4)
    np.testing.assert_allclose(one, other, atol=1e-4)


def test_a_column_that_varies_by_rounding_alone_is_constant():
    observations = np.array([[0.1, 1e-39], [np.nextafter(np.float32(0.1), 1), 2e-39]], np.float32)
    scaler = Scaler.of(Trajectories(observations, np.zeros((2, 1)), [2]))
    assert scaler.deviation.tolist() == [1, 1]


def gapped(**changes):
    """Two episodes of 6 and 4 steps whose observations number the steps; gaps before rows 2 and 8."""
    numbers = np.arange(10)
    held = {"observations": numbers[:, None], "actions": np.zeros((10, 1)), "lengths": [6, 4]}
    return Trajectories(**held | {"after_gap": np.isin(numbers, [2, 8])} | changes)


def test_segments_do_not_cross_gaps_and_use_every_step():
    held = gapped()
    pile = Pile.of(held, SAME)
    drawn = sample_segments(pile, 2000, 3, jax.random.key(0))
    crossed = held.after_gap[np.asarray(drawn.rows)][:, 1:] & (np.diff(drawn.rows, axis=1) > 0)
    assert not crossed.any()
    real = np.asarray(drawn.rows)[np.asarray(drawn.mask) == 1]
    assert set(real.tolist()) == set(range(10))
    whole = sample_segments(pile, 50, "full", jax.random.key(0))
    assert {int(each) for each in whole.mask.sum(axis=1)} == {4, 6}


def test_draws_without_gaps_are_those_of_a_log_that_knows_none():
    plain, marked = (Pile.of(gapped(after_gap=flags), SAME) for flags in (None, np.zeros(10, bool)))
    drawn = [sample_segments(pile, 20, 3, jax.random.key(1)).rows for pile in (plain, marked)]
    np.testing.assert_array_equal(*drawn)
    assert plain.stretch_ends is None


def test_the_observation_after_a_gap_is_not_the_next_one():
    found = transitions_at(Pile.of(gapped(), SAME), jnp.arange(10))
    assert np.flatnonzero(found.known == 0).tolist() == [1, 5, 7, 9]


@pytest.mark.parametrize("kept", [[True, False, True, True], [False, False, True, False]])
def test_steps_of_kept_episodes_are_those_drawn_by_weights_of_one(dataset, kept):
    pile, key = dataset.unlabeled, jax.random.key(5)
    weights = spread(jnp.array(kept, jnp.float32), pile)
    by_step = draw_steps(jnp.cumsum(weights), 500, key)
    np.testing.assert_array_equal(draw_steps_of(jnp.array(kept), pile, 500, key), by_step)
