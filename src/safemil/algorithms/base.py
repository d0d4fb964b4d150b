"""What an algorithm is: a module, of this package or of another, that defines the names below.

`update(config, state, data, update, key)` is one update of training; the number `update` is the same for all
seeds of a vectorised run, so a `lax.cond` on it stays a branch. An algorithm that needs the non-preferred
pile, or true rewards and costs, says so in `NEEDS`, and in `ACCEPTS` if it can use known good episodes; it is
shown nothing else. A metric that an update does
not compute is `NOT_COMPUTED`; a loss that is NaN or infinite ends training.
"""

import inspect
from collections.abc import Callable
from dataclasses import dataclass, is_dataclass
from types import ModuleType
from typing import Any

import numpy as np
from jaxtyping import Array, Float

from safemil.data.sampling import Dataset
from safemil.errors import InputError

Metrics = dict[str, Float[Array, ""]]
NOT_COMPUTED = float(np.finfo(np.float32).min)  # a number that no metric takes, and that survives a branch
OPTIONAL = (
    "OURS",
    "ACCEPTS",
    "cost",
    "advice",
    "judgements",
    "judged_after",
    "heldout_risks",
    "compact",
    "derive",
)
NEEDED = ("TITLE", "NEEDS", "Config", "PRESETS", "init", "update", "act")


@dataclass(frozen=True, eq=False)
class Algorithm:
    """The definitions of an algorithm's module, checked once."""

    name: str
    summary: str  # first line of the module's docstring
    TITLE: str  # in tables and figures
    NEEDS: frozenset[str]  # "nonpreferred", "annotations"
    Config: type[Any]  # frozen dataclass of settings
    PRESETS: dict[str, Any]  # settings by name; "fast" is the default
    init: Callable[[Any, Dataset, Array], Any]  # (config, data, key) -> state
    update: Callable[[Any, Any, Dataset, Array, Array], tuple[Any, Metrics]]
    act: Callable[..., Array]  # (state, observations, key=None) -> actions
    ACCEPTS: frozenset[str] = frozenset()  # "preferred"
    OURS: frozenset[str] = frozenset()  # settings that the paper does not have
    cost: Callable[[Any, Array, Array], Array] | None = None  # (state, observations, actions) -> ĉ
    advice: Callable[..., list[str]] | None = None  # (config, preferred_share=None) -> lines for the user
    judgements: Callable[[Any, Any, Dataset], dict[str, Array]] | None = None  # for `safemil.evidence`
    judged_after: Callable[[Any], int | None] | None = None  # (config) -> updates until judgements are final
    # Risks of the incidents' steps and of the unlabeled ones by networks that did not see them, and which
    # unlabeled episodes are good: for guards.
    heldout_risks: Callable[[Any, Any, Dataset], tuple[Array, Array, Array] | None] | None = None
    compact: Callable[[Any], Any] | None = None  # (state) -> state without arrays that grow with the data
    derive: Callable[[Any, Any, Dataset, int], Any] | None = None  # (config, state, data, updates done): back

    @staticmethod
    def of_module(name: str, module: ModuleType) -> "Algorithm":
        """Read an algorithm off a module, or say what the module lacks."""
        missing = [each for each in NEEDED if not hasattr(module, each)]
        if missing:
            raise InputError(
                f"{module.__name__} is not an algorithm: it does not define {', '.join(missing)}; "
                "see docs/extending.md."
            )
        if not is_dataclass(module.Config) or "fast" not in module.PRESETS:
            raise InputError(
                f"{module.__name__} needs a dataclass Config and a dict PRESETS with the key fast; "
                "see docs/extending.md."
            )
        defined: dict[str, Any] = {each: getattr(module, each) for each in NEEDED}
        defined |= {each: getattr(module, each) for each in OPTIONAL if hasattr(module, each)}
        if ("compact" in defined) != ("derive" in defined):
            raise InputError(
                f"{module.__name__} defines one of compact and derive; it needs both or neither: see "
                "docs/extending.md."
            )
        summary = (inspect.getdoc(module) or "").split("\n", 1)[0]
        return Algorithm(name, summary, **defined)
