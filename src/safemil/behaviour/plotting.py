"""The figure of the paper's Appendix D: return against cost, with both kinds of episodes marked."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from safemil.behaviour.paper import TABLE
from safemil.data import Annotations, Trajectories
from safemil.data.splitting import Kinds, ReturnRule, kinds
from safemil.extras import require_extra
from safemil.files import atomic_files

require_extra("report", "a scatter plot")

if TYPE_CHECKING:
    from matplotlib.axes import Axes

PREFERRED, NONPREFERRED, OTHER = "#1b7f5c", "#c8432b", "#9aa3ab"
SETTINGS: Any = {"svg.hashsalt": "safemil", "svg.fonttype": "path", "font.size": 9.0}


def scatter(
    path: Path,
    trajectories: Trajectories,
    annotations: Annotations,
    *,
    task: str | None = None,
    return_rule: ReturnRule = "midrange",
) -> list[Path]:
    """Draw the figure as PNG and SVG, named as the path; a task's name adds the paper's means."""
    return scatters(path, {task or path.stem: (trajectories, annotations)}, return_rule=return_rule)


def scatters(
    path: Path,
    datasets: dict[str, tuple[Trajectories, Annotations]],
    *,
    return_rule: ReturnRule = "midrange",
) -> list[Path]:
    """Draw the figure for several datasets, three in a row."""
    import matplotlib
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    columns = min(3, len(datasets))
    rows = -(-len(datasets) // columns)
    with matplotlib.rc_context(SETTINGS):
        figure = Figure(figsize=(0.6 + 3.7 * columns, 0.2 + 3.3 * rows), layout="constrained")
        FigureCanvasAgg(figure)
        panels = figure.subplots(rows, columns, squeeze=False)
        for panel in panels.flat[len(datasets) :]:
            panel.set_axis_off()
        for panel, (name, (trajectories, annotations)) in zip(panels.flat, datasets.items(), strict=False):
            _draw(panel, name, trajectories, annotations, return_rule)
        handles, labels = panels.flat[0].get_legend_handles_labels()
        figure.legend(
            handles, labels, loc="outside lower center", ncols=2 if columns == 1 else 5, frameon=False
        )
        written = [path.with_suffix(suffix) for suffix in (".png", ".svg")]
        with atomic_files(path) as folder:
            for target, metadata in zip(written, ({"Software": None}, {"Date": None}), strict=True):
                figure.savefig(folder / target.name, dpi=150, metadata=metadata)
    return written


def _draw(panel: "Axes", name: str, held: Trajectories, annotations: Annotations, rule: ReturnRule) -> None:
    returns, costs = annotations.episode_sums(held.lengths)
    found = kinds(held, annotations, rule)
    _mark_regions(panel, found, costs, returns)
    groups = (
        (~(found.preferred | found.nonpreferred), OTHER, "other"),
        (found.preferred, PREFERRED, "preferred"),
        (found.nonpreferred, NONPREFERRED, "non-preferred"),
    )
    for rows, colour, label in groups:
        # Thousands of points as paths would make an SVG of megabytes.
        panel.scatter(
            costs[rows], returns[rows], 7, color=colour, alpha=0.6, lw=0, label=label, rasterized=True
        )
    if name in TABLE:
        paper = TABLE[name]
        where: Any = {"marker": "*", "s": 110, "edgecolors": "white", "linewidths": 0.8, "zorder": 5}
        panel.scatter(
            paper.preferred_cost, paper.preferred_return, color=PREFERRED, label="mean in the paper", **where
        )
        panel.scatter(paper.nonpreferred_cost, paper.nonpreferred_return, color=NONPREFERRED, **where)
    panel.set(title=name, xlabel="cost of an episode", ylabel="return of an episode")
    panel.spines[["top", "right"]].set_visible(False)


def _mark_regions(
    panel: "Axes", found: Kinds, costs: np.ndarray[Any, Any], returns: np.ndarray[Any, Any]
) -> None:
    """Shade the upper corners: high return with low cost, and with high cost."""
    width, height = max(float(np.ptp(costs)), 1.0), max(float(np.ptp(returns)), 1e-6)
    left, right = float(costs.min()) - 0.04 * width, float(costs.max()) + 0.04 * width
    bottom, top = float(returns.min()) - 0.04 * height, float(returns.max()) + 0.06 * height
    for start, end, colour in ((left, found.low_cost, PREFERRED), (found.high_cost, right, NONPREFERRED)):
        panel.fill_between([start, end], found.least_return, top, color=colour, alpha=0.1, lw=0)
    panel.set(xlim=(left, right), ylim=(bottom, top))
