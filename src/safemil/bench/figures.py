"""The paper's figures from our results; in colours that colour-blind readers can tell apart (Okabe, Ito)."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import matplotlib.figure
import numpy as np

from safemil import stats
from safemil.bench.results import MEASURES, Entry
from safemil.bench.tables import NAMES, name_of, short
from safemil.files import atomic_file

COLOURS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#D55E00", "#56B4E9", "#000000", "#999999", "#B8A800")
MARKS = "osD^vPX*<"
AXES = ("normalised return", "normalised cost", "normalised CVaR 20% cost")
SIZE, FONT, DOTS = (3.6, 2.9), 10, 150  # inches of a panel, points, dots per inch
HIDDEN = ("random",)  # far off the scale of the rest


Draw = Callable[[Path, Sequence[Entry]], None]


def bars(path: Path, entries: Sequence[Entry]) -> None:
    """Return, cost and CVaR cost of each algorithm with 95% intervals, a row of panels per task."""
    shown = [entry for entry in entries if entry.algorithm not in HIDDEN]

    def draw(axes: Any, group: list[Entry], number: int) -> None:
        for place, entry in enumerate(group):
            value, low, high = entry.measures[number]
            errors = [[max(value - low, 0)], [max(high - value, 0)]]
            axes.bar(place, value, yerr=errors, color=_colour(entry), capsize=3, width=0.75)
        axes.set_xticks(range(len(group)), [name_of(e.algorithm) for e in group], rotation=35, ha="right")
        axes.axhline(1 if number == 0 else 0, color="black", linewidth=0.8, linestyle="--")
        axes.set_ylabel(AXES[number])

    _grid(path, shown, len(MEASURES), draw)


def curves(path: Path, entries: Sequence[Entry]) -> None:
    """Return and cost while learning; the band is the standard error over seeds, as in the paper."""
    shown = [entry for entry in entries if len(entry.curves[0])]

    def draw(axes: Any, group: list[Entry], number: int) -> None:
        for entry in group:
            steps, values = entry.curves[0], entry.curves[1 + number]
            middle, error = values.mean(axis=0), values.std(axis=0) / np.sqrt(len(values))
            colour = _colour(entry)
            axes.plot(steps, middle, color=colour, marker=_mark(entry), label=name_of(entry.algorithm))
            axes.fill_between(steps, middle - error, middle + error, color=colour, alpha=0.2, linewidth=0)
        axes.set_xlabel("updates")
        axes.set_ylabel(AXES[number])

    _grid(path, shown, 2, draw, legend=True)


def worst(path: Path, entries: Sequence[Entry]) -> None:
    """CVaR cost against the share of worst episodes."""
    shown = [entry for entry in entries if entry.algorithm not in HIDDEN]

    def draw(axes: Any, group: list[Entry], number: int) -> None:
        for entry in group:
            found = [stats.cvar_interval(entry.costs, share) for share in stats.WORST]
            value, low, high = np.array(found).T
            errors = np.maximum([value - low, high - value], 0)
            axes.errorbar(
                100 * np.array(stats.WORST), value, yerr=errors, capsize=3, label=name_of(entry.algorithm),
                color=_colour(entry), marker=_mark(entry),
            )  # fmt: skip
        axes.set_xlabel("k, % of worst episodes")
        axes.set_ylabel("normalised CVaR k% cost")

    _grid(path, shown, 1, draw, legend=True)


def sensitivity(path: Path, entries: Sequence[Entry]) -> None:
    """Return, cost and CVaR cost against the setting that varies."""

    def draw(axes: Any, group: list[Entry], number: int) -> None:
        found = np.array([entry.measures[number] for entry in group])
        errors = np.maximum([found[:, 0] - found[:, 1], found[:, 2] - found[:, 0]], 0)
        places = np.arange(len(group))
        axes.errorbar(
            places, found[:, 0], yerr=errors, capsize=4, marker="o", linestyle="none", color=COLOURS[0]
        )
        axes.set_xticks(places, [", ".join(map(str, entry.change.values())) for entry in group])
        axes.set_xlim(-0.5, len(group) - 0.5)
        axes.set_xlabel(", ".join(group[0].change))
        axes.set_ylabel(AXES[number])

    _grid(path, entries, len(MEASURES), draw)


def _grid(
    path: Path,
    entries: Sequence[Entry],
    columns: int,
    draw: Callable[[Any, list[Entry], int], None],
    *,
    legend: bool = False,
) -> None:
    """A row of panels per task."""
    tasks = list(dict.fromkeys(entry.task for entry in entries))
    shape = (len(tasks), columns) if columns > 1 else (1, len(tasks))
    with matplotlib.rc_context({"font.size": FONT, "axes.spines.top": False, "axes.spines.right": False}):
        size = (SIZE[0] * shape[1], SIZE[1] * shape[0] + 0.5 * legend)
        figure = matplotlib.figure.Figure(figsize=size, layout="constrained")
        panels = figure.subplots(*shape, squeeze=False).reshape(len(tasks), columns)
        for row, task in zip(panels, tasks, strict=True):
            for number, axes in enumerate(row):
                draw(axes, [entry for entry in entries if entry.task == task], number)
                axes.set_title(short(task))
        if legend:
            handles, labels = panels[0, 0].get_legend_handles_labels()
            figure.legend(
                handles, labels, loc="outside lower center", ncols=min(len(labels), 4), frameon=False
            )
        with atomic_file(path) as file:
            figure.savefig(file, dpi=DOTS)


def _number(entry: Entry) -> int:
    """The same in every figure."""
    known = list(NAMES)
    return known.index(entry.algorithm) if entry.algorithm in known else len(known) - 1


def _colour(entry: Entry) -> str:
    return COLOURS[_number(entry)]


def _mark(entry: Entry) -> str:
    return MARKS[_number(entry)]
