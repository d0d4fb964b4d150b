"""Definition of a task: how its worlds are made and stepped, and what a report may draw of them.

`safemil.catalog` lists the tasks by name; docs/extending.md says how to add one.
"""

import abc
import os
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from safemil.arrays import Bools, Doubles, Ints
from safemil.errors import InputError

if TYPE_CHECKING:
    from safemil.data import Annotations, Trajectories

SHARE = 4  # rows per thread from which a second thread pays for being woken


class Painter(Protocol):
    """Draws the first of some worlds."""

    def draw(self) -> npt.NDArray[np.uint8]:
        """Picture of the current state, (height, width, 3)."""

    def close(self) -> None: ...


@dataclass(frozen=True)
class Task:
    """A task of the catalog. Whatever it imports, it imports when one of its functions is called."""

    summary: str  # what to do and what to avoid, in a few words
    limit: int  # steps in an episode
    make: Callable[[int, int], "Worlds"]  # from the number of worlds and of threads
    strict_end: bool = False  # refuses to be stepped beyond the end of an episode
    painter: Callable[["Worlds", int, int], Painter] | None = None  # from worlds, width and height in pixels
    # Careful and reckless episodes, one per entry of the flags (True: reckless). Without it the data of
    # a task are made by the behaviour policies shipped for it.
    demonstrate: Callable[[Bools, np.random.Generator], "tuple[Trajectories, Annotations]"] | None = None
    careful_share: float = 0.5  # of the demonstrations in an unlabeled pile
    # Whether some reckless demonstrations end well. Then only those with a step that costs are incidents.
    rare_incidents: bool = False


class Disc(NamedTuple):
    """Something round that stands in the arena, or a ring on its floor."""

    kind: str  # such as "hazard"
    x: float  # m
    y: float
    radius: float  # m
    costs: bool  # whether a step inside costs


class Wall(NamedTuple):
    """Line that must not be crossed, from one point to another."""

    x0: float  # m
    y0: float
    x1: float
    y1: float


Marker = Disc | Wall


class Nearby(NamedTuple):
    """Nearest thing of a kind, as the observations of a task show it."""

    kind: str
    radius: float  # m, between the centres of robot and thing
    inside: str  # what happens within the radius, such as "a step costs"
    offsets: Callable[[npt.ArrayLike], Doubles]  # (steps, S) to m ahead and to the left (steps, 2), or NaN


class Outcome(NamedTuple):
    """Result of a step, one entry per world of the batch."""

    reward: Doubles
    cost: Doubles  # 0 or 1
    terminated: Bools
    info: dict[str, Doubles | Bools]  # absent for a world where NaN (or False)


class Single(NamedTuple):
    """Result of a step of one world."""

    reward: float
    cost: float
    terminated: bool
    info: dict[str, Any]  # NaN or False where absent


class Worlds(abc.ABC):
    """n independent worlds of one task. Rows that a call does not name are left as they are.

    A task needs `seed`, `reset`, `step` and `observe`. `column_names`, `positions`, `markers` and `nearby`
    let a report name its columns and draw its arena; the rest serves the six safety tasks.
    """

    observation_size: int
    action_size: int
    action_dtype: type[np.floating] = np.float64
    dt: float  # s, one environment step
    same_arena = False  # whether every episode has the same markers
    nearby: tuple[Nearby, ...] = ()
    last_distance: Doubles  # m, to the goal before the step, in tasks with goals
    model_text: str  # MJCF, of running robots
    qpos: Doubles  # (n, nq), of running robots

    def __init__(self, n: int, threads: int) -> None:
        self.n = n
        self.crew = Crew(threads)

    @abc.abstractmethod
    def seed(self, row: int, seed: int | None) -> None:
        """Start the row's random stream anew; without a seed, from the system's entropy."""

    @abc.abstractmethod
    def reset(self, row: int) -> None:
        """Begin a new episode, drawn from the row's random stream."""

    @abc.abstractmethod
    def step(self, actions: npt.NDArray[np.floating], rows: Ints) -> Outcome:
        """Advance the named rows by their actions (n, A)."""

    def step_one(self, action: npt.NDArray[np.floating]) -> "Single":
        """Advance a single world by its action (A,), as `step` does; tasks override it to be faster."""
        reward, cost, terminated, info = self.step(action[None], np.zeros(1, np.int64))
        items = {name: value.item() for name, value in info.items()}
        return Single(reward.item(), cost.item(), terminated.item(), items)

    @abc.abstractmethod
    def observe(self) -> Doubles:
        """Return the observations (n, S) as a new array."""

    def close(self) -> None:
        """End the threads."""
        self.crew.close()

    def column_names(self) -> list[str]:
        """Names of the observation columns, then of the action columns."""
        sizes = {"observation": self.observation_size, "action": self.action_size}
        return [f"{kind} {number}" for kind, size in sizes.items() for number in range(size)]

    def positions(self, observations: npt.ArrayLike) -> Doubles | None:
        """Places (steps, 2) in m from observations (steps, S); None if the observations don't tell."""
        return None

    def current_positions(self) -> Doubles | None:
        """Places (n, 2) in m as they are now; None in tasks without an arena."""
        return self.positions(self.observe())

    def markers(self, row: int) -> list[Marker]:
        """Things in the arena that keep their places during the episode."""
        return []

    def restore(self, row: int, state: Mapping[str, Any]) -> None:
        """Put a row into a recorded state, named by a recording's keys (docs/tasks.md)."""
        raise InputError("this task can't be put into a recorded state.")

    def restore_goal(self, row: int, state: Mapping[str, Any]) -> None:
        """Put a recorded goal in force; there is nothing to do in tasks without goals."""
        return

    def things(self, row: int) -> list[Any]:
        """Things to draw, in the point tasks; the models of the others hold them."""
        return []

    def places(self, row: int) -> dict[str, Any]:
        """Places that the last reset gave to things, named as in recordings."""
        return {}


class Crew:
    """Runs a function over rows on several threads (physics releases the interpreter's lock)."""

    def __init__(self, threads: int) -> None:
        self.threads = threads
        self.pool = ThreadPoolExecutor(threads - 1) if threads > 1 else None

    def run(self, function: Callable[[Sequence[int]], None], rows: Ints) -> None:
        """Call `function` with parts of the rows, one part per thread."""
        listed = rows.tolist()
        if self.pool is None or len(listed) < SHARE * self.threads:
            function(listed)
            return
        own, *others = (listed[first :: self.threads] for first in range(self.threads))
        futures = [self.pool.submit(function, part) for part in others]
        function(own)
        for future in futures:
            future.result()

    def close(self) -> None:
        if self.pool is not None:
            self.pool.shutdown()


def cores() -> int:
    """Number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def check_actions(actions: npt.ArrayLike, shape: tuple[int, ...]) -> npt.NDArray[np.floating]:
    """Actions as floats of the given shape, all finite; each task deals with their range itself."""
    array = np.asarray(actions)
    if array.dtype.char not in "df":  # float64, float32
        array = array.astype(np.float64)
    if array.shape != shape:
        raise InputError(f"need an action of shape {shape}, got {array.shape}.")
    if not np.logical_and.reduce(np.isfinite(array), axis=None):  # `all` takes twice as long
        raise InputError("need finite actions, got NaN or infinity; check the policy that made them.")
    return array
