"""What every task is to the environments around it: a batch of worlds that are stepped together."""

import abc
import os
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from safemil.errors import InputError

Array = npt.NDArray[np.float64]
Flags = npt.NDArray[np.bool_]
Ints = npt.NDArray[np.int64]


SHARE = 4  # rows per thread from which a second thread pays for being woken


class Outcome(NamedTuple):
    """What a step gave, one entry per world of the batch."""

    reward: Array
    cost: Array  # 0 or 1
    terminated: Flags
    info: dict[str, Array | Flags]  # absent for a world where NaN (or False)


class Single(NamedTuple):
    """What a step of one world gave."""

    reward: float
    cost: float
    terminated: bool
    info: dict[str, Any]  # likewise


class Worlds(abc.ABC):
    """n independent worlds of one task. Rows that a call does not name are left as they are."""

    observation_size: int
    action_size: int
    action_dtype: type[np.floating]
    dt: float  # s, one environment step
    last_distance: Array  # m, to the goal before the step, in tasks with goals
    model_text: str  # MJCF, of running robots
    qpos: Array  # (n, nq), of running robots

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
        """Advance the only world by its action (A,): the numbers of `step`, sooner where overridden."""
        reward, cost, terminated, info = self.step(action[None], np.zeros(1, np.int64))
        items = {name: value.item() for name, value in info.items()}
        return Single(reward.item(), cost.item(), terminated.item(), items)

    @abc.abstractmethod
    def observe(self) -> Array:
        """(n, S), a fresh array."""

    @abc.abstractmethod
    def restore(self, row: int, state: Mapping[str, Any]) -> None:
        """Put a row into a recorded state, named by a recording's keys (docs/tasks.md)."""

    def restore_goal(self, row: int, state: Mapping[str, Any]) -> None:
        """Put a recorded goal in force; there is nothing to do in tasks without goals."""
        return

    def things(self, row: int) -> list[Any]:
        """What to draw, in the point tasks; the others' models say it."""
        return []

    def places(self, row: int) -> dict[str, Any]:
        """Where the last reset put things, named as in recordings; nothing in tasks without things."""
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
    """Cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def check_actions(actions: npt.ArrayLike, shape: tuple[int, ...]) -> npt.NDArray[np.floating]:
    """The actions as floats of the given shape, all finite; their range is each task's own matter."""
    array = np.asarray(actions)
    if array.dtype.char not in "df":  # float64, float32
        array = array.astype(np.float64)
    if array.shape != shape:
        raise InputError(f"need an action of shape {shape}, got {array.shape}.")
    if not np.logical_and.reduce(np.isfinite(array), axis=None):  # `all` takes twice as long
        raise InputError("need finite actions, got NaN or infinity; check the policy that made them.")
    return array
