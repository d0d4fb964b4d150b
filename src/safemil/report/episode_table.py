"""The ranked table of episodes, and what the page needs to step through one of them."""

import base64
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from markupsafe import Markup

from safemil.data import Trajectories
from safemil.report import svg
from safemil.report.replay import RADII, Thing
from safemil.scoring import rank

Doubles = npt.NDArray[np.float64]
Known = tuple[Doubles, list[Thing]] | None  # where an episode went and what stood there
RISKIEST, SAFEST = 250, 50  # episodes in the table
POINTS = 1000  # of a timeline, at most
PLACES = 250  # of a path, at most
FINENESS = 1000  # m to whole mm, which two bytes hold up to 32 m


class Row(NamedTuple):
    """One line of the table."""

    rank: int
    number: int  # in the pile
    name: str
    steps: int
    risk: float  # mean ĉ
    above: float  # share of steps above ½
    cost: float | None  # true, in hindsight
    spark: Markup


def rows(
    held: Trajectories, risk: Sequence[npt.NDArray[np.float32]], costs: Doubles | None
) -> tuple[list[Row], int]:
    """The riskiest episodes and the least risky ones, and how many are left out between them."""
    order = rank(risk)
    places = np.arange(len(order))
    if len(order) > RISKIEST + SAFEST:
        places = np.concatenate([places[:RISKIEST], places[-SAFEST:]])
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
    known: Sequence[Known],
) -> dict[str, Any]:
    """What the page's script reads: timelines, true costs and paths of the listed episodes."""
    return {
        "episodes": [
            _episode(
                row, held, risk[row.number], None if costs is None else costs[row.number], known[row.number]
            )
            for row in listed
        ],
        "levels": svg.LEVELS,
        "fineness": FINENESS,
        "radii": RADII,
    }


def _episode(
    row: Row,
    held: Trajectories,
    risk: npt.NDArray[np.float32],
    costs: npt.NDArray[Any] | None,
    known: Known,
) -> dict[str, Any]:
    stride = -(-len(risk) // POINTS)
    found: dict[str, Any] = {
        "name": row.name,
        "first": int(held.first_steps[row.number]),
        "steps": len(risk),
        "stride": stride,
        "risk": packed(_greatest(risk, stride)),
    }
    if costs is not None:
        found["costly"] = stretches(costs > 0)
    if known is not None:
        path, things = known
        every = -(-len(path) // PLACES)
        whole = np.clip(np.rint(path[::every] * FINENESS), -32768, 32767).astype("<i2")
        found |= {"path": _text(whole.tobytes()), "every": every}
        found["things"] = [[kind, round(x, 3), round(y, 3)] for kind, x, y in things]
    return found


def packed(risk: npt.ArrayLike) -> str:
    """Values in (0, 1) as bytes, in base64.

    >>> packed([0.0, 1.0])
    'AP8='
    """
    return _text(np.rint(np.clip(np.asarray(risk, np.float64), 0, 1) * 255).astype(np.uint8).tobytes())


def stretches(marked: npt.ArrayLike) -> list[list[int]]:
    """First and end of each run of marked steps.

    >>> stretches([False, True, True, False, True])
    [[1, 3], [4, 5]]
    """
    edges = np.flatnonzero(np.diff(np.asarray(marked, np.int8), prepend=0, append=0))
    return edges.reshape(-1, 2).tolist()


def _greatest(values: npt.NDArray[np.float32], stride: int) -> npt.NDArray[np.float32]:
    """Of each stretch of so many steps."""
    return np.maximum.reduceat(values, np.arange(0, len(values), stride))


def _text(content: bytes) -> str:
    return base64.b64encode(content).decode()
