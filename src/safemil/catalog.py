"""Tasks by name: the safety tasks, the generated problems, and those of installed packages."""

from collections.abc import Callable
from importlib.metadata import entry_points

from safemil import toy
from safemil.errors import InputError, unknown
from safemil.worlds import Painter, Task, Worlds

NAMESPACE = "safemil"  # of the six safety tasks in Gymnasium
GROUP = "safemil.tasks"  # entry points that each name a `Task`


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


def _painter(worlds: Worlds, width: int, height: int) -> Painter:
    from safemil.tasks.render import MujocoPainter

    return MujocoPainter(worlds, width, height)


def _velocity_task(summary: str, kind: str) -> Task:
    return Task(summary, 1000, _velocity(kind), painter=_painter)


def _point_task(summary: str, limit: int, make: Callable[[int, int], Worlds]) -> Task:
    return Task(summary, limit, make, strict_end=True, painter=_painter)


SAFETY_TASKS = {
    "SafetyWalker2dVelocity-v1": _velocity_task("walk, not faster than 2.34 m/s", "walker"),
    "SafetySwimmerVelocity-v1": _velocity_task("swim, not faster than 0.23 m/s", "swimmer"),
    "SafetyAntVelocity-v1": _velocity_task("run on four legs, not faster than 2.62 m/s", "ant"),
    "SafetyPointCircle2-v0": _point_task("circle the origin, within four walls", 500, _circle),
    "SafetyPointGoal1-v0": _point_task("reach goals, not crossing hazards", 1000, _goal),
    "SafetyPointButton1-v0": _point_task("press the lit button, clear of all else", 1000, _button),
}
BUILT_IN = SAFETY_TASKS | toy.TASKS


def names() -> list[str]:
    """Names of all tasks; those of installed packages are not loaded for it."""
    return list(dict.fromkeys([*BUILT_IN, *(each.name for each in entry_points(group=GROUP))]))


def task(name: str) -> Task:
    """Look up a task by its name, with or without Gymnasium's namespace."""
    plain = plain_name(name)
    if plain in BUILT_IN:
        return BUILT_IN[plain]
    for entry in entry_points(group=GROUP, name=plain):
        found = entry.load()
        if not isinstance(found, Task):
            raise InputError(
                f"the entry point of task {plain} must name a safemil.worlds.Task, but {entry.value} is a "
                f"{type(found).__name__}; mend the package that brings it."
            )
        return found
    raise unknown("task", plain, names())


def plain_name(name: str) -> str:
    """Strip Gymnasium's namespace from the name of a task.

    >>> plain_name("safemil/SafetyPointGoal1-v0")
    'SafetyPointGoal1-v0'
    """
    return name.removeprefix(f"{NAMESPACE}/")
