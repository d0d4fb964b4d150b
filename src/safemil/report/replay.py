"""Episodes with the places they went through: recorded ones taken again, and new ones of a policy."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from safemil.data import Trajectories
from safemil.progress import bar
from safemil.report.observations import BUTTON, CIRCLE, GOAL, HAZARD_RADIUS, circle_positions
from safemil.tasks import catalog, circle
from safemil.tasks.button import GREMLIN_TRAVEL
from safemil.tasks.worlds import cores

Doubles = npt.NDArray[np.float64]
Act = Callable[[npt.NDArray[np.float32]], npt.ArrayLike]  # (n, S) to (n, A)
NAVIGATION = (CIRCLE, GOAL, BUTTON)
SINGLE_PRECISION = 1e-4  # by how much a recorded observation may differ from the one seen again
RADII = {"hazard": HAZARD_RADIUS, "button": 0.1, "gremlin": GREMLIN_TRAVEL}  # m, of what is drawn


class Thing(NamedTuple):
    """Something that stands in the arena."""

    kind: str
    x: float
    y: float


class Walk(NamedTuple):
    """One episode: where it went (T, 2), and what it came to."""

    path: Doubles
    things: list[Thing]
    trajectories: Trajectories
    costs: Doubles  # (T,), true ones
    rewards: Doubles


def known_paths(
    task: str | None, held: Trajectories, seeds: Sequence[int] | None, *, progress: bool = False
) -> list[tuple[Doubles, list[Thing]] | None]:
    """Where each recorded episode went and what stood there, None where it can't be known.

    Of SafetyPointCircle2 the observations say it; otherwise an episode whose environment seed is known is
    taken again by its actions, and believed if it shows the recorded observations.
    """
    if task == CIRCLE and held.observation_size == circle.CircleWorlds.observation_size:
        return [(each, []) for each in held.by_episode(circle_positions(held.observations))]
    if task in NAVIGATION and seeds is not None:
        return _replayed(str(task), held, seeds, progress)
    return [None] * len(held)


def _replayed(
    task: str, held: Trajectories, seeds: Sequence[int], progress: bool
) -> list[tuple[Doubles, list[Thing]] | None]:
    worlds = _begun(task, seeds)
    things = [_things(worlds.places(row)) for row in range(worlds.n)]
    longest, running = int(held.lengths.max()), np.arange(worlds.n)
    paths = np.zeros((worlds.n, longest, 2))
    actions = np.zeros((worlds.n, worlds.action_size), worlds.action_dtype)
    with bar(f"replaying {worlds.n} episodes, steps", longest, show=progress) as shown:
        for step in range(longest):
            running = running[held.lengths[running] > step]
            rows = held.starts[running] + step
            paths[running, step] = _positions(worlds)[running]
            seen = worlds.observe()[running]
            same = np.abs(seen - held.observations[rows]).max(axis=1) <= SINGLE_PRECISION
            paths[running[~same]] = np.nan
            actions[running] = held.actions[rows]
            worlds.step(actions, running)
            shown.at(step + 1)
    worlds.crew.close()
    cut = [path[:length] for path, length in zip(paths, held.lengths, strict=True)]
    return [
        (path, there) if np.isfinite(path).all() else None for path, there in zip(cut, things, strict=True)
    ]


def roam(task: str, act: Act, seeds: Sequence[int], *, progress: bool = False) -> list[Walk]:
    """An episode from each environment seed; of tasks without an arena the path stays empty."""
    worlds = _begun(task, seeds)
    things = [_things(worlds.places(row)) for row in range(worlds.n)]
    limit, running = catalog.task(task).limit, np.arange(worlds.n)
    seen = np.zeros((worlds.n, limit, worlds.observation_size), np.float32)
    done = np.zeros((worlds.n, limit, worlds.action_size), np.float32)  # what is kept is what is done
    paths, outcomes = np.zeros((worlds.n, limit, 2)), np.zeros((2, worlds.n, limit))
    lengths = np.zeros(worlds.n, np.int64)
    with bar(f"{worlds.n} episodes of {task}, steps", limit, show=progress) as shown:
        for step in range(limit):
            seen[:, step] = worlds.observe()
            paths[:, step] = _positions(worlds)
            done[:, step] = np.clip(act(seen[:, step]), -1, 1)
            outcome = worlds.step(done[:, step].astype(worlds.action_dtype), running)
            outcomes[:, running, step] = outcome.reward[running], outcome.cost[running]
            lengths[running] += 1
            running = running[~outcome.terminated[running]]
            shown.at(step + 1)
            if not len(running):
                break
    worlds.crew.close()
    return [
        Walk(paths[i, :n], things[i], Trajectories(seen[i, :n], done[i, :n], [n]), outcomes[1, i, :n],
             outcomes[0, i, :n])
        for i, n in enumerate(lengths.tolist())
    ]  # fmt: skip


def _begun(task: str, seeds: Sequence[int]) -> Any:
    """Worlds at the start of their episodes; those of the point tasks have robots."""
    worlds = catalog.task(task).make(len(seeds), min(cores(), len(seeds)))
    for row, seed in enumerate(seeds):
        worlds.seed(row, seed)
        worlds.reset(row)
    return worlds


def _positions(worlds: Any) -> Doubles:
    if not hasattr(worlds, "robots"):
        return np.zeros((worlds.n, 2))
    return np.stack([worlds.robots.pose.x, worlds.robots.pose.y], axis=1)


def _things(places: dict[str, Any]) -> list[Thing]:
    """What may cost and keeps its place; goals come and go, and vases are free to push."""
    return [
        Thing(kind, float(x), float(y))
        for kind, name in zip(RADII, ("hazards_xy", "buttons_xy", "gremlins_xy"), strict=True)
        for x, y in places.get(name, ())
    ]
