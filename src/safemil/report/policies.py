"""Policies in the task: numbers with their intervals, paths in the arena, and clips."""

import warnings
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from markupsafe import Markup

from safemil import catalog, rollouts, stats
from safemil.arrays import Doubles, Floats
from safemil.behaviour.policy import Policy, has_shipped, shipped
from safemil.errors import InputError, InputWarning
from safemil.evaluation import Evaluation, as_logged, policy
from safemil.progress import bar
from safemil.report import clips, figures, maps
from safemil.report.inputs import Material
from safemil.report.maps import Trail
from safemil.report.replay import Route
from safemil.rollouts import Act, Recording

ARENAS = 3  # episodes drawn in arenas of their own
LOOPS = 8  # episodes drawn in one arena, where all share it
BEHAVIOURS = 6  # shipped policies drawn where the paths of recorded episodes are unknown


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
    recording: Recording
    risk: list[Floats]  # ĉ of each episode, always that of the run the page is about

    def routes(self) -> list[Route]:
        """Route of each episode; none in a task without an arena."""
        found = self.recording
        if found.positions is None:
            return []
        rows = zip(found.positions, found.lengths, found.markers, strict=True)
        return [Route(path[:length], markers) for path, length, markers in rows]


def scores(material: Material) -> list[Score]:
    """Scores of the run, of the one it is compared with, and of unlabeled episodes with known costs."""
    found = []
    if material.evaluated is not None:
        found.append(_score(material.evaluated, material.name, "ours"))
    if material.compared_evaluated is not None:
        found.append(_score(material.compared_evaluated, material.compared_name, "other"))
    if found and material.true_costs is not None:
        returns = _sums(material, material.true_rewards)
        costs = _sums(material, material.true_costs)
        rest = None if returns is None else stats.interval(returns)
        assert costs is not None
        values = rest, stats.interval(costs), stats.cvar_interval(costs)
        found.append(Score("unlabeled episodes", "logs", costs.size, *values))
    return found


def in_words(material: Material) -> str:
    """Compare policies in the task in a sentence; empty without an evaluation."""
    ours, theirs = material.evaluated, material.compared_evaluated
    if ours is None:
        return ""
    counts = all(
        np.array_equal(each.costs, np.rint(each.costs)) and (each.costs <= each.lengths).all()
        for each in (ours, theirs)
        if each is not None
    )

    def amount(each: Evaluation) -> str:
        cost, length = each.costs.mean(), each.lengths.mean()
        if counts:
            return f"{cost:.1f} of {length:.0f} steps"
        return f"a true cost of {cost:.1f} in an episode of {length:.0f} steps"

    does = "breaks the rule in" if counts else "has"
    if theirs is None:
        return f"In {ours.task}, the policy {does} {amount(ours)}."
    other = "plain cloning" if theirs.algorithm == "bc" else f"the policy of {material.compared_name}"
    ours_does = "in " if counts else ""
    return f"In {ours.task}, {other} {does} {amount(theirs)}, this policy {ours_does}{amount(ours)}."


def _score(each: Evaluation, folder: str, style: str) -> Score:
    name = folder if each.algorithm in folder else f"{each.algorithm} ({folder})"
    values = stats.interval(each.returns), stats.interval(each.costs), stats.cvar_interval(each.costs)
    return Score(name, style, each.costs.size, *values)


def _sums(material: Material, values: npt.NDArray[Any] | None) -> npt.NDArray[np.float64] | None:
    """Sums over each unlabeled episode, (1, episodes)."""
    if values is None:
        return None
    held = material.unlabeled
    return np.add.reduceat(values.astype(np.float64), held.starts)[None]


def intervals(found: Sequence[Score]) -> list[figures.Figure]:
    """Figures of return and cost with their 95% intervals."""
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
    """Let the run, and the one it is compared with, act in the same episodes of the task."""
    if material.task is None:
        return []
    seeds = _seeds(material)
    found = [
        _player(
            material, "this run", "ours", policy(material.run[0], task=str(material.task)), seeds, progress
        )
    ]
    if material.compared is not None:
        name = material.compared.algorithm
        found.append(
            _player(
                material,
                name,
                "other",
                policy(material.compared[0], task=str(material.task)),
                seeds,
                progress,
            )
        )
    return found


def _seeds(material: Material) -> list[int]:
    """Environment seeds of the costliest episode, then of the first others of the evaluation."""
    told = material.compared_evaluated or material.evaluated
    every = rollouts.environment_seeds(
        told.seed if told else 0, max(LOOPS, told.costs.shape[1] if told else 0)
    )
    first = costliest(told.costs[0]) if told else 0
    others = [each for each in range(len(every)) if each != first]
    wanted = LOOPS if material.scene is not None and material.scene.same_arena else ARENAS
    return [every[each] for each in [first, *others][:wanted]]


def chosen(material: Material) -> str:
    """Say which episode is shown and why."""
    told = material.compared_evaluated or material.evaluated
    if told is None:
        return "It is the first episode of an evaluation."
    whose = told.algorithm if told is material.compared_evaluated else "this run"
    return f"It is the episode with the highest cost of {whose} in the evaluation."


def costliest(costs: npt.NDArray[np.float64]) -> int:
    """Number of the episode with the highest cost, the first of several.

    >>> costliest(np.array([0.0, 9.0, 4.0, 9.0]))
    1
    """
    return int(np.argmax(costs))


def _player(
    material: Material, name: str, style: str, act: Act, seeds: Sequence[int], progress: bool
) -> Player:
    task = catalog.task(str(material.task))

    def clipped(observations: Doubles, step: int) -> npt.ArrayLike:
        return np.clip(act(observations, step), -1, 1)

    with bar(f"{len(seeds)} episodes of {material.task}, steps", task.limit, show=progress) as shown:
        recording = rollouts.record(task, clipped, seeds, watch=shown.at)
    if material.risk is None:
        return Player(name, style, recording, [])
    return Player(
        name,
        style,
        recording,
        material.run.cost(as_logged(material.run, str(material.task), recording.trajectories())),
    )


def drawn(material: Material, found: Sequence[Player]) -> list[Map]:
    """Paths of the policies in the colours of ĉ: all episodes in one arena, or a few in their own."""
    routes = [route for each in found for route in each.routes()]
    if material.risk is None or material.scene is None or not routes:
        return []
    half = maps.half_width([route.path for route in routes], routes[0].markers)
    if material.scene.same_arena:
        return [_together(each, half) for each in found]
    return [
        _alone(f"{each.name}, layout {number + 1}", each, number, half)
        for each in found
        for number in range(len(each.risk))
    ]


def _together(player: Player, half: float) -> Map:
    routes = player.routes()
    trails = [Trail(route.path, risk) for route, risk in zip(routes, player.risk, strict=True)]
    cost = player.recording.costs.sum(axis=1).mean()
    title = f"{player.name}, {len(trails)} episodes"
    return Map(maps.arena(trails, routes[0].markers, half, title), title, f"true cost {cost:.0f} on average")


def _alone(name: str, player: Player, number: int, half: float) -> Map:
    (path, markers), risk = player.routes()[number], player.risk[number]
    picture = maps.arena([Trail(path, risk)], markers, half, f"path of {name}")
    cost = player.recording.costs[number].sum()
    return Map(picture, name, f"true cost {cost:.0f}, mean risk {risk.mean():.2f}")


def behaviours(material: Material, *, progress: bool) -> list[Map]:
    """Paths of shipped behaviour policies, careless ones among them, in one layout of the task."""
    if material.task is None or material.risk is None or not has_shipped(material.task):
        return []
    if material.scene is None or material.scene.current_positions() is None:
        return []
    policies = shipped(material.task)
    found = []
    for one in policies[:: -(-len(policies) // BEHAVIOURS)]:

        def act(observations: Doubles, step: int, one: Policy = one) -> Doubles:
            return one.act(observations, np.zeros((len(observations), len(one.deviation))))

        found.append(_player(material, one.name, "logs", act, _seeds(material)[:1], progress))
    half = maps.half_width([each.routes()[0].path for each in found], found[0].routes()[0].markers)
    return [_alone(each.name, each, 0, half) for each in found]


def filmed(material: Material, found: Sequence[Player], *, progress: bool) -> list[dict[str, Any]]:
    """Clips of each policy in the same episode; none, with a warning, where nothing can be drawn."""
    try:
        return [clip for each in found if (clip := _filmed(material, each, progress)) is not None]
    except InputError as error:
        warnings.warn(f"no clips: {error}", InputWarning, stacklevel=2)
        return []


def _filmed(material: Material, player: Player, progress: bool) -> dict[str, Any] | None:
    recording, length = player.recording, int(player.recording.lengths[0])
    actions, rewards, costs = (
        each[0, :length] for each in (recording.actions, recording.rewards, recording.costs)
    )
    task = catalog.task(str(material.task))
    clip = clips.film(task, _seeds(material)[0], actions, progress=progress)
    if clip is None:
        return None
    shown = clip.steps
    return {
        "name": player.name,
        "source": clip.source,
        "frames": len(shown),
        "columns": clips.COLUMNS,
        "rate": clips.RATE,
        "speed": clips.SPEED,
        "steps": shown,
        "risk": np.round(player.risk[0][shown].astype(float), 3).tolist() if player.risk else None,
        "cost": np.cumsum(costs)[shown].tolist(),
        "total": (float(rewards.sum()), float(costs.sum()), length),
    }
