"""Input of a report: the run, its piles as they were read, its task and its evaluation."""

import warnings
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from safemil import catalog, rollouts
from safemil.api import Run
from safemil.arrays import Floats
from safemil.behaviour.making import recorded_seeds
from safemil.data import Trajectories
from safemil.data.formats import read_like, read_piles
from safemil.data.interchange import Contents, Options, Paths, single_path
from safemil.data.splitting import HINDSIGHT_STORE
from safemil.data.trajectories import rows_of
from safemil.errors import InputWarning
from safemil.evaluation import Evaluation, check_fits
from safemil.labels import joined
from safemil.runs import RunDirectory
from safemil.worlds import Worlds

Costs = list[Floats]


@dataclass(frozen=True, eq=False)
class Material:
    """Input of a page about a run."""

    name: str
    run: Run
    config: dict[str, Any]
    manifest: dict[str, Any]
    unlabeled: Trajectories
    nonpreferred: Trajectories | None
    judged_sha256: str  # content hash of the unlabeled pile before the run's own labels, for further ones
    learned_from: dict[str, bool]  # by pile: whether the run was trained on it
    true_costs: npt.NDArray[Any] | None  # (steps,) of the unlabeled pile, where they are known
    true_rewards: npt.NDArray[Any] | None
    task: str | None
    scene: Worlds | None  # a world of the task, which knows its columns and its arena
    seeds: list[int] | None  # environment seed of each unlabeled episode
    risk: Costs | None  # ĉ of each unlabeled step, if the algorithm learns one
    nonpreferred_risk: Costs | None
    evaluated: Evaluation | None
    compared: Run | None
    compared_name: str
    compared_evaluated: Evaluation | None


def gather(
    path: Path,
    piles: Mapping[str, Paths],
    options: Options,
    *,
    noted: bool = False,
    compare: Path | None = None,
    task: str | None = None,
) -> Material:
    """Read everything; `piles` by name are read as `options` say, or as training did if none are given.

    Piles that are `noted`, by the run and not by the user, must be those that it was trained on.
    """
    directory, run = RunDirectory(path), Run.load(path)
    options = options.over(run.reading)
    contents = {name: _matched(run, each) for name, each in _read(piles, options).items()}
    source = contents["unlabeled"].manifest
    truth = _truth(run, contents["unlabeled"], single_path(piles["unlabeled"]), options)
    judged_sha256 = truth.trajectories.content_hash()
    unlabeled, nonpreferred = _after_labels(run, truth, contents.get("nonpreferred"), judged_sha256)
    contents = {"unlabeled": unlabeled} | ({} if nonpreferred is None else {"nonpreferred": nonpreferred})
    if noted:
        for name, pile in contents.items():
            directory.require_learned(name, pile.trajectories.content_hash())
    evaluated, theirs = Evaluation.load(path), Evaluation.load(compare) if compare else None
    origin = source.get("origin", source)
    task = task or _task_of(evaluated) or origin.get("task")
    compared = Run.load(compare) if compare else None
    if task is not None:
        task = catalog.plain_name(task)
        for each in [run] if compared is None else [run, compared]:
            check_fits(task, each)
    return Material(
        name=path.resolve().name,
        run=run,
        config=directory.read_config(),
        manifest=directory.read_manifest(),
        unlabeled=unlabeled.trajectories,
        nonpreferred=nonpreferred.trajectories if nonpreferred else None,
        judged_sha256=judged_sha256,
        learned_from=_learned_from(directory.read_manifest(), contents),
        true_costs=unlabeled.costs,
        true_rewards=unlabeled.rewards,
        task=task,
        scene=None if task is None else rollouts.begin(catalog.task(task), [0], 1),
        seeds=episode_seeds(origin, unlabeled.trajectories),
        risk=run.cost(unlabeled.trajectories) if run.learns_cost else None,
        nonpreferred_risk=(run.cost(nonpreferred.trajectories) if run.learns_cost and nonpreferred else None),
        evaluated=evaluated,
        compared=compared,
        compared_name=compare.resolve().name if compare else "",
        compared_evaluated=theirs,
    )


def _task_of(evaluated: Evaluation | None) -> str | None:
    """Task of an evaluation; None for one in an environment that is no task of the catalog."""
    known = evaluated is not None and catalog.plain_name(evaluated.task) in catalog.names()
    return evaluated.task if evaluated is not None and known else None


def _read(piles: Mapping[str, Paths], options: Options) -> dict[str, Contents]:
    if options.tells_incidents:
        return read_piles(piles, options)
    return {name: read_like(where, options) for name, where in piles.items()}


def _matched(run: Run, contents: Contents) -> Contents:
    return replace(contents, trajectories=run.match(contents.trajectories))


def _truth(run: Run, unlabeled: Contents, path: Path, options: Options) -> Contents:
    """Unlabeled pile with its true costs, if they are in it or in the store of hindsight beside it."""
    beside = path.parent / HINDSIGHT_STORE
    if unlabeled.costs is None and path.name == "unlabeled" and beside.is_dir():
        found = _matched(run, read_like(beside, options))
        if found.trajectories.content_hash() == unlabeled.trajectories.content_hash():
            return found
        warnings.warn(f"{beside} holds other episodes than {path}; left out.", InputWarning, stacklevel=2)
    if unlabeled.costs is not None and not np.isfinite(unlabeled.costs.astype(np.float64)).all():
        warnings.warn(f"some costs in {path} are not finite; they are left out.", InputWarning, stacklevel=2)
        return replace(unlabeled, costs=None, rewards=None)
    return unlabeled


def _after_labels(
    run: Run, unlabeled: Contents, nonpreferred: Contents | None, sha256: str
) -> tuple[Contents, Contents | None]:
    """Piles as the labels of training left them, if they are of these episodes."""
    if run.labels is None or run.labels.unlabeled_sha256 != sha256:
        return unlabeled, nonpreferred
    held = unlabeled.trajectories
    left, incidents, _ = run.sorted_by_labels(held)
    stayed = np.flatnonzero(np.isin(held.ids, left.ids))
    rows = rows_of(held.lengths, stayed)
    costs, rewards = (None if each is None else each[rows] for each in (unlabeled.costs, unlabeled.rewards))
    unlabeled = replace(unlabeled, trajectories=left, costs=costs, rewards=rewards)
    if nonpreferred is not None:
        both = joined(nonpreferred.trajectories, incidents)
        assert both is not None
        nonpreferred = replace(nonpreferred, trajectories=both)
    return unlabeled, nonpreferred


def _learned_from(manifest: Mapping[str, Any], contents: Mapping[str, Contents]) -> dict[str, bool]:
    """Compare the hashes of piles with those in the manifest; a run saved from Python has none."""
    return {
        name: held.trajectories.content_hash() == manifest[f"{name}_sha256"]
        for name, held in contents.items()
        if f"{name}_sha256" in manifest
    }


def episode_seeds(origin: Mapping[str, Any], held: Trajectories) -> list[int] | None:
    """Environment seeds of episodes that `safemil data make` made, which are named by their numbers."""
    if "policies" not in origin or held.ids.dtype.kind != "i":
        return None
    seeds = recorded_seeds(origin)
    if held.ids.min() < 0 or held.ids.max() >= len(seeds):
        return None
    return [seeds[number] for number in held.ids.tolist()]
