"""The riskiest and the least risky segments, and the columns that are unusual in them."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from safemil.data import Trajectories
from safemil.data.describing import Column
from safemil.data.trajectories import recorded_actions

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
        ends = [telling(-sign * each) for each in windows]
        values = np.array([each[end] for each, end in zip(windows, ends, strict=True)])
        order = np.argsort(sign * values, kind="stable")[:SHOWN]
        found.append(
            [
                _segment(trajectories, columns, i, ends[i], min(length, len(costs[i])), float(values[i]))
                for i in order.tolist()
            ]
        )
    return found[0], found[1]


def telling(values: npt.NDArray[np.float64], close: float = 0.01) -> int:
    """Place of the highest value, or the middle one of those about as high.

    A risk that is as high from the first step on would else always be found at its first step.

    >>> telling(np.array([0.1, 0.9, 0.9, 0.9, 0.2])), telling(np.array([0.1, 0.2, 0.8, 0.2]))
    (2, 2)
    """
    high = np.flatnonzero(values >= values.max() - close)
    return int(high[len(high) // 2])


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
    rows = slice(begin, begin + steps)
    actions = recorded_actions(held.actions[rows], held.action_low, held.action_high)
    means = np.concatenate([held.observations[rows].mean(axis=0, dtype=np.float64), actions.mean(axis=0)])
    return Segment(episode, first, steps, risk, _unusual(means, columns))


def _unusual(means: npt.NDArray[np.float64], columns: Sequence[Column]) -> list[Unusual]:
    found = [
        Unusual(column.name, float(mean), float(mean - column.mean) / column.deviation)
        for mean, column in zip(means, columns, strict=True)
        if column.low < column.high
    ]
    return sorted(found, key=lambda each: -abs(each.deviations))[:UNUSUAL]
