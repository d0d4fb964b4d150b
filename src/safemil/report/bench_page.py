"""HTML page of a benchmark's results: renders the model of `safemil.bench.page`."""

import re
import tempfile
from pathlib import Path
from typing import Any

import matplotlib
from markupsafe import Markup

from safemil.bench import render
from safemil.bench.page import Picture, build
from safemil.bench.results import Results
from safemil.bench.tables import Table

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
    r"<style.*?</style>",  # would apply to the whole page
    r' id="[A-Za-z0-9]+_[0-9]+"',
    r"font-family: [^\";]*;? ?",
)
SCALE = 1.3  # pixels per point of matplotlib


def context(folder: Path) -> dict[str, Any]:
    """Variables of the template."""
    return {"page": build(Results(folder)), "table": _table, "svg": _svg}


def _table(table: Table) -> Markup:
    return Markup(render.html(table))


def _svg(picture: Picture) -> Markup:
    with tempfile.TemporaryDirectory() as folder, matplotlib.rc_context(LOOK):
        path = Path(folder) / "figure.svg"
        picture.draw(path)
        return inline(path.read_text(encoding="utf-8"), picture.title)


def inline(text: str, label: str) -> Markup:
    """Prepare a figure's SVG for a page: text colour and font of the page, no metadata, ids or styles."""
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
        label,
        # matplotlib leaves out a black fill, which is the default of SVG
        f"width:{width * SCALE:.0f}px;fill:currentColor;stroke-linejoin:round;stroke-linecap:butt",
        Markup(body[body.index(">") + 1 :]),
    )
