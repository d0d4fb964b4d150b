"""Split of annotated episodes into the paper's two piles (SafeMIL, arXiv:2511.08136, Appendix D)."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from safemil.arrays import Bools, Doubles, Ints
from safemil.data.formats import save
from safemil.data.interchange import PathLike
from safemil.data.trajectories import Annotations, Trajectories
from safemil.errors import InputError, unknown
from safemil.files import atomic_folder
from safemil.ownership import marked

ReturnRule = Literal["midrange", "median"]
MANIFEST = "manifest.json"
FORMAT = "safemil-split"  # in the manifest: only a folder that has it is overwritten
HINDSIGHT_STORE = "hindsight"
HINDSIGHT = ("nonpreferred_episodes", "unlabeled_episodes", "unlabeled_is_preferred")
COST_SHARE = 0.25  # top and bottom 25% of total cost, as in Appendix D
HIGH_RETURN: dict[str, Callable[[Doubles], Any]] = {
    "midrange": lambda returns: (returns.min() + returns.max()) / 2,
    "median": np.median,
}


@dataclass(frozen=True, eq=False)
class Split:
    """Two piles without rewards and costs, and the numbers of the episodes in each."""

    nonpreferred: Trajectories
    unlabeled: Trajectories
    nonpreferred_episodes: Ints  # numbers of the episodes in the whole dataset
    unlabeled_episodes: Ints
    unlabeled_is_preferred: Bools  # (unlabeled,), what an algorithm has to find out
    annotations: Annotations  # of the unlabeled pile, for algorithms that need them


@dataclass(frozen=True, eq=False)
class Kinds:
    """Preferred and non-preferred episodes as in Appendix D, and the thresholds between them."""

    preferred: Bools  # (episodes,)
    nonpreferred: Bools  # (episodes,)
    least_return: float  # threshold of a high return
    low_cost: float  # lower quartile
    high_cost: float  # upper quartile


def split(
    trajectories: Trajectories,
    annotations: Annotations,
    *,
    nonpreferred: int = 50,
    unlabeled: int = 200,
    preferred_share: float = 0.5,
    return_rule: ReturnRule = "midrange",
    seed: int = 0,
) -> Split:
    """Draw a non-preferred pile, and an unlabeled one with a given share of preferred episodes.

    No episode is in both piles. The draw, and the order of a pile, depend only on `seed`.
    """
    _check(nonpreferred, unlabeled, preferred_share, seed)
    good = round(preferred_share * unlabeled)
    bad = nonpreferred + unlabeled - good
    found = kinds(trajectories, annotations, return_rule)
    _check_enough("preferred", good, found.preferred)
    _check_enough("non-preferred", bad, found.nonpreferred)
    generator = np.random.Generator(np.random.PCG64(seed))
    preferred = generator.choice(np.flatnonzero(found.preferred), good, replace=False)
    incidents = generator.choice(np.flatnonzero(found.nonpreferred), bad, replace=False)
    mixed = generator.permutation(np.concatenate([preferred, incidents[nonpreferred:]]))
    return Split(
        nonpreferred=trajectories.take(incidents[:nonpreferred]),
        unlabeled=trajectories.take(mixed),
        nonpreferred_episodes=incidents[:nonpreferred],
        unlabeled_episodes=mixed,
        unlabeled_is_preferred=found.preferred[mixed],
        annotations=annotations.take(trajectories.lengths, mixed),
    )


def save_split(path: PathLike, piles: Split, *, manifest: Mapping[str, Any], overwrite: bool = False) -> None:
    """Write a folder with the stores `nonpreferred` and `unlabeled`.

    The store `hindsight` is the unlabeled pile with its rewards and costs, for algorithms that need them.
    `manifest.json` says which episodes are preferred.
    """
    with atomic_folder(path, marked(MANIFEST, FORMAT), overwrite=overwrite) as folder:
        save(folder / "nonpreferred", piles.nonpreferred, manifest={**manifest, "pile": "nonpreferred"})
        save(folder / "unlabeled", piles.unlabeled, manifest={**manifest, "pile": "unlabeled"})
        save(
            folder / HINDSIGHT_STORE,
            piles.unlabeled,
            piles.annotations,
            manifest={**manifest, "pile": "unlabeled"},
        )
        described = {
            "format": FORMAT,
            **manifest,
            **{name: getattr(piles, name).tolist() for name in HINDSIGHT},
        }
        (folder / MANIFEST).write_text(json.dumps(described, indent=2) + "\n", encoding="utf-8")


def kinds(
    trajectories: Trajectories, annotations: Annotations, return_rule: ReturnRule = "midrange"
) -> Kinds:
    """Find the preferred episodes (high return, bottom 25% of cost) and the non-preferred ones (top 25%).

    The paper's "above 50% total reward" is taken as at or above the midpoint of the lowest and the highest
    return ("midrange"): the paper marks the upper corners of a cost-return plot, and the midpoint is half
    its height. "median" takes it as the better half of the episodes.

    The paper's "top 25% of total cost" is taken as a quartile over all episodes, not only over those of high
    return: the paper states both conditions side by side, for the trajectories of the dataset. An episode at
    a quartile counts as beyond it. If both quartiles are the same cost, the episodes with that cost join
    the side that would be empty without them, or no side if neither would be.
    """
    if return_rule not in HIGH_RETURN:
        raise unknown("return rule", return_rule, HIGH_RETURN)
    returns, costs = annotations.episode_sums(trajectories.lengths)
    least = float(HIGH_RETURN[return_rule](returns))
    low, high = (float(each) for each in np.quantile(costs, [COST_SHARE, 1 - COST_SHARE]))
    low_cost, high_cost = _low_and_high(costs, low, high)
    return Kinds((returns >= least) & low_cost, (returns >= least) & high_cost, least, low, high)


def _low_and_high(costs: Doubles, low: float, high: float) -> tuple[Bools, Bools]:
    if low < high:
        return costs <= low, costs >= high
    below, tied, above = costs < low, costs == low, costs > low
    if not below.any() and not above.any():
        raise InputError(
            f"all {len(costs)} episodes cost {costs[0]:g}; a split needs episodes of different costs."
        )
    return below if below.any() else tied, above if above.any() else tied


def _check(nonpreferred: int, unlabeled: int, preferred_share: float, seed: int) -> None:
    if seed < 0:
        raise InputError(f"seed must be at least 0, got {seed}.")
    if nonpreferred < 1 or unlabeled < 1:
        raise InputError(f"both piles need at least one episode, asked for {nonpreferred} and {unlabeled}.")
    if not 0 <= preferred_share <= 1:
        raise InputError(f"the preferred share must lie between 0 and 1, got {preferred_share:g}.")


def _check_enough(what: str, wanted: int, found: Bools) -> None:
    if found.sum() < wanted:
        raise InputError(
            f"need {wanted} {what} episodes, but only {found.sum()} of {len(found)} are; ask for smaller "
            "piles, another preferred share, or try the other return rule (midrange, median)."
        )
