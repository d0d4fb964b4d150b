"""Figures of the paper, drawn from results.

The place of an algorithm in the grid decides its colour, mark and line style. Colours are those of Okabe and
Ito, which colour-blind readers can tell apart, with a darker yellow for a white page.
"""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from safemil import stats
from safemil.bench.grid import RANDOM
from safemil.bench.results import MEASURES, Entry
from safemil.bench.tables import short_name, title_of
from safemil.extras import require_extra
from safemil.files import atomic_file

with require_extra("report", "a figure"):
    import matplotlib.figure

COLOURS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#D55E00", "#56B4E9", "#000000", "#B8A800")
MARKS = "osD^vPX*<"  # one more than colours: a colour that comes again has another mark
LINES = ("-", "--", ":", "-.")  # the next one each time the colours start again
HATCHES = ("", "///", "...", "xxx")  # likewise, for bars
AXES = ("normalised return", "normalised cost", "normalised CVaR 20% cost")
SIZE, FONT, DOTS = (3.6, 2.9), 10, 150  # inches of a panel, points, dots per inch


def style(place: int) -> dict[str, str]:
    """Style of the line of the algorithm at a place of the grid; the first 72 differ.

    >>> style(8)
    {'color': '#0072B2', 'marker': '<', 'linestyle': '--'}
    """
    line = LINES[place // len(COLOURS) % len(LINES)]
    return {"color": COLOURS[place % len(COLOURS)], "marker": MARKS[place % len(MARKS)], "linestyle": line}


def bars(path: Path, entries: Sequence[Entry]) -> None:
    """Draw return, cost and CVaR cost of each algorithm with 95% intervals, a row of panels per task."""

    def draw(axes: Any, group: list[Entry], number: int) -> None:
        values, errors = _points([entry.measures[number] for entry in group])
        colours = [style(entry.place)["color"] for entry in group]
        hatches = [HATCHES[entry.place // len(COLOURS) % len(HATCHES)] for entry in group]
        look = {"width": 0.75, "capsize": 3, "edgecolor": "white", "linewidth": 0}  # hatches are white
        axes.bar(range(len(group)), values, yerr=errors, color=colours, hatch=hatches, **look)
        axes.set_xticks(range(len(group)), [title_of(e.algorithm) for e in group], rotation=35, ha="right")
        axes.axhline(1 if number == 0 else 0, color="black", linewidth=0.8, linestyle="--")
        axes.set_ylabel(AXES[number])

    _grid(path, entries, len(MEASURES), draw)


def curves(path: Path, entries: Sequence[Entry]) -> None:
    """Draw return and cost during training; bands are standard errors over seeds, as in the paper."""

    def draw(axes: Any, group: list[Entry], number: int) -> None:
        for entry in group:
            updates, values = entry.curves[0], entry.curves[1 + number]
            mean, error = values.mean(axis=0), values.std(axis=0) / np.sqrt(len(values))
            look = style(entry.place)
            axes.plot(updates, mean, label=title_of(entry.algorithm), **look)
            band = {"color": look["color"], "alpha": 0.2, "linewidth": 0}
            axes.fill_between(updates, mean - error, mean + error, **band)
        axes.set_xlabel("updates")
        axes.set_ylabel(AXES[number])

    _grid(path, [entry for entry in entries if len(entry.curves[0])], 2, draw, legend=True)


def worst(path: Path, entries: Sequence[Entry]) -> None:
    """Draw CVaR cost against the share of worst episodes."""

    def draw(axes: Any, group: list[Entry], number: int) -> None:
        for entry in group:
            values, errors = _points([stats.cvar_interval(entry.costs, share) for share in stats.WORST])
            look = {"label": title_of(entry.algorithm), "capsize": 3, **style(entry.place)}
            axes.errorbar(100 * np.array(stats.WORST), values, yerr=errors, **look)
        axes.set_xlabel("k, % of worst episodes")
        axes.set_ylabel("normalised CVaR k% cost")

    _grid(path, entries, 1, draw, legend=True)


def sensitivity(path: Path, entries: Sequence[Entry]) -> None:
    """Draw return, cost and CVaR cost against the setting that varies."""

    def draw(axes: Any, group: list[Entry], number: int) -> None:
        values, errors = _points([entry.measures[number] for entry in group])
        look = {"capsize": 4, "marker": "o", "linestyle": "none", "color": COLOURS[0]}
        axes.errorbar(range(len(group)), values, yerr=errors, **look)
        axes.set_xticks(range(len(group)), [", ".join(map(str, entry.change.values())) for entry in group])
        axes.set_xlim(-0.5, len(group) - 0.5)
        axes.set_xlabel(", ".join(group[0].change))
        axes.set_ylabel(AXES[number])

    _grid(path, entries, len(MEASURES), draw)


def _points(intervals: Sequence[stats.Interval]) -> tuple[Any, Any]:
    """Values (n,) and distances to the lower and upper ends (2, n)."""
    values, low, high = np.array(intervals).T
    return values, np.maximum([values - low, high - values], 0)


def _grid(
    path: Path,
    entries: Sequence[Entry],
    columns: int,
    draw: Callable[[Any, list[Entry], int], None],
    *,
    legend: bool = False,
) -> None:
    """Draw and save a grid of panels: a row per task, or one row if a task has one panel."""
    entries = [entry for entry in entries if entry.algorithm != RANDOM]  # far off the scale of the rest
    tasks = list(dict.fromkeys(entry.task for entry in entries))
    shape = (len(tasks), columns) if columns > 1 else (1, len(tasks))
    with matplotlib.rc_context({"font.size": FONT, "axes.spines.top": False, "axes.spines.right": False}):
        size = (SIZE[0] * shape[1], SIZE[1] * shape[0] + 0.5 * legend)
        figure = matplotlib.figure.Figure(figsize=size, layout="constrained")
        panels = figure.subplots(*shape, squeeze=False).reshape(len(tasks), columns)
        for row, task in zip(panels, tasks, strict=True):
            for number, axes in enumerate(row):
                draw(axes, [entry for entry in entries if entry.task == task], number)
                axes.set_title(short_name(task))
        if legend:
            handles, labels = panels[0, 0].get_legend_handles_labels()
            figure.legend(
                handles, labels, loc="outside lower center", ncols=min(len(labels), 4), frameon=False
            )
        with atomic_file(path) as file:
            figure.savefig(file, dpi=DOTS)
