"""The paper's two piles, made from annotated episodes (SafeMIL, arXiv:2511.08136, Appendix D)."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from safemil.data.formats import PathLike, save
from safemil.data.trajectories import Annotations, Trajectories
from safemil.errors import InputError, unknown
from safemil.files import atomic_folder
from safemil.typing import Bools, Doubles, Ints

ReturnRule = Literal["midrange", "median"]
MANIFEST = "manifest.json"
HINDSIGHT_STORE = "hindsight"
HINDSIGHT = ("nonpreferred_episodes", "unlabeled_episodes", "unlabeled_is_preferred")
COST_SHARE = 0.25  # Appendix D: top and bottom 25% of total cost
HIGH_RETURN: dict[str, Callable[[Doubles], Any]] = {
    "midrange": lambda returns: (returns.min() + returns.max()) / 2,
    "median": np.median,
}


@dataclass(frozen=True, eq=False)
class Split:
    """Two piles without rewards and costs; the numbers say in hindsight which episodes went where."""

    nonpreferred: Trajectories
    unlabeled: Trajectories
    nonpreferred_episodes: Ints  # numbers of the episodes in the whole dataset
    unlabeled_episodes: Ints
    unlabeled_is_preferred: Bools  # (unlabeled,), what a learner has to find out
    annotations: Annotations  # of the unlabeled pile, for methods that are told them


@dataclass(frozen=True, eq=False)
class Kinds:
    """Which episodes Appendix D calls what, and the borders that say so."""

    preferred: Bools  # (episodes,)
    nonpreferred: Bools  # (episodes,)
    least_return: float
    low_cost: float
    high_cost: float


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
    """Draw the two piles: incidents, and a mix in which `preferred_share` of the episodes are preferred.

    No episode is in both. The draw, and the order within a pile, depend on `seed` alone.
    """
    _check(nonpreferred, unlabeled, preferred_share)
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
    """A folder with the stores `nonpreferred` and `unlabeled`; `manifest.json` knows which were preferred.

    `hindsight` is the unlabeled pile once more with its rewards and costs, for methods that are told them.
    """
    with atomic_folder(path, mark=MANIFEST, overwrite=overwrite) as folder:
        save(folder / "nonpreferred", piles.nonpreferred, manifest={**manifest, "pile": "nonpreferred"})
        save(folder / "unlabeled", piles.unlabeled, manifest={**manifest, "pile": "unlabeled"})
        save(
            folder / HINDSIGHT_STORE,
            piles.unlabeled,
            piles.annotations,
            manifest={**manifest, "pile": "unlabeled"},
        )
        noted = {**manifest, **{name: getattr(piles, name).tolist() for name in HINDSIGHT}}
        (folder / MANIFEST).write_text(json.dumps(noted, indent=2) + "\n", encoding="utf-8")


def kinds(
    trajectories: Trajectories, annotations: Annotations, return_rule: ReturnRule = "midrange"
) -> Kinds:
    """High return and top 25% in cost is non-preferred, high return and bottom 25% is preferred.

    "Above 50% total reward" is read as at or above the midpoint between the least and the greatest return
    ("midrange"): the paper marks the upper corners of a cost-return plot, which this cuts at half its
    height. "median" is the other reading, the better half of the episodes.

    "Top 25% of total cost" is read as a quartile over all episodes, not over those of high return: the
    paper names both conditions side by side, of trajectories of the dataset. Episodes tied at a quartile
    belong to its side. If the quartiles coincide, those tied there belong to the side that would be empty
    without them, or to neither.
    """
    if return_rule not in HIGH_RETURN:
        raise unknown("return rule", return_rule, HIGH_RETURN)
    returns, costs = annotations.episode_sums(trajectories.lengths)
    least = float(HIGH_RETURN[return_rule](returns))
    low, high = (float(each) for each in np.quantile(costs, [COST_SHARE, 1 - COST_SHARE]))
    cheap, dear = _ends_of(costs, low, high)
    return Kinds((returns >= least) & cheap, (returns >= least) & dear, least, low, high)


def _ends_of(costs: Doubles, low: float, high: float) -> tuple[Bools, Bools]:
    if low < high:
        return costs <= low, costs >= high
    below, tied, above = costs < low, costs == low, costs > low
    if not below.any() and not above.any():
        raise InputError(
            f"all {len(costs)} episodes cost {costs[0]:g}; a split needs some that cost more than others."
        )
    return below if below.any() else tied, above if above.any() else tied


def _check(nonpreferred: int, unlabeled: int, preferred_share: float) -> None:
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
