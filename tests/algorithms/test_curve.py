"""The curve from logits to probabilities."""

import jax
import jax.numpy as jnp
import numpy as np

from safemil.algorithms.curve import BINS, Curve, Masses, fit_curve, isotonic


def test_isotonic_values_are_the_means_of_blocks_that_would_fall():
    """4 and 1 are pooled by weight: (4·1 + 1·2) / 3 = 2, which is below 3."""
    fitted = isotonic(jnp.array([1.0, 4.0, 1.0, 3.0]), jnp.array([1.0, 1.0, 2.0, 1.0]))
    np.testing.assert_allclose(fitted, [1, 2, 2, 3], rtol=1e-6)
    np.testing.assert_allclose(isotonic(jnp.array([3.0, 2.0, 1.0]), jnp.ones(3)), [2, 2, 2], rtol=1e-6)


def test_a_curve_is_linear_between_its_knots_and_rises_beyond_them():
    curve = Curve(jnp.array([0.0, 2.0, 4.0]), jnp.array([0.2, 0.4, 1.0]), jnp.ones(()))
    at = jnp.array([0.0, 1.0, 3.0, 4.0])
    expected = 0.98 * np.array([0.2, 0.3, 0.7, 1.0]) + 0.02 * np.asarray(jax.nn.sigmoid(at))
    np.testing.assert_allclose(curve(at), expected, rtol=1e-5)
    rising = np.asarray(curve(jnp.linspace(-6, 9, 50)))
    assert (np.diff(rising) > 0).all()
    assert rising[0] > 0
    assert rising[-1] < 1


def test_rounding_gives_no_probability_above_one():
    rises = jnp.linspace(0, 1, BINS) ** 0.3
    curve = Curve(jnp.linspace(-3, 3, BINS), rises.at[-1].set(1 + 1e-6), jnp.ones(()))
    assert float(curve(jnp.array([40.0]))[0]) <= 1


def piles(share: float) -> tuple[jnp.ndarray, Masses]:
    """Logits of 10,000 bad steps, and of as many unlabeled ones of which a share is like them."""
    rng = np.random.default_rng(0)
    bad, good = rng.normal(1.0, 1.0, 10_000), rng.normal(-1.0, 1.0, 10_000)
    unlabeled = np.where(rng.random(10_000) < share, rng.normal(1.0, 1.0, 10_000), good)
    none, even = np.zeros(10_000), np.full(10_000, 1e-4)
    incidents, others = (
        jnp.asarray(np.concatenate(each), jnp.float32) for each in ((even, none), (none, even))
    )
    return jnp.asarray(np.concatenate([bad, unlabeled]), jnp.float32), Masses(incidents, incidents, others)


def test_the_curve_finds_the_probability_of_a_bad_step_behind_the_unlabeled_ones():
    """Unit normals at -1 and 1: the log of their ratio at x is 2x."""
    logits, masses = piles(share=0.5)
    curve, _ = fit_curve(logits, masses, jnp.array(0.5))
    assert curve.knots.shape == (BINS,)
    at = jnp.array([-1.0, -0.5, 0.0, 0.5, 1.0])
    np.testing.assert_allclose(curve(at), jax.nn.sigmoid(2 * at), atol=0.06)


def test_unlabeled_steps_count_as_good_by_what_bad_ones_leave():
    logits, masses = piles(share=0.5)
    _, good = fit_curve(logits, masses, jnp.array(0.5))
    np.testing.assert_allclose((good * logits).sum() / good.sum(), -1.0, atol=0.1)


def test_a_pile_without_any_steps_gives_a_finite_curve():
    none = jnp.zeros(5)
    curve, good = fit_curve(jnp.arange(5.0), Masses(none, none, none), jnp.array(0.5))
    assert np.isfinite(curve(jnp.arange(5.0))).all()
    assert np.isfinite(good).all()


def test_piles_that_are_alike_give_one_half_everywhere():
    rng = np.random.default_rng(1)
    logits = jnp.asarray(rng.normal(size=4000), jnp.float32)
    first = jnp.asarray(np.repeat([1 / 2000, 0.0], 2000), jnp.float32)
    second = jnp.asarray(np.repeat([0.0, 1 / 2000], 2000), jnp.float32)
    curve, _ = fit_curve(logits, Masses(first, first, second), jnp.array(0.0))
    np.testing.assert_allclose(curve(jnp.array([-1.0, 0.0, 1.0])), 0.5, atol=0.08)
