"""What a results folder holds, normalised and summed up."""

import dataclasses
import json
import math
from collections.abc import Iterable, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from safemil import stats
from safemil.bench.cell import result_file
from safemil.bench.grid import RANDOM, Cell, Grid, Study, read_grid
from safemil.bench.runner import GRID
from safemil.errors import InputError
from safemil.stats import Interval
from safemil.typing import Doubles

MEASURES = ("Return", "Cost", "CVaR 20% cost")
OURS = "safemil"
RARELY = 0.01  # episodes lost that are not worth a row


@dataclasses.dataclass(frozen=True, eq=False)
class Entry:
    """What the seeds of one (task, algorithm, setting) came to; (seeds, episodes) each, normalised."""

    task: str
    algorithm: str
    change: Mapping[str, Any]
    returns: Doubles
    costs: Doubles
    curves: tuple[Doubles, Doubles, Doubles]  # steps (points,), returns and costs (seeds, points), normalised
    seconds: float  # of training, mean

    @cached_property
    def measures(self) -> tuple[Interval, Interval, Interval]:
        """Return, cost and CVaR 20% cost."""
        return stats.interval(self.returns), stats.interval(self.costs), stats.cvar_interval(self.costs)

    @property
    def label(self) -> str:
        return ", ".join(f"{name} = {value}" for name, value in self.change.items()) or self.algorithm


class Results:
    """The finished cells of a grid."""

    def __init__(self, folder: Path):
        if not (folder / GRID).exists():
            raise InputError(f"{folder} holds no {GRID}; give a folder that `safemil bench` wrote.")
        self.grid: Grid = read_grid(folder / GRID)
        self.found = {cell.name: _read(result_file(folder, cell)) for cell in self.grid.cells()}
        self.found = {name: result for name, result in self.found.items() if result}
        self._check_same_data()

    @property
    def done(self) -> tuple[int, int]:
        """Cells there, and cells in all."""
        return len(self.found), len(self.grid.cells())

    def entries(self, study: Study) -> list[Entry]:
        """Every group of cells of a study that is there and whose task has its two reference policies."""
        groups: dict[str, tuple[Mapping[str, Any], list[Cell]]] = {}
        for change, cell in study.cells:
            if cell.name in self.found and self.scale(cell.task) is not None:
                groups.setdefault(cell.group, (change, []))[1].append(cell)
        return [self._entry(change, cells) for change, cells in groups.values()]

    def means(self, study: Study) -> dict[str, dict[str, tuple[float, float]]]:
        """Mean return and cost as measured, by task and algorithm, over the seeds that are there."""
        return {
            task: {name: (float(gained.mean()), float(paid.mean())) for name, (gained, paid) in found.items()}
            for task, found in self._measured(study).items()
        }

    def lost(self, study: Study) -> dict[str, dict[str, tuple[float, float]]]:
        """By task and algorithm, the share of episodes lost, and the mean cost of the others.

        Lost is one that returns less than the random policy does on average. Only of the tasks where a method
        loses one in a hundred or more.
        """
        shares = {}
        for task, found in self._measured(study).items():
            bound = found.pop(RANDOM)[0].mean() if RANDOM in found else -np.inf
            rated = {name: (gained < bound, paid) for name, (gained, paid) in found.items()}
            if any(away.mean() >= RARELY for away, _ in rated.values()):
                shares[task] = {
                    name: (float(away.mean()), float(paid[~away].mean()) if not away.all() else math.nan)
                    for name, (away, paid) in rated.items()
                }
        return shares

    def _measured(self, study: Study) -> dict[str, dict[str, tuple[Doubles, Doubles]]]:
        """Returns and costs (seeds, episodes) by task and algorithm."""
        groups: dict[str, dict[str, list[dict[str, Any]]]] = {}
        for _, cell in study.cells:
            if cell.name in self.found:
                groups.setdefault(cell.task, {}).setdefault(cell.algorithm, []).append(self.found[cell.name])
        return {
            task: {name: (_stack(each, "returns"), _stack(each, "costs")) for name, each in found.items()}
            for task, found in groups.items()
        }

    def scale(self, task: str) -> tuple[Doubles, Doubles, Doubles] | None:
        """Returns of the random policy, then returns and costs of the reference policy."""
        random, reference = (self._of(task, name) for name in (RANDOM, self.grid.reference))
        if not random or not reference:
            return None
        return _stack(random, "returns"), _stack(reference, "returns"), _stack(reference, "costs")

    def _of(self, task: str, algorithm: str) -> list[dict[str, Any]]:
        """The results of an algorithm in the first study that has it on the task."""
        for study in self.grid.studies:
            cells = [cell for _, cell in study.cells if (cell.task, cell.algorithm) == (task, algorithm)]
            found = [self.found[cell.name] for cell in cells if cell.name in self.found]
            if found:
                return found
        return []

    def _entry(self, change: Mapping[str, Any], cells: list[Cell]) -> Entry:
        found = [self.found[cell.name] for cell in cells]
        scale = self.scale(cells[0].task)
        assert scale is not None
        random, returns, costs = scale
        points = [
            [(point["step"], point["return"], point["cost"]) for point in each["curve"]] for each in found
        ]
        steps, gained, paid = np.moveaxis(np.asarray(points, np.float64).reshape(len(found), -1, 3), 2, 0)
        return Entry(
            cells[0].task,
            cells[0].algorithm,
            change,
            stats.normalised_return(_stack(found, "returns"), random, returns),
            stats.normalised_cost(_stack(found, "costs"), costs),
            (
                steps[0],
                stats.normalised_return(gained, random, returns),
                stats.normalised_cost(paid, costs),
            ),
            float(np.mean([each["seconds"]["train"] for each in found])),
        )

    def _check_same_data(self) -> None:
        seen: dict[str, Any] = {}
        for result in self.found.values():
            cell = result["cell"]
            key = json.dumps([cell["source"], cell["data"]], sort_keys=True)
            if result["data_sha256"] and seen.setdefault(key, result["data_sha256"]) != result["data_sha256"]:
                raise InputError(
                    f"cells of {cell['task']} were trained on different data of the same name; "
                    "delete those of the old data and run the grid again."
                )


def sees_costs(algorithm: str) -> bool:
    """Whether a method is told true costs, so that it is no rival of those that are not."""
    from safemil.algorithms import ALGORITHMS

    return algorithm in ALGORITHMS and "annotations" in ALGORITHMS[algorithm].NEEDS


def is_rival(algorithm: str) -> bool:
    """Whether a method learns, and sees no costs."""
    return algorithm != RANDOM and not sees_costs(algorithm)


def rivals(entries: Iterable[Entry]) -> list[Entry]:
    """Entries of methods that learn and see no costs."""
    return [entry for entry in entries if is_rival(entry.algorithm)]


def headline(entries: Iterable[Entry]) -> dict[str, float]:
    """For each task, how many times lower our cost is than that of the best of the others."""
    factors, rated = {}, rivals(entries)
    for task in dict.fromkeys(entry.task for entry in rated):
        costs = {entry.algorithm: entry.measures[1].value for entry in rated if entry.task == task}
        ours = costs.pop(OURS, None)
        if ours is not None and costs:
            factors[task] = stats.times_safer(ours, than=min(costs.values()))
    return factors


def _read(path: Path) -> dict[str, Any]:
    try:
        return json.loads(path.read_text())
    except (OSError, ValueError):
        return {}


def _stack(found: list[dict[str, Any]], name: str) -> Doubles:
    return np.asarray([each[name] for each in found], np.float64)
