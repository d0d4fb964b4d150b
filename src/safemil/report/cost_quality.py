"""Quality of a learned cost, measured against the true one where that is known."""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt


class Bin(NamedTuple):
    """Steps whose ĉ lies in one interval of (0, 1)."""

    predicted: float  # mean ĉ
    costly: float  # share of steps with a true cost
    steps: int


def rank_correlation(a: npt.ArrayLike, b: npt.ArrayLike) -> float | None:
    """Spearman's rank correlation: 1 if both order everything alike; None if one is constant.

    >>> rank_correlation([1.0, 2.0, 3.0], [10.0, 20.0, 90.0])
    1.0
    """
    from scipy.stats import spearmanr

    if np.ptp(a) == 0 or np.ptp(b) == 0:
        return None
    return float(spearmanr(a, b).statistic)


def calibration(risk: npt.ArrayLike, costly: npt.ArrayLike, bins: int = 10) -> list[Bin]:
    """Share of steps with a true cost, by ĉ; intervals without steps are left out.

    >>> calibration([0.05, 0.05, 0.95], [False, True, True], bins=2)
    [Bin(predicted=0.05, costly=0.5, steps=2), Bin(predicted=0.95, costly=1.0, steps=1)]
    """
    values, marked = np.asarray(risk, np.float64), np.asarray(costly, bool)
    where = np.clip((values * bins).astype(np.int64), 0, bins - 1)
    groups = [np.flatnonzero(where == each) for each in range(bins)]
    return [
        Bin(float(values[rows].mean()), float(marked[rows].mean()), len(rows)) for rows in groups if len(rows)
    ]
