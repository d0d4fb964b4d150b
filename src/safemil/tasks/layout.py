"""Random places of things after a reset, at least a given distance apart.

The rule is the original's: draw a place for one thing after the other, at most a hundred times each, and
begin anew when one finds none. A crowded layout needs some ten thousand draws, so they are made in blocks;
the places are those of single draws, and so is the state of the random stream afterwards.
"""

import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from safemil.arrays import Doubles
from safemil.errors import InputError

TRIES = 100  # places tried for one thing before all are drawn anew
RESTARTS = 10_000  # layouts begun before giving up
BLOCK = 4096  # pairs of numbers drawn at once
WINDOW = 200  # places tried at once; the fastest in trials

Place = tuple[float, float]


class Slot(NamedTuple):
    """A thing that needs a place within a rectangle."""

    low: tuple[float, float]
    high: tuple[float, float]
    keepout: float  # m; the keepouts of two things must not overlap


def slots(extent: float, keepouts: Sequence[tuple[int, float]]) -> list[Slot]:
    """Slots for each (count, keepout), in a square about the origin without a rim of width `keepout`."""
    return [
        Slot((-extent + keepout,) * 2, (extent - keepout,) * 2, keepout)
        for count, keepout in keepouts
        for _ in range(count)
    ]


class Layout:
    """Things to be placed in turn; the last `crowd` of them are alike, within a square, and hard to place."""

    def __init__(self, things: Sequence[Slot], crowd: int = 0) -> None:
        self.size, self.crowd, self.single = len(things), crowd, len(things) - crowd
        # numpy's uniform(low, high) is low + (high - low) * random(), bit for bit.
        self._frames = [(*low, high[0] - low[0], high[1] - low[1]) for low, high, _ in things]
        self._limits = [
            [_square_limit(other.keepout + thing.keepout) for other in things[:index]]
            for index, thing in enumerate(things)
        ]
        self._low, _, self._extent, _ = self._frames[-1]
        self._crowd_limits = np.array(self._limits[-1][: self.single])[:, None]

    def sample(self, rng: np.random.RandomState) -> Doubles:
        """Draw a place for each thing, (K, 2)."""
        before, used, total = rng.get_state(), 0, 0
        draws = _Draws(rng, BLOCK if self.crowd else 0, self._low, self._extent)
        sieve = _Sieve(self._crowd_limits) if self.crowd else None
        for _ in range(RESTARTS):
            draws.provide(used, TRIES * self.size + WINDOW)
            total += used
            found, used = self._place_singly(draws.numbers)
            if sieve is not None and len(found) == self.single:
                crowd, used = self._place_crowd(draws.places, used, np.array(found), sieve)
                found += crowd
            if len(found) == self.size:
                rng.set_state(before)
                rng.random_sample(2 * (total + used))
                return np.array(found)
        raise InputError("found no layout in which everything keeps its distance; reset with another seed.")

    def _place_singly(self, numbers: Doubles) -> tuple[list[Place], int]:
        """Places of the things up to the first that fits nowhere, and the number of pairs used."""
        found: list[Place] = []
        used, number = 0, numbers.item
        for (left, bottom, width, depth), limits in zip(self._frames, self._limits, strict=True):
            if len(found) == self.single:
                break
            for pair in range(used, used + TRIES):
                x, y = left + width * number(2 * pair), bottom + depth * number(2 * pair + 1)
                for (other_x, other_y), limit in zip(found, limits, strict=True):
                    dx, dy = x - other_x, y - other_y
                    if dx * dx + dy * dy < limit:
                        break
                else:
                    found.append((x, y))
                    used = pair + 1
                    break
            else:
                return found, used + TRIES
        return found, used

    def _place_crowd(
        self, places: Doubles, used: int, others: Doubles, sieve: "_Sieve"
    ) -> tuple[list[Place], int]:
        """Places of the crowd up to the first thing that fits nowhere, and the number of pairs used."""
        found: list[Place] = []
        limit, start, end = self._limits[-1][-1], used, used + TRIES
        while start < end:
            for pair, x, y in sieve(places[:, start : start + WINDOW], others):
                if start + pair >= end:
                    return found, end
                for other_x, other_y in found:
                    dx, dy = x - other_x, y - other_y
                    if dx * dx + dy * dy < limit:
                        break
                else:
                    found.append((x, y))
                    end = start + pair + 1 + TRIES
                    if len(found) == self.crowd:
                        return found, start + pair + 1
            start += WINDOW
        return found, end


class _Sieve:
    """Finds the candidates in a window that keep their distance from others; its buffers are reused."""

    def __init__(self, limits: Doubles) -> None:
        self.limits = limits.repeat(WINDOW, axis=1)  # (K, W), least squared distances
        self.dx, self.dy = np.empty_like(self.limits), np.empty_like(self.limits)
        self.keeps = np.empty(self.limits.shape, np.bool_)

    def __call__(self, window: Doubles, others: Doubles) -> Iterable[tuple[int, float, float]]:
        """Index, x and y of the candidates (2, W) that keep their distance from others (K, 2)."""
        dx, dy = self.dx, self.dy
        np.subtract(window[0], others[:, :1], out=dx)
        np.subtract(window[1], others[:, 1:], out=dy)
        np.multiply(dx, dx, out=dx)
        np.multiply(dy, dy, out=dy)
        np.greater_equal(np.add(dx, dy, out=dx), self.limits, out=self.keeps)
        clear = np.logical_and.reduce(self.keeps).nonzero()[0]
        return zip(clear.tolist(), *window[:, clear].tolist(), strict=True)


class _Draws:
    """Pairs of random numbers, drawn in blocks: as they are, and as places within a square."""

    def __init__(self, rng: np.random.RandomState, block: int, low: float, extent: float) -> None:
        self.rng, self.block, self.low, self.extent = rng, block, low, extent
        self.numbers = np.zeros(0)  # of a place's x and of its y in turn
        self.places = np.zeros((2, 0))

    def provide(self, used: int, count: int) -> None:
        """Drop the pairs that are used, and draw until there are at least as many as asked for."""
        self.numbers, self.places = self.numbers[2 * used :], self.places[:, used:]
        missing = count - self.places.shape[1]
        if missing > 0:
            block = self.rng.random_sample(2 * max(missing, self.block))
            places = (self.low + self.extent * block).reshape(-1, 2).T
            self.numbers = np.concatenate([self.numbers, block])
            self.places = np.concatenate([self.places, places], axis=1)


def _square_limit(distance: float) -> float:
    """Smallest float whose rounded square root is at least `distance`, so that squares can be compared."""
    square = distance * distance
    while math.sqrt(square) >= distance > 0:
        square = math.nextafter(square, 0.0)
    while math.sqrt(square) < distance:
        square = math.nextafter(square, math.inf)
    return square
