"""Piles drawn from careful and reckless demonstrations, with held-out episodes to judge a learner by."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from safemil.arrays import Bools
from safemil.data import Annotations, Trajectories
from safemil.errors import InputError

Demonstrate = Callable[[Bools, np.random.Generator], tuple[Trajectories, Annotations]]
ROUNDS = 100  # of demonstrations, in which an incident must have happened


class Piles(NamedTuple):
    """Piles for a learner, and held-out episodes with the truth."""

    nonpreferred: Trajectories
    nonpreferred_marks: Bools  # (steps,), at which the incidents happened
    unlabeled: Trajectories
    unlabeled_truth: Annotations
    unlabeled_bad: Bools  # (episodes,), those like the non-preferred ones
    heldout: Trajectories
    heldout_truth: Annotations
    heldout_bad: Bools  # (episodes,)
    heldout_reckless: Bools  # (episodes,), of which all are bad, or only some where incidents are rare
    careful: Trajectories  # the careful part of `unlabeled`: what an oracle would clone


def draw_piles(
    demonstrate: Demonstrate,
    *,
    nonpreferred: int = 50,
    unlabeled: int = 200,
    heldout: int = 100,
    preferred_share: float = 0.5,
    rare_incidents: bool = False,
    seed: int = 0,
) -> Piles:
    """Reckless episodes in the non-preferred pile; `preferred_share` of the unlabeled ones are careful.

    Half of the held-out episodes are reckless. `demonstrate` is that of a `Task`. With `rare_incidents`, a
    reckless episode is bad only if a step of it costs, and the non-preferred pile holds such episodes only.
    """
    if min(nonpreferred, unlabeled) < 1 or seed < 0:
        raise InputError(
            f"need at least one episode in both piles and a seed of at least 0, got {nonpreferred}, "
            f"{unlabeled} and {seed}."
        )
    rng = np.random.default_rng(seed)
    incidents, marked = _incidents(demonstrate, nonpreferred, rare_incidents, rng)
    reckless = rng.permutation(unlabeled) >= round(preferred_share * unlabeled)
    logs, truth = demonstrate(reckless, rng)
    unseen_reckless = rng.permutation(heldout) < heldout // 2
    unseen, unseen_truth = demonstrate(unseen_reckless, rng)
    return Piles(
        nonpreferred=incidents,
        nonpreferred_marks=marked.costs > 0,
        unlabeled=logs,
        unlabeled_truth=truth,
        unlabeled_bad=_has_incident(logs, truth) if rare_incidents else reckless,
        heldout=unseen,
        heldout_truth=unseen_truth,
        heldout_bad=_has_incident(unseen, unseen_truth) if rare_incidents else unseen_reckless,
        heldout_reckless=unseen_reckless,
        careful=logs.take(np.flatnonzero(~reckless)),
    )


def _incidents(
    demonstrate: Demonstrate, count: int, rare: bool, rng: np.random.Generator
) -> tuple[Trajectories, Annotations]:
    """Reckless episodes; where incidents are rare, the first ones that have an incident."""
    reckless = np.ones(count, bool)
    if not rare:
        return demonstrate(reckless, rng)
    episodes: list[Trajectories] = []
    costs: list[Annotations] = []
    for _ in range(ROUNDS):
        drawn, truth = demonstrate(reckless, rng)
        chosen = np.flatnonzero(_has_incident(drawn, truth))[: count - len(episodes)]
        episodes += [drawn.take([number]) for number in chosen]
        costs += [truth.take(drawn.lengths, [number]) for number in chosen]
        if len(episodes) == count:
            rewards, values = (
                np.concatenate([getattr(each, name) for each in costs]) for name in ("rewards", "costs")
            )
            return Trajectories.concatenate(episodes), Annotations(rewards, values)
    raise InputError(
        f"expected {count} incidents in {ROUNDS * count} reckless demonstrations, got {len(episodes)}; "
        "a task with `rare_incidents` needs steps that cost."
    )


def _has_incident(episodes: Trajectories, truth: Annotations) -> Bools:
    _, costs = truth.episode_sums(episodes.lengths)
    return costs > 0
