"""Figures of the paper, drawn from results.

The place of an algorithm in the grid decides its colour, mark and line style. Colours are those of Okabe and
Ito, which colour-blind readers can tell apart, with a darker yellow for a white page.
"""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import matplotlib.figure
import numpy as np

from safemil import stats
from safemil.bench.grid import RANDOM
from safemil.bench.results import MEASURES, Entry
from safemil.bench.tables import short_name, title_of
from safemil.files import atomic_file

COLOURS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#D55E00", "#56B4E9", "#000000", "#B8A800")
MARKS = "osD^vPX*<"  # one more than colours: a colour that comes again has another mark
LINES, HATCHES = (
    ("-", "--", ":", "-."),
    ("", "///", "...", "xxx"),
)  # the next of each when colours start again
AXES = ("normalised return", "normalised cost", "normalised CVaR 20% cost")
SIZE, FONT, DOTS = (3.6, 2.9), 10, 150  # inches of a panel, points, dots per inch


class Style(NamedTuple):
    """Appearance of an algorithm, the same in every figure."""

    colour: str
    mark: str
    line: str
    hatch: str  # of its bars


def style(place: int) -> Style:
    """Style of the algorithm at a place of the grid; the first 72 differ.

    >>> style(8)
    Style(colour='#0072B2', mark='<', line='--', hatch='///')
    """
    turn = place // len(COLOURS)
    return Style(
        COLOURS[place % len(COLOURS)],
        MARKS[place % len(MARKS)],
        LINES[turn % len(LINES)],
        HATCHES[turn % len(HATCHES)],
    )


def bars(path: Path, entries: Sequence[Entry]) -> None:
    """Draw return, cost and CVaR cost of each algorithm with 95% intervals, a row of panels per task."""
    shown = [entry for entry in entries if entry.algorithm != RANDOM]  # far off the scale of the rest

    def draw(axes: Any, group: list[Entry], number: int) -> None:
        for position, entry in enumerate(group):
            value, low, high = entry.measures[number]
            errors = [[max(value - low, 0)], [max(high - value, 0)]]
            look = style(entry.place)
            axes.bar(
                position, value, yerr=errors, capsize=3, width=0.75,
                color=look.colour, hatch=look.hatch, edgecolor="white", linewidth=0,
            )  # fmt: skip
        axes.set_xticks(range(len(group)), [title_of(e.algorithm) for e in group], rotation=35, ha="right")
        axes.axhline(1 if number == 0 else 0, color="black", linewidth=0.8, linestyle="--")
        axes.set_ylabel(AXES[number])

    _grid(path, shown, len(MEASURES), draw)


def curves(path: Path, entries: Sequence[Entry]) -> None:
    """Draw return and cost during training; bands are standard errors over seeds, as in the paper."""
    shown = [entry for entry in entries if len(entry.curves[0])]

    def draw(axes: Any, group: list[Entry], number: int) -> None:
        for entry in group:
            updates, values = entry.curves[0], entry.curves[1 + number]
            mean, error = values.mean(axis=0), values.std(axis=0) / np.sqrt(len(values))
            axes.plot(updates, mean, **_line(entry))
            colour = style(entry.place).colour
            axes.fill_between(updates, mean - error, mean + error, color=colour, alpha=0.2, linewidth=0)
        axes.set_xlabel("updates")
        axes.set_ylabel(AXES[number])

    _grid(path, shown, 2, draw, legend=True)


def worst(path: Path, entries: Sequence[Entry]) -> None:
    """Draw CVaR cost against the share of worst episodes."""
    shown = [entry for entry in entries if entry.algorithm != RANDOM]  # far off the scale of the rest

    def draw(axes: Any, group: list[Entry], number: int) -> None:
        for entry in group:
            found = [stats.cvar_interval(entry.costs, share) for share in stats.WORST]
            value, low, high = np.array(found).T
            errors = np.maximum([value - low, high - value], 0)
            axes.errorbar(100 * np.array(stats.WORST), value, yerr=errors, capsize=3, **_line(entry))
        axes.set_xlabel("k, % of worst episodes")
        axes.set_ylabel("normalised CVaR k% cost")

    _grid(path, shown, 1, draw, legend=True)


def sensitivity(path: Path, entries: Sequence[Entry]) -> None:
    """Draw return, cost and CVaR cost against the setting that varies."""

    def draw(axes: Any, group: list[Entry], number: int) -> None:
        found = np.array([entry.measures[number] for entry in group])
        errors = np.maximum([found[:, 0] - found[:, 1], found[:, 2] - found[:, 0]], 0)
        positions = np.arange(len(group))
        axes.errorbar(
            positions, found[:, 0], yerr=errors, capsize=4, marker="o", linestyle="none", color=COLOURS[0]
        )
        axes.set_xticks(positions, [", ".join(map(str, entry.change.values())) for entry in group])
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
    """Draw and save a grid of panels: a row per task, or one row if a task has one panel."""
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


def _line(entry: Entry) -> dict[str, Any]:
    """Label and style of an algorithm's line, as matplotlib names them."""
    look = style(entry.place)
    return {
        "label": title_of(entry.algorithm),
        "color": look.colour,
        "marker": look.mark,
        "linestyle": look.line,
    }
