"""What the ranks of two piles of scores tell, for NumPy arrays and for JAX arrays inside a compiled update.

`xp` is the array library of the scores, NumPy or `jax.numpy`.
"""

import math
from typing import Any

import numpy as np

DOUBT = 0.1  # probability that the error of a share's estimate is larger than assumed


def pairs_won(ours: Any, theirs: Any, xp: Any = np) -> Any:
    """Share of pairs in which a score of ours is above one of theirs, a tie being half: their AUC.

    >>> float(pairs_won(np.array([1.0, 3.0]), np.array([0.0, 1.0, 2.0, 4.0])))
    0.5625
    """
    ordered = xp.sort(theirs)
    below, upto = (xp.searchsorted(ordered, ours, side=side) for side in ("left", "right"))
    return ((below + upto) / 2).mean() / len(theirs)


def share_like(incidents: Any, unlabeled: Any, xp: Any = np) -> Any:
    """Estimate the share of the unlabeled episodes that are like the incidents, from the scores of both.

    If a share b is, P(unlabeled ≥ t) ≥ b P(incident ≥ t) at every threshold t: b is at most the smallest
    ratio of the two. In samples the smallest ratio is too low, as it is found where few incidents are left:
    0.2 instead of 0.5 on average, for 50 incidents. The threshold is therefore where an upper bound of the
    ratio is smallest (best-bin estimation, Garg et al. 2021, arXiv:2111.00980). Good episodes that score as
    incidents do are counted too.

    >>> float(share_like(np.array([6, 7, 8, 9]), np.array([0, 1, 2, 3, 6, 7, 8, 9])))
    0.5
    """
    ordered = xp.sort(incidents)
    above = 1 - xp.searchsorted(ordered, ordered) / len(incidents)  # P(incident ≥ t) at each incident's t
    others = 1 - xp.searchsorted(xp.sort(unlabeled), ordered) / len(unlabeled)  # P(unlabeled ≥ t)
    margin = sum(math.sqrt(math.log(4 / DOUBT) / (2 * len(pile))) for pile in (incidents, unlabeled))
    best = xp.argmin((others + margin) / above)
    return xp.minimum(others[best] / above[best], 1.0)
