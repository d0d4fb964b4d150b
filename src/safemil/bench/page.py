"""The page of results: every number and figure on it comes from the results folder."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from safemil import stats
from safemil.bench import figures, tables
from safemil.bench.grid import Study
from safemil.bench.results import OURS, Entry, Results, headline, rivals
from safemil.bench.tables import Row, markdown, name_of, short
from safemil.errors import InputError
from safemil.files import atomic_file

INTRODUCTION = """\
Made by safemil from {done} of {total} cells; nothing here is typed by hand. Returns are normalised
(0: random policy, 1: {reference}), costs are those above {reference}'s; CVaR 20% is the mean cost of the
worst fifth of each seed's episodes. Values are means ± half of the 95% interval of 1000 bootstrap samples
over seeds and episodes. Bold: the safest of the methods that see no costs.
"""
MEASURED = "Mean return / mean cost of an episode, not normalised.\n"
LOST = """\
A policy that runs away from the task may pay little. Share of the episodes that return less than the random
policy does on average / mean cost of the others, on the tasks where a method loses 1% or more.
"""


def introduction(results: Results) -> str:
    """What the numbers mean."""
    done, total = results.done
    return INTRODUCTION.format(done=done, total=total, reference=name_of(results.grid.reference))


def write_page(folder: Path, out: Path) -> None:
    """The Markdown page, and beside it a folder of its figures and tables."""
    results = Results(folder)
    reference = name_of(results.grid.reference)
    parts = [f"# {results.grid.title}\n", introduction(results)]
    beside = out.with_suffix("")
    for study in results.grid.studies:
        entries = results.entries(study)
        compared = len({entry.label for entry in entries}) > 1
        if entries and (compared or not study.varied):
            parts.append(f"## {study.title}\n")
            parts += (
                _varied(study, entries, beside)
                if study.varied
                else _compared(study, entries, beside, results)
            )
    if len(parts) == 2:
        raise InputError(
            f"{folder} has no task yet with results of the random policy and of {reference}; run more of it."
        )
    with atomic_file(out) as file:
        file.write_text("\n".join(parts))


def _compared(study: Study, entries: list[Entry], beside: Path, results: Results) -> list[str]:
    parts = [sentence(entries)] if headline(entries) else []
    for family, tasks in results.grid.families.items():
        own = [entry for entry in entries if entry.task in tasks]
        if not own:
            continue
        name = f"{study.name}-{family}"
        rows = {form: tables.performance(own, tasks, form_) for form, form_ in _FORMS.items()}
        parts += [f"### {family.capitalize()} tasks\n", markdown(rows["md"])]
        _save(beside / name, rows)
        theirs = tables.papers_performance(tasks)
        if theirs:
            parts += ["The paper's own numbers, after a million updates:\n", markdown(theirs)]
        parts.append(_picture(figures.bars, beside, f"{name}-bars", own, "Return, cost and CVaR cost"))
        parts.append(_picture(figures.worst, beside, f"{name}-cvar", own, "CVaR cost at k%"))
        if any(len(entry.curves[0]) for entry in own):
            parts.append(_picture(figures.curves, beside, f"{name}-curves", own, "Learning curves"))
    parts += ["### Over all tasks\n", markdown(overall(entries))]
    parts += ["### As measured\n", MEASURED, markdown(tables.measured(results.means(study)))]
    lost = results.lost(study)
    return [*parts, "### Lost episodes\n", LOST, markdown(tables.lost(lost))] if lost else parts


def _varied(study: Study, entries: list[Entry], beside: Path) -> list[str]:
    rows = {form: tables.varied(entries, form_) for form, form_ in _FORMS.items()}
    _save(beside / study.name, rows)
    return [markdown(rows["md"]), _picture(figures.sensitivity, beside, study.name, entries, study.title)]


def sentence(entries: Sequence[Entry]) -> str:
    """The headline in words."""
    factors = headline(entries)
    median = float(np.median(list(factors.values())))
    each = ", ".join(f"{short(task)} {_times(factor)}" for task, factor in factors.items())
    safest = sum(_safest(entries, task) == OURS for task in factors)
    return (
        f"On {safest} of {len(factors)} tasks {name_of(OURS)} costs less than every other method that "
        "sees no costs. The best of the others exceeds the reference's cost by this many times ours, 1 "
        f"where neither does and ∞ where ours does not: {each}; median {_times(median)} (the paper's: 3.7).\n"
    )


def _times(factor: float) -> str:
    return f"{factor:.2f}" if np.isfinite(factor) else "∞"


def _safest(entries: Sequence[Entry], task: str) -> str:
    own = [entry for entry in rivals(entries) if entry.task == task]
    return min(own, key=lambda entry: entry.measures[1].value).algorithm


def overall(entries: Sequence[Entry]) -> list[Row]:
    """Interquartile means over seeds and tasks, and how often a seed of ours is safer than one of theirs."""
    rows = [["algorithm", "IQM return", "IQM cost", f"P({name_of(OURS)} is safer)"]]
    costs = {(entry.task, entry.algorithm): entry.costs.mean(axis=1) for entry in entries}
    for algorithm in dict.fromkeys(entry.algorithm for entry in rivals(entries)):
        own = [entry for entry in entries if entry.algorithm == algorithm]
        returns = np.concatenate([entry.returns.mean(axis=1) for entry in own])
        paid = np.concatenate([costs[entry.task, algorithm] for entry in own])
        shares = [
            stats.probability_of_improvement(-costs[entry.task, OURS], -costs[entry.task, algorithm])
            for entry in own
            if (entry.task, OURS) in costs and algorithm != OURS
        ]
        share = f"{np.mean(shares):.2f}" if shares else ""
        rows.append([name_of(algorithm), f"{stats.iqm(returns):.2f}", f"{stats.iqm(paid):.2f}", share])
    return rows


_FORMS = {"md": tables.MARKDOWN, "csv": tables.PLAIN, "tex": tables.LATEX}


def _save(path: Path, rows: dict[str, list[Row]]) -> None:
    for form, write in (("csv", tables.csv), ("tex", tables.latex)):
        with atomic_file(path.with_name(f"{path.name}.{form}")) as file:
            file.write_text(write(rows[form]))


def _picture(draw: figures.Draw, beside: Path, name: str, entries: Sequence[Entry], what: str) -> str:
    draw(beside / f"{name}.png", entries)
    return f"![{what}]({beside.name}/{name}.png)\n"
