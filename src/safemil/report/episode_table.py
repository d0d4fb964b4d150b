"""The ranked table of episodes, and the data with which the page steps through one of them."""

import base64
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from markupsafe import Markup

from safemil.arrays import Doubles
from safemil.data import Trajectories
from safemil.report import svg
from safemil.report.maps import disc_class, half_width
from safemil.report.replay import Route
from safemil.scoring import rank
from safemil.worlds import Disc, Wall

RISKIEST, SAFEST = 250, 50  # episodes in the table
POINTS = 1000  # of a timeline, at most
PLACES = 250  # of a path, at most
FINENESS = 16000  # whole numbers from the centre of a map to its edge; two bytes hold twice as many


class Row(NamedTuple):
    """One line of the table."""

    rank: int
    number: int  # in the pile
    name: str
    steps: int
    risk: float  # mean ĉ
    above: float  # share of steps above ½
    cost: float | None  # the true one, where it is known
    spark: Markup


def rows(
    held: Trajectories,
    risk: Sequence[npt.NDArray[np.float32]],
    costs: Doubles | None,
    more: Sequence[int] = (),
) -> tuple[list[Row], int]:
    """The riskiest episodes, the least risky ones and some more; and how many are left out."""
    order = rank(risk)
    places = np.arange(len(order))
    if len(order) > RISKIEST + SAFEST:
        wanted = np.flatnonzero(np.isin(order, more))
        places = np.unique(np.concatenate([places[:RISKIEST], wanted, places[-SAFEST:]]))
    listed = [_row(int(place), int(order[place]), held, risk, costs) for place in places]
    return listed, len(order) - len(listed)


def _row(
    place: int,
    number: int,
    held: Trajectories,
    risk: Sequence[npt.NDArray[np.float32]],
    costs: Doubles | None,
) -> Row:
    values = risk[number]
    return Row(
        place + 1,
        number,
        str(held.ids[number]),
        len(values),
        float(values.mean()),
        float((values > 0.5).mean()),
        None if costs is None else float(costs[number]),
        svg.sparkline(values),
    )


def content(
    listed: Sequence[Row],
    held: Trajectories,
    risk: Sequence[npt.NDArray[np.float32]],
    costs: Sequence[npt.NDArray[Any]] | None,
    known: Sequence[Route | None],
) -> dict[str, Any]:
    """Data of the page's script: timelines, true costs and paths of the listed episodes."""
    routes = [known[row.number] for row in listed]
    shown = [route for route in routes if route is not None]
    half = half_width([each.path for each in shown], shown[0].markers) if shown else 1.0
    return {
        "episodes": [
            _episode(row, held, risk[row.number], None if costs is None else costs[row.number], route, half)
            for row, route in zip(listed, routes, strict=True)
        ],
        "levels": svg.LEVELS,
        "fineness": FINENESS / half,
        "half": half,
    }


def _episode(
    row: Row,
    held: Trajectories,
    risk: npt.NDArray[np.float32],
    costs: npt.NDArray[Any] | None,
    known: Route | None,
    half: float,
) -> dict[str, Any]:
    stride = -(-len(risk) // POINTS)
    found: dict[str, Any] = {
        "name": row.name,
        "first": int(held.first_steps[row.number]),
        "steps": len(risk),
        "stride": stride,
        "risk": packed(_window_maxima(risk, stride)),
    }
    if costs is not None:
        found["costly"] = runs_of(costs > 0)
    marks = held.marks[held.starts[row.number] :][: len(risk)]
    if marks.any():
        found["marks"] = np.flatnonzero(marks).tolist()
    if known is not None:
        every = -(-len(known.path) // PLACES)
        whole = np.clip(np.rint(known.path[::every] * FINENESS / half), -32768, 32767).astype("<i2")
        found |= {"path": _text(whole.tobytes()), "every": every}
        discs = [each for each in known.markers if isinstance(each, Disc)]
        found["discs"] = [[disc_class(each), *np.round(each[1:4], 3).tolist()] for each in discs]
        found["walls"] = [list(each) for each in known.markers if isinstance(each, Wall)]
    return found


def packed(risk: npt.ArrayLike) -> str:
    """Encode values in (0, 1) as bytes, in base64.

    >>> packed([0.0, 1.0])
    'AP8='
    """
    return _text(np.rint(np.clip(np.asarray(risk, np.float64), 0, 1) * 255).astype(np.uint8).tobytes())


def runs_of(marked: npt.ArrayLike) -> list[list[int]]:
    """First step and end of each run of marked steps.

    >>> runs_of([False, True, True, False, True])
    [[1, 3], [4, 5]]
    """
    edges = np.flatnonzero(np.diff(np.asarray(marked, np.int8), prepend=0, append=0))
    return edges.reshape(-1, 2).tolist()


def _window_maxima(values: npt.NDArray[np.float32], stride: int) -> npt.NDArray[np.float32]:
    """Maximum per window of `stride` steps."""
    return np.maximum.reduceat(values, np.arange(0, len(values), stride))


def _text(content: bytes) -> str:
    return base64.b64encode(content).decode()
