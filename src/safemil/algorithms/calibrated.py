"""A calibrated cost: an ensemble that tells incident steps from good ones, judged on episodes it did not see.

SafeMIL's Eq. (9) is nearly linear in a bounded ĉ: at its optimum ĉ is 1 wherever incidents are even slightly
denser than unlabeled steps, so it recognises episodes and not steps. Here a logit is fitted by logistic
regression, a proper loss whose optimum is the log of the density ratio, in two rounds:

1. incident steps against unlabeled steps. The unlabeled pile holds bad episodes too, so no ratio can exceed
   one over their share; this round ranks episodes;
2. incidents and the unlabeled episodes that rank highest, against the unlabeled episodes that rank lowest.

The logit of ĉ is the sum of both: the first tells incidents from other episodes of the same style, the second
tells bad episodes from good ones. Each of M networks learns from a random half of the episodes and is judged
on the other half ("out of bag"). These judgements choose how long to train, rank the unlabeled episodes and
scale the logits such that ĉ is a probability at even odds.
"""

import math
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Bool, Float, Int, UInt32

from safemil.algorithms.cloning import Optimiser
from safemil.data.sampling import ROWS_AT_ONCE, Dataset, Pile, episode_sums, spread
from safemil.networks import ScalarNet

AGGREGATES = (1.0, 0.2, 0.05)  # an episode's score is the mean of this share of its steps, the highest
CLEAR = 0.8  # share of the good (and of the bad) unlabeled episodes that the second round learns from
JUDGED = 2048  # out-of-bag steps of each kind in a judgement
RESAMPLES = 200  # bootstrap samples of the share
DOUBT = 0.1  # probability that the error of the share's estimate is larger than assumed

Steps = tuple[Float[Array, "count S"], Float[Array, "count A"]]


class CalibratedCost(eqx.Module):
    """ĉ(s, a): the probability, at even odds, that a step is from an incident and not from a good episode."""

    first: ScalarNet  # (M, ...), best networks of the first round
    second: ScalarNet  # (M, ...), best networks of the second round; zero before it
    temperature: Float[Array, ""]

    def __call__(
        self, observations: Float[Array, "*batch S"], actions: Float[Array, "*batch A"]
    ) -> Float[Array, "*batch"]:
        return jax.nn.sigmoid(self.temperature * self.logits(observations, actions).mean(axis=0))

    def logits(
        self, observations: Float[Array, "*batch S"], actions: Float[Array, "*batch A"]
    ) -> Float[Array, "M ..."]:
        """Logit of each network, the sum of both rounds."""
        return _logits(self.first, observations, actions) + _logits(self.second, observations, actions)


def _logits(nets: ScalarNet, observations: Array, actions: Array) -> Float[Array, "M ..."]:
    return jax.vmap(lambda net: net(observations, actions))(nets)


class Kinds(NamedTuple):
    """Weights of all episodes, non-preferred ones first, as examples of incidents and of good episodes."""

    bad: Float[Array, " episodes"]
    good: Float[Array, " episodes"]


class Ranking(NamedTuple):
    """Out-of-bag scores of the episodes, and estimates from them."""

    nonpreferred: Float[Array, " incidents"]
    unlabeled: Float[Array, " logs"]
    aggregate: Int[Array, ""]  # place in AGGREGATES
    auc: Float[Array, ""]  # incidents against unlabeled episodes
    share: Float[Array, ""]  # share of the unlabeled episodes that look like incidents
    share_high: Float[Array, ""]  # upper end of its 80% interval


class Learner(NamedTuple):
    """All that learning the cost carries from update to update."""

    cost: CalibratedCost
    nets: ScalarNet  # (M, ...)
    opt: optax.OptState
    best_loss: Float[Array, ""]  # lowest out-of-bag loss of this round
    heldout: Bool[Array, "M episodes"]  # episodes that a network does not see, non-preferred ones first
    judge_seed: UInt32[Array, ""]  # draws the steps of all judgements
    kinds: Kinds
    first_ranking: Ranking  # by the first round, in which no unlabeled episode is an example of an incident
    ranking: Ranking  # by both rounds


def init(members: int, hidden: tuple[int, ...], optimiser: Optimiser, data: Dataset, key: Array) -> Learner:
    assert data.nonpreferred is not None
    key_nets, key_halves, key_judge = jax.random.split(key, 3)
    nets = _networks(members, hidden, data, key_nets)
    incidents, logs = jnp.ones(len(data.nonpreferred.lengths)), jnp.ones(len(data.unlabeled.lengths))
    unknown = jnp.zeros(())
    no_ranking = Ranking(0 * incidents, 0 * logs, jnp.zeros((), jnp.int32), unknown, unknown, unknown)
    return Learner(
        cost=CalibratedCost(nets, jax.tree.map(jnp.zeros_like, nets), jnp.ones(())),
        nets=nets,
        opt=jax.vmap(optimiser.init)(nets),
        best_loss=jnp.full((), jnp.inf),
        heldout=_halves(members, len(incidents), len(logs), key_halves),
        judge_seed=jax.random.bits(key_judge),
        kinds=Kinds(jnp.concatenate([incidents, 0 * logs]), jnp.concatenate([0 * incidents, logs])),
        first_ranking=no_ranking,
        ranking=no_ranking,
    )


def _networks(members: int, hidden: tuple[int, ...], data: Dataset, key: Array) -> ScalarNet:
    inputs = data.unlabeled.observation_size + data.unlabeled.action_size
    return jax.vmap(lambda key: ScalarNet(inputs, hidden, key=key))(jax.random.split(key, members))


def _halves(members: int, incidents: int, logs: int, key: Array) -> Bool[Array, "M episodes"]:
    """Random halves of both piles, and their complements: half of the networks do not see an episode."""

    def half(key: Array) -> Bool[Array, " episodes"]:
        keys = jax.random.split(key)
        parts = [
            jax.random.permutation(k, n) < (n + 1) // 2 for k, n in zip(keys, (incidents, logs), strict=True)
        ]
        return jnp.concatenate(parts)

    drawn = jax.vmap(half)(jax.random.split(key, members // 2))
    return jnp.concatenate([drawn, ~drawn])


def logistic_loss(net: ScalarNet, bad: Steps, good: Steps) -> Float[Array, ""]:
    """Binary cross-entropy at even odds; at its optimum the logit is log p(step | bad) / p(step | good)."""
    return (jax.nn.softplus(-net(*bad)).mean() + jax.nn.softplus(net(*good)).mean()) / 2


def draw_steps(
    data: Dataset, weights: Float[Array, " episodes"], count: int, key: Array
) -> tuple[Steps, Int[Array, " count"]]:
    """Steps of both piles, each as likely as the weight of its episode, and the episodes they are of."""
    assert data.nonpreferred is not None
    piles = data.nonpreferred, data.unlabeled
    lengths = jnp.concatenate([pile.lengths for pile in piles])
    mass = jnp.cumsum(weights * lengths)
    uniform = jax.random.uniform(key, (2, count))
    episode = jnp.minimum(jnp.searchsorted(mass, mass[-1] * uniform[0], side="right"), len(lengths) - 1)
    offset = (uniform[1] * lengths[episode]).astype(jnp.int32)
    incidents = len(piles[0].lengths)
    places = jnp.minimum(episode, incidents - 1), jnp.maximum(episode - incidents, 0)
    rows = [
        jnp.minimum(pile.starts[place] + offset, len(pile.observations) - 1)
        for pile, place in zip(piles, places, strict=True)
    ]
    first = (episode < incidents)[:, None]
    observations, actions = (
        jnp.where(first, one[rows[0]], other[rows[1]])
        for one, other in zip(*((pile.observations, pile.actions) for pile in piles), strict=True)
    )
    return (observations, actions), episode


def update(
    learner: Learner, data: Dataset, optimiser: Optimiser, batch: int, key: Array
) -> tuple[Learner, Float[Array, ""]]:
    """One gradient step of every network, on steps of the episodes that it may see."""

    def one(net: ScalarNet, opt: optax.OptState, heldout: Array, key: Array) -> Any:
        key_bad, key_good = jax.random.split(key)
        bad, _ = draw_steps(data, jnp.where(heldout, 0, learner.kinds.bad), batch, key_bad)
        good, _ = draw_steps(data, jnp.where(heldout, 0, learner.kinds.good), batch, key_good)
        return optimiser.descend(lambda net: logistic_loss(net, bad, good), net, opt)

    keys = jax.random.split(key, len(learner.heldout))
    nets, opt, losses = jax.vmap(one)(learner.nets, learner.opt, learner.heldout, keys)
    return learner._replace(nets=nets, opt=opt), losses.mean()


def judge(learner: Learner, data: Dataset, second: Array) -> tuple[Learner, Float[Array, ""]]:
    """Keep the networks of the first or second round if they are its best on out-of-bag steps.

    The loss is that of the best temperature, since networks rank steps better for longer than their
    probabilities are calibrated.
    """
    loss, _ = _calibrated_loss(learner, partial(_logits, learner.nets), data)
    better = loss < learner.best_loss

    def keep(old: ScalarNet, wanted: Array) -> ScalarNet:
        return jax.tree.map(lambda a, b: jnp.where(better & wanted, b, a), old, learner.nets)

    cost = CalibratedCost(keep(learner.cost.first, ~second), keep(learner.cost.second, second), jnp.ones(()))
    return learner._replace(cost=cost, best_loss=jnp.minimum(loss, learner.best_loss)), loss


def _calibrated_loss(
    learner: Learner, logits_of: Callable[[Array, Array], Array], data: Dataset
) -> tuple[Float[Array, ""], Float[Array, ""]]:
    """Logistic loss of the out-of-bag ensemble at its best temperature, and that temperature."""
    keys = jax.random.split(jax.random.key(learner.judge_seed))
    logits = []
    for key, weights in zip(keys, learner.kinds, strict=True):
        steps, episode = draw_steps(data, weights, JUDGED, key)
        logits.append(_mean_of_unseeing(logits_of(*steps), learner.heldout[:, episode]))
    temperatures = jnp.concatenate([jnp.zeros(1), jnp.geomspace(0.03, 2.0, 16)])[:, None]
    bad, good = (temperatures * each[None, :] for each in logits)
    losses = (jax.nn.softplus(-bad).mean(axis=1) + jax.nn.softplus(good).mean(axis=1)) / 2
    best = jnp.argmin(losses)
    return losses[best], temperatures[best, 0]


def _mean_of_unseeing(
    logits: Float[Array, "M count"], heldout: Bool[Array, "M count"]
) -> Float[Array, " count"]:
    """Mean logit of the networks that did not see the step's episode."""
    return (logits * heldout).sum(axis=0) / jnp.maximum(heldout.sum(axis=0), 1)


def begin_second_round(
    learner: Learner, hidden: tuple[int, ...], optimiser: Optimiser, data: Dataset, key: Array
) -> Learner:
    """Rank the episodes, sort the clearest of them into bad and good, and start with new networks."""
    key_rank, key_nets = jax.random.split(key)
    ranking = rank(learner, data, key_rank)
    scores, incidents = ranking.unlabeled, jnp.ones_like(ranking.nonpreferred)
    bad = scores >= jnp.quantile(scores, 1 - CLEAR * ranking.share)
    good = scores <= jnp.quantile(scores, CLEAR * (1 - ranking.share))
    nets = _networks(len(learner.heldout), hidden, data, key_nets)
    return learner._replace(
        nets=nets,
        opt=jax.vmap(optimiser.init)(nets),
        best_loss=jnp.full((), jnp.inf),
        kinds=Kinds(jnp.concatenate([incidents, bad]), jnp.concatenate([0 * incidents, good])),
        first_ranking=ranking,
        ranking=ranking,
    )


def finish(learner: Learner, data: Dataset, key: Array) -> Learner:
    """Calibrate the sum of both rounds and rank the episodes by it; the share stays that of the first round.

    In the second round the unlabeled episodes that rank highest are examples of incidents themselves, so its
    scores say nothing about how many there are.
    """
    _, temperature = _calibrated_loss(learner, learner.cost.logits, data)
    first = learner.first_ranking
    ranking = rank(learner, data, key)._replace(share=first.share, share_high=first.share_high)
    cost = eqx.tree_at(lambda cost: cost.temperature, learner.cost, temperature)
    return learner._replace(cost=cost, ranking=ranking)


def kept(ranking: Ranking) -> Bool[Array, " logs"]:
    """Unlabeled episodes to clone: the clearest good ones, with the share of bad ones at its upper end."""
    return ranking.unlabeled <= jnp.quantile(ranking.unlabeled, CLEAR * (1 - ranking.share_high))


def rank(learner: Learner, data: Dataset, key: Array) -> Ranking:
    """Score all episodes out of bag, by the aggregate with which held-out incidents rank highest."""
    assert data.nonpreferred is not None
    incidents = len(data.nonpreferred.lengths)
    parts = learner.heldout[:, :incidents], learner.heldout[:, incidents:]
    scores = [
        _episode_scores(out_of_bag(learner.cost, heldout, pile), pile)
        for heldout, pile in zip(parts, (data.nonpreferred, data.unlabeled), strict=True)
    ]  # (aggregates, episodes) of each pile
    aucs = jax.vmap(auc)(*scores)
    chosen = jnp.argmax(aucs)
    ours, theirs = scores[0][chosen], scores[1][chosen]

    def resampled(key: Array) -> Float[Array, ""]:
        keys = jax.random.split(key)
        return share_like(
            *(jax.random.choice(k, each, each.shape) for k, each in zip(keys, (ours, theirs), strict=True))
        )

    shares = jax.vmap(resampled)(jax.random.split(key, RESAMPLES))
    return Ranking(
        ours,
        theirs,
        chosen.astype(jnp.int32),
        aucs[chosen],
        share_like(ours, theirs),
        jnp.quantile(shares, 0.9),
    )


def out_of_bag(
    cost: CalibratedCost, heldout: Bool[Array, "M episodes"], pile: Pile
) -> Float[Array, " steps"]:
    """Logit of every step, by the networks that did not see its episode; a block of steps at a time."""
    seen_by = spread(jnp.arange(len(pile.lengths)), pile)

    def one(step: tuple[Array, Array, Array]) -> Array:
        observations, actions, episode = step
        return _mean_of_unseeing(
            cost.logits(observations[None], actions[None]), heldout[:, episode][:, None]
        )[0]

    return jax.lax.map(one, (pile.observations, pile.actions, seen_by), batch_size=ROWS_AT_ONCE // 4)


def _episode_scores(values: Float[Array, " steps"], pile: Pile) -> Float[Array, "aggregates episodes"]:
    """Mean of the highest values of each episode, for each of the aggregates."""
    episode = spread(jnp.arange(len(pile.lengths)), pile)
    descending = values[jnp.lexsort((-values, episode))]
    place = jnp.arange(len(values)) - spread(pile.starts, pile)  # from the highest of the episode on
    scores = []
    for share in AGGREGATES:
        count = jnp.ceil(share * pile.lengths)
        chosen = place < spread(count, pile)
        scores.append(episode_sums(jnp.where(chosen, descending, 0), pile) / count)
    return jnp.stack(scores)


def auc(positive: Float[Array, " n"], negative: Float[Array, " m"]) -> Float[Array, ""]:
    """Probability that a positive score is above a negative one; a tie counts half."""
    ordered = jnp.sort(negative)
    below, upto = (jnp.searchsorted(ordered, positive, side=side) for side in ("left", "right"))
    return ((below + upto) / 2).mean() / len(negative)


def share_like(incidents: Float[Array, " n"], unlabeled: Float[Array, " m"]) -> Float[Array, ""]:
    """Estimate the share of the unlabeled episodes that are like the incidents, from the scores of both.

    If a share b of the unlabeled scores are drawn as those of the incidents are, at least b times as many
    of them as of the incidents lie above any threshold. The ratio is taken at the threshold where it is
    smallest within its error (best-bin estimation, Garg et al. 2021, arXiv:2111.00980).
    """
    ordered = jnp.sort(incidents)
    above = 1 - jnp.arange(len(incidents)) / len(incidents)  # share of incidents at or above each threshold
    ratios = (unlabeled[None, :] >= ordered[:, None]).mean(axis=1) / above
    errors = sum(math.sqrt(math.log(4 / DOUBT) / (2 * len(each))) for each in (incidents, unlabeled)) / above
    return jnp.clip(ratios[jnp.argmin(ratios + errors)], 0, 1)


def judgements(learner: Learner, data: Dataset) -> dict[str, Array]:
    """Out-of-bag judgements that evidence is made of; episode scores are those of the first round.

    The second round takes unlabeled episodes for incidents, so its scores of incidents against unlabeled
    episodes are no longer an unbiased comparison.
    """
    keys = jax.random.split(jax.random.key(learner.judge_seed), 4)
    incidents = len(learner.ranking.nonpreferred)
    only_incidents = learner.kinds.bad.at[incidents:].set(0)
    probabilities = []
    for key, weights in zip(keys[:2], (only_incidents, learner.kinds.good), strict=True):
        steps, episode = draw_steps(data, weights, JUDGED, key)
        logits = _mean_of_unseeing(learner.cost.logits(*steps), learner.heldout[:, episode])
        probabilities.append(jax.nn.sigmoid(learner.cost.temperature * logits))
    return {
        "incident_scores": learner.first_ranking.nonpreferred,
        "unlabeled_scores": learner.first_ranking.unlabeled,
        "aggregate": jnp.array(AGGREGATES)[learner.first_ranking.aggregate],
        "kept": kept(learner.ranking),
        "votes": _votes(learner, data),
        "incident_probabilities": probabilities[0],
        "good_probabilities": probabilities[1],
        "importance": _importance(learner, data, keys[2]),
    }


def _votes(learner: Learner, data: Dataset) -> Bool[Array, "M logs"]:
    """Unlabeled episodes that each network alone would clone, as many as the ensemble does."""
    pile, cost = data.unlabeled, learner.cost

    def one(step: tuple[Array, Array]) -> Array:
        return cost.logits(step[0][None], step[1][None])[:, 0]

    logits = jax.lax.map(one, (pile.observations, pile.actions), batch_size=ROWS_AT_ONCE // 4)  # (steps, M)
    scores = jax.vmap(lambda values: _episode_scores(values, pile)[learner.ranking.aggregate])(logits.T)
    return scores <= jnp.quantile(scores, CLEAR * (1 - learner.ranking.share_high), axis=1, keepdims=True)


def _importance(learner: Learner, data: Dataset, key: Array) -> Float[Array, " columns"]:
    """Mean change of a logit when a column takes the values of other steps; observations, then actions."""
    (observations, actions), _ = draw_steps(data, learner.kinds.bad + learner.kinds.good, JUDGED // 2, key)
    columns = jnp.concatenate([observations, actions], axis=1)
    size = observations.shape[1]

    def logit(columns: Array) -> Array:
        return learner.cost.logits(columns[:, :size], columns[:, size:]).mean(axis=0)

    before, shifted = logit(columns), jnp.roll(columns, 1, axis=0)

    def change(column: Array) -> Array:
        chosen = (jnp.arange(columns.shape[1]) == column)[None, :]
        return jnp.abs(logit(jnp.where(chosen, shifted, columns)) - before).mean()

    return jax.lax.map(change, jnp.arange(columns.shape[1]))
