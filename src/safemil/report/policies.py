"""What the policies do in the task: numbers with their intervals, paths in the arena, and clips."""

import warnings
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from markupsafe import Markup

from safemil import stats
from safemil.behaviour.policy import shipped
from safemil.errors import InputError, InputWarning
from safemil.evaluate import environment_seeds
from safemil.report import clips, figures, maps
from safemil.report.inputs import Evaluated, Material
from safemil.report.maps import Trail
from safemil.report.observations import CIRCLE
from safemil.report.replay import NAVIGATION, Act, Walk, roam
from safemil.tasks import catalog

ARENAS = 3  # episodes drawn in arenas of their own
LOOPS = 8  # episodes drawn in one arena, where all share it
BEHAVIOURS = 6  # shipped policies let go where the paths of recorded episodes are unknown


class Score(NamedTuple):
    """A line of the table of evaluations."""

    name: str
    style: str
    episodes: int
    returns: stats.Interval | None
    costs: stats.Interval
    worst: stats.Interval


class Map(NamedTuple):
    picture: Markup
    title: str
    note: str


class Player(NamedTuple):
    """A policy that acts in the task."""

    name: str
    style: str
    walks: list[Walk]
    risk: list[npt.NDArray[np.float32]]  # ĉ of each walk, always that of the run the page is about


def scores(material: Material) -> list[Score]:
    """Of the run, of the one it is compared with, and of the unlabeled episodes if their truth is known."""
    found = [
        _score(each, style)
        for each, style in ((material.evaluated, "ours"), (material.compared_evaluated, "other"))
        if each is not None
    ]
    if found and material.true_costs is not None:
        returns = _sums(material, material.true_rewards)
        costs = _sums(material, material.true_costs)
        rest = None if returns is None else stats.interval(returns)
        assert costs is not None
        values = rest, stats.interval(costs), stats.cvar_interval(costs)
        found.append(Score("unlabeled episodes", "logs", costs.size, *values))
    return found


def _score(each: Evaluated, style: str) -> Score:
    name = each.name if each.algorithm in each.name else f"{each.algorithm} ({each.name})"
    values = stats.interval(each.returns), stats.interval(each.costs), stats.cvar_interval(each.costs)
    return Score(name, style, each.costs.size, *values)


def _sums(material: Material, values: npt.NDArray[Any] | None) -> npt.NDArray[np.float64] | None:
    """(1, episodes) of the unlabeled pile."""
    if values is None:
        return None
    held = material.unlabeled
    return np.add.reduceat(values.astype(np.float64), held.starts)[None]


def intervals(found: Sequence[Score]) -> list[figures.Figure]:
    """Return and cost of each with 95% intervals."""
    returns = [(each.name, each.style, each.returns) for each in found if each.returns is not None]
    costs = [(each.name, each.style, each.costs) for each in found]
    says = "A dot is a mean over episodes, its line the 95% interval of 1000 bootstrap samples."
    drawn = [("Return", returns, "return of an episode", "Higher is better. " + says)]
    drawn.append(("Cost", costs, "true cost of an episode", "Lower is safer. " + says))
    return [
        figures.Figure(title, figures.intervals(rows, label, text), text)
        for title, rows, label, text in drawn
    ]


def players(material: Material, *, progress: bool) -> list[Player]:
    """The run, and the one it is compared with, in the same episodes of the task."""
    if material.task not in catalog.TASKS:
        return []
    seeds = _seeds(material)
    found = [_player(material, "this run", "ours", material.run[0].act, seeds, progress)]
    if material.compared is not None:
        name = material.compared.algorithm
        found.append(_player(material, name, "other", material.compared[0].act, seeds, progress))
    return found


def _seeds(material: Material) -> list[int]:
    """Of the costliest episode, then of the first others of the evaluation."""
    told = material.compared_evaluated or material.evaluated
    every = environment_seeds(told.seed if told else 0, max(LOOPS, told.costs.shape[1] if told else 0))
    first = costliest(told.costs[0]) if told else 0
    others = [each for each in range(len(every)) if each != first]
    wanted = LOOPS if material.task == CIRCLE else ARENAS
    return [every[each] for each in [first, *others][:wanted]]


def chosen(material: Material) -> str:
    """Which episode is shown, so that nobody need wonder who picked it."""
    told = material.compared_evaluated or material.evaluated
    if told is None:
        return "It is the first episode of an evaluation, not a picked one."
    whose = told.algorithm if told is material.compared_evaluated else "this run"
    return f"Of those evaluated it is the one that cost {whose} most."


def costliest(costs: npt.NDArray[np.float64]) -> int:
    """The episode that cost most, the first of several.

    >>> costliest(np.array([0.0, 9.0, 4.0, 9.0]))
    1
    """
    return int(np.argmax(costs))


def _player(
    material: Material, name: str, style: str, act: Act, seeds: Sequence[int], progress: bool
) -> Player:
    walks = roam(str(material.task), act, seeds, progress=progress)
    risk = [_risk(material, walk) for walk in walks]
    return Player(name, style, walks, risk)


def _risk(material: Material, walk: Walk) -> npt.NDArray[np.float32]:
    if material.risk is None:
        return np.zeros(len(walk.path), np.float32)
    return material.run.cost(walk.trajectories)[0]


def drawn(material: Material, found: Sequence[Player]) -> list[Map]:
    """Where the policies went, in the colours of ĉ: all episodes in one arena, or a few in their own."""
    if material.task not in NAVIGATION or material.risk is None:
        return []
    half = maps.half_width([walk.path for each in found for walk in each.walks])
    if material.task == CIRCLE:
        return [_together(each, half) for each in found]
    return [
        _alone(str(material.task), f"{each.name}, layout {number}", walk, risk, half)
        for each in found
        for number, (walk, risk) in enumerate(zip(each.walks, each.risk, strict=True), 1)
    ]


def _together(player: Player, half: float) -> Map:
    trails = [Trail(walk.path, risk) for walk, risk in zip(player.walks, player.risk, strict=True)]
    cost = np.mean([walk.costs.sum() for walk in player.walks])
    title = f"{player.name}, {len(trails)} episodes"
    return Map(maps.arena(CIRCLE, trails, (), half, title), title, f"true cost {cost:.0f} on average")


def _alone(task: str, name: str, walk: Walk, risk: npt.NDArray[np.float32], half: float) -> Map:
    picture = maps.arena(task, [Trail(walk.path, risk)], walk.things, half, f"path of {name}")
    return Map(picture, name, f"true cost {walk.costs.sum():.0f}, mean ĉ {risk.mean():.2f}")


def behaviours(material: Material, *, progress: bool) -> list[Map]:
    """Paths of shipped behaviour policies, careless ones among them, in one layout of the task."""
    if material.task not in NAVIGATION or material.risk is None:
        return []
    policies = shipped(material.task)
    chosen = policies[:: -(-len(policies) // BEHAVIOURS)]
    found = []
    for policy in chosen:

        def act(observations: npt.NDArray[np.float32], policy: Any = policy) -> npt.ArrayLike:
            return policy.act(observations, np.zeros((len(observations), 2)))

        found.append(_player(material, policy.name, "logs", act, _seeds(material)[:1], progress))
    half = maps.half_width([each.walks[0].path for each in found])
    return [_alone(material.task, each.name, each.walks[0], each.risk[0], half) for each in found]


def filmed(material: Material, found: Sequence[Player], *, progress: bool) -> list[dict[str, Any]]:
    """A clip of each policy in the same episode; none, with a warning, where nothing can be drawn."""
    try:
        return [_filmed(material, each, progress) for each in found]
    except InputError as error:
        warnings.warn(f"no clips: {error}", InputWarning, stacklevel=2)
        return []


def _filmed(material: Material, player: Player, progress: bool) -> dict[str, Any]:
    walk, risk = player.walks[0], player.risk[0]
    clip = clips.film(str(material.task), _seeds(material)[0], walk, progress=progress)
    shown = clip.steps
    return {
        "name": player.name,
        "source": clip.source,
        "frames": len(shown),
        "columns": clips.COLUMNS,
        "rate": clips.RATE,
        "speed": clips.SPEED,
        "steps": shown,
        "risk": np.round(risk[shown].astype(float), 3).tolist() if material.risk is not None else None,
        "cost": np.cumsum(walk.costs)[shown].tolist(),
        "total": (float(walk.rewards.sum()), float(walk.costs.sum()), len(walk.costs)),
    }
