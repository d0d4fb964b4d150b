"""Statistics of the episodes of several seeds: small functions over arrays `(seeds, episodes)`.

Measures of the paper (SafeMIL, arXiv:2511.08136, Section 5): returns and costs normalised by a reference
policy, the mean cost of the worst episodes, and 95% intervals from 1000 bootstrap samples. Interquartile
mean and probability of improvement follow Agarwal et al. 2021 (arXiv:2108.13264).
"""

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from safemil.errors import InputError
from safemil.ranks import pairs_won

Scores = npt.NDArray[np.float64]  # (seeds, episodes)
Statistic = Callable[[Scores], npt.NDArray[np.float64]]  # (..., seeds, episodes) to (...)

SAMPLES = 1000
LEVEL = 0.95
WORST = (0.1, 0.2, 0.3, 0.5)  # shares of worst episodes for which CVaR is reported


class Interval(NamedTuple):
    """A value and its 95% confidence interval."""

    value: float
    low: float
    high: float

    @property
    def half(self) -> float:
        """Half the width of the interval, shown after ±."""
        return (self.high - self.low) / 2

    def __str__(self) -> str:
        return f"{self.value:.2f} ± {self.half:.2f}"


def normalised_return(returns: npt.ArrayLike, random: npt.ArrayLike, reference: npt.ArrayLike) -> Scores:
    """Scale returns so that the mean of the random policy is 0 and that of the reference policy is 1.

    >>> normalised_return([[10.0, 30.0]], random=[[0.0, 20.0]], reference=[[30.0]])
    array([[0., 1.]])
    """
    low, high = (float(np.asarray(each, np.float64).mean()) for each in (random, reference))
    if low == high:
        raise InputError(
            "returns are normalised by the difference between the random and the reference policy, but both "
            f"return {low:g} on average; choose another reference."
        )
    return (np.asarray(returns, np.float64) - low) / (high - low)


def normalised_cost(costs: npt.ArrayLike, reference: npt.ArrayLike) -> Scores:
    """Subtract the mean cost of the reference policy.

    >>> normalised_cost([[10.0, 30.0]], reference=[[5.0, 15.0]])
    array([[ 0., 20.]])
    """
    return np.asarray(costs, np.float64) - np.asarray(reference, np.float64).mean()


def cvar(costs: npt.ArrayLike, share: float = 0.2) -> npt.NDArray[np.float64]:
    """Mean cost of the worst `share` of each seed's episodes; the last one may count in part.

    >>> cvar([[1.0, 2.0, 3.0, 4.0, 10.0]], 0.2)
    array([10.])
    >>> cvar([[1.0, 2.0, 3.0, 4.0, 10.0]], 0.3)  # the worst episode and half of the next
    array([8.])
    """
    if not 0 < share <= 1:
        raise InputError(f"expected a share of worst episodes above 0 and at most 1, got {share:g}.")
    worst_first = -np.sort(-np.asarray(costs, np.float64), axis=-1)
    count = share * worst_first.shape[-1]
    weights = np.clip(count - np.arange(worst_first.shape[-1]), 0, 1)
    return np.asarray((worst_first * weights).sum(axis=-1) / count)


def iqm(scores: npt.ArrayLike) -> float:
    """Interquartile mean: the mean of the middle half of all scores, robust to one lucky seed.

    >>> iqm([[0.0, 1.0], [1.0, 100.0]])
    1.0
    """
    ordered = np.sort(np.asarray(scores, np.float64), axis=None)
    cut = len(ordered) // 4
    return float(ordered[cut : len(ordered) - cut].mean())


def probability_of_improvement(ours: npt.ArrayLike, theirs: npt.ArrayLike) -> float:
    """Probability that a random one of ours exceeds a random one of theirs; a tie counts half.

    >>> probability_of_improvement([3.0, 1.0], [1.0, 2.0])  # two of four pairs are won, one is tied
    0.625
    """
    return float(pairs_won(np.ravel(ours), np.ravel(theirs)))


def auc(scores: npt.ArrayLike, positive: npt.ArrayLike) -> float | None:
    """Probability that a positive entry has a higher score than another, a tie being half; None if all agree.

    >>> auc([0.1, 0.4, 0.4, 0.9], [False, False, True, True])
    0.875
    """
    values, marked = np.asarray(scores), np.asarray(positive, bool)
    if marked.all() or not marked.any():
        return None
    return float(pairs_won(values[marked], values[~marked]))


def times_safer(cost: float, than: float) -> float:
    """Ratio of their normalised cost to ours; 1 if neither is above 0, ∞ if only theirs is, 0 if only ours.

    >>> times_safer(2.0, than=10.0), times_safer(-1.0, than=4.0), times_safer(-1.0, than=-3.0)
    (5.0, inf, 1.0)
    """
    if cost <= 0:
        return float("inf") if than > 0 else 1.0
    return max(than, 0.0) / cost


def bootstrap(
    scores: npt.ArrayLike, statistic: Statistic, *, samples: int = SAMPLES, seed: int = 0
) -> npt.NDArray[np.float64]:
    """Compute `statistic` of `samples` bootstrap samples: seeds are drawn first, then episodes of each.

    Two levels of resampling include the variation between seeds and that between episodes.
    """
    data = np.asarray(scores, np.float64)
    if data.ndim != 2 or data.size == 0:
        raise InputError(f"expected scores of shape (seeds, episodes), got {data.shape}.")
    rng = np.random.default_rng(seed)
    seeds, episodes = data.shape
    rows = rng.integers(seeds, size=(samples, seeds, 1))
    columns = rng.integers(episodes, size=(samples, seeds, episodes))
    return np.asarray(statistic(data[rows, columns]))


def interval(
    scores: npt.ArrayLike, statistic: Statistic | None = None, *, samples: int = SAMPLES, seed: int = 0
) -> Interval:
    """Mean, or another statistic, with its bootstrap interval.

    >>> interval([[1.0, 1.0], [1.0, 1.0]])
    Interval(value=1.0, low=1.0, high=1.0)
    """
    of = statistic or mean
    drawn = bootstrap(scores, of, samples=samples, seed=seed)
    low, high = np.quantile(drawn, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return Interval(float(of(np.asarray(scores, np.float64))), float(low), float(high))


def mean(scores: Scores) -> npt.NDArray[np.float64]:
    """Mean over seeds and episodes."""
    return np.asarray(scores.mean(axis=(-2, -1)))


def mean_cvar(costs: Scores, share: float = 0.2) -> npt.NDArray[np.float64]:
    """Mean over seeds of the `cvar` of each."""
    return np.asarray(cvar(costs, share).mean(axis=-1))


def cvar_interval(costs: npt.ArrayLike, share: float = 0.2) -> Interval:
    """`mean_cvar` with its bootstrap interval."""
    return interval(costs, partial(mean_cvar, share=share))
