"""BC-Preferred: clone the unlabeled episodes of low true cost. An oracle, which is told the costs.

What a perfect choice of episodes would give: it bounds SafeMIL (arXiv:2511.08136) from above. An episode is
preferred if its true cost, summed over its steps, is at most `cost_limit`, or without a limit if it is among
the share `keep` of the unlabeled episodes with the lowest cost. The one with the lowest cost always is.
"""

import math
from dataclasses import dataclass
from typing import NamedTuple

import jax.numpy as jnp
import optax
from jaxtyping import Array, Bool, Float

from safemil.algorithms import bc
from safemil.algorithms.cloning import act as act
from safemil.algorithms.cloning import clone
from safemil.data.sampling import Dataset, episode_sums, sample_steps_of
from safemil.networks import Policy
from safemil.settings import require_within

TITLE = "BC on preferred"
NEEDS = frozenset({"annotations"})
OURS = frozenset({"keep"})


@dataclass(frozen=True)
class Config(bc.Config):
    cost_limit: float | None = None  # largest true cost of a cloned episode; none: by `keep`
    keep: float = 0.5  # share of the episodes cloned, those of the lowest cost, if no limit is given

    def __post_init__(self) -> None:
        super().__post_init__()
        require_within(self, "cost_limit", 0, math.inf)
        require_within(self, "keep", 0, 1)


PRESETS = {
    "fast": Config(),
    "paper": Config(updates=1_000_000, batch=128, lr=1e-5, cosine_decay=False),  # Table 2, as BC-Unlabeled
}


class State(NamedTuple):
    policy: Policy
    opt: optax.OptState
    preferred: Bool[Array, " episodes"]


def init(config: Config, data: Dataset, key: Array) -> State:
    assert data.costs is not None
    policy = config.policy(data, key)
    chosen = preferred(config, episode_sums(data.costs, data.unlabeled))
    return State(policy, config.policy_optimiser.init(policy), chosen)


def preferred(config: Config, episode_costs: Float[Array, " episodes"]) -> Bool[Array, " episodes"]:
    """Select the episodes to clone."""
    bound = jnp.quantile(episode_costs, config.keep) if config.cost_limit is None else config.cost_limit
    return episode_costs <= jnp.maximum(bound, episode_costs.min())


def update(
    config: Config, state: State, data: Dataset, number: Array, key: Array
) -> tuple[State, dict[str, Float[Array, ""]]]:
    rows = sample_steps_of(data.unlabeled, state.preferred, config.batch, key)
    policy, opt, value = clone(
        config.policy_optimiser, state.policy, state.opt, data.unlabeled, rows, config.loss
    )
    return state._replace(policy=policy, opt=opt), {"loss/policy": value}
