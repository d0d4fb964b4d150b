"""Where a reset puts things: places drawn at random that keep their distance.

The rule is the original's: draw a place for one thing after the other, at most a hundred times each, and
begin anew when one finds none. A crowded layout needs some ten thousand draws, so they are made in blocks;
the places are those of single draws, and so is the state of the random stream afterwards.
"""

import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from safemil.errors import InputError
from safemil.tasks.worlds import Array

TRIES = 100  # places tried for one thing before all are drawn anew
RESTARTS = 10_000  # layouts begun before giving up
FIRST_BLOCK = 64  # pairs of numbers
WINDOW = 160  # places tried at once; the fastest in trials

Place = tuple[float, float]


class Slot(NamedTuple):
    """A thing that needs a place within a rectangle."""

    low: tuple[float, float]
    high: tuple[float, float]
    keepout: float  # m; the keepouts of two things must not overlap


def slots(extent: float, keepouts: Sequence[tuple[int, float]]) -> list[Slot]:
    """Slots for each (count, keepout) in turn, in a square about the origin, its rim kept out of."""
    return [
        Slot((-extent + keepout,) * 2, (extent - keepout,) * 2, keepout)
        for count, keepout in keepouts
        for _ in range(count)
    ]


class Layout:
    """Things to be placed in turn; the last `crowd` of them are alike and hard to place."""

    def __init__(self, things: Sequence[Slot], crowd: int = 0) -> None:
        self.size, self.crowd = len(things), crowd
        # numpy's uniform(low, high) is low + (high - low) * random(), bit for bit.
        self._frames = [(*low, high[0] - low[0], high[1] - low[1]) for low, high, _ in things]
        self._limits = [
            [_square_limit(other.keepout + thing.keepout) for other in things[:index]]
            for index, thing in enumerate(things)
        ]

    def sample(self, rng: np.random.RandomState) -> Array:
        """(K, 2): a place for each thing."""
        before, used = rng.get_state(), 0
        pairs = rng.random_sample((FIRST_BLOCK, 2))
        units = pairs.ravel().tolist()
        for _ in range(RESTARTS):
            while len(pairs) < used + TRIES * self.size:
                block = rng.random_sample(pairs.shape)
                pairs = np.concatenate([pairs, block])
                units += block.ravel().tolist()
            places, used = self._place_singly(units, used)
            if self.crowd and len(places) == self.size - self.crowd:
                places, used = self._place_crowd(pairs, units, used, places)
            if len(places) == self.size:
                rng.set_state(before)
                rng.random_sample(2 * used)
                return np.array(places)
        raise InputError("found no layout in which everything keeps its distance; reset with another seed.")

    def _place_singly(self, units: list[float], used: int) -> tuple[list[Place], int]:
        """The places found until a thing found none, and how many pairs of units are used up then."""
        places: list[Place] = []
        for index in range(self.size - self.crowd):
            (left, bottom, width, depth), limits = self._frames[index], self._limits[index]
            for pair in range(used, used + TRIES):
                x, y = left + width * units[2 * pair], bottom + depth * units[2 * pair + 1]
                if _is_free(x, y, places, limits):
                    places.append((x, y))
                    break
            else:
                return places, used + TRIES
            used = pair + 1
        return places, used

    def _place_crowd(
        self, pairs: Array, units: list[float], used: int, places: list[Place]
    ) -> tuple[list[Place], int]:
        """Likewise for the crowd: few places are clear of all else, and these are found many at once."""
        (left, bottom, width, depth), limits = self._frames[-1], self._limits[-1][len(places) :]
        crowd: list[Place] = []
        for pair in self._clear_pairs(pairs, used, places):
            if pair >= used + TRIES:
                break
            x, y = left + width * units[2 * pair], bottom + depth * units[2 * pair + 1]
            if _is_free(x, y, crowd, limits):
                crowd.append((x, y))
                used = pair + 1
                if len(crowd) == self.crowd:
                    return places + crowd, used
        return places + crowd, used + TRIES

    def _clear_pairs(self, pairs: Array, first: int, places: list[Place]) -> Iterator[int]:
        """The pairs from `first` on that give one of the crowd a place clear of all else."""
        (left, bottom, width, depth), limits = self._frames[-1], self._limits[-1]
        others, nearest = np.array(places), np.array(limits[: len(places)])[:, None]
        for start in range(first, first + TRIES * self.crowd, WINDOW):
            window = pairs[start : start + WINDOW]
            dx = left + width * window[:, 0] - others[:, :1]
            dy = bottom + depth * window[:, 1] - others[:, 1:]
            dx *= dx
            dy *= dy
            dx += dy
            yield from (start + np.flatnonzero((dx >= nearest).all(axis=0))).tolist()


def _is_free(x: float, y: float, places: list[Place], limits: list[float]) -> bool:
    """No place is closer than its limit, a squared distance."""
    for (other_x, other_y), limit in zip(places, limits, strict=False):
        dx, dy = x - other_x, y - other_y
        if dx * dx + dy * dy < limit:
            return False
    return True


def _square_limit(distance: float) -> float:
    """The least number whose root, as rounded, is not below a distance: it spares the roots."""
    square = distance * distance
    while math.sqrt(square) >= distance > 0:
        square = math.nextafter(square, 0.0)
    while math.sqrt(square) < distance:
        square = math.nextafter(square, math.inf)
    return square
