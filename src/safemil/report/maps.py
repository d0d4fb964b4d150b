"""The arenas of the point tasks from above, with episodes drawn in the colours of their risk."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from markupsafe import Markup

from safemil.report import svg
from safemil.report.observations import CIRCLE, HAZARD_RADIUS, circle_positions, nearest
from safemil.report.replay import RADII, Thing
from safemil.tasks import circle

Doubles = npt.NDArray[np.float64]
SIDE = 300  # of a map, in its own units
NEAR, FAR = 1.6, 3.0  # m, from the centre of a map to its rim, at least and at most
CELLS = 40  # along a side of a heat map
FEW = 3  # steps in a cell below which its mean says nothing
AROUND = 1.0  # m, how far a heat map around the robot reaches
STRIDE = 2  # of a path, every so many steps are drawn


class Trail(NamedTuple):
    """Where an episode went, (T, 2), and its ĉ, (T,)."""

    path: Doubles
    risk: npt.NDArray[np.float32]


def half_width(paths: Sequence[Doubles]) -> float:
    """From the centre of a map to its rim, in m, such that next to nothing lies outside."""
    reach = np.concatenate([np.abs(path).max(axis=1) for path in paths])
    return float(np.clip(np.quantile(reach, 0.995) + 0.15, NEAR, FAR))


def arena(task: str, trails: Sequence[Trail], things: Sequence[Thing], half: float, says: str) -> Markup:
    """Episodes in one arena, over what stands in it."""
    parts = [_ground(task, things, half)]
    for path, risk in trails:
        x, y = _placed(path[::STRIDE], half).T
        parts.append(svg.trail(x, y, risk[::STRIDE]))
        parts.append(
            Markup('<circle class="start" cx="{}" cy="{}" r="4"/>').format(*map(svg.number, (x[0], y[0])))
        )
    return svg.picture(Markup("").join(parts), SIDE, SIDE, says, "map")


def heat(values: Doubles, places: Doubles, half: float) -> Doubles:
    """(cells, cells): means of values (n,) by place (n, 2), rows from the top; NaN where there are few."""
    index = np.floor((places + half) / (2 * half) * CELLS)
    inside = ((index >= 0) & (index < CELLS)).all(axis=1) & np.isfinite(index).all(axis=1)
    column, row = index[inside].astype(np.int64).T
    flat = (CELLS - 1 - row) * CELLS + column
    count = np.bincount(flat, minlength=CELLS * CELLS)
    total = np.bincount(flat, values[inside], minlength=CELLS * CELLS)
    means = np.where(count >= FEW, total / np.maximum(count, 1), np.nan)
    return np.asarray(means.reshape(CELLS, CELLS))


def circle_heat(observations: npt.ArrayLike, risk: Doubles, says: str) -> Markup:
    """Mean ĉ of all steps by place in SafetyPointCircle2."""
    places = circle_positions(observations)
    half = half_width([places])
    body = _heat_body(heat(risk, places, half)) + _ground(CIRCLE, (), half)
    return svg.picture(body, SIDE, SIDE, says, "map")


def around_heat(task: str, kind: str, observations: npt.ArrayLike, risk: Doubles, says: str) -> Markup:
    """Mean ĉ by where the nearest thing of a kind is, as seen from a robot that looks up the page."""
    ahead, left = nearest(task, observations, kind).T
    body = _heat_body(heat(risk, np.stack([-left, ahead], axis=1), AROUND))
    middle, radius = SIDE / 2, HAZARD_RADIUS / AROUND * SIDE / 2
    robot = Markup('<circle class="limit" cx="{0}" cy="{0}" r="{1}"/>').format(
        svg.number(middle), svg.number(radius)
    )
    arrow = Markup('<path class="robot" d="M{0} {1}l5 12h-10z"/>').format(svg.number(middle), middle - 7)
    return svg.picture(body + robot + arrow, SIDE, SIDE, says, "map")


def _heat_body(values: Doubles) -> Markup:
    edges = np.linspace(0, SIDE, CELLS + 1)
    return svg.cells(values, edges, edges)


def _ground(task: str, things: Sequence[Thing], half: float) -> Markup:
    """What stands in the arena."""
    if task == CIRCLE:
        return _circle_ground(half)
    parts = []
    for kind, x, y in things:
        centre = _placed(np.array([[x, y]]), half)[0]
        radius = RADII[kind] / half * SIDE / 2
        parts.append(
            Markup('<circle class="{}" cx="{}" cy="{}" r="{}"/>').format(
                kind, *map(svg.number, (*centre, radius))
            )
        )
    return Markup("").join(parts)


def _circle_ground(half: float) -> Markup:
    scale, middle = SIDE / 2 / half, SIDE / 2
    low, high = (svg.number(middle + sign * circle.WALL * scale) for sign in (-1, 1))
    walls = "".join(f"M{each} 0V{SIDE}M0 {each}H{SIDE}" for each in (low, high))
    ring = Markup('<circle class="ring" cx="{0}" cy="{0}" r="{1}"/>').format(
        svg.number(middle), svg.number(circle.RADIUS * scale)
    )
    return ring + Markup('<path class="wall" d="{}"/>').format(walls)


def _placed(places: Doubles, half: float) -> Doubles:
    """(n, 2) in m to (n, 2) on the map, y upwards."""
    return np.stack([places[:, 0] + half, half - places[:, 1]], axis=1) * SIDE / (2 * half)
