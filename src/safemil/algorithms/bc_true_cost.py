"""BC-True-Cost: SafeMIL's weighted cloning with the true cost in place of ĉ. An oracle, told the costs.

What SafeMIL (arXiv:2511.08136, Eqs. 10 to 14) would reach if it learned the cost perfectly. The weighting
schemes are SafeMIL's own functions; only the cost they are given differs.
"""

from dataclasses import dataclass
from typing import NamedTuple

import jax.numpy as jnp
import optax
from jaxtyping import Array, Float

from safemil.algorithms import bc, safemil
from safemil.algorithms.cloning import act as act
from safemil.algorithms.cloning import clone
from safemil.data.sampling import Dataset, Length, Pile, episode_sums
from safemil.networks import Policy
from safemil.settings import require_positive, require_within

TITLE = "BC on true cost"
NEEDS = frozenset({"annotations"})
OURS = frozenset({"keep"})


@dataclass(frozen=True)
class Config(bc.Config):
    length: Length = 5  # H, steps of a segment, or "full" for whole episodes
    gamma: float = 0.99  # discount of the cost
    weighting: safemil.Weighting = "threshold"  # how the cost weights what is cloned
    beta: float = 0.5  # temperature of exponential weights; smaller is safer, infinity is plain BC
    threshold: float | None = None  # b̂ of weighting="threshold", as a discounted cost
    keep: float = 0.4  # share of the episodes cloned, those of the lowest cost, if no b̂ is given

    def __post_init__(self) -> None:
        super().__post_init__()
        require_positive(self, "length", "beta")
        require_within(self, "gamma", 0, 1)
        require_within(self, "keep", 0, 1)

    @property
    def scheme(self) -> safemil.Config:
        """The settings that SafeMIL's weights depend on."""
        names = ("length", "gamma", "weighting", "beta", "threshold")
        return safemil.Config(**{name: getattr(self, name) for name in names})


PRESETS = {
    "fast": Config(),
    "paper": Config(
        updates=1_000_000, batch=128, weighting="segment", lr=1e-5, cosine_decay=False
    ),  # Table 2
}


class State(NamedTuple):
    policy: Policy
    opt: optax.OptState
    weights: safemil.PileWeights | safemil.KeptEpisodes


def init(config: Config, data: Dataset, key: Array) -> State:
    assert data.costs is not None
    policy = config.policy(data, key)
    weights = episode_weights(config, data.costs, data.unlabeled)
    return State(policy, config.policy_optimiser.init(policy), weights)


def compact(state: State) -> State:
    """Leave out what `derive` computes: arrays with an entry for each step or episode."""
    return state._replace(weights=safemil.without_entries(state.weights))


def derive(config: Config, state: State, data: Dataset, done: int) -> State:
    """Compute what `compact` has left out."""
    assert data.costs is not None
    return state._replace(weights=episode_weights(config, data.costs, data.unlabeled))


def episode_weights(
    config: Config, costs: Float[Array, " steps"], pile: Pile
) -> safemil.PileWeights | safemil.KeptEpisodes:
    """SafeMIL's weights; or, if no b̂ is given, the episodes of the lowest mean cost."""
    if config.weighting != "threshold" or config.threshold is not None:
        return safemil.pile_weights(config.scheme, costs, pile)
    means = episode_sums(costs, pile) / pile.lengths
    return safemil.keep_episodes(means <= jnp.quantile(means, config.keep), pile)


def update(
    config: Config, state: State, data: Dataset, number: Array, key: Array
) -> tuple[State, dict[str, Float[Array, ""]]]:
    rows = safemil.draw_weighted(state.weights, data.unlabeled, config.batch, key)
    policy, opt, value = clone(
        config.policy_optimiser, state.policy, state.opt, data.unlabeled, rows, config.loss
    )
    metrics = {"loss/policy": value, "weights/effective": state.weights.effective}
    return state._replace(policy=policy, opt=opt), metrics
