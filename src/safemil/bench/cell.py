"""Runs one cell: data, training, evaluation, and a small JSON file with everything needed to repeat it.

JAX is imported only when a cell runs, because a worker must limit its threads first (`one_thread`).
"""

import contextlib
import json
import os
import platform
import time
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Annotated, Any

from safemil.bench.grid import RANDOM, Cell
from safemil.checks import Range, fit
from safemil.errors import InputError
from safemil.files import atomic_file
from safemil.texts import read_json

CELLS = "cells"
PACKAGES = ("jax", "jaxlib", "equinox", "optax", "numpy", "mujoco")


def one_thread() -> None:
    """Limit JAX to one thread, so that results are equal on machines of any size.

    XLA takes the size of its thread pools from NPROC, else from the cores that the process may use; neither
    the Eigen flag nor `intra_op_parallelism_threads` changes it. Call this before JAX is imported.
    """
    os.environ["NPROC"] = "1"
    os.environ["JAX_PLATFORMS"] = "cpu"


def result_file(results: Path, cell: Cell) -> Path:
    """Path of the result of a cell."""
    return results / CELLS / f"{cell.name}.json"


@dataclass(frozen=True)
class Origin:
    """Part of a result that says what was run."""

    task: str
    source: str
    data: dict[str, Any]


@dataclass(frozen=True)
class Seconds:
    """Seconds that a cell took."""

    train: Annotated[float, Range(0)]


@dataclass(frozen=True)
class Result:
    """What tables and figures use of the result of a cell."""

    cell: Origin
    data_sha256: dict[str, str]
    returns: list[float]
    costs: list[float]
    curve: list[dict[str, float]]
    seconds: Seconds


def read_result(path: Path) -> dict[str, Any] | None:
    """Read the result of a cell; None if there is none, or a damaged file in its place."""
    try:
        content: dict[str, Any] = read_json(path)
    except (OSError, InputError):
        return None
    found: Result = fit(f"{path}:", content, Result, extra=True)
    if not 0 < len(found.returns) == len(found.costs):
        counts = f"{len(found.returns)} and {len(found.costs)}"
        raise InputError(f"{path}: need equally many returns and costs, at least one, got {counts}.")
    for number, point in enumerate(found.curve):
        if not {"update", "return", "cost"} <= point.keys():
            raise InputError(f"{path}: curve[{number}] must have update, return and cost, got {[*point]}.")
    return content


def write_result(results: Path, cell: Cell, result: dict[str, Any]) -> None:
    """Write the result of a cell as JSON."""
    with atomic_file(result_file(results, cell)) as file:
        file.write_text(json.dumps(result) + "\n", encoding="utf-8")


def run_cell(cell: Cell, folder: Path) -> dict[str, Any]:
    """Run a cell and return its result, which is deterministic except for `seconds`."""
    import safemil
    from safemil import evaluation
    from safemil.bench.datasets import piles

    began = time.monotonic()
    data = None if cell.algorithm == RANDOM else piles(cell.source, folder, cell.data)
    loaded = time.monotonic()
    act, metrics = _policy(cell, data)
    trained = time.monotonic()
    found = evaluation.roll_out(
        cell.task, act, episodes=cell.evaluation["episodes"], seed=cell.evaluation["seed"], threads=1
    )
    ended = time.monotonic()
    return {
        "cell": cell.to_json(),
        "versions": {
            "safemil": safemil.__version__,
            "python": platform.python_version(),
            **_versions(),
        },
        "data_sha256": data.hashes() if data else {},
        **{name: values[0] for name, values in found.to_json().items()},
        "curve": _curve(metrics),
        "metrics": {name: value for line in metrics for name, value in line.items() if name != "seconds"},
        "seconds": {
            "data": round(loaded - began, 2),
            "train": round(metrics[-1]["seconds"], 2) if metrics else 0.0,
            "evaluate": round(ended - trained, 2),
            "all": round(ended - began, 2),
        },
    }


def _versions() -> dict[str, str]:
    """Versions of the packages that a result can depend on, where they are installed."""
    found = {}
    for name in PACKAGES:
        with contextlib.suppress(PackageNotFoundError):
            found[name] = version(name)
    return found


def _policy(cell: Cell, data: Any) -> tuple[Any, list[dict[str, Any]]]:
    """Train a policy; return it and the metrics of its training."""
    from safemil import evaluation

    if cell.algorithm == RANDOM:
        return evaluation.random_policy(evaluation.sizes(cell.task)[1], cell.seed), []
    from safemil import api
    from safemil.algorithms import find

    every, episodes = cell.evaluation["curve_every"], cell.evaluation["curve_episodes"]
    evaluation.check_fits(cell.task, data.unlabeled)
    needs = find(cell.algorithm).NEEDS
    given = {name: pile for name, pile in data._asdict().items() if name in needs}
    run = api.train(
        cell.algorithm,
        unlabeled=data.unlabeled,
        **given,
        preset=cell.preset,
        seed=cell.seed,
        log_every=min(every, 500) if every else 500,
        progress=False,
        evaluate=evaluation.curve(cell.task, episodes=episodes) if every else None,
        evaluate_every=every or 1000,
        **cell.settings,
    )
    return evaluation.policy(run, task=cell.task), run.metrics


def _curve(metrics: list[dict[str, Any]]) -> list[dict[str, Any]]:
    names = {"return": "evaluation/return", "cost": "evaluation/cost"}
    return [
        {"update": line["update"], **{short: line[name][0] for short, name in names.items()}}
        for line in metrics
        if names["cost"] in line
    ]


def is_done(path: Path) -> bool:
    """Whether a file holds the result of a cell."""
    try:
        return read_result(path) is not None
    except InputError:
        return False
