"""Piles of a cell, from a generated problem, a file or store, or the behaviour data of a task."""

import importlib
import importlib.util
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from safemil import catalog
from safemil.data import Annotations, Trajectories, load_annotated, save, split
from safemil.data.piles import draw_piles
from safemil.errors import InputError
from safemil.worlds import Task

MAKER = "safemil.behaviour.making"


class Piles(NamedTuple):
    nonpreferred: Trajectories
    unlabeled: Trajectories
    annotations: Annotations  # of the unlabeled pile, for methods that are told them

    def hashes(self) -> dict[str, str]:
        return {name: pile.content_hash() for name, pile in self._asdict().items()}


def prepare(source: str, folder: Path) -> None:
    """Make sure that the data are there, so that no two cells make them at once."""
    task = _task(source)
    if task is None or task.demonstrate is None:
        _store(source, folder)


def piles(source: str, folder: Path, drawn: Mapping[str, Any]) -> Piles:
    """Draw the two piles as the settings say."""
    sizes: dict[str, Any] = {name: drawn[name] for name in ("nonpreferred", "unlabeled", "preferred_share")}
    task = _task(source)
    if task is not None and task.demonstrate is not None:
        made = draw_piles(
            task.demonstrate, **sizes, rare_incidents=task.rare_incidents, seed=drawn["split_seed"]
        )
        return Piles(made.nonpreferred, made.unlabeled, made.unlabeled_truth)
    trajectories, annotations = load_annotated(_store(source, folder))
    found = split(
        trajectories, annotations, **sizes, return_rule=drawn["return_rule"], seed=drawn["split_seed"]
    )
    told = annotations.take(trajectories.lengths, found.unlabeled_episodes)
    return Piles(found.nonpreferred, found.unlabeled, told)


def _task(source: str) -> Task | None:
    """Task of this name; None for a path."""
    return catalog.task(source) if source in catalog.names() else None


def _store(source: str, folder: Path) -> Path:
    if source not in catalog.names():
        path = Path(source)
        if not path.exists():
            raise InputError(f"no data at {source}; give a path that exists or a task.")
        return path
    path = folder / source
    if not path.exists():
        try:
            maker = importlib.import_module(MAKER)
        except ModuleNotFoundError:
            raise InputError(
                f"no data of {source} at {path}, and this safemil can't make them; put a store of annotated "
                "episodes there, or name one under [data.sources]."
            ) from None
        trajectories, annotations, manifest = maker.make(source, progress=True)
        save(path, trajectories, annotations, manifest=manifest)
    return path
