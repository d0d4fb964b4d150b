"""Small charts as inline SVG; their colours are classes of the page's style, so they follow light and dark.

Risk is shown in `LEVELS` steps from a quiet grey-blue to a strong red: class `r0` up to `r7`.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from markupsafe import Markup

from safemil.arrays import Doubles

LEVELS = 8
WIDTH, HEIGHT = 440, 250  # of a chart, in its own units
LEFT, RIGHT, TOP, BOTTOM = 58, 14, 24, 38  # room for the axes
LETTER = 8  # width of a letter, about


class Line(NamedTuple):
    """A curve, and the band around it if there are several seeds."""

    name: str
    style: str  # class of the stroke
    x: Doubles
    y: Doubles
    band: tuple[Doubles, Doubles] | None = None


@dataclass(frozen=True)
class Frame:
    """A pair of axes: from data to places on the chart."""

    x_range: tuple[float, float]
    y_range: tuple[float, float]
    x_label: str
    y_label: str
    width: float = WIDTH
    height: float = HEIGHT

    def x(self, values: npt.ArrayLike) -> Doubles:
        return _placed(values, self.x_range, LEFT, self.width - RIGHT)

    def y(self, values: npt.ArrayLike) -> Doubles:
        return _placed(values, self.y_range, self.height - BOTTOM, TOP)

    def draw(self, body: Markup, says: str) -> Markup:
        """Draw axes around the body; `says` is the text for screen readers."""
        axes = self._x_axis() + self._y_axis()
        return picture(axes + body, self.width, self.height, says, "chart")

    def _x_axis(self) -> Markup:
        base = self.height - BOTTOM
        parts = [
            text_at(number(self.x(value)), base + 16, text, "tick mid") for value, text in ticks(self.x_range)
        ]
        middle = (LEFT + self.width - RIGHT) / 2
        parts.append(text_at(number(middle), self.height - 4, self.x_label, "label mid"))
        line = Markup('<path class="axis" d="M{} {}H{}"/>').format(LEFT, base, self.width - RIGHT)
        return line + Markup("").join(parts)

    def _y_axis(self) -> Markup:
        parts = []
        for value, text in ticks(self.y_range, most=5):
            level = number(self.y(value))
            parts.append(Markup('<path class="grid" d="M{} {}H{}"/>').format(LEFT, level, self.width - RIGHT))
            parts.append(text_at(LEFT - 6, number(float(level) + 4), text, "tick end"))
        middle = (TOP + self.height - BOTTOM) / 2
        turn = Markup('<g transform="translate(11 {}) rotate(-90)">{}</g>')
        return Markup("").join(parts) + turn.format(number(middle), text_at(0, 0, self.y_label, "label mid"))


def picture(body: Markup, width: float, height: float, says: str, style: str) -> Markup:
    """An image with a description."""
    return Markup('<svg class="{}" viewBox="0 0 {} {}" role="img" aria-label="{}">{}</svg>').format(
        style, number(width), number(height), says, body
    )


def lines(
    curves: Sequence[Line], x_label: str, y_label: str, says: str, y_range: tuple[float, float] | None = None
) -> Markup:
    """Curves with their names at the top."""
    drawn = [curve for curve in curves if len(curve.x)]
    found = y_range or span([each for curve in drawn for each in (curve.y, *(curve.band or ()))])
    frame = Frame(span([curve.x for curve in drawn]), found, x_label, y_label)
    parts = [_band(frame, curve) for curve in drawn if curve.band is not None]
    for curve in drawn:
        parts.append(
            Markup('<path class="line {}" d="{}"/>').format(
                curve.style, path(frame.x(curve.x), frame.y(curve.y))
            )
        )
    return frame.draw(Markup("").join(parts) + _legend([(each.name, each.style) for each in drawn]), says)


def histogram(
    groups: Sequence[tuple[str, str, npt.ArrayLike]], x_label: str, says: str, bins: int = 25
) -> Markup:
    """Shares of each group over 0 to 1."""
    edges = np.linspace(0, 1, bins + 1)
    shares = [np.histogram(values, edges)[0] / max(np.size(values), 1) for *_, values in groups]
    frame = Frame((0.0, 1.0), (0.0, float(max(each.max() for each in shares)) * 1.15), x_label, "share")
    xs, base = frame.x(edges), number(frame.y(0.0))
    parts = []
    for (_, style, _), share in zip(groups, shares, strict=True):
        tops = frame.y(share)
        steps = "".join(f"H{number(x)}V{number(y)}" for x, y in zip(xs[:-1], tops, strict=True))
        d = f"M{number(xs[0])} {base}{steps}H{number(xs[-1])}V{base}Z"
        parts.append(Markup('<path class="area {}" d="{}"/>').format(style, d))
    return frame.draw(Markup("").join(parts) + _legend([(name, style) for name, style, _ in groups]), says)


def scatter(x: Doubles, y: Doubles, risk: npt.ArrayLike, frame: Frame, says: str) -> Markup:
    """Points in the colours of their risk, the riskiest on top."""
    return frame.draw(dots(frame.x(x), frame.y(y), risk), says)


def dots(x: Doubles, y: Doubles, risk: npt.ArrayLike) -> Markup:
    """Points as one path for each level of risk: a dozen characters each."""
    points = (f"M{number(a)} {number(b)}h0" for a, b in zip(x, y, strict=True))
    return _by_level("dot ", levels(risk), points)


def trail(x: Doubles, y: Doubles, risk: npt.ArrayLike) -> Markup:
    """Path through points, each part in the colour of its risk; the riskiest on top."""
    level = levels(risk)
    begins = np.flatnonzero(np.diff(level, prepend=-1))
    ends = np.append(begins[1:], len(level)) + 1  # into the next part, so that no gap is left
    parts = (path(x[begin:end], y[begin:end]) for begin, end in zip(begins, ends, strict=True))
    return _by_level("trail ", level[begins], parts)


def cells(values: Doubles, x: Doubles, y: Doubles) -> Markup:
    """Squares of a grid (rows, columns) in the colours of their risk; NaN stays empty."""
    filled = np.isfinite(values)
    squares = (
        f"M{number(x[j])} {number(y[i])}H{number(x[j + 1])}V{number(y[i + 1])}H{number(x[j])}Z"
        for i, j in np.argwhere(filled)
    )
    return _by_level("cell ", levels(values[filled]), squares)


def _by_level(style: str, level: npt.NDArray[np.int64], pieces: Iterable[str]) -> Markup:
    """One path for all pieces of a level of risk; the riskiest is on top."""
    paths = [""] * LEVELS
    for each, piece in zip(level, pieces, strict=True):
        paths[each] += piece
    drawn = (Markup('<path class="{}r{}" d="{}"/>').format(style, i, d) for i, d in enumerate(paths) if d)
    return Markup("").join(drawn)


def sparkline(values: npt.NDArray[Any], width: int = 160, height: int = 26, points: int = 54) -> Markup:
    """Timeline as a line, each point the mean of a window."""
    windows = np.array_split(values, min(points, len(values)))
    tall = np.array([window.mean() for window in windows], np.float64)
    place = (np.arange(len(tall)) + 0.5) * width / len(tall)
    drawn = trail(place, height - 2 - tall * (height - 4), tall)
    return Markup(
        '<svg class="spark" viewBox="0 0 {} {}" preserveAspectRatio="none" role="img" '
        'tabindex="-1" aria-label="Risk along the episode"><path class="floor" d="M0 {}H{}"/>{}</svg>'
    ).format(width, height, height - 1, width, drawn)


def levels(risk: npt.ArrayLike) -> npt.NDArray[np.int64]:
    """Colour number of a risk in (0, 1).

    >>> levels([0.0, 0.5, 1.0])
    array([0, 4, 7])
    """
    return np.clip((np.asarray(risk, np.float64) * LEVELS).astype(np.int64), 0, LEVELS - 1)


def path(x: Doubles, y: Doubles) -> str:
    """Path data (`d`) of a polyline.

    >>> path(np.array([0.0, 1.0]), np.array([2.0, 3.25]))
    'M0 2L1 3.2'
    """
    return "M" + "L".join(f"{number(a)} {number(b)}" for a, b in zip(x, y, strict=True))


def ticks(between: tuple[float, float], most: int = 6) -> list[tuple[float, str]]:
    """Round numbers within a range, and how to write them.

    >>> ticks((0.0, 1.0), most=5)
    [(0.0, '0'), (0.25, '0.25'), (0.5, '0.5'), (0.75, '0.75'), (1.0, '1')]
    """
    low, high = between
    rough = (high - low) / (most - 1)
    scale = 10.0 ** math.floor(math.log10(rough))
    step = next(each * scale for each in (1, 2, 2.5, 5, 10) if each * scale >= rough * 0.999)
    values = np.arange(math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9) + 1) * step
    return [(float(value), _tick(float(value))) for value in values]


def span(values: Sequence[npt.ArrayLike]) -> tuple[float, float]:
    """The range of some arrays, never empty.

    >>> span([[1.0, 3.0], [2.0]])
    (1.0, 3.0)
    """
    every = np.concatenate([np.ravel(each) for each in values]) if values else np.zeros(1)
    every = every[np.isfinite(every)]
    low, high = (float(every.min()), float(every.max())) if len(every) else (0.0, 1.0)
    return (low, high) if high > low else (low - 0.5, high + 0.5)


def number(value: Any) -> str:
    """Write a coordinate with as many digits as can be seen.

    >>> number(12.0), number(3.14159), number(-0.04)
    ('12', '3.1', '0')
    """
    text = f"{float(value):.1f}".removesuffix(".0")
    return "0" if text == "-0" else text


def text_at(x: object, y: object, text: str, style: str) -> Markup:
    return Markup('<text class="{}" x="{}" y="{}">{}</text>').format(style, x, y, text)


def _tick(value: float) -> str:
    if abs(value) >= 10_000:
        return f"{value / 1000:g}k"
    return f"{round(value, 10):g}".replace("-", "−")


def _placed(values: npt.ArrayLike, between: tuple[float, float], first: float, last: float) -> Doubles:
    low, high = between
    return first + (np.asarray(values, np.float64) - low) / (high - low) * (last - first)


def _band(frame: Frame, curve: Line) -> Markup:
    assert curve.band is not None
    low, high = (frame.y(each) for each in curve.band)
    there, back = path(frame.x(curve.x), high), path(frame.x(curve.x)[::-1], low[::-1])
    return Markup('<path class="band {}" d="{}L{}Z"/>').format(curve.style, there, back[1:])


def _legend(names: Sequence[tuple[str, str]]) -> Markup:
    parts, place = [], float(LEFT)
    for name, style in names:
        parts.append(Markup('<path class="line {}" d="M{} 8h14"/>').format(style, number(place)))
        parts.append(text_at(number(place + 19), 12, name, "tick"))
        place += 34 + LETTER * len(name)
    return Markup("").join(parts) if len(names) > 1 else Markup("")
