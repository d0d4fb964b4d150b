"""From logits to probabilities: a rising curve, measured in bins of steps whose kind is known only in part.

The density of good steps is what bad ones leave of the unlabeled steps, p_good = (p_u − b p_bad) / (1 − b),
with b the share of bad steps. In bins of logits this needs no episode that is surely good. Examples that were
chosen for being clearly good lie apart from the others, and a curve fitted to them is too steep: one logistic
curve, with or without an intercept, was off by 0.05 to 0.10 on held-out steps of three generated problems,
this one by 0.03 to 0.05.
"""

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from safemil.algorithms.cloning import TINY

BINS = 30  # of logits, of equal mass, in which probabilities are measured
STRICT = 0.02  # share of the logistic curve in a probability, so that it rises between all logits


class Curve(eqx.Module):
    """Rising map from logits to probabilities: linear between knots, and a little of a logistic curve."""

    knots: Float[Array, " bins"]
    probabilities: Float[Array, " bins"]
    temperature: Float[Array, ""]  # of the logistic curve

    @staticmethod
    def logistic(temperature: Array) -> "Curve":
        """Make a curve that is logistic, as far as a line between knots can be."""
        knots = jnp.linspace(-8.0, 8.0, BINS)
        return Curve(knots, jax.nn.sigmoid(temperature * knots), temperature)

    def __call__(self, logits: Float[Array, "*batch"]) -> Float[Array, "*batch"]:
        axes = tuple(range(logits.ndim))
        start, width, rise = (
            jnp.expand_dims(each, axes)
            for each in (
                self.knots[:-1],
                jnp.maximum(jnp.diff(self.knots), 1e-6),
                jnp.diff(self.probabilities),
            )
        )
        passed = jnp.clip((logits[..., None] - start) / width, 0, 1)  # part of each piece below the logit
        line = jnp.clip(self.probabilities[0] + (passed * rise).sum(axis=-1), 0, 1)  # against rounding
        return (1 - STRICT) * line + STRICT * jax.nn.sigmoid(self.temperature * logits)


class Masses(NamedTuple):
    """Distributions over the steps of both piles, those of the incidents first."""

    near: Float[Array, " steps"]  # incident steps to learn from
    every: Float[Array, " steps"]  # all steps of incidents
    unlabeled: Float[Array, " steps"]


def fit_curve(
    logits: Float[Array, " steps"], masses: Masses, share: Float[Array, ""]
) -> tuple[Curve, Float[Array, " steps"]]:
    """Fit a curve; return it with the mass of each unlabeled step as a good one."""
    order = jnp.argsort(logits)
    mixture = (masses.near + masses.unlabeled) / 2
    through = jnp.cumsum(mixture[order])
    bins = jnp.zeros_like(order).at[order].set(jnp.minimum((BINS * through).astype(order.dtype), BINS - 1))

    def binned(values: Float[Array, " steps"]) -> Float[Array, " bins"]:
        return jax.ops.segment_sum(values, bins, num_segments=BINS)

    near, every, others = map(binned, masses)
    good = jnp.maximum(others - share * every, 0) / (1 - share)
    rising = isotonic(near / jnp.maximum(near + good, TINY), near + good + 1e-6)
    filled = binned(mixture)
    middle = binned(mixture * logits) / jnp.maximum(filled, TINY)
    knots = jax.lax.cummax(jnp.where(filled > 0, middle, -jnp.inf))
    lowest = jnp.where(filled.any(), knots[jnp.argmax(filled > 0)], 0)
    knots = jnp.where(jnp.isfinite(knots), knots, lowest)  # bins below it are empty
    as_good = (good / jnp.maximum(others, TINY))[bins] * masses.unlabeled
    return Curve(knots, rising, jnp.ones(())), as_good


def isotonic(values: Float[Array, " n"], weights: Float[Array, " n"]) -> Float[Array, " n"]:
    """Weighted least-squares fit of a sequence that does not fall, by the max-min formula.

    Barlow, Bartholomew, Bremner and Brunk 1972, Statistical Inference under Order Restrictions:
    the i-th value is the maximum over j ≤ i of the minimum over k ≥ i of the mean of values j to k.
    """
    n = len(values)
    mass, total = (jnp.concatenate([jnp.zeros(1), jnp.cumsum(each)]) for each in (weights, weights * values))
    place = jnp.arange(n)
    upto = place[:, None] <= place[None, :]  # j ≤ k
    mean = jnp.where(
        upto,
        (total[None, 1:] - total[:-1, None]) / jnp.where(upto, mass[None, 1:] - mass[:-1, None], 1),
        jnp.inf,
    )
    least = jax.lax.cummin(mean, axis=1, reverse=True)
    return jnp.where(upto, least, -jnp.inf).max(axis=0)
