"""BC-True-Cost: SafeMIL's weighted cloning with the true cost in place of ĉ. An oracle, told the costs.

What SafeMIL (arXiv:2511.08136, Eqs. 10 to 14) would reach if it learned the cost perfectly. The weighting
schemes are SafeMIL's own functions; only the cost they are given differs.
"""

import dataclasses
from dataclasses import dataclass
from typing import NamedTuple

import jax.numpy as jnp
import optax
from jaxtyping import Array, Float

from safemil.algorithms import safemil
from safemil.algorithms.cloning import Loss, Optimiser, weighted_bc_loss
from safemil.data.sampling import Dataset, Length, Segments, sample_segments
from safemil.networks import Policy
from safemil.settings import require_positive, require_within

NEEDS = frozenset({"annotations"})


@dataclass(frozen=True)
class Config:
    updates: int = 10_000
    length: Length = 5  # H, steps of a segment, or "full" for whole episodes
    policy_batch: int = 64  # segments per update
    gamma: float = 0.99
    weighting: safemil.Weighting = "segment"
    beta: float = 0.5  # smaller: safer, from fewer steps; infinite: plain BC
    threshold: float | None = None  # b̂ of weighting="threshold", as a discounted cost
    keep: float = 0.5  # the share of episodes kept where no b̂ is given
    lr: float = 3e-4
    weight_decay: float = 0.01
    clip_norm: float = 10.0
    hidden: tuple[int, ...] = (256, 256)
    loss: Loss = "nll"

    def __post_init__(self) -> None:
        require_positive(self, "updates", "length", "policy_batch", "beta", "lr", "clip_norm")
        require_within(self, "gamma", 0, 1)
        require_within(self, "keep", 0, 1)
        require_within(self, "weight_decay", 0, 1)

    @property
    def optimiser(self) -> Optimiser:
        return Optimiser(self.lr, self.weight_decay, self.clip_norm)

    @property
    def scheme(self) -> safemil.Config:
        """The settings that SafeMIL's weights depend on."""
        names = ("length", "gamma", "weighting", "beta", "threshold", "keep")
        return safemil.Config(**{name: getattr(self, name) for name in names})


PRESETS = {
    "fast": Config(),
    "paper": Config(updates=1_000_000, policy_batch=32, lr=1e-5),  # Table 2, as SafeMIL
}


class State(NamedTuple):
    policy: Policy
    opt: optax.OptState
    weights: Float[Array, " steps"]  # of each unlabeled step; empty where the scheme computes them on the fly


def init(config: Config, data: Dataset, key: Array) -> State:
    assert data.costs is not None
    policy = Policy(data.unlabeled.observation_size, data.unlabeled.action_size, config.hidden, key=key)
    weights = jnp.ones(0)
    if config.scheme.weighs_whole_pile:
        shown = dataclasses.replace(data.unlabeled, observations=data.costs[:, None])
        weights = safemil.pile_weights(config.scheme, true_cost, shown)
    return State(policy, config.optimiser.init(policy), weights)


def true_cost(observations: Float[Array, "*batch 1"], actions: Float[Array, "*batch A"]) -> Array:
    """c(s, a) where the observation is the true cost itself."""
    return observations[..., 0]


def step_weights(
    config: Config, state: State, data: Dataset, segments: Segments
) -> Float[Array, "segments H"]:
    """The weight of each step of the batch under the chosen scheme."""
    assert data.costs is not None
    shown = segments._replace(observations=data.costs[segments.rows][..., None])
    if config.weighting == "segment":
        return safemil.segment_weights(true_cost, shown, config.gamma, config.beta)
    if config.weighting == "transition":
        return safemil.transition_weights(true_cost, shown)
    return state.weights[segments.rows] * segments.mask


def update(
    config: Config, state: State, data: Dataset, step: Array, key: Array
) -> tuple[State, dict[str, Float[Array, ""]]]:
    segments = sample_segments(data.unlabeled, config.policy_batch, config.length, key)
    weights = step_weights(config, state, data, segments)

    def loss(policy: Policy) -> Array:
        return weighted_bc_loss(policy, segments.observations, segments.actions, weights, config.loss)

    policy, opt, value = config.optimiser.descend(loss, state.policy, state.opt)
    metrics = {"loss/policy": value, "weights/effective": safemil.effective_share(weights, segments.mask)}
    return state._replace(policy=policy, opt=opt), metrics


def act(state: State, observations: Array, key: Array | None = None) -> Array:
    return state.policy.act(observations, key)
