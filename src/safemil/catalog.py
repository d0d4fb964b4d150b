"""Tasks by name: the safety tasks, the generated problems, and those of installed packages."""

from pkgutil import resolve_name

from safemil import plugins, toy
from safemil.errors import InputError, unknown
from safemil.worlds import Painter, Task, Worlds

NAMESPACE = "safemil"  # of the six safety tasks in Gymnasium
GROUP = "safemil.tasks"  # entry points that each name a `Task`


def _safety_task(summary: str, limit: int, worlds: str, *robot: str) -> Task:
    """Task whose worlds are a class of `safemil.tasks`, imported when the first ones are made."""

    def make(n: int, threads: int) -> Worlds:
        return resolve_name(f"safemil.tasks.{worlds}")(*robot, n, threads)

    def painter(worlds: Worlds, width: int, height: int) -> Painter:
        return resolve_name("safemil.tasks.render:MujocoPainter")(worlds, width, height)

    # Safety-Gymnasium steps its running robots beyond the end, but not the point robot.
    return Task(summary, limit, make, strict_end=not robot, painter=painter)


RUNNING = "velocity:VelocityWorlds"
SAFETY_TASKS = {
    "SafetyWalker2dVelocity-v1": _safety_task("walk, not faster than 2.34 m/s", 1000, RUNNING, "walker"),
    "SafetySwimmerVelocity-v1": _safety_task("swim, not faster than 0.23 m/s", 1000, RUNNING, "swimmer"),
    "SafetyAntVelocity-v1": _safety_task("run on four legs, not faster than 2.62 m/s", 1000, RUNNING, "ant"),
    "SafetyPointCircle2-v0": _safety_task("circle the origin, within four walls", 500, "circle:CircleWorlds"),
    "SafetyPointGoal1-v0": _safety_task("reach goals, not crossing hazards", 1000, "goal:GoalWorlds"),
    "SafetyPointButton1-v0": _safety_task(
        "press the lit button, clear of all else", 1000, "button:ButtonWorlds"
    ),
}
BUILT_IN = SAFETY_TASKS | toy.TASKS


def names() -> list[str]:
    """Names of all tasks; those of installed packages are not loaded for it."""
    return [*BUILT_IN, *sorted(plugins.installed(GROUP, BUILT_IN))]


def task(name: str) -> Task:
    """Look up a task by its name, with or without Gymnasium's namespace."""
    plain = plain_name(name)
    if plain in BUILT_IN:
        return BUILT_IN[plain]
    entry = plugins.installed(GROUP, BUILT_IN).get(plain)
    if entry is None:
        raise unknown("task", plain, names())
    with plugins.named_in_errors("task", entry):
        found = entry.load()
    if not isinstance(found, Task):
        raise InputError(
            f"the entry point of task {plain} must name a safemil.worlds.Task, but {entry.value} is a "
            f"{type(found).__name__}; correct the package that provides it."
        )
    return found


def plain_name(name: str) -> str:
    """Strip Gymnasium's namespace from the name of a task.

    >>> plain_name("safemil/SafetyPointGoal1-v0")
    'SafetyPointGoal1-v0'
    """
    return name.removeprefix(f"{NAMESPACE}/")
