"""Arenas from above, with episodes drawn in the colours of their risk."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from markupsafe import Markup

from safemil.arrays import Doubles, Floats
from safemil.report import svg
from safemil.worlds import Disc, Marker, Nearby, Wall

SIDE = 300  # of a map, in its own units
CELLS = 40  # along a side of a heat map
FEW = 3  # steps in a cell below which its mean says nothing
AROUND = 5.0  # how far a heat map around the robot reaches, in radii of what it shows
STRIDE = 2  # a path is drawn with every second step


class Trail(NamedTuple):
    """Path of an episode, (T, 2), and its ĉ, (T,)."""

    path: Doubles
    risk: Floats


def half_width(paths: Sequence[Doubles], markers: Sequence[Marker]) -> float:
    """Distance in m from the centre of a map to its edge.

    The map holds nearly all of the paths and all discs, but is at most twice as wide as the discs ask for.

    >>> half_width([np.array([[0.0, 5.0]])], [Disc("hazard", 1.0, 0.0, 0.5, True)])
    3.0
    """
    reach = 1.08 * float(np.quantile(np.concatenate([np.abs(path).max(axis=1) for path in paths]), 0.995))
    rims = [max(abs(each.x), abs(each.y)) + each.radius for each in markers if isinstance(each, Disc)]
    if rims:
        reach = float(np.clip(reach, 1.07 * max(rims), 2 * max(rims)))
    return max(reach, 1e-6)


def arena(trails: Sequence[Trail], markers: Sequence[Marker], half: float, says: str) -> Markup:
    """Draw episodes in one arena, over the things in it."""
    parts = [_ground(markers, half)]
    for path, risk in trails:
        x, y = _placed(path[::STRIDE], half).T
        parts.append(svg.trail(x, y, risk[::STRIDE]))
        parts.append(
            Markup('<circle class="start" cx="{}" cy="{}" r="4"/>').format(*map(svg.number, (x[0], y[0])))
        )
    return svg.picture(Markup("").join(parts), SIDE, SIDE, says, "map")


def legend(markers: Sequence[Marker]) -> str:
    """Sentences that say what the markers of a map are.

    >>> legend([Disc("hazard", 0, 0, 1, True), Disc("button", 0, 0, 1, False)])
    'A step inside a blue disc (hazard) costs; the learner was never told. Outlined: button.'
    """
    discs = [each for each in markers if isinstance(each, Disc)]
    costly, free = (
        ", ".join(dict.fromkeys(each.kind for each in discs if each.costs is wanted))
        for wanted in (True, False)
    )
    says = [f"A step inside a blue disc ({costly}) costs; the learner was never told."] if costly else []
    if any(isinstance(each, Wall) for each in markers):
        says.append("Dashed lines are walls: a step beyond them costs; the learner was never told.")
    return " ".join(says + ([f"Outlined: {free}."] if free else []))


def disc_class(disc: Disc) -> str:
    """Style of a disc: one for all that cost, else its kind."""
    return "hazard" if disc.costs else disc.kind


def heat(values: Doubles, places: Doubles, half: float) -> Doubles:
    """Means of values (n,) by place (n, 2): (cells, cells), rows from the top; NaN where there are few."""
    index = np.floor((places + half) / (2 * half) * CELLS)
    inside = ((index >= 0) & (index < CELLS)).all(axis=1) & np.isfinite(index).all(axis=1)
    column, row = index[inside].astype(np.int64).T
    flat = (CELLS - 1 - row) * CELLS + column
    count = np.bincount(flat, minlength=CELLS * CELLS)
    total = np.bincount(flat, values[inside], minlength=CELLS * CELLS)
    means = np.where(count >= FEW, total / np.maximum(count, 1), np.nan)
    return np.asarray(means.reshape(CELLS, CELLS))


def place_heat(places: Doubles, risk: Doubles, markers: Sequence[Marker], says: str) -> Markup:
    """Draw the mean ĉ of steps by place in the arena."""
    half = half_width([places], markers)
    body = _heat_body(heat(risk, places, half)) + _ground(markers, half)
    return svg.picture(body, SIDE, SIDE, says, "map")


def around_heat(nearby: Nearby, observations: npt.ArrayLike, risk: Doubles, says: str) -> Markup:
    """Draw the mean ĉ by the position of the nearest thing of a kind relative to a robot that faces up."""
    ahead, left = nearby.offsets(observations).T
    body = _heat_body(heat(risk, np.stack([-left, ahead], axis=1), AROUND * nearby.radius))
    middle, radius = SIDE / 2, SIDE / 2 / AROUND
    robot = Markup('<circle class="limit" cx="{0}" cy="{0}" r="{1}"/>').format(
        svg.number(middle), svg.number(radius)
    )
    arrow = Markup('<path class="robot" d="M{0} {1}l5 12h-10z"/>').format(svg.number(middle), middle - 7)
    return svg.picture(body + robot + arrow, SIDE, SIDE, says, "map")


def _heat_body(values: Doubles) -> Markup:
    edges = np.linspace(0, SIDE, CELLS + 1)
    return svg.cells(values, edges, edges)


def _ground(markers: Sequence[Marker], half: float) -> Markup:
    """Draw the things in the arena."""
    parts = []
    for each in markers:
        if isinstance(each, Wall):
            x, y = _placed(np.array([each]).reshape(2, 2), half).T
            parts.append(Markup('<path class="wall" d="{}"/>').format(svg.path(x, y)))
        else:
            (x, y), radius = _placed(np.array([[each.x, each.y]]), half)[0], each.radius / half * SIDE / 2
            parts.append(
                Markup('<circle class="{}" cx="{}" cy="{}" r="{}"/>').format(
                    disc_class(each), *map(svg.number, (x, y, radius))
                )
            )
    return Markup("").join(parts)


def _placed(places: Doubles, half: float) -> Doubles:
    """Places (n, 2) in m as places on the map, y upwards."""
    return np.stack([places[:, 0] + half, half - places[:, 1]], axis=1) * SIDE / (2 * half)
