"""Learn safe policies from incident logs.

bad, logs = safemil.load("incidents.parquet"), safemil.load("logs.parquet")
run = safemil.train("safemil", nonpreferred=bad, unlabeled=logs, seed=0)
risk = run.cost(logs)                   # one array per episode
action = run.act(logs.observations[0])  # deterministic by default
"""

import importlib
from typing import TYPE_CHECKING

__version__ = "0.1.0"

if TYPE_CHECKING:
    from safemil.api import Run as Run
    from safemil.api import train as train
    from safemil.data import Annotations as Annotations
    from safemil.data import Trajectories as Trajectories
    from safemil.data import load as load
    from safemil.data import load_annotated as load_annotated
    from safemil.data import save as save
    from safemil.data import split as split
    from safemil.errors import InputError as InputError
    from safemil.evaluation import evaluate as evaluate
    from safemil.evidence import Evidence as Evidence
    from safemil.report.page import report as report

_HOMES = {
    "Annotations": "safemil.data",
    "Evidence": "safemil.evidence",
    "InputError": "safemil.errors",
    "Run": "safemil.api",
    "Trajectories": "safemil.data",
    "evaluate": "safemil.evaluation",
    "load": "safemil.data",
    "load_annotated": "safemil.data",
    "report": "safemil.report.page",
    "save": "safemil.data",
    "split": "safemil.data",
    "train": "safemil.api",
}
__all__ = [name for name in _HOMES if name != "report"]  # which needs an extra, as `import *` must not


def __getattr__(name: str) -> object:
    # Imported on demand: `safemil --help` and `safemil.tasks` don't need JAX, which takes a second to import.
    if name not in _HOMES:
        raise AttributeError(f"module 'safemil' has no attribute '{name}'")
    return getattr(importlib.import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOMES])
