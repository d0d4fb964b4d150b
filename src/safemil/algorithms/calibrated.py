"""A calibrated cost: an ensemble that tells incident steps from good ones, judged on episodes it did not see.

SafeMIL's Eq. (9) is nearly linear in a bounded ĉ: at its optimum ĉ is 1 wherever incidents are even slightly
denser than unlabeled steps, so it recognises episodes and not steps. Here a logit is fitted by logistic
regression, a proper loss whose optimum is the log of the density ratio, in two rounds:

1. incident steps against unlabeled steps. The unlabeled pile holds bad episodes too, so no ratio can exceed
   one over their share; the round serves to rank episodes;
2. incidents and the unlabeled episodes that rank highest, against the unlabeled episodes that rank lowest.

ĉ is the sum of both logits: the first still tells incidents from other episodes of the same style, the
second tells bad from good. Each of M networks learns from a random half of the episodes and is judged on the
other half ("out of bag"): these judgements choose how long to train, rank the unlabeled episodes, and scale
the logits such that ĉ is a probability at even odds.
"""

from collections.abc import Callable
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Bool, Float, Int

from safemil.algorithms.cloning import TINY, Optimiser
from safemil.data.sampling import ROWS_AT_ONCE, Dataset, Pile, episode_sums, spread
from safemil.networks import ScalarNet

AGGREGATES = (1.0, 0.2, 0.05)  # an episode's score is the mean of this share of its highest logits
TEMPERATURES = jnp.concatenate([jnp.zeros(1), jnp.geomspace(0.03, 2.0, 16)])
MARGIN = 0.8  # share of the good (bad) unlabeled episodes that is taken for good (bad): the clearest ones
JUDGED = 4096  # out-of-bag steps of each kind that a fit is judged by
RESAMPLES = 200  # bootstrap samples of the share's interval


class CalibratedCost(eqx.Module):
    """ĉ(s, a): the probability, at even odds, that a step is from an incident and not from a good episode."""

    first: ScalarNet  # (M, ...) networks of each round
    second: ScalarNet
    temperature: Float[Array, ""]

    def __call__(
        self, observations: Float[Array, "*batch S"], actions: Float[Array, "*batch A"]
    ) -> Float[Array, "*batch"]:
        logits = member_logits(self.first, observations, actions)
        logits += member_logits(self.second, observations, actions)
        return jax.nn.sigmoid(self.temperature * logits.mean(axis=0))


class Fit(NamedTuple):
    """Networks of one round, and the best of them so far by the loss on out-of-bag steps."""

    nets: ScalarNet  # (M, ...)
    opt: optax.OptState
    best: ScalarNet
    best_loss: Float[Array, ""]


class Kinds(NamedTuple):
    """How much each episode counts as an incident and as a good episode, non-preferred episodes first."""

    bad: Float[Array, " episodes"]
    good: Float[Array, " episodes"]


class Ranking(NamedTuple):
    """Out-of-bag scores of all episodes, and what they say."""

    nonpreferred: Float[Array, " incidents"]
    unlabeled: Float[Array, " logs"]
    aggregate: Int[Array, ""]  # place in AGGREGATES
    auc: Float[Array, ""]  # incidents against unlabeled episodes
    share: Float[Array, ""]  # of unlabeled episodes that look like incidents
    share_high: Float[Array, ""]  # upper end of its 80% interval


def member_logits(
    nets: ScalarNet, observations: Float[Array, "*batch S"], actions: Float[Array, "*batch A"]
) -> Float[Array, "M *batch"]:
    return jax.vmap(lambda net: net(observations, actions))(nets)


def halves(members: int, data: Dataset, key: Array) -> Bool[Array, "M episodes"]:
    """Episodes that each network does not see: random halves of both piles, each followed by its complement."""
    assert data.nonpreferred is not None
    counts = len(data.nonpreferred.lengths), len(data.unlabeled.lengths)

    def half(key: Array) -> Bool[Array, " episodes"]:
        keys = jax.random.split(key)
        parts = [jax.random.permutation(k, n) < (n + 1) // 2 for k, n in zip(keys, counts, strict=True)]
        return jnp.concatenate(parts)

    drawn = jax.vmap(half)(jax.random.split(key, members // 2))
    return jnp.concatenate([drawn, ~drawn])


def init(
    members: int, hidden: tuple[int, ...], optimiser: Optimiser, data: Dataset, key: Array
) -> Fit:
    inputs = data.unlabeled.observation_size + data.unlabeled.action_size
    nets = jax.vmap(lambda k: ScalarNet(inputs, hidden, key=k))(jax.random.split(key, members))
    return Fit(nets, jax.vmap(optimiser.init)(nets), nets, jnp.array(jnp.inf))


def first_kinds(data: Dataset) -> Kinds:
    """Incidents against all unlabeled episodes."""
    assert data.nonpreferred is not None
    ones = jnp.ones(len(data.nonpreferred.lengths)), jnp.ones(len(data.unlabeled.lengths))
    return Kinds(
        jnp.concatenate([ones[0], 0 * ones[1]]),
        jnp.concatenate([0 * ones[0], ones[1]]),
    )


def second_kinds(ranking: Ranking) -> Kinds:
    """Incidents and the clearest bad unlabeled episodes, against the clearest good ones."""
    scores, incidents = ranking.unlabeled, jnp.ones_like(ranking.nonpreferred)
    top = scores >= jnp.quantile(scores, 1 - MARGIN * ranking.share)
    bottom = scores <= jnp.quantile(scores, MARGIN * (1 - ranking.share))
    return Kinds(
        jnp.concatenate([incidents, top.astype(jnp.float32)]),
        jnp.concatenate([0 * incidents, bottom.astype(jnp.float32)]),
    )


def draw(
    data: Dataset, weights: Float[Array, " episodes"], count: int, key: Array
) -> tuple[Float[Array, "count S"], Float[Array, "count A"], Int[Array, " count"]]:
    """Steps of episodes of both piles, each as likely as the weight of its episode; and their episodes."""
    assert data.nonpreferred is not None
    piles = data.nonpreferred, data.unlabeled
    lengths = jnp.concatenate([pile.lengths for pile in piles])
    ends = jnp.cumsum(weights * lengths)
    places = jax.random.uniform(key, (2, count))
    episode = jnp.searchsorted(ends, ends[-1] * places[0], side="right")
    episode = jnp.minimum(episode, len(lengths) - 1)
    offset = (places[1] * lengths[episode]).astype(jnp.int32)
    incidents = len(piles[0].lengths)
    is_incident = episode < incidents
    rows = [
        pile.starts[jnp.clip(episode - first, 0, len(pile.starts) - 1)] + offset
        for pile, first in zip(piles, (0, incidents), strict=True)
    ]
    rows = [jnp.minimum(row, len(pile.observations) - 1) for row, pile in zip(rows, piles, strict=True)]
    observations, actions = (
        jnp.where(is_incident[:, None], getattr(piles[0], name)[rows[0]], getattr(piles[1], name)[rows[1]])
        for name in ("observations", "actions")
    )
    return observations, actions, episode
