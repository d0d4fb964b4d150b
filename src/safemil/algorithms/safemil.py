"""SafeMIL: learn a cost from bags of segments, then clone the low-cost behaviour.

Burnwal, Bhatt and Ravindran, "SafeMIL: Learning Offline Safe Imitation Policy from Non-Preferred
Trajectories" (arXiv:2511.08136). Equation numbers are the paper's. `preset="paper"` is Algorithm 1 with the
hyperparameters of Table 2.

Where the paper is silent: t counts from the start of a segment; the policy is trained on `policy_batch`
segments of its own; weights are normalised over what they are computed on, which changes the scale of
the loss and nothing else. The `fast` preset departs from the paper in five ways:

- the loss of the cost (`cost_updates`): logistic regression of steps in two rounds, instead of Eq. (9) on
  bags, which ranks episodes but hardly steps: ĉ is bounded and the loss nearly linear in it. With bags of one
  step whose score is a logit, Eq. (9) has the same optimum up to a constant. `calibrated.py` has the method;
- an ensemble (`members`) whose networks each see half of the episodes, so that every episode is ranked by
  networks that did not see it;
- first the cost, then the policy: the policy never clones with an unfinished cost; larger learning rates, the
  policy's with cosine decay;
- steps drawn by their weight (`draw`) instead of segments weighted afterwards, the same in expectation;
- `weighting="threshold"` (Eqs. 10 and 11) where, if no b̂ is given, the episodes to clone are chosen by
  the out-of-bag ranking and the estimated share of bad episodes.

`weighting="cost-to-go"` is ours.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Bool, Float, Int

from safemil.algorithms import calibrated
from safemil.algorithms.base import NOT_COMPUTED
from safemil.algorithms.cloning import TINY, Cloning, Loss, Optimiser, bc_losses, clone, weighted_mean
from safemil.algorithms.cloning import act as act
from safemil.data.sampling import (
    Bags,
    Dataset,
    Length,
    Pile,
    Segments,
    discounted_to_go,
    draw_steps,
    draw_steps_of,
    episode_at,
    map_steps,
    sample_bags,
    sample_segments,
    spread,
)
from safemil.errors import InputError
from safemil.networks import CostNet, Policy
from safemil.settings import require_positive, require_within

TITLE = "SafeMIL"
NEEDS = frozenset({"nonpreferred"})
ACCEPTS = frozenset({"preferred"})
OURS = frozenset({"cost_updates", "members", "cost_batch", "pool", "draw", "policy_batch", "refresh"})
BAG_METRICS = ("loss/cost", "score/nonpreferred", "score/unlabeled")
COST_METRICS = ("loss/cost", "loss/out-of-bag", "evidence/auc", "evidence/share")
POLICY_METRICS = ("loss/policy", "weights/effective")
FIRST_ROUND = 3  # one in so many updates of the calibrated cost is of its first round, which overfits sooner
JUDGE_EVERY = 100  # updates of the cost between two judgements on out-of-bag steps

Cost = Callable[[Array, Array], Array]  # ĉ of observations and actions: a network, or the truth
Weighting = Literal["segment", "episode", "threshold", "transition", "cost-to-go"]
Draw = Literal["steps", "segments"]


@dataclass(frozen=True)
class Config(Cloning):
    updates: int = 11_200  # of the cost and of the policy
    cost_updates: int | None = 1200  # of the cost, before the policy's; none: Algorithm 1 with bags
    members: int = 12  # networks of the calibrated cost
    cost_batch: int = 256  # steps of each kind per network and update of the calibrated cost
    bag_size: int = 128  # K, segments in a bag
    length: Length = 5  # H, steps of a segment, or "full" for whole episodes
    batch: int = 32  # pairs of bags per update
    pool: int | None = 128  # M, segments per side that all bags of an update are drawn from; none: no pool
    draw: Draw = "steps"  # what the policy clones: steps drawn by weight, or segments weighted in a batch
    policy_batch: int = 256  # steps (or segments) per policy update
    gamma: float = 0.99  # discount of the cost
    weighting: Weighting = "threshold"  # how the cost weighs what is cloned
    beta: float = 0.5  # temperature of exponential weights; smaller is safer, infinity is plain BC
    threshold: float | None = None  # b̂ of weighting="threshold", a discounted cost; none: from the evidence
    refresh: int = (
        500  # updates between two passes over all unlabeled steps, while cost and policy both learn
    )
    lr_cost: float = 2e-3  # learning rate of the cost
    lr_policy: float = 1e-3  # learning rate of the policy
    hidden_cost: tuple[int, ...] = (64, 64)  # hidden layers of the cost

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.cost_updates == 1:
            raise InputError("cost_updates must be 2 or more, one for each round, got 1.")
        require_positive(
            self, "updates", "cost_updates", "bag_size", "length", "batch", "pool", "policy_batch"
        )
        require_positive(self, "beta", "refresh", "lr_cost", "lr_policy", "cost_batch")
        require_within(self, "gamma", 0, 1)
        if self.members < 2 or self.members % 2:
            raise InputError(f"members must be an even number, 2 or more, got {self.members}.")
        if self.weighting == "threshold" and self.threshold is None and self.cost_updates is None:
            raise InputError(
                'weighting="threshold" needs a threshold where the cost is learned from bags; set threshold '
                "or cost_updates."
            )

    @property
    def cost_optimiser(self) -> Optimiser:
        return self.optimiser(self.lr_cost)

    @property
    def policy_optimiser(self) -> Optimiser:
        return self.decaying_optimiser(self.lr_policy, self._policy_updates)

    @property
    def _policy_updates(self) -> int:
        return max(self.updates - (self.cost_updates or 0), 1)

    @property
    def weighs_whole_pile(self) -> bool:
        return self.draw == "steps" or self.weighting not in ("segment", "transition")

    @property
    def keeps_episodes(self) -> bool:
        """Whether whole episodes are cloned, chosen from the evidence."""
        return self.weighting == "threshold" and self.threshold is None


PRESETS = {
    "fast": Config(),
    "paper": Config(  # Table 2; navigation tasks use length=10
        updates=1_000_000,
        cost_updates=None,
        pool=None,
        draw="segments",
        policy_batch=32,
        weighting="segment",
        lr_cost=1e-5,
        lr_policy=1e-5,
        hidden_cost=(50, 256, 256),
        cosine_decay=False,
    ),
}


class State(NamedTuple):
    cost: Any  # CostNet (bags) or calibrated.Learner
    policy: Policy
    cost_opt: optax.OptState | None  # of the CostNet
    policy_opt: optax.OptState
    weights: "PileWeights | KeptEpisodes"
    weighed: CostNet | None  # cost that the weights were computed with, where it learns on


class PileWeights(NamedTuple):
    """Weights of the unlabeled steps; empty where weights are computed on the fly."""

    each: Float[Array, " steps"]
    cumulative: Float[Array, " steps"]  # their running sum
    effective: Float[Array, ""]  # the share of the pile that the policy really learns from


class KeptEpisodes(NamedTuple):
    """Unlabeled episodes that are cloned, each of their steps with a weight of 1."""

    kept: Bool[Array, " episodes"]
    effective: Float[Array, ""]  # as in `PileWeights`


def init(config: Config, data: Dataset, key: Array) -> State:
    assert data.nonpreferred is not None
    if config.cost_updates is None:
        _check_length(config, data)
        if data.unlabeled.known_good:
            raise InputError(
                "bags have no use for known good episodes; leave out `preferred=...`, or set cost_updates."
            )
    key_cost, key_policy = jax.random.split(key)
    policy = config.policy(data, key_policy)
    weights = _no_weights(config, data.unlabeled)
    policy_opt = config.policy_optimiser.init(policy)
    if config.cost_updates is not None:
        learner = calibrated.init(
            config.members, config.hidden_cost, _window(config, data), config.cost_optimiser, data, key_cost
        )
        return State(learner, policy, None, policy_opt, weights, None)
    sizes = data.unlabeled.observation_size, data.unlabeled.action_size
    cost = CostNet(*sizes, config.hidden_cost, key=key_cost)
    weighed = cost if config.weighs_whole_pile else None
    return State(cost, policy, config.cost_optimiser.init(cost), policy_opt, weights, weighed)


def _no_weights(config: Config, pile: Pile) -> PileWeights | KeptEpisodes:
    """Weights before the first ones are computed."""
    one = jnp.ones(())
    if config.keeps_episodes:
        return KeptEpisodes(jnp.ones(len(pile.lengths), bool), one)
    steps = pile.steps if config.weighs_whole_pile else 0
    return PileWeights(jnp.ones(steps), jnp.zeros(steps), one)


def compact(state: State) -> State:
    """Leave out what `derive` computes: arrays with an entry for each step."""
    if isinstance(state.cost, calibrated.Learner):
        state = state._replace(cost=calibrated.compact(state.cost))
    return state._replace(weights=without_entries(state.weights))


def without_entries(weights: "PileWeights | KeptEpisodes") -> "PileWeights":
    """Weights of a state that `compact` has left them out of."""
    empty = jnp.zeros(0)
    return PileWeights(empty, empty, weights.effective)


def derive(config: Config, state: State, data: Dataset, done: int) -> State:
    """Compute what `compact` has left out of the state after `done` updates."""
    if config.cost_updates is not None:
        state = state._replace(cost=calibrated.derive(state.cost, _window(config, data), data))
    if not config.weighs_whole_pile or done < (config.cost_updates or 1):
        return state._replace(weights=_no_weights(config, data.unlabeled))
    if config.cost_updates is not None:
        return _weigh_once(config, state, data)
    assert state.weighed is not None
    return state._replace(weights=_weights(config, state.weighed, data.unlabeled))


def _window(config: Config, data: Dataset) -> int:
    """Steps up to a mark from which those of an incident are drawn."""
    assert data.nonpreferred is not None
    return data.nonpreferred.longest if config.length == "full" else config.length


def _check_length(config: Config, data: Dataset) -> None:
    assert data.nonpreferred is not None
    for name, pile in (("unlabeled", data.unlabeled), ("non-preferred", data.nonpreferred)):
        if config.length != "full" and config.length > pile.longest:
            raise InputError(
                f"segments of length {config.length} are longer than every {name} episode (the longest has "
                f'{pile.longest} steps); set a shorter length, or length="full" for whole episodes.'
            )


def segment_costs(cost: Cost, segments: Segments, gamma: float) -> Float[Array, " segments"]:
    """Σₜ γᵗ ĉ(sₜ, aₜ), the cumulative cost of each segment."""
    discounts = gamma ** jnp.arange(segments.mask.shape[1])[None, :]  # (1, H)
    return (discounts * segments.mask * cost(segments.observations, segments.actions)).sum(axis=1)


def bag_scores(cost: CostNet, bags: Bags, gamma: float) -> Float[Array, " bags"]:
    """Eq. (6): Score(B) = 1/K Σ_τ Σₜ γᵗ ĉ(sₜ, aₜ)."""
    return segment_costs(cost, bags.pool, gamma)[bags.members].mean(axis=1)


def cost_loss(scores_n: Float[Array, " bags"], scores_u: Float[Array, " bags"]) -> Float[Array, ""]:
    """Eq. (9): −log P(Score(Bₙ) > Score(Bᵤ)) under the Bradley-Terry model, averaged over pairs of bags."""
    return -jax.nn.log_sigmoid(scores_n - scores_u).mean()


def segment_weights(cost: Cost, segments: Segments, gamma: float, beta: float) -> Float[Array, "segments H"]:
    """Eq. (13) for the segments of a batch: w(τ) = exp(−Σₜ γᵗ ĉ / β).

    The softmax divides by the sum over the batch, so that a large cost of long segments can't underflow.
    """
    weights = jax.nn.softmax(-segment_costs(cost, segments, gamma) / beta)
    return weights[:, None] * segments.mask


def transition_weights(cost: Cost, segments: Segments) -> Float[Array, "segments H"]:
    """Eq. (14): 1 − ĉ(s, a)."""
    return (1 - cost(segments.observations, segments.actions)) * segments.mask


def step_weights(config: Config, state: State, segments: Segments, pile: Pile) -> Float[Array, "segments H"]:
    """The weight of each step of the batch under the chosen scheme."""
    if config.weighting == "segment":
        return segment_weights(_cost(state), segments, config.gamma, config.beta)
    if config.weighting == "transition":
        return transition_weights(_cost(state), segments)
    if isinstance(state.weights, KeptEpisodes):
        return state.weights.kept[episode_at(pile, segments.rows)] * segments.mask
    return state.weights.each[segments.rows] * segments.mask


def pile_weights(config: Config, costs: Float[Array, " steps"], pile: Pile) -> PileWeights:
    """Weight of every unlabeled step, given its cost; weights have an arbitrary common scale."""
    return summed(_weigh(config, costs, pile))


def summed(each: Float[Array, " steps"]) -> PileWeights:
    """Weights of all steps, with what is computed from them."""
    return PileWeights(each, jnp.cumsum(each), effective_share(each, jnp.ones_like(each)))


def keep_episodes(kept: Bool[Array, " episodes"], pile: Pile) -> KeptEpisodes:
    """Clone these episodes, each of their steps as likely."""
    steps = jnp.where(kept, pile.lengths, 0).sum().astype(jnp.float32)
    return KeptEpisodes(kept, steps**2 / jnp.maximum(steps, TINY) / pile.steps)


def draw_weighted(
    weights: PileWeights | KeptEpisodes, pile: Pile, count: int, key: Array
) -> Int[Array, " count"]:
    """Draw the rows of `count` steps in proportion to their weights."""
    if isinstance(weights, KeptEpisodes):
        return draw_steps_of(weights.kept, pile, count, key)
    return draw_steps(weights.cumulative, count, key)


def _weigh(config: Config, costs: Float[Array, " steps"], pile: Pile) -> Float[Array, " steps"]:
    to_go = discounted_to_go(costs, pile, config.gamma)  # (steps,)
    episode_costs = to_go[pile.starts]  # (episodes,) Σₜ γᵗ ĉ of each
    match config.weighting:
        case "segment":  # Eq. (13) of segments: a step counts as the segments that it is in do on average
            return _segment_means(config, to_go, pile)
        case "episode":  # Eq. (13) of whole episodes
            return spread(_softened(episode_costs, config.beta), pile)
        case "threshold":  # Eq. (10)
            assert config.threshold is not None
            return spread((episode_costs <= config.threshold).astype(jnp.float32), pile)
        case "transition":  # Eq. (14)
            return 1 - costs
        case "cost-to-go":
            return _softened(to_go, config.beta)


def _softened(costs: Array, beta: float) -> Array:
    """exp(−cost / β), divided by the largest, so that none but the costly underflow."""
    return jnp.exp((costs.min() - costs) / beta)


def _windows(config: Config, to_go: Float[Array, " steps"], pile: Pile) -> Float[Array, " steps"]:
    """Σ_{k<H} γᵏ ĉ from each step on, within its episode."""
    if config.length == "full":
        return to_go
    after = jnp.roll(to_go, -config.length)
    inside = _remaining(pile) > config.length
    return to_go - jnp.where(inside, config.gamma**config.length * after, 0)


def _remaining(pile: Pile) -> Float[Array, " steps"]:
    """Steps from each one to the end of its episode, itself included."""
    return spread(pile.starts + pile.lengths, pile) - jnp.arange(pile.steps)


def segment_starts(length: Length, pile: Pile) -> Float[Array, " steps"]:
    """1 where a segment may start: so that it fits, and at the start of an episode."""
    width = pile.longest if length == "full" else length
    first = jnp.zeros(pile.steps, bool).at[pile.starts].set(True)
    return (first | (_remaining(pile) >= width)).astype(jnp.float32)


def _segment_means(config: Config, to_go: Float[Array, " steps"], pile: Pile) -> Float[Array, " steps"]:
    starting = segment_starts(config.length, pile)
    weights = _softened(jnp.where(starting > 0, _windows(config, to_go, pile), jnp.inf), config.beta)
    width = pile.longest if config.length == "full" else config.length
    since = spread(pile.lengths, pile) - _remaining(pile)  # steps since the start of the episode

    def add(shift: Array, sums: tuple[Array, Array]) -> tuple[Array, Array]:
        inside = shift <= since
        shifted = jnp.roll(weights, shift), jnp.roll(starting, shift)
        return sums[0] + jnp.where(inside, shifted[0], 0), sums[1] + jnp.where(inside, shifted[1], 0)

    total, count = jax.lax.fori_loop(0, width, add, (jnp.zeros_like(to_go), jnp.zeros_like(to_go)))
    return total / count


def effective_share(weights: Float[Array, "*steps"], mask: Float[Array, "*steps"]) -> Float[Array, ""]:
    """(Σw)² / (n Σw²): the share of the steps that the policy really learns from."""
    total = weights.sum() ** 2 / jnp.maximum((weights**2).sum(), TINY)
    return total / mask.sum()


def policy_loss(
    policy: Policy, segments: Segments, weights: Float[Array, "segments H"], loss: Loss
) -> Float[Array, ""]:
    """Eq. (12): Σ_τ w(τ) Σₜ L_π(sₜ, aₜ), divided by the sum of the weights."""
    losses = bc_losses(policy, segments.observations, segments.actions, loss)  # (segments, H)
    return weighted_mean(losses, jax.lax.stop_gradient(weights))


def update(
    config: Config, state: State, data: Dataset, number: Array, key: Array
) -> tuple[State, dict[str, Float[Array, ""]]]:
    """One pass through the loop of Algorithm 1; or, with a calibrated cost, through one half of it."""
    key_cost, key_policy = jax.random.split(key)
    if config.cost_updates is None:
        state, cost_metrics = _update_cost(config, state, data, key_cost)
        state = _refresh_weights(config, state, data, number)
        state, policy_metrics = _update_policy(config, state, data, key_policy)
        return state, cost_metrics | policy_metrics
    unknown = {name: jnp.full((), NOT_COMPUTED) for name in (*COST_METRICS, *POLICY_METRICS)}

    def update_cost() -> tuple[State, dict[str, Float[Array, ""]]]:
        learned, metrics = _update_calibrated(config, state, data, number, key_cost)
        return learned, unknown | metrics

    def update_policy() -> tuple[State, dict[str, Float[Array, ""]]]:
        learned, metrics = _update_policy(config, state, data, key_policy)
        return learned, unknown | metrics

    return jax.lax.cond(number < config.cost_updates, update_cost, update_policy)


def _update_cost(
    config: Config, state: State, data: Dataset, key: Array
) -> tuple[State, dict[str, Float[Array, ""]]]:
    """Update the cost by the gradient of Eq. (9)."""
    assert data.nonpreferred is not None
    key_n, key_u = jax.random.split(key)
    bags_n = _sample_bags(config, data.nonpreferred, key_n)
    bags_u = _sample_bags(config, data.unlabeled, key_u)

    def loss(cost: CostNet) -> tuple[Array, tuple[Array, ...]]:
        scores = bag_scores(cost, bags_n, config.gamma), bag_scores(cost, bags_u, config.gamma)
        return cost_loss(*scores), scores

    (value, scores), grads = jax.value_and_grad(loss, has_aux=True)(state.cost)
    cost, opt = config.cost_optimiser.update(state.cost, grads, state.cost_opt)
    metrics = dict(zip(BAG_METRICS, (value, scores[0].mean(), scores[1].mean()), strict=True))
    return state._replace(cost=cost, cost_opt=opt), metrics


def _update_calibrated(
    config: Config, state: State, data: Dataset, number: Array, key: Array
) -> tuple[State, dict[str, Float[Array, ""]]]:
    """An update of the calibrated cost, in the first round and then in the second."""
    assert config.cost_updates is not None
    key_round, key_update = jax.random.split(key)
    optimiser, first = config.cost_optimiser, max(config.cost_updates // FIRST_ROUND, 1)
    learner, loss = calibrated.update(state.cost, data, optimiser, config.cost_batch, key_update)
    second, finished = number >= first, number == config.cost_updates - 1
    ends = (number == first - 1) | finished
    learner, judged = jax.lax.cond(
        (number % JUDGE_EVERY == JUDGE_EVERY - 1) | ends,
        lambda: calibrated.judge(learner, data, second),
        lambda: (learner, jnp.full((), NOT_COMPUTED)),
    )
    learner = jax.lax.cond(
        ends,
        lambda: calibrated.end_round(learner, second, config.hidden_cost, optimiser, data, key_round),
        lambda: learner,
    )
    state = state._replace(cost=learner)
    state = jax.lax.cond(finished, lambda: _weigh_once(config, state, data), lambda: state)
    ranking = learner.first_ranking
    evidence = (jnp.where(finished, each, NOT_COMPUTED) for each in (ranking.auc, ranking.share))
    return state, dict(zip(COST_METRICS, (loss, judged, *evidence), strict=True))


def _weigh_once(config: Config, state: State, data: Dataset) -> State:
    """Weigh the unlabeled steps by the finished cost, once for all updates of the policy."""
    if not config.weighs_whole_pile:
        return state
    if config.keeps_episodes:
        kept = calibrated.kept(state.cost.ranking, data.unlabeled.known_good)
        return state._replace(weights=keep_episodes(kept, data.unlabeled))
    return state._replace(weights=_weights(config, _cost(state), data.unlabeled))


def _sample_bags(config: Config, pile: Pile, key: Array) -> Bags:
    return sample_bags(
        pile, bags=config.batch, size=config.bag_size, length=config.length, pool=config.pool, key=key
    )


def _refresh_weights(config: Config, state: State, data: Dataset, number: Array) -> State:
    """Weigh the whole pile every `refresh` updates, where cost and policy learn in turns."""
    if not config.weighs_whole_pile:
        return state

    def refreshed() -> State:
        return state._replace(weights=_weights(config, state.cost, data.unlabeled), weighed=state.cost)

    return jax.lax.cond(number % config.refresh == 0, refreshed, lambda: state)


def _weights(config: Config, cost: Cost, pile: Pile) -> PileWeights:
    return pile_weights(config, map_steps(cost, pile), pile)


def _cost(state: State) -> Cost:
    return state.cost if isinstance(state.cost, CostNet) else state.cost.cost


def _update_policy(
    config: Config, state: State, data: Dataset, key: Array
) -> tuple[State, dict[str, Float[Array, ""]]]:
    optimiser = config.policy_optimiser
    if config.draw == "steps":
        rows = draw_weighted(state.weights, data.unlabeled, config.policy_batch, key)
        policy, opt, value = clone(
            optimiser, state.policy, state.policy_opt, data.unlabeled, rows, config.loss
        )
        effective = state.weights.effective
    else:
        segments = sample_segments(data.unlabeled, config.policy_batch, config.length, key)
        weights = step_weights(config, state, segments, data.unlabeled)
        loss = partial(policy_loss, segments=segments, weights=weights, loss=config.loss)
        policy, opt, value = optimiser.descend(loss, state.policy, state.policy_opt)
        effective = effective_share(weights, segments.mask)
    metrics = dict(zip(POLICY_METRICS, (value, effective), strict=True))
    return state._replace(policy=policy, policy_opt=opt), metrics


def preferred_share_needed(bag_size: int, probability: float = 0.99) -> float:
    """Lemma 1: the share α of preferred episodes at which a bag of K holds one with this probability.

    >>> round(preferred_share_needed(128), 4)
    0.0353
    """
    return 1 - (1 - probability) ** (1 / bag_size)


def advice(config: Config, preferred_share: float | None = None) -> list[str]:
    """What Lemma 1 says about the bag size: P(a bag holds a preferred episode) = 1 − (1 − α)^K."""
    if config.cost_updates is not None:  # no bags
        return []
    needed = preferred_share_needed(config.bag_size)
    lines = [
        f"A bag of {config.bag_size} holds a preferred episode with 99% probability "
        f"if at least {needed:.1%} of the unlabeled episodes are preferred."
    ]
    if preferred_share is not None and preferred_share < needed:
        probability = 1 - (1 - preferred_share) ** config.bag_size
        wanted = math.ceil(math.log(0.01) / math.log1p(-preferred_share)) if preferred_share > 0 else None
        cure = f"set bag_size={wanted} or more" if wanted else "no bag size helps without preferred episodes"
        lines.append(
            f"warning: with {preferred_share:.1%} preferred it does so with {probability:.0%}; {cure}."
        )
    return lines


def cost(state: State, observations: Array, actions: Array) -> Array:
    return _cost(state)(observations, actions)


def judgements(config: Config, state: State, data: Dataset) -> dict[str, Array]:
    """Judgements on held-out episodes, for `safemil.evidence`; none where the cost is learned from bags."""
    return {} if config.cost_updates is None else calibrated.judgements(state.cost, data)


def heldout_risks(config: Config, state: State, data: Dataset) -> tuple[Array, Array, Array] | None:
    """Risks of all steps by networks that did not see them, and the good episodes; none with bags."""
    return None if config.cost_updates is None else calibrated.heldout_risks(state.cost, data)


def judged_after(config: Config) -> int | None:
    """Updates after which the cost no longer learns; none where it learns to the end."""
    return config.cost_updates
