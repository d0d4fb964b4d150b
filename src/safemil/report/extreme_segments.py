"""The riskiest and the least risky segments, and the columns that are unusual in them."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from safemil.data import Trajectories
from safemil.data.describing import Column

SHOWN = 5  # segments of each kind
UNUSUAL = 3  # columns named for each

Costs = Sequence[npt.NDArray[np.float32]]


class Unusual(NamedTuple):
    """Column whose mean over a segment is far from its mean over all steps."""

    column: str
    value: float
    deviations: float


class Segment(NamedTuple):
    episode: int  # number in the pile
    first: int  # row within the episode
    steps: int
    risk: float  # mean ĉ
    unusual: list[Unusual]


def extreme(
    trajectories: Trajectories, costs: Costs, columns: Sequence[Column], length: int
) -> tuple[list[Segment], list[Segment]]:
    """The riskiest and the least risky segments, at most one per episode; the most extreme first."""
    windows = [_windows(each, length) for each in costs]
    found = []
    for sign in (-1, 1):
        ends = [int(np.argmin(sign * each)) for each in windows]
        values = np.array([each[end] for each, end in zip(windows, ends, strict=True)])
        order = np.argsort(sign * values, kind="stable")[:SHOWN]
        found.append(
            [
                _segment(trajectories, columns, i, ends[i], min(length, len(costs[i])), float(values[i]))
                for i in order.tolist()
            ]
        )
    return found[0], found[1]


def _windows(values: npt.NDArray[np.float32], length: int) -> npt.NDArray[np.float64]:
    """Means over all windows of a length, or over everything if that is shorter.

    >>> _windows(np.array([0.0, 1.0, 0.0], np.float32), 2)
    array([0.5, 0.5])
    """
    length = min(length, len(values))
    total = np.concatenate([[0.0], np.cumsum(values, dtype=np.float64)])
    return np.asarray((total[length:] - total[:-length]) / length)


def _segment(
    held: Trajectories, columns: Sequence[Column], episode: int, first: int, steps: int, risk: float
) -> Segment:
    begin = int(held.starts[episode]) + first
    blocks = (each[begin : begin + steps] for each in (held.observations, held.actions))
    means = np.concatenate([each.mean(axis=0, dtype=np.float64) for each in blocks])
    return Segment(episode, first, steps, risk, _unusual(means, columns))


def _unusual(means: npt.NDArray[np.float64], columns: Sequence[Column]) -> list[Unusual]:
    found = [
        Unusual(column.name, float(mean), float(mean - column.mean) / column.deviation)
        for mean, column in zip(means, columns, strict=True)
        if column.low < column.high
    ]
    return sorted(found, key=lambda each: -abs(each.deviations))[:UNUSUAL]
