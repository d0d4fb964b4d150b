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
BLOCK = 4096  # pairs of numbers drawn at once
WINDOW = 200  # places tried at once; the fastest in trials

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
        self.size, self.crowd, self.single = len(things), crowd, len(things) - crowd
        # numpy's uniform(low, high) is low + (high - low) * random(), bit for bit.
        self._frames = [(*low, high[0] - low[0], high[1] - low[1]) for low, high, _ in things]
        self._limits = [
            [_square_limit(other.keepout + thing.keepout) for other in things[:index]]
            for index, thing in enumerate(things)
        ]
        self._crowd_limits = np.array(self._limits[-1][: self.single])[:, None]

    def sample(self, rng: np.random.RandomState) -> Array:
        """(K, 2): a place for each thing."""
        before, used = rng.get_state(), 0
        draws = _Draws(rng, self._frames[-1], BLOCK if self.crowd else 0)
        for _ in range(RESTARTS):
            draws.provide(used + TRIES * self.size)
            xs, ys, used = self._place_singly(draws, used)
            if self.crowd and len(xs) == self.single:
                used = self._place_crowd(draws, used, xs, ys)
            if len(xs) == self.size:
                rng.set_state(before)
                rng.random_sample(2 * used)
                return np.array([xs, ys]).T.copy()
        raise InputError("found no layout in which everything keeps its distance; reset with another seed.")

    def _place_singly(self, draws: "_Draws", used: int) -> tuple[list[float], list[float], int]:
        """The places found until a thing found none, and how many pairs are used up then."""
        xs: list[float] = []
        ys: list[float] = []
        number = draws.numbers.item
        for index in range(self.single):
            (left, bottom, width, depth), limits = self._frames[index], self._limits[index]
            for pair in range(used, used + TRIES):
                x, y = left + width * number(2 * pair), bottom + depth * number(2 * pair + 1)
                for other_x, other_y, limit in zip(xs, ys, limits, strict=True):
                    dx, dy = x - other_x, y - other_y
                    if dx * dx + dy * dy < limit:
                        break
                else:
                    xs.append(x)
                    ys.append(y)
                    used = pair + 1
                    break
            else:
                return xs, ys, used + TRIES
        return xs, ys, used

    def _place_crowd(self, draws: "_Draws", used: int, xs: list[float], ys: list[float]) -> int:
        """Append the crowd's places until one finds none; the few that are clear of all else come at once."""
        limit = self._limits[-1][-1]
        for pair, x, y in self._clear_places(draws, used, np.array([xs, ys])):
            if pair >= used + TRIES:
                break
            for other_x, other_y in zip(xs[self.single :], ys[self.single :], strict=True):
                dx, dy = x - other_x, y - other_y
                if dx * dx + dy * dy < limit:
                    break
            else:
                xs.append(x)
                ys.append(y)
                used = pair + 1
                if len(xs) == self.size:
                    return used
        return used + TRIES

    def _clear_places(self, draws: "_Draws", first: int, others: Array) -> Iterator[tuple[int, float, float]]:
        """From the pair `first` on, those that put one of the crowd clear of others (2, K)."""
        for start in range(first, first + TRIES * self.crowd, WINDOW):
            tried = draws.places[:, start : start + WINDOW]
            gaps = tried[:, None, :] - others[:, :, None]  # (2, K, W)
            gaps *= gaps
            clear = np.logical_and.reduce(gaps[0] + gaps[1] >= self._crowd_limits).nonzero()[0]
            x, y = tried[:, clear].tolist()
            yield from zip((clear + start).tolist(), x, y, strict=True)


class _Draws:
    """Pairs of random numbers, drawn in blocks: as they are, and as places (x, y) within one frame."""

    def __init__(self, rng: np.random.RandomState, frame: tuple[float, ...], block: int) -> None:
        self.rng, self.frame, self.block = rng, frame, block
        self.numbers = np.zeros(0)  # of a frame's width and of its depth in turn
        self.places = np.zeros((2, 0))

    def provide(self, count: int) -> None:
        """Have at least so many pairs."""
        missing = count - self.places.shape[1]
        if missing <= 0:
            return
        low, extent = np.reshape(self.frame, (2, 2, 1))
        block = self.rng.random_sample(2 * max(missing, self.block))
        self.numbers = np.concatenate([self.numbers, block])
        self.places = np.concatenate([self.places, low + extent * block.reshape(-1, 2).T], axis=1)


def _square_limit(distance: float) -> float:
    """The least number whose root, as rounded, is not below a distance: it spares the roots."""
    square = distance * distance
    while math.sqrt(square) >= distance > 0:
        square = math.nextafter(square, 0.0)
    while math.sqrt(square) < distance:
        square = math.nextafter(square, math.inf)
    return square
