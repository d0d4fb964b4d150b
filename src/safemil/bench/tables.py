"""Tables of results: cells hold numbers, and `safemil.bench.render` turns a table into text."""

import json
import math
from collections.abc import Callable, Mapping, Sequence
from importlib.resources import files
from typing import Any, NamedTuple

import numpy as np

from safemil import stats
from safemil.bench.grid import RANDOM
from safemil.bench.results import MEASURES, OURS, Entry, comparable, learns_without_costs

ByTask = Mapping[str, Mapping[str, tuple[float, float]]]  # two numbers by task and algorithm


def three_figures(value: float) -> str:
    """Round to three significant figures, or to a whole number.

    >>> three_figures(0.456), three_figures(13.66), three_figures(2381.4)
    ('0.46', '13.7', '2,381')
    """
    size = abs(value)
    return f"{value:,.{0 if size >= 99.95 else 1 if size >= 9.995 else 2}f}"


class Form(NamedTuple):
    """Format of a cell: one entry per number."""

    show: tuple[Callable[[float], str], ...]
    separator: str = ""
    suffixes: tuple[str, ...] = ("",)  # CSV has a column per number: the column's title and this
    csv: str = ".2f"


NUMBER = Form(("{:.2f}".format,))
SECONDS = Form(("{:.0f}".format,), csv=".0f")
INTERVAL = Form(("{:.2f}".format,) * 2, " ± ", ("", " ±"))  # mean and half-width
RETURN_COST = Form((three_figures,) * 2, " / ", (" return", " cost"))
LOST_COST = Form(("{:.0%}".format, three_figures), " / ", (" lost", " cost of the others"))


class Value(NamedTuple):
    """Cell with numbers, such as a mean and the half-width of its interval; NaN is not shown.

    >>> str(Value((1.0, 0.25), INTERVAL)), str(Value((1.0, math.nan), LOST_COST))
    ('1.00 ± 0.25', '100%')
    """

    numbers: tuple[float, ...]
    form: Form
    best: bool = False  # the best in its column, shown in bold

    def __str__(self) -> str:
        shown = zip(self.form.show, self.numbers, strict=True)
        return self.form.separator.join(show(number) for show, number in shown if not math.isnan(number))


Cell = str | Value


class Table(NamedTuple):
    """Titles of the columns, and rows of cells; an empty text is a missing value."""

    head: Sequence[str]
    rows: Sequence[Sequence[Cell]]


def title_of(algorithm: str) -> str:
    """Title of an algorithm in tables and figures."""
    from safemil.algorithms import find

    return algorithm if algorithm == RANDOM else find(algorithm).TITLE


def short_name(task: str) -> str:
    """Name of a task without prefix, suffix and version.

    >>> short_name("SafetyPointGoal1-v0"), short_name("SafetyAntVelocity-v1"), short_name("toy:speed")
    ('Goal1', 'Ant', 'toy:speed')
    """
    plain = task.rsplit("-v", 1)[0].removeprefix("Safety").removeprefix("Point")
    return plain.removesuffix("Velocity") or plain


def paper() -> dict[str, Any]:
    """Numbers published in the paper, by task and algorithm."""
    return json.loads(files("safemil.bench").joinpath("paper.json").read_text(encoding="utf-8"))


def performance(entries: Sequence[Entry], tasks: Sequence[str]) -> Table:
    """One row per algorithm, three columns per task."""
    rows: dict[str, dict[str, list[Value]]] = {}
    for entry in entries:
        same_task = [each for each in entries if each.task == entry.task]
        rows.setdefault(entry.algorithm, {})[entry.task] = _measures(entry, same_task)
    return _by_algorithm([task for task in tasks if any(entry.task == task for entry in entries)], rows)


def papers_performance(tasks: Sequence[str]) -> Table | None:
    """Same as `performance` with the numbers of the paper; None if it has none of the tasks."""
    numbers = paper()["tasks"]
    rows: dict[str, dict[str, list[Value]]] = {}
    known = [task for task in tasks if task in numbers]
    for task in known:
        for algorithm, measures in numbers[task].items():
            rows.setdefault(algorithm, {})[task] = [Value(tuple(each), INTERVAL) for each in measures]
    return _by_algorithm(known, rows) if known else None


def _by_algorithm(tasks: Sequence[str], rows: Mapping[str, Mapping[str, Sequence[Value]]]) -> Table:
    missing = [""] * len(MEASURES)
    return Table(
        ["algorithm", *(f"{short_name(task)} {measure}" for task in tasks for measure in MEASURES)],
        [
            [title_of(name), *(cell for task in tasks for cell in found.get(task, missing))]
            for name, found in rows.items()
        ],
    )


def varied(entries: Sequence[Entry]) -> Table:
    """One row per task and setting."""
    rows: list[list[Cell]] = []
    for entry in entries:
        measures = _measures(entry, [each for each in entries if each.task == entry.task])
        rows.append([short_name(entry.task), entry.label, *measures, Value((entry.seconds,), SECONDS)])
    return Table(["task", "setting", *MEASURES, "training, s"], rows)


def _measures(entry: Entry, same_task: Sequence[Entry]) -> list[Value]:
    """Return, cost and CVaR cost; the two costs may be the best of the task."""
    compared = comparable(same_task)
    best = [
        number > 0 and entry in compared and measure.value == min(e.measures[number].value for e in compared)
        for number, measure in enumerate(entry.measures)
    ]
    return [Value((m.value, m.half), INTERVAL, b) for m, b in zip(entry.measures, best, strict=True)]


def overall(entries: Sequence[Entry]) -> Table:
    """Interquartile means over seeds and tasks, and the probability that a seed of SafeMIL costs less."""
    rows: list[list[Cell]] = []
    costs = {(entry.task, entry.algorithm): entry.costs.mean(axis=1) for entry in entries}
    for algorithm in dict.fromkeys(entry.algorithm for entry in comparable(entries)):
        own = [entry for entry in entries if entry.algorithm == algorithm]
        returns = np.concatenate([entry.returns.mean(axis=1) for entry in own])
        all_costs = np.concatenate([costs[entry.task, algorithm] for entry in own])
        chances = [
            stats.probability_of_improvement(-costs[entry.task, OURS], -costs[entry.task, algorithm])
            for entry in own
            if (entry.task, OURS) in costs and algorithm != OURS
        ]
        means = [Value((stats.iqm(each),), NUMBER) for each in (returns, all_costs)]
        chance = Value((float(np.mean(chances)),), NUMBER) if chances else ""
        rows.append([title_of(algorithm), *means, chance])
    return Table(["algorithm", "IQM return", "IQM cost", f"P({title_of(OURS)} is safer)"], rows)


def measured(means: ByTask) -> Table:
    """One row per task: return / cost of each algorithm; best is the lowest cost learned without costs.

    >>> found = {"safemil": (5.0, 1.25), "bc": (6.0, 3.0), "bc-preferred": (5.0, 0.5)}
    >>> table = measured({"toy:speed": found})
    >>> [(str(value), value.best) for value in table.rows[0][1:]]
    [('5.00 / 1.25', True), ('6.00 / 3.00', False), ('5.00 / 0.50', False)]
    """
    return _by_task(means, RETURN_COST, mark_best=True)


def lost(shares: ByTask) -> Table:
    """One row per task: share of lost episodes / mean cost of the others, for each algorithm.

    >>> table = lost({"toy:speed": {"random": (0.02, 1.25), "bc": (1.0, math.nan)}})
    >>> [str(value) for value in table.rows[0]]
    ['toy:speed', '2% / 1.25', '100%']
    """
    return _by_task(shares, LOST_COST)


def _by_task(values: ByTask, form: Form, *, mark_best: bool = False) -> Table:
    """One row per task, one column per algorithm."""
    algorithms = list(dict.fromkeys(name for found in values.values() for name in found))
    rows: list[list[Cell]] = []
    for task, found in values.items():
        compared = [name for name in found if mark_best and learns_without_costs(name)]
        least = min((found[name][1] for name in compared), default=None)
        cells = [
            Value(found[name], form, name in compared and found[name][1] == least) if name in found else ""
            for name in algorithms
        ]
        rows.append([short_name(task), *cells])
    return Table(["task", *map(title_of, algorithms)], rows)
