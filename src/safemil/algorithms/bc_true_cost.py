"""BC-True-Cost: SafeMIL's weighted cloning with the true cost in place of ĉ. An oracle, told the costs.

What SafeMIL (arXiv:2511.08136, Eqs. 10 to 14) would reach if it learned the cost perfectly. The weighting
schemes are SafeMIL's own functions; only the cost they are given differs.
"""

from dataclasses import dataclass
from typing import NamedTuple

import optax
from jaxtyping import Array, Float

from safemil.algorithms import bc, safemil
from safemil.algorithms.cloning import clone
from safemil.data.sampling import Dataset, Length, draw_steps
from safemil.networks import Policy
from safemil.settings import require_positive, require_within

TITLE = "BC on true cost"
NEEDS = frozenset({"annotations"})


@dataclass(frozen=True)
class Config(bc.Config):
    length: Length = 5  # H, steps of a segment, or "full" for whole episodes
    gamma: float = 0.99
    weighting: safemil.Weighting = "threshold"
    beta: float = 0.5  # smaller: safer, from fewer steps; infinite: plain BC
    threshold: float | None = None  # b̂ of weighting="threshold", as a discounted cost
    keep: float = 0.4  # the share of episodes kept if no b̂ is given

    def __post_init__(self) -> None:
        super().__post_init__()
        require_positive(self, "length", "beta")
        require_within(self, "gamma", 0, 1)
        require_within(self, "keep", 0, 1)

    @property
    def scheme(self) -> safemil.Config:
        """The settings that SafeMIL's weights depend on."""
        names = ("length", "gamma", "weighting", "beta", "threshold", "keep")
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
    weights: safemil.PileWeights


def init(config: Config, data: Dataset, key: Array) -> State:
    assert data.costs is not None
    policy = config.policy(data, key)
    weights = safemil.pile_weights(config.scheme, data.costs, data.unlabeled)
    return State(policy, config.policy_optimiser.init(policy), weights)


def update(
    config: Config, state: State, data: Dataset, number: Array, key: Array
) -> tuple[State, dict[str, Float[Array, ""]]]:
    rows = draw_steps(state.weights.cumulative, config.batch, key)
    policy, opt, value = clone(
        config.policy_optimiser, state.policy, state.opt, data.unlabeled, rows, config.loss
    )
    metrics = {"loss/policy": value, "weights/effective": state.weights.effective}
    return state._replace(policy=policy, opt=opt), metrics


def act(state: State, observations: Array, key: Array | None = None) -> Array:
    return state.policy.act(observations, key)
