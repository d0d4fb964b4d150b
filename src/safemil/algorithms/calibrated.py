"""A calibrated cost: an ensemble that tells incident steps from good ones, judged on episodes it did not see.

SafeMIL's Eq. (9) is nearly linear in a bounded ĉ: at its optimum ĉ is 1 wherever incidents are even slightly
denser than unlabeled steps, so it recognises episodes and not steps. Here a logit is fitted by logistic
regression, a proper loss whose optimum is the log of the density ratio, in two rounds:

1. incident steps against unlabeled steps. The unlabeled pile holds bad episodes too, so no ratio can exceed
   one over their share; this round ranks episodes;
2. incidents and the unlabeled episodes that rank highest, against the unlabeled episodes that rank lowest and
   those that are known to be good.

The logit of ĉ is the sum of both: the first tells incidents from other episodes of the same style, the
second tells bad episodes from good ones. ĉ is that of the first round alone in two cases. Where incidents
have marks of when they happened, steps are drawn from the window that ends there. And where incidents are a
rare outcome of a style, the second round learns the style: among episodes that it finds alike, the first
round then still ranks incidents above unlabeled ones (`look_alikes`).

Each of M networks learns from a random half of the episodes and is judged on the other half ("out of bag").
These judgements choose how long to train, rank the unlabeled episodes, and map logits to probabilities at
even odds (`calibrate`).
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
from safemil.algorithms.curve import Curve, Masses, fit_curve
from safemil.data.sampling import Dataset, Moments, Pile, draw_below, episode_sums, map_steps, moments, spread
from safemil.errors import InputError
from safemil.networks import ScalarNet
from safemil.ranks import pairs_won, share_like

AGGREGATES = (1.0, 0.2, 0.05)  # an episode's score is the mean of this share of its steps, the highest
CLEAR = 0.8  # share of the good (and of the bad) unlabeled episodes that the second round learns from
JUDGED = 2048  # out-of-bag steps of each kind in a judgement
RESAMPLES = 200  # bootstrap samples of the share
RARE = 0.05  # p-value below which incidents are a rare outcome of what the second round has learned
LARGEST_SHARE = 0.8  # of bad steps; beyond it, the difference that is left to the good ones is noise
FEWEST_GOOD = 0.1  # share of the unlabeled episodes that are taken for good at least

Steps = tuple[Float[Array, "count S"], Float[Array, "count A"]]


class CalibratedCost(eqx.Module):
    """ĉ(s, a): the probability, at even odds, that a step is from an incident and not from a good episode."""

    first: ScalarNet  # (M, ...), best networks of the first round
    second: ScalarNet  # (M, ...), best networks of the second round; zero before it, or if it is left out
    curve: Curve

    def __call__(
        self, observations: Float[Array, "*batch S"], actions: Float[Array, "*batch A"]
    ) -> Float[Array, "*batch"]:
        return self.curve(self.logits(observations, actions).mean(axis=0))

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


class Alike(NamedTuple):
    """First-round scores of incidents and of unlabeled episodes that the second round finds alike."""

    auc: Float[Array, ""]
    p_value: Float[Array, ""]  # one-sided, against an AUC of 0.5


class Calibration(NamedTuple):
    """Out-of-bag probabilities of steps, by a curve fitted on the other half of the episodes."""

    incidents: Float[Array, " judged"]
    good: Float[Array, " judged"]


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
    alike: Alike
    calibration: Calibration


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
        cost=CalibratedCost(nets, jax.tree.map(jnp.zeros_like, nets), Curve.logistic(jnp.ones(()))),
        nets=nets,
        opt=jax.vmap(optimiser.init)(nets),
        best_loss=jnp.full((), jnp.inf),
        heldout=_halves(members, len(incidents), len(logs), key_halves),
        judge_seed=jax.random.bits(key_judge),
        moments=moments(data.nonpreferred, window),
        kinds=Kinds(jnp.concatenate([incidents, 0 * logs]), jnp.concatenate([0 * incidents, logs])),
        first_ranking=no_ranking,
        ranking=no_ranking,
        alike=Alike(unknown + 0.5, unknown + 1),
        calibration=Calibration(jnp.zeros(JUDGED), jnp.zeros(JUDGED)),
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

    first, later = keep(learner.cost.first, ~second), keep(learner.cost.second, second)
    cost = CalibratedCost(first, later, learner.cost.curve)
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
    highest are examples of incidents themselves. Episodes are always ranked by both rounds; ĉ is that of the
    first alone where incidents have marks, since unlabeled episodes have none and the second round turns from
    the marked steps to those around them, and where incidents are a rare outcome.
    """
    assert data.nonpreferred is not None
    key_rank, key_nets = jax.random.split(key)
    incidents = len(data.nonpreferred.lengths)
    ours = out_of_bag(learner.cost, learner.heldout[:, :incidents], data.nonpreferred, second)
    theirs = out_of_bag(learner.cost, learner.heldout[:, incidents:], data.unlabeled, second)
    ranking = rank(learner, ours, theirs, data, second, key_rank)
    return jax.lax.cond(
        second,
        lambda: _finished(learner, ranking, ours, theirs, data),
        lambda: _second_round(learner, ranking, hidden, optimiser, data, key_nets),
    )


def _second_round(
    learner: Learner,
    ranking: Ranking,
    hidden: tuple[int, ...],
    optimiser: Optimiser,
    data: Dataset,
    key: Array,
) -> Learner:
    assert data.nonpreferred is not None
    nets = _networks(len(learner.heldout), hidden, data, key)
    return learner._replace(
        nets=nets,
        opt=jax.vmap(optimiser.init)(nets),
        best_loss=jnp.full((), jnp.inf),
        kinds=_sorted_out(ranking, data.nonpreferred.marks.any(), data.unlabeled.known_good),
        first_ranking=ranking,
        ranking=ranking,
    )


def _finished(
    learner: Learner, ranking: Ranking, ours: "OutOfBag", theirs: "OutOfBag", data: Dataset
) -> Learner:
    """Decide which rounds make ĉ, and calibrate it."""
    assert data.nonpreferred is not None
    alike = look_alikes(learner.first_ranking, ours.second, theirs.second, data)
    alone = data.nonpreferred.marks.any() | (alike.p_value < RARE)
    second = jax.tree.map(lambda weights: jnp.where(alone, 0, weights), learner.cost.second)
    cost = eqx.tree_at(lambda cost: cost.second, learner.cost, second)
    incidents, unlabeled = (each.first + jnp.where(alone, 0, each.second) for each in (ours, theirs))
    curve, calibration = calibrate(learner, incidents, unlabeled, ranking.share, data)
    _, temperature = _calibrated_loss(learner, cost.logits, data)
    curve = eqx.tree_at(lambda curve: curve.temperature, curve, temperature)
    cost = eqx.tree_at(lambda cost: cost.curve, cost, curve)
    return learner._replace(cost=cost, ranking=ranking, alike=alike, calibration=calibration)


def look_alikes(
    first: Ranking, incidents: Float[Array, " steps"], unlabeled: Float[Array, " steps"], data: Dataset
) -> Alike:
    """Compare first-round scores of incidents and unlabeled episodes that the second round finds alike.

    Both are the episodes above the same second-round score. If the unlabeled ones among them are incidents,
    they are exchangeable with the others, and the first round tells them apart by chance only. If it ranks
    incidents higher, incidents are a rare outcome of something that the second round has learned instead.
    """
    assert data.nonpreferred is not None
    unknown = len(data.unlabeled.lengths) - data.unlabeled.known_good
    ours = _episode_scores(incidents, data.nonpreferred)[first.aggregate]
    theirs = _episode_scores(unlabeled, data.unlabeled)[first.aggregate, :unknown]
    least = jnp.quantile(theirs, 1 - CLEAR * first.share)
    m, n = (jnp.maximum((each >= least).sum(), 1) for each in (ours, theirs))
    pairs = (ours >= least)[:, None] & (theirs >= least)[None, :]
    difference = first.nonpreferred[:, None] - first.unlabeled[None, :unknown]
    auc = jnp.where(pairs, (1 + jnp.sign(difference)) / 2, 0).sum() / (m * n)
    deviation = jnp.sqrt((m + n + 1) / (12 * m * n))  # of the AUC of exchangeable scores (Mann and Whitney)
    return Alike(auc, jax.scipy.stats.norm.sf((auc - 0.5) / deviation))


def calibrate(
    learner: Learner,
    incidents: Float[Array, " steps"],
    unlabeled: Float[Array, " steps"],
    share: Float[Array, ""],
    data: Dataset,
) -> tuple[Curve, Calibration]:
    """Fit a rising curve from out-of-bag logits to probabilities at even odds, and judge it by halves."""
    assert data.nonpreferred is not None
    pile = data.nonpreferred
    mean_lengths = [each.lengths.mean() for each in (pile, data.unlabeled)]
    share = jnp.minimum(share * mean_lengths[0] / mean_lengths[1], LARGEST_SHARE)
    unknown = len(data.unlabeled.lengths) - data.unlabeled.known_good
    of_incidents = jnp.arange(len(pile.lengths))
    of_logs = jnp.arange(len(data.unlabeled.lengths))
    logits = jnp.concatenate([incidents, unlabeled])

    def masses(parity: int | None) -> Masses:
        chosen, logs = (
            jnp.ones_like(each, bool) if parity is None else each % 2 == parity
            for each in (of_incidents, of_logs)
        )
        near = _near_masses(learner.moments, pile) * spread(chosen, pile)
        every = spread(chosen, pile).astype(jnp.float32)
        others = spread(logs & (of_logs < unknown), data.unlabeled).astype(jnp.float32)
        none = jnp.zeros_like(incidents), jnp.zeros_like(unlabeled)
        parts = (near, none[1]), (every, none[1]), (none[0], others)
        return Masses(*(_normalised(jnp.concatenate(part)) for part in parts))

    halves = []
    keys = jax.random.split(jax.random.fold_in(jax.random.key(learner.judge_seed), 1), (2, 2))
    for parity in range(2):
        curve, _ = fit_curve(logits, masses(1 - parity), share)
        judged = masses(parity)
        _, good = fit_curve(logits, judged, share)
        halves.append(
            [
                curve(_drawn(logits, mass, k))
                for mass, k in zip((judged.near, good), keys[parity], strict=True)
            ]
        )
    probabilities = [jnp.concatenate(each) for each in zip(*halves, strict=True)]
    return fit_curve(logits, masses(None), share)[0], Calibration(*probabilities)


def _near_masses(near: Moments, pile: Pile) -> Float[Array, " steps"]:
    """How often `draw_steps` draws each step of the incidents."""
    place = jnp.arange(len(near.rows)) - spread(pile.starts, pile)
    each = jnp.where(place < spread(near.counts, pile), spread(pile.lengths / near.counts, pile), 0)
    return jnp.zeros_like(each).at[near.rows].set(each)


def _normalised(mass: Float[Array, " steps"]) -> Float[Array, " steps"]:
    return mass / jnp.maximum(mass.sum(), 1)


def _drawn(logits: Float[Array, " steps"], mass: Float[Array, " steps"], key: Array) -> Float[Array, " half"]:
    through = jnp.cumsum(mass)
    places = through[-1] * jax.random.uniform(key, (JUDGED // 2,))
    return logits[jnp.minimum(jnp.searchsorted(through, places, side="right"), len(logits) - 1)]


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


def rank(
    learner: Learner, ours: "OutOfBag", theirs: "OutOfBag", data: Dataset, second: Array, key: Array
) -> Ranking:
    """Score all episodes out of bag, by the aggregate with which held-out incidents rank highest."""
    assert data.nonpreferred is not None
    unknown = theirs.scores.shape[1] - data.unlabeled.known_good
    aucs = jax.vmap(partial(pairs_won, xp=jnp))(ours.scores, theirs.scores[:, :unknown])
    chosen = jnp.argmax(aucs)
    before = learner.first_ranking
    share, share_high = jax.lax.cond(
        second,
        lambda: jnp.stack([before.share, before.share_high]),
        lambda: _shares(ours.scores[chosen], theirs.scores[chosen, :unknown], key),
    )
    alone = theirs.alone[:, chosen]  # (M, logs)
    clones = alone <= jnp.quantile(alone[:, :unknown], _clear_good(share_high), axis=1, keepdims=True)
    return Ranking(
        ours.scores[chosen],
        theirs.scores[chosen],
        chosen.astype(jnp.int32),
        aucs[chosen],
        share,
        share_high,
        clones,
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


class OutOfBag(NamedTuple):
    """Judgements of a pile by the networks that did not see its episodes."""

    scores: Float[Array, "aggregates episodes"]
    alone: Float[Array, "M aggregates episodes"]  # by each network, of all episodes
    first: Float[Array, " steps"]  # logits of the first round
    second: Float[Array, " steps"]  # logits of the second round; 0 before it


def out_of_bag(
    cost: CalibratedCost, heldout: Bool[Array, "M episodes"], pile: Pile, second: Array
) -> OutOfBag:
    """Judge a pile.

    The networks pass over the pile one after the other, which takes half of the time of all at once.
    """

    def add(totals: Array, member: tuple[ScalarNet, ScalarNet, Array]) -> tuple[Array, Array]:
        first, later, unseen = member

        def logits(observations: Array, actions: Array) -> Array:
            of_first = first(observations, actions)
            of_second = jax.lax.cond(
                second, lambda: later(observations, actions), lambda: jnp.zeros_like(of_first)
            )
            return jnp.stack([of_first + of_second, of_second])

        both = map_steps(logits, pile)  # (steps, 2)
        return totals + both * spread(unseen, pile)[:, None], _episode_scores(both[:, 0], pile)

    members = cost.first, cost.second, heldout.astype(jnp.float32)
    totals, alone = jax.lax.scan(add, jnp.zeros((pile.steps, 2)), members)
    both, later = (totals / spread(_unseeing(heldout), pile)[:, None]).T
    return OutOfBag(_episode_scores(both, pile), alone, both - later, later)


def heldout_risks(learner: Learner, data: Dataset) -> tuple[Array, Array, Array]:
    """Risk of each step of both piles, by networks that did not see its episode, and whom to clone."""
    assert data.nonpreferred is not None
    heldout, incidents = learner.heldout, len(data.nonpreferred.lengths)
    trained, given = heldout.shape[1], incidents + len(data.unlabeled.lengths)
    if trained != given:
        raise InputError(f"the run was trained on {trained} episodes, got {given}; give those, or calm ones.")
    bad = _risks_by_unseeing(learner.cost, heldout[:, :incidents], data.nonpreferred)
    others = _risks_by_unseeing(learner.cost, heldout[:, incidents:], data.unlabeled)
    return bad, others, kept(learner.ranking, data.unlabeled.known_good)


def _risks_by_unseeing(
    cost: CalibratedCost, heldout: Bool[Array, "M episodes"], pile: Pile
) -> Float[Array, " steps"]:
    def add(total: Array, member: tuple[ScalarNet, ScalarNet, Array]) -> tuple[Array, None]:
        first, second, unseen = member
        logits = map_steps(lambda *step: first(*step) + second(*step), pile)
        return total + logits * spread(unseen, pile), None

    members = cost.first, cost.second, heldout.astype(jnp.float32)
    total, _ = jax.lax.scan(add, jnp.zeros(pile.steps), members)
    return cost.curve(total / spread(_unseeing(heldout), pile))


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
    key = jax.random.split(jax.random.key(learner.judge_seed), 4)[2]
    known_good = data.unlabeled.known_good
    unknown = len(learner.ranking.unlabeled) - known_good
    return {
        "incident_scores": learner.first_ranking.nonpreferred,
        "unlabeled_scores": learner.first_ranking.unlabeled[:unknown],
        "preferred_scores": learner.first_ranking.unlabeled[unknown:],
        "aggregate": jnp.array(AGGREGATES)[learner.first_ranking.aggregate],
        "tried": jnp.array(len(AGGREGATES)),
        "kept": kept(learner.ranking, known_good)[:unknown],
        "votes": learner.ranking.votes[:, :unknown],
        "incident_probabilities": learner.calibration.incidents,
        "good_probabilities": learner.calibration.good,
        "alike_auc": learner.alike.auc,
        "alike_p": learner.alike.p_value,
        "rare": learner.alike.p_value < RARE,
        "importance": _importance(learner, data, key),
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
