"""BC-Unlabeled: clone every step of the unlabeled pile.

The baseline of SafeMIL (arXiv:2511.08136, Section 5): what imitation does when part of what it imitates
is unsafe. It learns no cost and does not look at the non-preferred pile.
"""

from dataclasses import dataclass
from typing import NamedTuple

import optax
from jaxtyping import Array, Float

from safemil.algorithms.cloning import Cloning, Optimiser, clone
from safemil.algorithms.cloning import act as act
from safemil.data.sampling import Dataset, sample_steps
from safemil.networks import Policy
from safemil.settings import require_positive

TITLE = "BC-Unlabeled"
NEEDS: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Config(Cloning):
    updates: int = 10_000  # of the policy
    batch: int = 256  # steps per update
    lr: float = 1e-3  # learning rate

    def __post_init__(self) -> None:
        super().__post_init__()
        require_positive(self, "updates", "batch", "lr")

    @property
    def policy_optimiser(self) -> Optimiser:
        return self.decaying_optimiser(self.lr, self.updates)


PRESETS = {
    "fast": Config(),
    "paper": Config(updates=1_000_000, batch=128, lr=1e-5, cosine_decay=False),  # Table 2
}


class State(NamedTuple):
    policy: Policy
    opt: optax.OptState


def init(config: Config, data: Dataset, key: Array) -> State:
    policy = config.policy(data, key)
    return State(policy, config.policy_optimiser.init(policy))


def update(
    config: Config, state: State, data: Dataset, number: Array, key: Array
) -> tuple[State, dict[str, Float[Array, ""]]]:
    rows = sample_steps(data.unlabeled, config.batch, key)
    policy, opt, value = clone(
        config.policy_optimiser, state.policy, state.opt, data.unlabeled, rows, config.loss
    )
    return State(policy, opt), {"loss/policy": value}
