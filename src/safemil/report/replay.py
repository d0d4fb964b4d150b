"""Paths of recorded episodes: read from their observations, or found by replaying their actions."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from safemil import catalog, rollouts
from safemil.arrays import Doubles
from safemil.data import Trajectories
from safemil.progress import bar
from safemil.worlds import Marker, Task

SINGLE_PRECISION = 1e-4  # by how much a recorded observation may differ from the one seen again


class Route(NamedTuple):
    """Path of an episode, (T, 2) in m, and the things in its arena."""

    path: Doubles
    markers: list[Marker]


def known_routes(
    task: str | None, held: Trajectories, seeds: Sequence[int] | None, *, progress: bool = False
) -> list[Route | None]:
    """Route of each recorded episode, None where it can't be known.

    Some tasks show it in their observations. Otherwise an episode whose environment seed is known is
    replayed by its actions, and believed if that gives the recorded observations.
    """
    if task is None:
        return [None] * len(held)
    found = catalog.task(task)
    scene = rollouts.begin(found, [0])
    places = scene.positions(held.observations)
    if places is not None:
        markers = scene.markers(0) if scene.same_arena else []
        return [Route(path, markers) for path in held.by_episode(places)]
    if seeds is not None and scene.current_positions() is not None:
        return _replayed(found, held, seeds, progress)
    return [None] * len(held)


def _replayed(task: Task, held: Trajectories, seeds: Sequence[int], progress: bool) -> list[Route | None]:
    worlds = rollouts.begin(task, seeds)
    markers, longest = [worlds.markers(row) for row in range(worlds.n)], int(held.lengths.max())
    paths = np.full((worlds.n, longest, 2), np.nan)
    actions = np.zeros((worlds.n, worlds.action_size), worlds.action_dtype)

    def act(observations: Doubles, number: int) -> Doubles:
        running = np.flatnonzero(held.lengths > number)
        rows = held.starts[running] + number
        places = worlds.current_positions()
        assert places is not None  # the task has an arena
        paths[running, number] = places[running]
        same = np.abs(observations[running] - held.observations[rows]).max(axis=1) <= SINGLE_PRECISION
        paths[running[~same], 0] = np.nan
        actions[running] = held.actions[rows]
        return actions

    with bar(f"replaying {worlds.n} episodes, steps", longest, show=progress) as shown:
        for step in rollouts.steps(worlds, act, longest):
            shown.at(step.number + 1)
    routes = [Route(path[:n], there) for path, n, there in zip(paths, held.lengths, markers, strict=True)]
    return [route if np.isfinite(route.path).all() else None for route in routes]
