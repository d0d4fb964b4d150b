"""The six tasks by name."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from gymnasium.spaces import Box

from safemil.errors import unknown
from safemil.tasks.worlds import Worlds

NAMESPACE = "safemil"


@dataclass(frozen=True)
class Task:
    """A task, and how to make n worlds of it."""

    summary: str
    limit: int  # steps in an episode
    strict_end: bool  # refuses to be stepped beyond the end of an episode
    make: Callable[[int, int], Worlds]  # of the number of worlds and of threads


def _velocity(kind: str) -> Callable[[int, int], Worlds]:
    def make(n: int, threads: int) -> Worlds:
        from safemil.tasks.velocity import VelocityWorlds

        return VelocityWorlds(kind, n, threads)

    return make


def _circle(n: int, threads: int) -> Worlds:
    from safemil.tasks.circle import CircleWorlds

    return CircleWorlds(n, threads)


def _goal(n: int, threads: int) -> Worlds:
    from safemil.tasks.goal import GoalWorlds

    return GoalWorlds(n, threads)


def _button(n: int, threads: int) -> Worlds:
    from safemil.tasks.button import ButtonWorlds

    return ButtonWorlds(n, threads)


TASKS = {
    "SafetyWalker2dVelocity-v1": Task("walk, not faster than 2.34 m/s", 1000, False, _velocity("walker")),
    "SafetySwimmerVelocity-v1": Task("swim, not faster than 0.23 m/s", 1000, False, _velocity("swimmer")),
    "SafetyAntVelocity-v1": Task("run on four legs, not faster than 2.62 m/s", 1000, False, _velocity("ant")),
    "SafetyPointCircle2-v0": Task("circle the origin, within four walls", 500, True, _circle),
    "SafetyPointGoal1-v0": Task("reach goals, not crossing hazards", 1000, True, _goal),
    "SafetyPointButton1-v0": Task("press the lit button, clear of all else", 1000, True, _button),
}


def task(name: str) -> Task:
    """The task of a name, with or without its namespace."""
    plain = name.removeprefix(f"{NAMESPACE}/")
    if plain not in TASKS:
        raise unknown("task", plain, TASKS)
    return TASKS[plain]


def spaces(worlds: Worlds) -> tuple[Any, Any]:
    """Of one observation and of one action."""
    observations = Box(-np.inf, np.inf, (worlds.observation_size,), np.float64)
    return observations, Box(-1.0, 1.0, (worlds.action_size,), worlds.action_dtype)
