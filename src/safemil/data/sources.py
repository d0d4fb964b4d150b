"""Episodes of which only the steps that are asked for are copied to the device."""

import threading
from collections import deque
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Literal, Protocol

import numpy as np
import numpy.typing as npt

from safemil.arrays import Bools, Doubles, Floats, Ints
from safemil.data.trajectories import Trajectories, is_constant

if TYPE_CHECKING:
    from safemil.data.interchange import Options

REMEMBERED = 4  # reads of a store whose observations are kept until its actions are asked for, or the reverse


class Episodes(Protocol):
    """What `Trajectories` and a store in shards have in common."""

    @property
    def lengths(self) -> Ints: ...
    @property
    def final_observations(self) -> Floats: ...
    @property
    def has_final(self) -> Bools: ...
    @property
    def terminated(self) -> Bools: ...
    @property
    def action_low(self) -> Doubles: ...
    @property
    def action_high(self) -> Doubles: ...
    @property
    def ids(self) -> npt.NDArray[Any]: ...
    @property
    def observation_names(self) -> tuple[str, ...] | None: ...
    @property
    def action_names(self) -> tuple[str, ...] | None: ...
    @property
    def action_categories(self) -> tuple[str, ...] | None: ...
    @property
    def column_names(self) -> list[str]: ...
    @property
    def reading(self) -> "Options | None": ...
    def __len__(self) -> int: ...
    @property
    def steps(self) -> int: ...
    @property
    def starts(self) -> Ints: ...
    @property
    def observation_size(self) -> int: ...
    @property
    def action_size(self) -> int: ...
    @property
    def after_gap(self) -> Bools: ...
    def blocks(self) -> Iterator[Trajectories]: ...
    def content_hash(self) -> str: ...


class Source(Protocol):
    """Steps on the host, read by row; equal only to itself, so that a program stays with its data."""

    def observations(self, rows: Ints) -> Floats: ...
    def actions(self, rows: Ints) -> Floats: ...


class InMemory:
    """Steps of episodes that are in the memory of the host."""

    def __init__(self, held: Trajectories):
        self._held = held

    def observations(self, rows: Ints) -> Floats:
        return self._held.observations[rows]

    def actions(self, rows: Ints) -> Floats:
        return self._held.actions[rows]


class Gathers(Protocol):
    observation_size: int

    def gather(self, rows: Ints) -> Floats: ...


class InStore:
    """Steps of episodes that stay in the files of a store; one read gives observations and actions."""

    def __init__(self, stored: Gathers):
        self._stored = stored
        self._reads: deque[tuple[Ints, Floats]] = deque(maxlen=REMEMBERED)
        self._lock = threading.Lock()

    def observations(self, rows: Ints) -> Floats:
        return self._read(rows)[:, : self._stored.observation_size]

    def actions(self, rows: Ints) -> Floats:
        return self._read(rows)[:, self._stored.observation_size :]

    def _read(self, rows: Ints) -> Floats:
        with self._lock:
            for number, (asked, found) in enumerate(self._reads):
                if np.array_equal(asked, rows):
                    del self._reads[number]  # each is asked for twice
                    return found
            found = self._stored.gather(rows)
            self._reads.append((rows.copy(), found))
            return found


def column_statistics(
    episodes: Episodes, kind: Literal["observations", "actions"] = "observations"
) -> tuple[Doubles, Doubles]:
    """Mean and standard deviation of each column in one pass; 1 for constant columns.

    Means and sums of squares of blocks are joined as by Chan, Golub and LeVeque (1983).
    """
    count, mean, squares, largest = 0, np.zeros(1), np.zeros(1), np.zeros(1)
    for block in episodes.blocks():
        values: Floats = getattr(block, kind)
        theirs = values.mean(axis=0, dtype=np.float64)
        apart = theirs - mean
        total = count + len(values)
        mean = mean + apart * len(values) / total
        own = np.square(values - theirs).sum(axis=0)
        squares = squares + own + np.square(apart) * count * len(values) / total
        largest = np.maximum(largest, np.abs(values).max(axis=0))
        count = total
    deviation = np.sqrt(squares / count)
    return mean, np.where(is_constant(deviation, largest), 1.0, deviation)
