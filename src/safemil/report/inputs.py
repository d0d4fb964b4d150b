"""What a report is made from: the run, its piles as they were read, and what is known besides."""

import json
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from safemil.api import Run
from safemil.behaviour.making import recorded_seeds
from safemil.data import Trajectories
from safemil.data.formats import read
from safemil.data.interchange import Contents, Options
from safemil.data.splitting import HINDSIGHT_STORE
from safemil.errors import InputError, InputWarning
from safemil.evaluate import FILE as EVALUATION
from safemil.evaluate import check_fits
from safemil.runs import RunDirectory
from safemil.tasks.catalog import NAMESPACE

Costs = list[npt.NDArray[np.float32]]
PILES = ("unlabeled", "nonpreferred")


@dataclass(frozen=True, eq=False)
class Evaluated:
    """A run's evaluation: (seeds, episodes) each."""

    name: str
    algorithm: str
    task: str
    seed: int
    returns: npt.NDArray[np.float64]
    costs: npt.NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Material:
    """All that a page about a run is made from."""

    name: str
    run: Run
    config: dict[str, Any]
    manifest: dict[str, Any]
    unlabeled: Trajectories
    nonpreferred: Trajectories | None
    learned_from: dict[str, bool]  # by pile: whether it is what the run was trained on
    true_costs: npt.NDArray[Any] | None  # (steps,) of the unlabeled pile, in hindsight
    true_rewards: npt.NDArray[Any] | None
    task: str | None
    seeds: list[int] | None  # environment seed of each unlabeled episode
    risk: Costs | None  # ĉ of each unlabeled step, if the method learns one
    nonpreferred_risk: Costs | None
    evaluated: Evaluated | None
    compared: Run | None
    compared_evaluated: Evaluated | None


def gather(
    path: Path,
    piles: Mapping[str, Path],
    options: Options,
    *,
    compare: Path | None = None,
    task: str | None = None,
) -> Material:
    """Read everything; `piles` by name are read as `options` say, or as training did if none are given."""
    directory, run = RunDirectory(path), Run.load(path)
    contents = {name: read(where, options) for name, where in piles.items()}
    unlabeled, nonpreferred = contents["unlabeled"], contents.get("nonpreferred")
    truth = _truth(unlabeled, piles["unlabeled"], options)
    evaluated, theirs = evaluation(path), evaluation(compare) if compare else None
    origin = unlabeled.manifest.get("origin", unlabeled.manifest)
    task = task or (evaluated.task if evaluated else None) or origin.get("task")
    compared = Run.load(compare) if compare else None
    if task is not None:
        task = task.removeprefix(f"{NAMESPACE}/")
        for each in [run] if compared is None else [run, compared]:
            check_fits(task, each.observation_size, each.action_size)
    return Material(
        name=path.resolve().name,
        run=run,
        config=directory.read_config(),
        manifest=directory.read_manifest(),
        unlabeled=unlabeled.trajectories,
        nonpreferred=nonpreferred.trajectories if nonpreferred else None,
        learned_from=_learned_from(directory.read_manifest(), contents),
        true_costs=truth.costs,
        true_rewards=truth.rewards,
        task=task,
        seeds=episode_seeds(origin, unlabeled.trajectories),
        risk=_risk(run, unlabeled.trajectories) if run.learns_cost else None,
        nonpreferred_risk=(
            _risk(run, nonpreferred.trajectories) if run.learns_cost and nonpreferred else None
        ),
        evaluated=evaluated,
        compared=compared,
        compared_evaluated=theirs,
    )


def evaluation(path: Path) -> Evaluated | None:
    """What `safemil evaluate` wrote into a run."""
    file = path / EVALUATION
    if not file.exists():
        return None
    try:
        noted = json.loads(file.read_text())
        returns, costs = (np.asarray(noted[name], np.float64) for name in ("returns", "costs"))
        return Evaluated(
            path.resolve().name, noted["algorithm"], noted["task"], int(noted["seed"]), returns, costs
        )
    except (ValueError, KeyError, TypeError) as error:
        raise InputError(f"{file} is damaged ({error}); evaluate the run again.") from None


def _risk(run: Run, held: Trajectories) -> Costs:
    found = run.cost(held)
    if not all(np.isfinite(each).all() for each in found):
        raise InputError(
            f"the cost that {run.path} learned is not a number everywhere: its training has diverged (see "
            "metrics.jsonl); train it again with a smaller learning rate."
        )
    return found


def _truth(unlabeled: Contents, path: Path, options: Options) -> Contents:
    """The unlabeled pile with what is known in hindsight: its own, or that of the store beside it."""
    beside = path.parent / HINDSIGHT_STORE
    if unlabeled.costs is None and path.name == "unlabeled" and beside.is_dir():
        found = read(beside, options)
        if found.trajectories.content_hash() == unlabeled.trajectories.content_hash():
            return found
        warnings.warn(f"{beside} holds other episodes than {path}; left out.", InputWarning, stacklevel=2)
    if unlabeled.costs is not None and not np.isfinite(unlabeled.costs.astype(np.float64)).all():
        warnings.warn(
            f"some costs in {path} are not finite; hindsight is left out.", InputWarning, stacklevel=2
        )
        return replace(unlabeled, costs=None, rewards=None)
    return unlabeled


def _learned_from(manifest: Mapping[str, Any], contents: Mapping[str, Contents]) -> dict[str, bool]:
    """Of the piles whose hashes the run holds: one that was saved from Python holds none."""
    return {
        name: held.trajectories.content_hash() == manifest[f"{name}_sha256"]
        for name, held in contents.items()
        if f"{name}_sha256" in manifest
    }


def episode_seeds(origin: Mapping[str, Any], held: Trajectories) -> list[int] | None:
    """Of episodes that `safemil data make` made: they are named by their numbers there."""
    if "policies" not in origin or held.ids.dtype.kind != "i":
        return None
    seeds = recorded_seeds(origin)
    if held.ids.min() < 0 or held.ids.max() >= len(seeds):
        return None
    return [seeds[number] for number in held.ids.tolist()]
