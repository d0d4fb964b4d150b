"""How well a learned cost finds the true one, where the true one is known."""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

Doubles = npt.NDArray[np.float64]


class Bin(NamedTuple):
    """Steps whose ĉ lies in one stretch of (0, 1)."""

    predicted: float  # mean ĉ
    costly: float  # share of steps that truly cost
    steps: int


def ranks(values: npt.ArrayLike) -> Doubles:
    """From 1 on; equal values share the mean of their ranks.

    >>> ranks([10.0, 30.0, 10.0])
    array([1.5, 3. , 1.5])
    """
    _, inverse, counts = np.unique(np.asarray(values), return_inverse=True, return_counts=True)
    last = np.cumsum(counts)
    return np.asarray((last - (counts - 1) / 2)[inverse], np.float64)


def auc(risk: npt.ArrayLike, costly: npt.ArrayLike) -> float | None:
    """How likely a costly step has the greater ĉ of a costly and a free one; None if all are alike.

    >>> auc([0.1, 0.4, 0.4, 0.9], [False, False, True, True])
    0.875
    """
    marked = np.asarray(costly, bool)
    yes, no = int(marked.sum()), int((~marked).sum())
    if not yes or not no:
        return None
    above = ranks(risk)[marked].sum() - yes * (yes + 1) / 2
    return float(above / (yes * no))


def rank_correlation(a: npt.ArrayLike, b: npt.ArrayLike) -> float | None:
    """Spearman's: 1 if both order everything alike; None if one does not order at all.

    >>> rank_correlation([1.0, 2.0, 3.0], [10.0, 20.0, 90.0])
    1.0
    """
    x, y = (ranks(each) - ranks(each).mean() for each in (a, b))
    scale = float(np.sqrt((x**2).sum() * (y**2).sum()))
    return float((x * y).sum() / scale) if scale else None


def calibration(risk: npt.ArrayLike, costly: npt.ArrayLike, bins: int = 10) -> list[Bin]:
    """What share of steps truly costs, by ĉ; stretches without steps are left out.

    >>> calibration([0.05, 0.05, 0.95], [False, True, True], bins=2)
    [Bin(predicted=0.05, costly=0.5, steps=2), Bin(predicted=0.95, costly=1.0, steps=1)]
    """
    values, marked = np.asarray(risk, np.float64), np.asarray(costly, bool)
    where = np.clip((values * bins).astype(np.int64), 0, bins - 1)
    groups = [np.flatnonzero(where == each) for each in range(bins)]
    return [
        Bin(float(values[rows].mean()), float(marked[rows].mean()), len(rows)) for rows in groups if len(rows)
    ]
