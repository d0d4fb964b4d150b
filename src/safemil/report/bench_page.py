"""The page about a benchmark's results: the tables and figures of `safemil.bench` in a report's look."""

import re
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import matplotlib
from markupsafe import Markup

from safemil.bench import figures, tables
from safemil.bench.grid import Study
from safemil.bench.page import introduction, overall, sentence
from safemil.bench.results import Entry, Results, headline
from safemil.bench.tables import MARKDOWN, name_of
from safemil.errors import InputError
from safemil.report.figures import Figure

INK = "#010203"  # stands for the colour of the page's text
LOOK: Any = {  # matplotlib names every setting in its types
    "svg.fonttype": "none",
    "svg.hashsalt": "safemil",
    "savefig.transparent": True,
    "font.family": "sans-serif",
    **dict.fromkeys(("text.color", "axes.edgecolor", "axes.labelcolor", "xtick.color", "ytick.color"), INK),
}
UNWANTED = (
    r"<metadata>.*?</metadata>",
    r"<style.*?</style>",  # meant for its own SVG, but would hold for the whole page
    r' id="[A-Za-z0-9]+_[0-9]+"',
    r"font-family: [^\";]*;? ?",
)
LARGER = 1.3  # than matplotlib's points
Draw = Callable[[Path, Sequence[Entry]], None]


def context(folder: Path) -> dict[str, Any]:
    """All that the template shows."""
    results = Results(folder)
    studies = [_study(study, results) for study in results.grid.studies if results.entries(study)]
    if not studies:
        raise InputError(
            f"{folder} has no task yet with results of the random policy and of "
            f"{name_of(results.grid.reference)}; run more of it."
        )
    return {"title": results.grid.title, "introduction": introduction(results), "studies": studies}


def _study(study: Study, results: Results) -> dict[str, Any]:
    entries = results.entries(study)
    found: dict[str, Any] = {
        "name": study.name,
        "title": study.title,
        "headline": "",
        "parts": [],
        "overall": [],
    }
    if study.varied:
        drawn = _figure(figures.sensitivity, entries, study.title, "Dots are means, lines 95% intervals.")
        return found | {"parts": [_part("", tables.varied(entries, MARKDOWN), [], [drawn])]}
    parts = [
        _compared(family, [entry for entry in entries if entry.task in tasks], tasks)
        for family, tasks in results.grid.families.items()
        if any(entry.task in tasks for entry in entries)
    ]
    says = sentence(entries) if headline(entries) else ""
    return found | {"headline": says, "parts": parts, "overall": overall(entries)}


def _compared(family: str, own: list[Entry], tasks: Sequence[str]) -> dict[str, Any]:
    drawn = [
        _figure(
            figures.bars,
            own,
            "Return, cost and cost of the worst fifth",
            "Bars are means, lines 95% intervals; the dashed line is the reference policy.",
        ),
        _figure(
            figures.worst,
            own,
            "Cost of the worst episodes",
            "How bad the worst k% of episodes are: a low curve that stays flat is a policy without bad days.",
        ),
    ]
    if any(len(entry.curves[0]) for entry in own):
        says = "Return and cost while learning; bands are standard errors over seeds."
        drawn.append(_figure(figures.curves, own, "Learning curves", says))
    title = f"{family.capitalize()} tasks"
    return _part(title, tables.performance(own, tasks, MARKDOWN), tables.papers_performance(tasks), drawn)


def _part(
    title: str, rows: list[tables.Row], papers: list[tables.Row], drawn: list[Figure]
) -> dict[str, Any]:
    return {"title": title, "rows": rows, "papers": papers, "figures": drawn}


def _figure(draw: Draw, entries: Sequence[Entry], title: str, says: str) -> Figure:
    with tempfile.TemporaryDirectory() as folder, matplotlib.rc_context(LOOK):
        path = Path(folder) / "figure.svg"
        draw(path, entries)
        return Figure(title, inline(path.read_text(encoding="utf-8"), title), says)


def inline(text: str, says: str) -> Markup:
    """A figure's SVG as part of a page: in its ink and letters, without date, names or styles of its own."""
    body = text[text.index("<svg") :]
    for pattern in UNWANTED:
        body = re.sub(pattern, "", body, flags=re.DOTALL)
    body = body.replace(INK, "currentColor").replace("#000000", "currentColor")
    found = re.search(r'viewBox="0 0 ([0-9.]+) ([0-9.]+)"', body)
    assert found is not None  # matplotlib always writes it
    width, height = float(found[1]), float(found[2])
    return Markup('<svg viewBox="0 0 {} {}" role="img" aria-label="{}" style="{}">{}').format(
        width,
        height,
        says,
        f"width:{width * LARGER:.0f}px;stroke-linejoin:round;stroke-linecap:butt",
        Markup(body[body.index(">") + 1 :]),
    )
