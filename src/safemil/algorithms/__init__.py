"""The methods, one file each: `Config`, `PRESETS`, `init`, `update`, `act`, and `cost` where one is learned.

`update(config, state, data, step, key)` is one step of training; `step` is an integer that all seeds of a
vectorised run share, so a `lax.cond` on it stays a branch. A method that needs the non-preferred pile, or
true rewards and costs, says so in `NEEDS`.
"""

from typing import Any, Protocol, cast

from jaxtyping import Array, Float

from safemil.algorithms import (
    bc,
    bc_preferred,
    bc_true_cost,
    coptidice,
    dwbc_nu,
    safedice,
    safemil,
    trex_wbc,
)
from safemil.data.sampling import Dataset
from safemil.errors import unknown

Metrics = dict[str, Float[Array, ""]]


class Algorithm(Protocol):
    """What the loop asks of a method's module."""

    PRESETS: dict[str, Any]
    NEEDS: frozenset[str]

    @staticmethod
    def init(config: Any, data: Dataset, key: Array) -> Any: ...

    @staticmethod
    def update(config: Any, state: Any, data: Dataset, step: Array, key: Array) -> tuple[Any, Metrics]: ...

    @staticmethod
    def act(state: Any, observations: Array, key: Array | None = None) -> Array: ...


ALGORITHMS: dict[str, Algorithm] = {
    "safemil": cast(Algorithm, safemil),
    "bc": cast(Algorithm, bc),
    "dwbc-nu": cast(Algorithm, dwbc_nu),
    "trex-wbc": cast(Algorithm, trex_wbc),
    "safedice": cast(Algorithm, safedice),
    "coptidice": cast(Algorithm, coptidice),
    "bc-preferred": cast(Algorithm, bc_preferred),
    "bc-true-cost": cast(Algorithm, bc_true_cost),
}


def find(name: str) -> Algorithm:
    """The module of a method by its name."""
    if name not in ALGORITHMS:
        raise unknown("algorithm", name, ALGORITHMS)
    return ALGORITHMS[name]
