"""Piles drawn from careful and reckless demonstrations, with held-out episodes to judge a learner by."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from safemil.arrays import Bools
from safemil.data import Annotations, Trajectories


class Piles(NamedTuple):
    """Piles for a learner, and held-out episodes with the truth."""

    nonpreferred: Trajectories
    unlabeled: Trajectories
    unlabeled_truth: Annotations
    heldout: Trajectories
    heldout_truth: Annotations
    heldout_reckless: Bools  # (episodes,)
    careful: Trajectories  # the careful part of `unlabeled`: what an oracle would clone


def draw_piles(
    demonstrate: Callable[[Bools, np.random.Generator], tuple[Trajectories, Annotations]],
    *,
    nonpreferred: int = 50,
    unlabeled: int = 200,
    heldout: int = 100,
    preferred_share: float = 0.5,
    seed: int = 0,
) -> Piles:
    """Reckless episodes in the non-preferred pile; `preferred_share` of the unlabeled ones are careful.

    Half of the held-out episodes are reckless. `demonstrate` is that of a `Task`.
    """
    rng = np.random.default_rng(seed)
    bad, _ = demonstrate(np.ones(nonpreferred, bool), rng)
    reckless = rng.permutation(unlabeled) >= round(preferred_share * unlabeled)
    logs, truth = demonstrate(reckless, rng)
    unseen_reckless = rng.permutation(heldout) < heldout // 2
    unseen, unseen_truth = demonstrate(unseen_reckless, rng)
    careful = logs.take(np.flatnonzero(~reckless))
    return Piles(bad, logs, truth, unseen, unseen_truth, unseen_reckless, careful)
