"""Figures of a page about a run: a picture, and a sentence on how to read it."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from markupsafe import Markup

from safemil.arrays import Doubles
from safemil.data import Trajectories
from safemil.report import svg
from safemil.report.cost_quality import Bin
from safemil.report.svg import Frame, Line
from safemil.stats import Interval

POINTS = 4000  # of a projection
SAMPLE = 50_000  # steps that its directions are found from, at most
LETTERS = 22  # of a name beside a chart
SENTENCES = {
    "loss/cost": "How badly the cost tells bad steps from good ones, on what it learns from. 0.69 is "
    "guessing; SafeMIL learns in two rounds, and the second starts anew. The curve ends with the cost.",
    "loss/out-of-bag": "The same on episodes that a network did not see. The networks with the lowest value "
    "of each round are kept.",
    "loss/policy": "How badly the policy predicts the actions it imitates, weighted by how safe they are. "
    "Lower is better; the level itself means nothing.",
    "weights/effective": "The share of the unlabeled steps that the policy really learns from. Near 0, a few "
    "steps decide everything.",
    "evaluation/return": "Return of the policy in the task while it learned.",
    "evaluation/cost": "True cost of the policy in the task while it learned.",
}
AXES = {
    "loss/cost": "loss of the cost",
    "loss/out-of-bag": "loss of the cost, held out",
    "loss/policy": "loss of the policy",
    "weights/effective": "share of the steps",
    "evaluation/cost": "true cost",
}
SCORES = {"score/nonpreferred": ("non-preferred", "bad"), "score/unlabeled": ("unlabeled", "logs")}


PANEL, PANEL_GAP = 62, 26  # height of a column's panel in a picture of a moment, and the room above it


class Panel(NamedTuple):
    """A column along an episode, and the range of good values."""

    name: str
    values: Doubles
    low: float
    high: float


class Figure(NamedTuple):
    title: str
    picture: Markup
    says: str


def training(metrics: Sequence[Mapping[str, Any]], settings: Mapping[str, Any]) -> list[Figure]:
    """Training curves: the scores of both piles first, then every other metric."""
    names = list(dict.fromkeys(name for line in metrics for name in line))
    rest = [name for name in names if name not in ("update", "seconds") and name not in SCORES]
    figures = [_scores(metrics, settings)] if any(name in SCORES for name in names) else []
    for name in sorted(rest, key=lambda each: ("loss/" not in each, each)):
        curve = _line(metrics, name, name, "ours")
        if name.startswith("evidence/"):  # known once, when the cost is done, and said by the verdict
            continue
        says = SENTENCES.get(name, f"{name}, as the algorithm reports it.")
        label = AXES.get(name, name.rsplit("/", 1)[-1])
        figures.append(Figure(_title(name), svg.lines([curve], "updates", label, says), says))
    return figures


def _scores(metrics: Sequence[Mapping[str, Any]], settings: Mapping[str, Any]) -> Figure:
    """Mean risk of the bags: their score (a discounted sum) divided by the sum of discounts."""
    length, gamma = settings.get("length"), settings.get("gamma", 1.0)
    steps = sum(gamma**t for t in range(length)) if isinstance(length, int) else 1.0
    label = "mean risk of a step" if steps > 1 else "score of a bag"
    curves = [_line(metrics, each, *SCORES[each], scale=1 / steps) for each in SCORES]
    says = (
        "Mean risk in the bags it learns from. The wider the gap between the piles, the more it has learned."
    )
    chart = svg.lines(curves, "updates", label, says, y_range=(0.0, 1.0) if steps > 1 else None)
    return Figure("Risk of the two piles", chart, says)


def _line(
    metrics: Sequence[Mapping[str, Any]], metric: str, name: str, style: str, scale: float = 1.0
) -> Line:
    """Mean over seeds with a band from minimum to maximum; a gap where a seed has no finite value."""
    found = [line for line in metrics if _is_finite_row(line.get(metric))]
    found = [line for line in found if len(line[metric]) == len(found[-1][metric])]
    x = np.array([line["update"] for line in found], np.float64)
    values = np.array([line[metric] for line in found], np.float64).reshape(len(found), -1) * scale
    if not len(found):
        return Line(name, style, x, x)
    band = (values.min(axis=1), values.max(axis=1)) if values.shape[1] > 1 else None  # of (points, seeds)
    return Line(name, style, x, values.mean(axis=1), band)


def _is_finite_row(values: object) -> bool:
    return isinstance(values, list) and all(isinstance(value, int | float) for value in values)


def _title(metric: str) -> str:
    known = {"loss/cost": "Loss of the cost", "loss/policy": "Loss of the policy"}
    known |= {"loss/out-of-bag": "Loss of the cost on episodes not seen"}
    known |= {"weights/effective": "Steps that count", "evaluation/return": "Return while learning"}
    return known.get(metric, "Cost while learning" if metric == "evaluation/cost" else metric)


def spread(unlabeled: Doubles, nonpreferred: Doubles | None) -> Figure:
    """Mean risk of the episodes of both piles."""
    groups: list[tuple[str, str, npt.ArrayLike]] = [("unlabeled", "logs", unlabeled)]
    if nonpreferred is not None:
        groups.append(("non-preferred", "bad", nonpreferred))
    says = (
        "Episodes by the mean risk of their steps. Unlabeled episodes that lie where the incidents lie "
        "deserve a look; two humps mean that the pile holds two kinds of behaviour."
    )
    return Figure("Episodes by risk", svg.histogram(groups, "mean risk of an episode", says), says)


def projection(held: Trajectories, risk: Doubles) -> Figure:
    """Steps projected on their first two principal components, in the colours of their risk."""
    some = np.sort(np.random.default_rng(0).permutation(held.steps)[:SAMPLE])
    drawn = np.sort(np.random.default_rng(1).permutation(len(some))[:POINTS])
    rows = some[drawn]
    places, shares = principal(np.concatenate([held.observations[some], held.actions[some]], axis=1), drawn)
    frame = Frame(svg.span([places[:, 0]]), svg.span([places[:, 1]]), "first direction", "second direction")
    says = (
        f"{len(rows):,} unlabeled steps on the two directions in which observations and actions differ most "
        f"({shares[0]:.0%} and {shares[1]:.0%} of the variance). Risk that gathers in one region is a kind "
        "of situation; risk that is spread evenly is not explained by these two directions."
    )
    return Figure(
        "Steps in two dimensions", svg.scatter(places[:, 0], places[:, 1], risk[rows], frame, says), says
    )


def principal(values: npt.ArrayLike, rows: npt.ArrayLike) -> tuple[Doubles, Doubles]:
    """First two principal components of standardised columns, (rows, 2), and their shares of variance.

    >>> places, shares = principal([[0.0, 5.0], [1.0, 5.0], [2.0, 5.0]], [0, 2])
    >>> places.round(2).tolist(), shares.tolist()
    ([[-1.22, 0.0], [1.22, 0.0]], [1.0, 0.0])
    """
    data = np.asarray(values, np.float64)
    deviation = data.std(axis=0)
    standard = (data - data.mean(axis=0)) / np.where(deviation > 0, deviation, 1.0)
    variances, directions = np.linalg.eigh(standard.T @ standard / len(standard))
    chosen = directions[:, ::-1][:, :2]
    signs = np.sign(chosen[np.abs(chosen).argmax(axis=0), [0, 1]])  # eigenvectors have none of their own
    shares = variances[::-1][:2] / max(variances.sum(), np.finfo(float).tiny)
    return standard[np.asarray(rows)] @ (chosen * signs) + 0.0, np.abs(shares)


def calibrated(bins: Sequence[Bin]) -> Figure:
    """Share of steps with a true cost, by risk."""
    frame = Frame((0.0, 1.0), (0.0, 1.0), "risk of a step", "share with a true cost")
    x, y = (np.array([getattr(each, name) for each in bins]) for name in ("predicted", "costly"))
    weight = np.sqrt(np.array([each.steps for each in bins]) / max(each.steps for each in bins))
    ideal = Markup('<path class="ideal" d="{}"/>').format(svg.path(frame.x([0, 1]), frame.y([0, 1])))
    curve = Markup('<path class="line ours" d="{}"/>').format(svg.path(frame.x(x), frame.y(y)))
    marks = [
        Markup('<circle class="mark ours" cx="{}" cy="{}" r="{}"/>').format(*map(svg.number, each))
        for each in zip(frame.x(x), frame.y(y), 2 + 6 * weight, strict=True)
    ]
    says = (
        "Steps grouped by risk; the larger the mark, the more of them. The run was never told what costs, "
        "so it need not lie on the diagonal, but it should rise."
    )
    return Figure(
        "Does a higher risk cost more?", frame.draw(ideal + curve + Markup("").join(marks), says), says
    )


def against_truth(risk: Doubles, costs: Doubles) -> Figure:
    """Mean risk of each unlabeled episode against its true cost."""
    low, high = svg.span([costs])
    frame = Frame((min(low, 0.0), high), (0.0, 1.0), "true cost of an episode", "mean risk")
    says = "One dot for each unlabeled episode. The higher its true cost, the higher its risk should be."
    return Figure("Episodes and their true cost", svg.scatter(costs, risk, risk, frame, says), says)


def moment(
    raw: Doubles, smooth: Doubles, peak: int, panels: Sequence[Panel], steps: tuple[int, int], says: str
) -> Markup:
    """Risk along an episode, its most telling moment, and columns below with the range of good values."""
    top, left, right = svg.TOP + 126, svg.LEFT, svg.WIDTH - svg.RIGHT
    places = np.linspace(left, right, len(raw))
    here = svg.number(places[peak])
    parts = [svg.text_at(left, 12, "risk of each step", "tick")]
    for value in (0.0, 0.5, 1.0):
        level = svg.number(top - value * 120)
        parts.append(Markup('<path class="grid" d="M{} {}H{}"/>').format(left, level, right))
        parts.append(svg.text_at(left - 6, svg.number(top - value * 120 + 4), f"{value:g}", "tick end"))
    parts.append(Markup('<path class="raw" d="{}"/>').format(svg.path(places, top - 120 * raw)))
    parts.append(svg.trail(places, top - 120 * smooth, smooth))
    bottom = top
    for panel in panels:
        first, bottom = bottom + PANEL_GAP, bottom + PANEL_GAP + PANEL
        frame = svg.span([panel.values, [panel.low, panel.high]])

        def y(value: npt.ArrayLike, frame: tuple[float, float] = frame, bottom: float = bottom) -> Doubles:
            share = (np.asarray(value, np.float64) - frame[0]) / (frame[1] - frame[0])
            return np.asarray(bottom - share * PANEL)

        text = f"{panel.name}: {panel.values[peak]:.3g} here, good {panel.low:.3g} to {panel.high:.3g}"
        text = text.replace(" -", " −")
        parts.append(svg.text_at(left, svg.number(first - 7), text, "tick"))
        parts.append(
            Markup('<rect class="good-range" x="{}" y="{}" width="{}" height="{}"/>').format(
                left, svg.number(y(panel.high)), right - left, svg.number(y(panel.low) - y(panel.high) + 1)
            )
        )
        parts.append(Markup('<path class="line logs" d="{}"/>').format(svg.path(places, y(panel.values))))
        parts.append(Markup('<path class="here-line" d="M{} {}V{}"/>').format(here, first, bottom))
    parts.append(Markup('<path class="here-line" d="M{} {}V{}"/>').format(here, top - 120, top))
    for place, anchor, text in ((left, "tick", f"step {steps[0]}"), (right, "tick end", f"step {steps[1]}")):
        parts.append(svg.text_at(place, bottom + 18, text, anchor))
    return svg.picture(Markup("").join(parts), svg.WIDTH, bottom + 24, says, "chart")


def bars(rows: Sequence[tuple[str, float]]) -> Markup:
    """Names with a bar and a number each: mean shares of columns in the risk."""
    most = max([abs(value) for _, value in rows] + [1e-9])
    room, right, height = 165.0, svg.WIDTH - 60.0, 26 * len(rows) + 8
    parts = []
    for number, (name, value) in enumerate(rows):
        level = 16 + 26 * number
        width = max(abs(value) / most * (right - room), 1)
        parts.append(svg.text_at(room - 10, level + 5, _short(name), "tick end"))
        parts.append(
            Markup('<rect class="bar-{}" x="{}" y="{}" width="{}" height="14" rx="3"/>').format(
                "up" if value >= 0 else "down", room, level - 7, svg.number(width)
            )
        )
        text = f"{value:+.2f}".replace("-", "−")
        parts.append(svg.text_at(svg.number(room + width + 8), level + 5, text, "tick"))
    says = "Mean share of each column in the risk: " + ", ".join(f"{n} {v:+.2f}" for n, v in rows)
    return svg.picture(Markup("").join(parts), svg.WIDTH, height, says, "chart")


def _short(name: str) -> str:
    """Shorten a name so that it fits beside a chart.

    >>> _short("safemil (a-run-with-a-long-name)")
    'safemil (a-run-with-a…'
    """
    return name if len(name) <= LETTERS else name[: LETTERS - 1] + "…"


def intervals(rows: Sequence[tuple[str, str, Interval]], label: str, says: str) -> Markup:
    """Chart with a row for each: a dot and its 95% interval."""
    low, high = svg.span([[each.low, each.high] for *_, each in rows] + [[0.0]])
    height, room = 22 * len(rows) + 44, 165.0
    left, right = room, svg.WIDTH - 14.0

    def x(value: float) -> float:
        return left + (value - low) / (high - low) * (right - left)

    parts = [
        Markup('<path class="grid" d="M{} 4V{}"/>{}').format(
            svg.number(x(value)),
            height - 34,
            svg.text_at(svg.number(x(value)), height - 20, text, "tick mid"),
        )
        for value, text in svg.ticks((low, high), most=5)
    ]
    for number, (name, style, each) in enumerate(rows):
        level = 16 + 22 * number
        parts.append(svg.text_at(room - 10, level + 4, _short(name), "tick end"))
        parts.append(
            Markup(
                '<path class="line {}" d="M{} {}H{}"/><circle class="mark {}" cx="{}" cy="{}" r="5"/>'
            ).format(
                style,
                svg.number(x(each.low)),
                level,
                svg.number(x(each.high)),
                style,
                svg.number(x(each.value)),
                level,
            )
        )
    parts.append(svg.text_at(svg.number((left + right) / 2), height - 4, label, "label mid"))
    return svg.picture(Markup("").join(parts), svg.WIDTH, height, says, "chart")
