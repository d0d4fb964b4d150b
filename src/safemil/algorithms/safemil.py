"""SafeMIL: learn a cost from bags of segments, then clone the cheap behaviour.

Burnwal, Bhatt and Ravindran, "SafeMIL: Learning Offline Safe Imitation Policy from Non-Preferred
Trajectories" (arXiv:2511.08136). Equation numbers are the paper's.

Where the paper is silent: t counts from the start of a segment; the policy is trained on `policy_batch`
segments of its own; weights are normalised over what they are computed on, which changes the scale of
the loss and nothing else. The `fast` preset departs from the paper in three ways, each a setting: a larger
learning rate with fewer updates, pooled bags (`pool`), and a cost that stops learning after `cost_updates`
while the policy goes on. `weighting="cost-to-go"` is ours.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float

from safemil.algorithms.cloning import TINY, Loss, Optimiser, bc_losses, weighted_mean
from safemil.data.sampling import (
    Bags,
    Dataset,
    Length,
    Pile,
    Segments,
    discounted_to_go,
    sample_bags,
    sample_segments,
)
from safemil.errors import InputError
from safemil.networks import CostNet, Policy
from safemil.settings import require_positive, require_within

NEEDS = frozenset({"nonpreferred"})
COST_METRICS = ("loss/cost", "score/nonpreferred", "score/unlabeled")
ROWS_AT_ONCE = 8192  # steps per pass over a whole pile: bounds the memory of its activations

Cost = Callable[[Array, Array], Array]  # ĉ of observations and actions: a network, or the truth
Weighting = Literal["segment", "episode", "threshold", "transition", "cost-to-go"]


@dataclass(frozen=True)
class Config:
    updates: int = 10_000
    cost_updates: int | None = 2_000  # the cost learns during the first of them; none: during all
    bag_size: int = 128  # K
    length: Length = 5  # H, steps of a segment, or "full" for whole episodes
    batch: int = 32  # pairs of bags per update
    pool: int | None = 128  # M, segments per side that all bags of an update are drawn from; none: no pool
    policy_batch: int = 64  # segments per policy update
    gamma: float = 0.99
    weighting: Weighting = "segment"
    beta: float = 0.5  # smaller: safer, from fewer steps; infinite: plain BC
    threshold: float | None = None  # b̂ of weighting="threshold", as a discounted cost
    keep: float = 0.5  # the share of episodes kept where no b̂ is given
    refresh: int = 500  # updates between two passes over all unlabeled steps, for weights that need one
    lr_cost: float = 1e-3
    lr_policy: float = 3e-4
    weight_decay: float = 0.01
    clip_norm: float = 10.0
    hidden_cost: tuple[int, ...] = (50, 256, 256)
    hidden_policy: tuple[int, ...] = (256, 256)
    loss: Loss = "nll"

    def __post_init__(self) -> None:
        require_positive(
            self, "updates", "cost_updates", "bag_size", "length", "batch", "pool", "policy_batch"
        )
        require_positive(self, "beta", "refresh", "lr_cost", "lr_policy", "clip_norm")
        require_within(self, "gamma", 0, 1)
        require_within(self, "keep", 0, 1)
        require_within(self, "weight_decay", 0, 1)

    @property
    def optimisers(self) -> tuple[Optimiser, Optimiser]:
        """Those of the cost and of the policy."""
        rest = (self.weight_decay, self.clip_norm)
        return Optimiser(self.lr_cost, *rest), Optimiser(self.lr_policy, *rest)

    @property
    def last_cost_update(self) -> int:
        return self.updates if self.cost_updates is None else self.cost_updates

    @property
    def weighs_whole_pile(self) -> bool:
        return self.weighting in ("episode", "threshold", "cost-to-go")


PRESETS = {
    "fast": Config(),
    "paper": Config(  # Table 2; navigation tasks use length=10
        updates=1_000_000, cost_updates=None, pool=None, policy_batch=32, lr_cost=1e-5, lr_policy=1e-5
    ),
}


class State(NamedTuple):
    cost: CostNet
    policy: Policy
    cost_opt: optax.OptState
    policy_opt: optax.OptState
    weights: Float[Array, " steps"]  # of each unlabeled step; empty where the scheme computes them on the fly


def init(config: Config, data: Dataset, key: Array) -> State:
    _check_length(config, data)
    key_cost, key_policy = jax.random.split(key)
    sizes = data.unlabeled.observation_size, data.unlabeled.action_size
    cost = CostNet(*sizes, config.hidden_cost, key=key_cost)
    policy = Policy(*sizes, config.hidden_policy, key=key_policy)
    cost_optimiser, policy_optimiser = config.optimisers
    steps = len(data.unlabeled.observations) if config.weighs_whole_pile else 0
    return State(cost, policy, cost_optimiser.init(cost), policy_optimiser.init(policy), jnp.ones(steps))


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


def step_weights(config: Config, state: State, segments: Segments) -> Float[Array, "segments H"]:
    """The weight of each step of the batch under the chosen scheme."""
    if config.weighting == "segment":
        return segment_weights(state.cost, segments, config.gamma, config.beta)
    if config.weighting == "transition":
        return transition_weights(state.cost, segments)
    return state.weights[segments.rows] * segments.mask


def pile_weights(config: Config, cost: Cost, pile: Pile) -> Float[Array, " steps"]:
    """The weight of every unlabeled step under the schemes that look at whole episodes."""
    to_go = discounted_to_go(costs_of_pile(cost, pile), pile, config.gamma)  # (steps,)
    if config.weighting == "cost-to-go":
        return jnp.exp((to_go.min() - to_go) / config.beta)
    episode_costs = to_go[pile.starts]  # (episodes,) Σₜ γᵗ ĉ of each
    if config.weighting == "episode":  # Eq. (13); what is common to all weights does not matter
        weights = jnp.exp((episode_costs.min() - episode_costs) / config.beta)
    else:  # Eq. (10)
        bound = jnp.quantile(episode_costs, config.keep) if config.threshold is None else config.threshold
        weights = (episode_costs <= bound).astype(jnp.float32)
    return jnp.repeat(weights, pile.lengths, total_repeat_length=len(to_go))


def costs_of_pile(cost: Cost, pile: Pile) -> Float[Array, " steps"]:
    """ĉ of every step, a block of steps at a time."""
    pairs = pile.observations, pile.actions
    return jax.lax.map(lambda pair: cost(*pair), pairs, batch_size=ROWS_AT_ONCE)


def effective_share(
    weights: Float[Array, "segments H"], mask: Float[Array, "segments H"]
) -> Float[Array, ""]:
    """(Σw)² / (n Σw²): the share of the batch that the policy really learns from."""
    total = weights.sum() ** 2 / jnp.maximum((weights**2).sum(), TINY)
    return total / mask.sum()


def policy_loss(
    policy: Policy, segments: Segments, weights: Float[Array, "segments H"], loss: Loss
) -> Float[Array, ""]:
    """Eq. (12): Σ_τ w(τ) Σₜ L_π(sₜ, aₜ), divided by the sum of the weights."""
    losses = bc_losses(policy, segments.observations, segments.actions, loss)  # (segments, H)
    return weighted_mean(losses, jax.lax.stop_gradient(weights))


def update(
    config: Config, state: State, data: Dataset, step: Array, key: Array
) -> tuple[State, dict[str, Float[Array, ""]]]:
    """One pass through the loop of Algorithm 1."""
    key_cost, key_policy = jax.random.split(key)
    state, cost_metrics = jax.lax.cond(
        step < config.last_cost_update,
        lambda: _update_cost(config, state, data, key_cost),
        lambda: (state, {name: jnp.full((), jnp.nan) for name in COST_METRICS}),
    )
    state = _refresh_weights(config, state, data, step)
    state, policy_metrics = _update_policy(config, state, data, key_policy)
    return state, cost_metrics | policy_metrics


def _update_cost(
    config: Config, state: State, data: Dataset, key: Array
) -> tuple[State, dict[str, Float[Array, ""]]]:
    assert data.nonpreferred is not None
    key_n, key_u = jax.random.split(key)
    bags_n = _sample_bags(config, data.nonpreferred, key_n)
    bags_u = _sample_bags(config, data.unlabeled, key_u)

    def loss(cost: CostNet) -> tuple[Array, tuple[Array, Array]]:
        scores = bag_scores(cost, bags_n, config.gamma), bag_scores(cost, bags_u, config.gamma)
        return cost_loss(*scores), scores

    (value, scores), grads = jax.value_and_grad(loss, has_aux=True)(state.cost)
    cost, opt = config.optimisers[0].step(state.cost, grads, state.cost_opt)
    metrics = dict(zip(COST_METRICS, (value, scores[0].mean(), scores[1].mean()), strict=True))
    return state._replace(cost=cost, cost_opt=opt), metrics


def _sample_bags(config: Config, pile: Pile, key: Array) -> Bags:
    return sample_bags(
        pile, bags=config.batch, size=config.bag_size, length=config.length, pool=config.pool, key=key
    )


def _refresh_weights(config: Config, state: State, data: Dataset, step: Array) -> State:
    """Weigh the whole pile anew when due: once more after the cost has stopped learning, then no more."""
    if not config.weighs_whole_pile:
        return state
    due = (step % config.refresh == 0) & (step < config.last_cost_update + config.refresh)
    weights = jax.lax.cond(
        due, lambda: pile_weights(config, state.cost, data.unlabeled), lambda: state.weights
    )
    return state._replace(weights=weights)


def _update_policy(
    config: Config, state: State, data: Dataset, key: Array
) -> tuple[State, dict[str, Float[Array, ""]]]:
    segments = sample_segments(data.unlabeled, config.policy_batch, config.length, key)
    weights = step_weights(config, state, segments)

    def loss(policy: Policy) -> Array:
        return policy_loss(policy, segments, weights, config.loss)

    value, grads = jax.value_and_grad(loss)(state.policy)
    policy, opt = config.optimisers[1].step(state.policy, grads, state.policy_opt)
    metrics = {"loss/policy": value, "weights/effective": effective_share(weights, segments.mask)}
    return state._replace(policy=policy, policy_opt=opt), metrics


def act(state: State, observations: Array, key: Array | None = None) -> Array:
    return state.policy.act(observations, key)


def preferred_share_needed(bag_size: int, probability: float = 0.99) -> float:
    """Lemma 1: the share α of preferred episodes at which a bag of K holds one with this probability.

    >>> round(preferred_share_needed(128), 4)
    0.0353
    """
    return 1 - (1 - probability) ** (1 / bag_size)


def advice(config: Config, preferred_share: float | None = None) -> list[str]:
    """What Lemma 1 says about the bag size: P(a bag holds a preferred episode) = 1 − (1 − α)^K."""
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
    return state.cost(observations, actions)
