"""The algorithms, one file each; `base.py` says what an algorithm is.

Installed packages add algorithms through the entry-point group `safemil.algorithms`.
"""

from functools import cache
from types import ModuleType
from typing import Any

from safemil import plugins
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
from safemil.algorithms.base import Algorithm as Algorithm
from safemil.errors import InputError, unknown

GROUP = "safemil.algorithms"
ALGORITHMS = {
    "safemil": safemil,
    "bc": bc,
    "dwbc-nu": dwbc_nu,
    "trex-wbc": trex_wbc,
    "safedice": safedice,
    "coptidice": coptidice,
    "bc-preferred": bc_preferred,
    "bc-true-cost": bc_true_cost,
}


def names() -> list[str]:
    """Names of all algorithms: those of this package, then those of installed packages."""
    return [*ALGORITHMS, *sorted(plugins.installed(GROUP, ALGORITHMS))]


def available() -> dict[str, Algorithm]:
    """All algorithms by name."""
    return {name: find(name) for name in names()}


def find(algorithm: str | ModuleType | Algorithm) -> Algorithm:
    """Return an algorithm by its name, or the one that a module defines."""
    if isinstance(algorithm, Algorithm):
        return algorithm
    if isinstance(algorithm, ModuleType):
        return _of_module(_name_of(algorithm), algorithm)
    if algorithm in ALGORITHMS:
        return _of_module(algorithm, ALGORITHMS[algorithm])
    entry = plugins.installed(GROUP, ALGORITHMS).get(algorithm)
    if entry is None:
        raise unknown("algorithm", algorithm, names())
    with plugins.named_in_errors("algorithm", entry):
        return _of_module(algorithm, entry.load())


def _name_of(module: ModuleType) -> str:
    """Name under which a package offers a module, else the module's own."""
    offered = {each.value: name for name, each in plugins.installed(GROUP, ALGORITHMS).items()}
    offered |= {each.__name__: name for name, each in ALGORITHMS.items()}
    return offered.get(module.__name__, module.__name__)


def of_config(config: Any) -> Algorithm:
    """Return the algorithm whose settings these are."""
    for algorithm in available().values():
        if algorithm.Config is type(config):
            return algorithm
    raise InputError(f"{type(config).__name__} is not the Config of an algorithm; give one of {names()}.")


@cache  # one object per module: a compiled program is found again by it
def _of_module(name: str, module: ModuleType) -> Algorithm:
    return Algorithm.of_module(name, module)
