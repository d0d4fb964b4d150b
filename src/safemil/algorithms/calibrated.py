"""A calibrated cost: an ensemble that tells incident steps from good ones, judged on episodes it did not see.

SafeMIL's Eq. (9) is nearly linear in a bounded ĉ: at its optimum ĉ is 1 wherever incidents are even slightly
denser than unlabeled steps, so it recognises episodes and not steps. Here a logit is fitted by logistic
regression, a proper loss whose optimum is the log of the density ratio, in two rounds:

1. incident steps against unlabeled steps. The unlabeled pile holds bad episodes too, so no ratio can exceed
   one over their share; this round ranks episodes;
2. incidents and the unlabeled episodes that rank highest, against the unlabeled episodes that rank lowest and
   those that are known to be good.

The logit of ĉ is the sum of both: the first tells incidents from other episodes of the same style, the second
tells bad episodes from good ones. Where incidents have marks of when they happened, steps are drawn from the
window that ends there, and ĉ is that of the first round alone.

Each of M networks learns from a random half of the episodes and is judged on the other half ("out of bag").
These judgements choose how long to train, rank the unlabeled episodes and scale the logits such that ĉ is a
probability at even odds.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Bool, Float, Int, UInt32

from safemil.algorithms.cloning import Optimiser
from safemil.data.sampling import (
    Blocks,
    Dataset,
    Moments,
    Pile,
    draw_below,
    episode_sums,
    map_steps,
    moments,
    spread,
)
from safemil.networks import ScalarNet
from safemil.ranks import pairs_won, share_like

AGGREGATES = (1.0, 0.2, 0.05)  # an episode's score is the mean of this share of its steps, the highest
CLEAR = 0.8  # share of the good (and of the bad) unlabeled episodes that the second round learns from
JUDGED = 2048  # out-of-bag steps of each kind in a judgement
RESAMPLES = 200  # bootstrap samples of the share
FEWEST_GOOD = 0.1  # share of the unlabeled episodes that are taken for good at least

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
    unlabeled: Float[Array, " logs"]  # known good episodes are the last of them
    aggregate: Int[Array, ""]  # place in AGGREGATES
    auc: Float[Array, ""]  # incidents against unlabeled episodes
    share: Float[Array, ""]  # share of the unlabeled episodes that look like incidents
    share_high: Float[Array, ""]  # upper end of its 80% interval
    votes: Bool[Array, "M logs"]  # unlabeled episodes that each network alone would clone


class Learner(NamedTuple):
    """All that learning the cost carries from update to update."""

    cost: CalibratedCost
    nets: ScalarNet  # (M, ...)
    opt: optax.OptState
    best_loss: Float[Array, ""]  # lowest out-of-bag loss of this round
    heldout: Bool[Array, "M episodes"]  # episodes that a network does not see, non-preferred ones first
    judge_seed: UInt32[Array, ""]  # draws the steps of all judgements
    moments: Moments  # steps of the incidents to learn from
    kinds: Kinds
    first_ranking: Ranking  # by the first round, in which no unlabeled episode is an example of an incident
    ranking: Ranking  # by both rounds


def init(
    members: int, hidden: tuple[int, ...], window: int, optimiser: Optimiser, data: Dataset, key: Array
) -> Learner:
    assert data.nonpreferred is not None
    key_nets, key_halves, key_judge = jax.random.split(key, 3)
    nets = _networks(members, hidden, data, key_nets)
    incidents, logs = jnp.ones(len(data.nonpreferred.lengths)), jnp.ones(len(data.unlabeled.lengths))
    unknown = jnp.zeros(())
    votes = jnp.zeros((members, len(logs)), bool)
    no_ranking = Ranking(0 * incidents, 0 * logs, jnp.zeros((), jnp.int32), unknown, unknown, unknown, votes)
    return Learner(
        cost=CalibratedCost(nets, jax.tree.map(jnp.zeros_like, nets), jnp.ones(())),
        nets=nets,
        opt=jax.vmap(optimiser.init)(nets),
        best_loss=jnp.full((), jnp.inf),
        heldout=_halves(members, len(incidents), len(logs), key_halves),
        judge_seed=jax.random.bits(key_judge),
        moments=moments(data.nonpreferred, window),
        kinds=Kinds(jnp.concatenate([incidents, 0 * logs]), jnp.concatenate([0 * incidents, logs])),
        first_ranking=no_ranking,
        ranking=no_ranking,
    )


def compact(learner: Learner) -> Learner:
    """Leave out what `derive` computes."""
    empty = jnp.zeros(0, jnp.int32)
    return learner._replace(moments=Moments(empty, empty))


def derive(learner: Learner, window: int, data: Dataset) -> Learner:
    """Compute what `compact` has left out."""
    assert data.nonpreferred is not None
    return learner._replace(moments=moments(data.nonpreferred, window))


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
    data: Dataset, near: Moments, weights: Float[Array, " episodes"], count: int, key: Array
) -> tuple[Steps, Int[Array, " count"]]:
    """Draw steps of both piles, and say the episode of each.

    An episode is drawn in proportion to its weight and length. Every step of it is equally likely, or, in an
    incident with marks, every step near one.
    """
    assert data.nonpreferred is not None
    piles = data.nonpreferred, data.unlabeled
    lengths = jnp.concatenate([pile.lengths for pile in piles])
    mass = jnp.cumsum(weights * lengths)
    uniform = jax.random.uniform(key, (2, count))
    episode = jnp.minimum(jnp.searchsorted(mass, mass[-1] * uniform[0], side="right"), len(lengths) - 1)
    counts = jnp.concatenate([near.counts, piles[1].lengths])
    offset = (uniform[1] * counts[episode]).astype(jnp.int32)
    incidents = len(piles[0].lengths)
    places = jnp.minimum(episode, incidents - 1), jnp.maximum(episode - incidents, 0)
    rows = [
        jnp.minimum(pile.starts[place] + offset, pile.steps - 1)
        for pile, place in zip(piles, places, strict=True)
    ]
    first = (episode < incidents)[:, None]
    rows = [near.rows[rows[0]], jnp.where(first[:, 0], 0, rows[1])]  # steps that are not taken cost nothing
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
        bad, _ = draw_steps(data, learner.moments, jnp.where(heldout, 0, learner.kinds.bad), batch, key_bad)
        good, _ = draw_steps(
            data, learner.moments, jnp.where(heldout, 0, learner.kinds.good), batch, key_good
        )
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
        steps, episode = draw_steps(data, learner.moments, weights, JUDGED, key)
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
    return (logits * heldout).sum(axis=0) / _unseeing(heldout)


def _unseeing(heldout: Bool[Array, "M count"]) -> Int[Array, " count"]:
    """Count the networks that did not see each episode."""
    return jnp.maximum(heldout.sum(axis=0), 1)


def end_round(
    learner: Learner,
    second: Array,
    hidden: tuple[int, ...],
    optimiser: Optimiser,
    data: Dataset,
    key: Array,
) -> Learner:
    """Rank the episodes by the networks kept so far; then begin the second round, or finish the cost.

    For the second round the clearest unlabeled episodes are sorted into bad and good, and new networks start.
    The share of bad episodes stays that of the first round: in the second, the unlabeled episodes that rank
    highest are examples of incidents themselves. Where incidents have marks, ĉ is that of the first round:
    unlabeled episodes have no marks, and the second round turns from the marked steps to those around them.
    """
    assert data.nonpreferred is not None
    marked = data.nonpreferred.marks.any()
    key_rank, key_nets = jax.random.split(key)
    ranking = rank(learner, data, second, key_rank)
    nets = _networks(len(learner.heldout), hidden, data, key_nets)
    begun = learner._replace(
        nets=nets,
        opt=jax.vmap(optimiser.init)(nets),
        best_loss=jnp.full((), jnp.inf),
        kinds=_sorted_out(ranking, marked, data.unlabeled.known_good),
        first_ranking=ranking,
    )
    last = jax.tree.map(lambda weights: jnp.where(marked, 0, weights), learner.cost.second)
    cost = eqx.tree_at(lambda cost: cost.second, learner.cost, last)
    _, temperature = _calibrated_loss(learner, cost.logits, data)
    finished = learner._replace(cost=eqx.tree_at(lambda cost: cost.temperature, cost, temperature))
    chosen = jax.tree.map(lambda old, new: jnp.where(second, old, new), finished, begun)
    return chosen._replace(ranking=ranking)


def _sorted_out(ranking: Ranking, marked: Bool[Array, ""], known_good: int) -> Kinds:
    """Take incidents and, without marks, the clearest bad episodes for bad; the clearest good for good."""
    scores, incidents = ranking.unlabeled, jnp.ones_like(ranking.nonpreferred)
    good, unknown = kept(ranking, known_good), scores[: len(scores) - known_good]
    bad = (scores >= jnp.quantile(unknown, 1 - CLEAR * ranking.share)) & ~good & ~marked
    return Kinds(jnp.concatenate([incidents, bad]), jnp.concatenate([0 * incidents, good]))


def kept(ranking: Ranking, known_good: int = 0) -> Bool[Array, " logs"]:
    """Choose the clearest good episodes, which are cloned: the share of bad ones is at its upper end.

    Those that are known to be good are among them.
    """
    scores = ranking.unlabeled
    unknown = len(scores) - known_good
    clearest = scores <= jnp.quantile(scores[:unknown], _clear_good(ranking.share_high))
    return clearest | (jnp.arange(len(scores)) >= unknown)


def _clear_good(share: Float[Array, ""]) -> Float[Array, ""]:
    return jnp.maximum(CLEAR * (1 - share), FEWEST_GOOD)


def rank(learner: Learner, data: Dataset, second: Array, key: Array) -> Ranking:
    """Score all episodes out of bag, by the aggregate with which held-out incidents rank highest."""
    assert data.nonpreferred is not None
    incidents = len(data.nonpreferred.lengths)
    ours, _ = out_of_bag(learner.cost, learner.heldout[:, :incidents], data.nonpreferred)
    theirs, votes = out_of_bag(learner.cost, learner.heldout[:, incidents:], data.unlabeled)
    unknown = theirs.shape[1] - data.unlabeled.known_good
    aucs = jax.vmap(partial(pairs_won, xp=jnp))(ours, theirs[:, :unknown])
    chosen = jnp.argmax(aucs)
    shares = _shares(ours[chosen], theirs[chosen, :unknown], key)
    before = learner.first_ranking
    share, share_high = jnp.where(second, jnp.stack([before.share, before.share_high]), shares)
    alone = votes[:, chosen]  # (M, logs)
    clones = alone <= jnp.quantile(alone[:, :unknown], _clear_good(share_high), axis=1, keepdims=True)
    return Ranking(
        ours[chosen], theirs[chosen], chosen.astype(jnp.int32), aucs[chosen], share, share_high, clones
    )


def _shares(incidents: Float[Array, " n"], unlabeled: Float[Array, " m"], key: Array) -> Float[Array, "2"]:
    """Estimate the share of bad episodes, and the upper end of its 80% interval by bootstrap."""

    def resampled(key: Array) -> Float[Array, ""]:
        keys = jax.random.split(key)
        ours, theirs = (
            each[draw_below(len(each), each.shape, k)] for k, each in zip(keys, piles, strict=True)
        )
        return share_like(ours, theirs, jnp)

    piles = incidents, unlabeled
    shares = jax.vmap(resampled)(jax.random.split(key, RESAMPLES))
    return jnp.stack([share_like(*piles, jnp), jnp.quantile(shares, 0.9)])


def out_of_bag(
    cost: CalibratedCost, heldout: Bool[Array, "M episodes"], pile: Pile
) -> tuple[Float[Array, "aggregates episodes"], Float[Array, "M aggregates episodes"]]:
    """Score episodes by the networks that did not see them, and by each network alone.

    The networks pass over the pile one after the other, which takes half of the time of all at once.
    """
    if pile.blocks is not None:
        return _in_blocks(cost, heldout, pile, pile.blocks)

    def add(total: Array, member: tuple[ScalarNet, ScalarNet, Array]) -> tuple[Array, Array]:
        first, second, unseen = member
        logits = map_steps(lambda *step: first(*step) + second(*step), pile)
        return total + logits * spread(unseen, pile), _episode_scores(logits, pile)

    members = cost.first, cost.second, heldout.astype(jnp.float32)
    total, alone = jax.lax.scan(add, jnp.zeros(pile.steps), members)
    return _episode_scores(total / spread(_unseeing(heldout), pile), pile), alone


def _in_blocks(
    cost: CalibratedCost, heldout: Bool[Array, "M episodes"], pile: Pile, blocks: Blocks
) -> tuple[Float[Array, "aggregates episodes"], Float[Array, "M aggregates episodes"]]:
    """Score the episodes of a pile on the host a block at a time, so that no array has an entry per step."""
    last, unseeing = len(pile.lengths) - 1, _unseeing(heldout)

    def score(block: Blocks) -> tuple[Array, Array]:
        places = jnp.minimum(block.first + jnp.arange(pile.block_episodes), last)
        lengths = jnp.where(jnp.arange(pile.block_episodes) < block.episodes, pile.lengths[places], 0)
        ends, row = jnp.cumsum(lengths), jnp.arange(pile.block_rows)
        episode = jnp.searchsorted(ends, row, side="right")  # beyond the last one where the block is shorter
        rows = jnp.minimum(pile.starts[block.first] + row, pile.steps - 1)
        steps, seen = (pile.observations[rows], pile.actions[rows]), jnp.minimum(places[episode], last)

        def add(total: Array, member: tuple[ScalarNet, ScalarNet, Array]) -> tuple[Array, Array]:
            first, second, unseen = member
            logits = first(*steps) + second(*steps)
            return total + logits * unseen[seen], _scores(logits, episode, lengths)

        members = cost.first, cost.second, heldout.astype(jnp.float32)
        total, alone = jax.lax.scan(add, jnp.zeros(pile.block_rows), members)
        return _scores(total / unseeing[seen], episode, lengths), jnp.moveaxis(alone, 0, -1)

    scores, alone = jax.lax.map(score, blocks)  # (blocks, aggregates, episodes), and with M
    number = jnp.arange(pile.block_episodes)[None, :]
    inside = number < blocks.episodes[:, None]
    place = jnp.where(inside, blocks.first[:, None] + number, last + 1).reshape(-1)

    def in_order(
        values: Array,
    ) -> Array:  # (blocks, aggregates, episodes, ...)
        flat = jnp.moveaxis(values, 1, 0).reshape(len(AGGREGATES), -1, *values.shape[3:])
        empty = jnp.zeros((len(AGGREGATES), last + 2, *values.shape[3:]))
        return empty.at[:, place].set(flat)[:, : last + 1]

    return in_order(scores), jnp.moveaxis(in_order(alone), -1, 0)


def _scores(
    values: Float[Array, " rows"], episode: Int[Array, " rows"], lengths: Int[Array, " episodes"]
) -> Float[Array, "aggregates episodes"]:
    """`_episode_scores` of a block, whose last rows may belong to no episode."""
    episodes = len(lengths)
    descending = -jax.lax.sort((episode, -values), num_keys=2)[1]
    starts = jnp.append(jnp.cumsum(lengths) - lengths, len(values))
    place = jnp.arange(len(values)) - starts[episode]
    scores = []
    for share in AGGREGATES:
        count = jnp.maximum(jnp.ceil(share * lengths), 1)
        chosen = place < jnp.append(count, 0)[episode]
        sums = jax.ops.segment_sum(jnp.where(chosen, descending, 0), episode, num_segments=episodes + 1)
        scores.append(sums[:episodes] / count)
    return jnp.stack(scores)


def _episode_scores(values: Float[Array, " steps"], pile: Pile) -> Float[Array, "aggregates episodes"]:
    """Mean of the highest values of each episode, for each of the aggregates."""
    episode = spread(jnp.arange(len(pile.lengths)), pile)
    descending = -jax.lax.sort((episode, -values), num_keys=2)[1]
    place = jnp.arange(len(values)) - spread(pile.starts, pile)  # from the highest of the episode on
    scores = []
    for share in AGGREGATES:
        count = jnp.ceil(share * pile.lengths)
        chosen = place < spread(count, pile)
        scores.append(episode_sums(jnp.where(chosen, descending, 0), pile) / count)
    return jnp.stack(scores)


def judgements(learner: Learner, data: Dataset) -> dict[str, Array]:
    """Out-of-bag judgements that evidence is made of; episode scores are those of the first round.

    The second round takes unlabeled episodes for incidents, so its scores of incidents against unlabeled
    episodes are no longer an unbiased comparison.
    """
    keys = jax.random.split(jax.random.key(learner.judge_seed), 4)
    incidents, known_good = len(learner.ranking.nonpreferred), data.unlabeled.known_good
    unknown = len(learner.ranking.unlabeled) - known_good
    only_incidents = learner.kinds.bad.at[incidents:].set(0)
    probabilities = []
    for key, weights in zip(keys[:2], (only_incidents, learner.kinds.good), strict=True):
        steps, episode = draw_steps(data, learner.moments, weights, JUDGED, key)
        logits = _mean_of_unseeing(learner.cost.logits(*steps), learner.heldout[:, episode])
        probabilities.append(jax.nn.sigmoid(learner.cost.temperature * logits))
    return {
        "incident_scores": learner.first_ranking.nonpreferred,
        "unlabeled_scores": learner.first_ranking.unlabeled[:unknown],
        "preferred_scores": learner.first_ranking.unlabeled[unknown:],
        "aggregate": jnp.array(AGGREGATES)[learner.first_ranking.aggregate],
        "kept": kept(learner.ranking, known_good)[:unknown],
        "votes": learner.ranking.votes[:, :unknown],
        "incident_probabilities": probabilities[0],
        "good_probabilities": probabilities[1],
        "importance": _importance(learner, data, keys[2]),
    }


def _importance(learner: Learner, data: Dataset, key: Array) -> Float[Array, " columns"]:
    """Mean change of a logit when a column takes the values of other steps; observations, then actions."""
    (observations, actions), _ = draw_steps(
        data, learner.moments, learner.kinds.bad + learner.kinds.good, JUDGED // 2, key
    )
    columns = jnp.concatenate([observations, actions], axis=1)
    size = observations.shape[1]

    def logit(columns: Array) -> Array:
        return learner.cost.logits(columns[:, :size], columns[:, size:]).mean(axis=0)

    before, shifted = logit(columns), jnp.roll(columns, 1, axis=0)

    def change(column: Array) -> Array:
        chosen = (jnp.arange(columns.shape[1]) == column)[None, :]
        return jnp.abs(logit(jnp.where(chosen, shifted, columns)) - before).mean()

    return jax.lax.map(change, jnp.arange(columns.shape[1]))
