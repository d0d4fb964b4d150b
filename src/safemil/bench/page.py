"""Model of the results page: its texts, tables and figures, all from a folder of results.

`safemil.bench.markdown_page` and `safemil.report.bench_page` render it.
"""

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np

from safemil.bench import figures, tables
from safemil.bench.grid import Study
from safemil.bench.results import OURS, Entry, Results, comparable, cost_ratios
from safemil.bench.tables import Table, short_name, title_of
from safemil.errors import InputError

INTRODUCTION = """\
This page is generated from {done} of {total} cells; no number is typed by hand. Returns are normalised: 0 is
the mean of the random policy and 1 that of {reference}. Costs are the excess over {reference}'s mean cost.
CVaR 20% cost is the mean cost of the worst fifth of each seed's episodes. Values are means ± half the width
of the 95% interval, from 1000 bootstrap samples over seeds and episodes. Bold marks the lowest cost among the
algorithms that are not given true costs."""
HEADLINE = """\
SafeMIL has the lowest cost on {lowest} of {tasks} tasks, among the algorithms that are not given true costs.
Excess cost over the reference, best baseline ÷ SafeMIL: {ratios}; median {median} (paper: 3.7).
The ratio is 1 where neither exceeds the reference's cost, ∞ where only the baseline does and 0 where only
SafeMIL does."""
BARS = "Bars are means, lines 95% intervals; the dashed line is the reference policy."
CVAR = "Mean cost of the worst k% of the episodes; a policy without very bad episodes has a low, flat curve."
CURVES = "Return and cost during training; bands are standard errors over seeds."
VARIED = "Dots are means, lines 95% intervals."
OVERALL = """\
Interquartile means (IQM) over seeds and tasks, and the probability that a random seed of SafeMIL has a lower
cost than a random seed of the other algorithm."""
MEASURED = "Mean return / mean cost of an episode, not normalised."
LOST = """\
A policy that leaves the area of the task may have a low cost. An episode is lost if it returns less than the
random policy does on average. Cells show the share of lost episodes / the mean cost of the others, on the
tasks where an algorithm loses 1% or more."""


class Picture(NamedTuple):
    """Figure that is drawn when the page is rendered."""

    name: str  # of its file, without a suffix
    title: str
    caption: str
    draw: Callable[[Path], None]


class Part(NamedTuple):
    """Table of a section, with its text and figures."""

    name: str  # of its files, without a suffix
    title: str
    text: str
    table: Table
    paper: Table | None = None  # the same table with the numbers of the paper
    pictures: tuple[Picture, ...] = ()


class Section(NamedTuple):
    """Results of a study."""

    name: str
    title: str
    text: str
    parts: list[Part]


class Page(NamedTuple):
    title: str
    text: str
    sections: list[Section]


def build(results: Results) -> Page:
    """Build the page from the cells that are finished."""
    reference = title_of(results.grid.reference)
    sections = [_section(study, entries, results) for study, entries in _shown(results)]
    if not sections:
        raise InputError(
            f"expected a task with results of the random policy and of {reference}, but none is finished; "
            "run more cells of the grid."
        )
    done, total = results.done
    text = INTRODUCTION.format(done=done, total=total, reference=reference)
    return Page(results.grid.title, text, sections)


def _shown(results: Results) -> list[tuple[Study, list[Entry]]]:
    """Studies with something to compare, and their entries."""
    found = [(study, results.entries(study)) for study in results.grid.studies]
    return [
        (study, entries)
        for study, entries in found
        if len({entry.label for entry in entries}) > (1 if study.varied else 0)
    ]


def _section(study: Study, entries: list[Entry], results: Results) -> Section:
    if study.varied:
        picture = Picture(study.name, study.title, VARIED, partial(figures.sensitivity, entries=entries))
        part = Part(study.name, "", "", tables.varied(entries), pictures=(picture,))
        return Section(study.name, study.title, "", [part])
    parts = [
        _family(f"{study.name}-{family}", family, own, tasks)
        for family, tasks in results.grid.families.items()
        if (own := [entry for entry in entries if entry.task in tasks])
    ]
    parts.append(Part(f"{study.name}-overall", "Over all tasks", OVERALL, tables.overall(entries)))
    means = tables.measured(results.means(study))
    parts.append(Part(f"{study.name}-measured", "As measured", MEASURED, means))
    if lost := results.lost(study):
        parts.append(Part(f"{study.name}-lost", "Lost episodes", LOST, tables.lost(lost)))
    return Section(study.name, study.title, headline(entries), parts)


def _family(name: str, family: str, entries: list[Entry], tasks: Sequence[str]) -> Part:
    pictures = [
        Picture(f"{name}-bars", "Return, cost and CVaR cost", BARS, partial(figures.bars, entries=entries)),
        Picture(f"{name}-cvar", "CVaR cost at k%", CVAR, partial(figures.worst, entries=entries)),
    ]
    if any(len(entry.curves[0]) for entry in entries):
        draw = partial(figures.curves, entries=entries)
        pictures.append(Picture(f"{name}-curves", "Learning curves", CURVES, draw))
    table, paper = tables.performance(entries, tasks), tables.papers_performance(tasks)
    return Part(name, f"{family.capitalize()} tasks", "", table, paper, tuple(pictures))


def headline(entries: Sequence[Entry]) -> str:
    """Compare SafeMIL with the best baseline in words; empty without a task that has both."""
    ratios = cost_ratios(entries)
    if not ratios:
        return ""
    return HEADLINE.format(
        lowest=sum(_safest(entries, task) == OURS for task in ratios),
        tasks=len(ratios),
        ratios=", ".join(f"{short_name(task)} {_ratio(ratio)}" for task, ratio in ratios.items()),
        median=_ratio(float(np.median(list(ratios.values())))),
    )


def _ratio(value: float) -> str:
    return f"{value:.2f}" if np.isfinite(value) else "∞"


def _safest(entries: Sequence[Entry], task: str) -> str:
    own = [entry for entry in comparable(entries) if entry.task == task]
    return min(own, key=lambda entry: entry.measures[1].value).algorithm
