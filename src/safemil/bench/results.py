"""Results of a benchmark: the finished cells of a grid, normalised and summarised."""

import dataclasses
import json
import math
from collections.abc import Iterable, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from safemil import stats
from safemil.arrays import Doubles
from safemil.bench.cell import read_result, result_file
from safemil.bench.grid import RANDOM, Cell, Grid, Study, read_grid
from safemil.bench.runner import GRID
from safemil.errors import InputError
from safemil.stats import Interval

MEASURES = ("Return", "Cost", "CVaR 20% cost")
OURS = "safemil"
LOST_SHARE = 0.01  # tasks where every algorithm loses fewer episodes than this are left out


@dataclasses.dataclass(frozen=True, eq=False)
class Entry:
    """Normalised results of all seeds of one (task, algorithm, setting)."""

    task: str
    algorithm: str
    place: int  # of the algorithm in the grid
    change: Mapping[str, Any]  # the settings that vary, and their values
    returns: Doubles  # (seeds, episodes)
    costs: Doubles  # (seeds, episodes)
    curves: tuple[Doubles, Doubles, Doubles]  # updates (points,), returns and costs (seeds, points)
    seconds: float  # of training, mean over seeds

    @cached_property
    def measures(self) -> tuple[Interval, Interval, Interval]:
        """Return, cost and CVaR 20% cost."""
        return stats.interval(self.returns), stats.interval(self.costs), stats.cvar_interval(self.costs)

    @property
    def label(self) -> str:
        """Name of the entry within its study."""
        return ", ".join(f"{name} = {value}" for name, value in self.change.items()) or self.algorithm


class Results:
    """The finished cells of a grid."""

    def __init__(self, folder: Path):
        if not (folder / GRID).exists():
            raise InputError(f"{folder} holds no {GRID}; give a folder that `safemil bench` wrote.")
        self.grid: Grid = read_grid(folder / GRID)
        read = {cell.name: read_result(result_file(folder, cell)) for cell in self.grid.cells()}
        self.found = {name: result for name, result in read.items() if result is not None}
        self._check_same_data()

    @property
    def done(self) -> tuple[int, int]:
        """Number of finished cells and of all cells."""
        return len(self.found), len(self.grid.cells())

    def entries(self, study: Study) -> list[Entry]:
        """Entries of a study, on the tasks that have results of the random and the reference policy."""
        groups: dict[str, tuple[Mapping[str, Any], list[Cell]]] = {}
        for change, cell in study.cells:
            if cell.name in self.found and self.scale(cell.task) is not None:
                groups.setdefault(cell.group, (change, []))[1].append(cell)
        return [self._entry(change, cells) for change, cells in groups.values()]

    def means(self, study: Study) -> dict[str, dict[str, tuple[float, float]]]:
        """Mean return and cost, not normalised, by task and algorithm."""
        return {
            task: {
                name: (float(returns.mean()), float(costs.mean())) for name, (returns, costs) in found.items()
            }
            for task, found in self._measured(study).items()
        }

    def lost(self, study: Study) -> dict[str, dict[str, tuple[float, float]]]:
        """Share of lost episodes and mean cost of the others (NaN if there are none), by task and algorithm.

        A lost episode returns less than the random policy does on average. Tasks where every algorithm loses
        less than `LOST_SHARE` of its episodes are left out.
        """
        shares = {}
        for task, found in self._measured(study).items():
            bound = found.pop(RANDOM)[0].mean() if RANDOM in found else -np.inf
            judged = {name: (returns < bound, costs) for name, (returns, costs) in found.items()}
            if any(is_lost.mean() >= LOST_SHARE for is_lost, _ in judged.values()):
                shares[task] = {
                    name: (
                        float(is_lost.mean()),
                        math.nan if is_lost.all() else float(costs[~is_lost].mean()),
                    )
                    for name, (is_lost, costs) in judged.items()
                }
        return shares

    def _measured(self, study: Study) -> dict[str, dict[str, tuple[Doubles, Doubles]]]:
        """Returns and costs (seeds, episodes) by task and algorithm, not normalised."""
        groups: dict[str, dict[str, list[dict[str, Any]]]] = {}
        for _, cell in study.cells:
            if cell.name in self.found:
                groups.setdefault(cell.task, {}).setdefault(cell.algorithm, []).append(self.found[cell.name])
        return {
            task: {name: (_stack(each, "returns"), _stack(each, "costs")) for name, each in found.items()}
            for task, found in groups.items()
        }

    def scale(self, task: str) -> tuple[Doubles, Doubles, Doubles] | None:
        """Returns of the random policy, returns and costs of the reference policy; None if one is missing."""
        random, reference = (self._of(task, name) for name in (RANDOM, self.grid.reference))
        if not random or not reference:
            return None
        return _stack(random, "returns"), _stack(reference, "returns"), _stack(reference, "costs")

    def _of(self, task: str, algorithm: str) -> list[dict[str, Any]]:
        """Results of an algorithm on a task, in the first study that has them."""
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
        _check_equal(found, "curve")
        points = [
            [(point["update"], point["return"], point["cost"]) for point in each["curve"]] for each in found
        ]
        curves = np.moveaxis(np.asarray(points, np.float64).reshape(len(found), -1, 3), 2, 0)
        updates, curve_returns, curve_costs = curves  # (seeds, points) each
        return Entry(
            cells[0].task,
            cells[0].algorithm,
            self.grid.algorithms.index(cells[0].algorithm),
            change,
            stats.normalised_return(_stack(found, "returns"), random, returns),
            stats.normalised_cost(_stack(found, "costs"), costs),
            (
                updates[0],
                stats.normalised_return(curve_returns, random, returns),
                stats.normalised_cost(curve_costs, costs),
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


def learns_without_costs(algorithm: str) -> bool:
    """Whether an algorithm learns, and does so without true costs."""
    from safemil.algorithms import find

    return algorithm != RANDOM and "annotations" not in find(algorithm).NEEDS


def comparable(entries: Iterable[Entry]) -> list[Entry]:
    """Entries of the algorithms that learn without true costs."""
    return [entry for entry in entries if learns_without_costs(entry.algorithm)]


def cost_ratios(entries: Iterable[Entry]) -> dict[str, float]:
    """Excess cost over the reference, best baseline ÷ SafeMIL, by task."""
    ratios, compared = {}, comparable(entries)
    for task in dict.fromkeys(entry.task for entry in compared):
        costs = {entry.algorithm: entry.measures[1].value for entry in compared if entry.task == task}
        ours = costs.pop(OURS, None)
        if ours is not None and costs:
            ratios[task] = stats.times_safer(ours, than=min(costs.values()))
    return ratios


def _stack(found: list[dict[str, Any]], name: str) -> Doubles:
    _check_equal(found, name)
    return np.asarray([each[name] for each in found], np.float64)


def _check_equal(found: list[dict[str, Any]], name: str) -> None:
    counts = {len(each[name]) for each in found}
    if len(counts) > 1:
        raise InputError(
            f"{name} of {found[0]['cell']['task']} must have equally many episodes in each seed, got "
            f"{sorted(counts)}; delete the cells with another number and run the grid again."
        )
