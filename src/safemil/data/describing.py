"""What is in a dataset, and what looks wrong in it."""

import hashlib
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from safemil.data.trajectories import Annotations, Trajectories
from safemil.typing import Floats, Ints

SHORT = 0.1  # of the median length; an episode below it was probably cut
FROZEN = 0.5  # of an episode's steps may repeat the observation before
SATURATED = 0.999  # of the bounds
FAR = 10.0  # deviations from the mean, where even heavy tails seldom go
RARE = 0.05  # of the episodes: what more of them do is their nature, not a fault


@dataclass(frozen=True)
class Spread:
    """Least, middle and greatest of some numbers, and their mean."""

    low: float
    median: float
    high: float
    mean: float


@dataclass(frozen=True)
class Column:
    name: str
    low: float
    high: float
    mean: float
    deviation: float


@dataclass(frozen=True)
class Suspicion:
    """Something about an episode that deserves a look."""

    episode: int | str
    reason: str


@dataclass(frozen=True)
class Description:
    """A dataset at a glance; `as_dict` is what JSON can hold."""

    episodes: int
    steps: int
    observation_size: int
    action_size: int
    lengths: Spread
    final_observations: int  # episodes that have one
    terminated: int  # episodes that the task itself ended
    columns: tuple[Column, ...]  # actions as scaled to [-1, 1]
    action_low: tuple[float, ...]
    action_high: tuple[float, ...]
    constant: tuple[str, ...]
    duplicate: tuple[tuple[str, ...], ...]  # columns that are equal everywhere
    suspicious: tuple[Suspicion, ...]
    returns: Spread | None
    costs: Spread | None
    content_hash: str

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


def describe(trajectories: Trajectories, annotations: Annotations | None = None) -> Description:
    """Measure a dataset and look for columns and episodes that seem wrong."""
    columns = _columns(trajectories)
    constant = tuple(column.name for column in columns if column.low == column.high)
    sums = None if annotations is None else annotations.episode_sums(trajectories.lengths)
    return Description(
        episodes=trajectories.episodes,
        steps=trajectories.steps,
        observation_size=trajectories.observation_size,
        action_size=trajectories.action_size,
        lengths=_spread(trajectories.lengths),
        final_observations=int(trajectories.has_final.sum()),
        terminated=int(trajectories.terminated.sum()),
        columns=columns,
        action_low=tuple(trajectories.action_low.tolist()),
        action_high=tuple(trajectories.action_high.tolist()),
        constant=constant,
        duplicate=_duplicates(trajectories, constant),
        suspicious=tuple(_suspicions(trajectories, columns)),
        returns=None if sums is None else _spread(sums[0]),
        costs=None if sums is None else _spread(sums[1]),
        content_hash=trajectories.content_hash(),
    )


def shared_episodes(a: Trajectories, b: Trajectories) -> Ints:
    """Numbers (in a, in b) of episodes with the same observations and actions, (pairs, 2).

    >>> walk = Trajectories(np.arange(6).reshape(6, 1), np.zeros((6, 1)), lengths=[1, 2, 3])
    >>> shared_episodes(walk, walk.take([2, 0]))
    array([[0, 1],
           [2, 0]])
    """
    theirs = defaultdict(list)
    for number, digest in enumerate(_episode_digests(b)):
        theirs[digest].append(number)
    pairs = [(number, other) for number, digest in enumerate(_episode_digests(a)) for other in theirs[digest]]
    return np.array(pairs, np.int64).reshape(-1, 2)


def _columns(trajectories: Trajectories) -> tuple[Column, ...]:
    described = []
    for name, values in zip(_column_names(trajectories), _column_values(trajectories), strict=True):
        wide = values.astype(np.float64)
        described.append(
            Column(name, float(wide.min()), float(wide.max()), float(wide.mean()), float(wide.std()))
        )
    return tuple(described)


def _column_names(trajectories: Trajectories) -> list[str]:
    observed = [f"observation {i}" for i in range(trajectories.observation_size)]
    return observed + [f"action {i}" for i in range(trajectories.action_size)]


def _column_values(trajectories: Trajectories) -> Iterator[Floats]:
    for block in (trajectories.observations, trajectories.actions):
        yield from np.ascontiguousarray(block.T)


def _duplicates(trajectories: Trajectories, constant: tuple[str, ...]) -> tuple[tuple[str, ...], ...]:
    alike = defaultdict(list)
    for name, values in zip(_column_names(trajectories), _column_values(trajectories), strict=True):
        if name not in constant:
            alike[values.tobytes()].append(name)
    return tuple(tuple(names) for names in alike.values() if len(names) > 1)


def _suspicions(trajectories: Trajectories, columns: tuple[Column, ...]) -> Iterator[Suspicion]:
    """All reasons, episode by episode."""
    reasons: dict[int, list[str]] = defaultdict(list)
    for check in (_short, _twins, _frozen, _dull_actions):
        for episode, reason in check(trajectories):
            reasons[episode].append(reason)
    for episode, reason in _outliers(trajectories, columns):
        reasons[episode].append(reason)
    for episode in sorted(reasons):
        for reason in reasons[episode]:
            yield Suspicion(trajectories.ids[episode].item(), reason)


def _short(trajectories: Trajectories) -> Iterator[tuple[int, str]]:
    median = float(np.median(trajectories.lengths))
    for episode in np.flatnonzero(trajectories.lengths < SHORT * median):
        yield int(episode), f"only {trajectories.lengths[episode]} steps long, the median is {median:g}"


def _twins(trajectories: Trajectories) -> Iterator[tuple[int, str]]:
    first: dict[bytes, int] = {}
    for episode, digest in enumerate(_episode_digests(trajectories)):
        if first.setdefault(digest, episode) != episode:
            yield episode, f"identical to episode {trajectories.ids[first[digest]]}"


def _frozen(trajectories: Trajectories) -> Iterator[tuple[int, str]]:
    observations, starts = trajectories.observations, trajectories.starts
    same = np.zeros(trajectories.steps, bool)
    same[1:] = (observations[1:] == observations[:-1]).all(axis=1)
    same[starts] = False
    share = np.add.reduceat(same, starts, dtype=np.int64) / trajectories.lengths
    for episode in np.flatnonzero(share > FROZEN):
        yield int(episode), f"{share[episode]:.0%} of its observations repeat the one before"


def _dull_actions(trajectories: Trajectories) -> Iterator[tuple[int, str]]:
    size = np.abs(trajectories.actions)
    for entries, reason in (
        (size >= SATURATED, "every action is at its bounds"),
        (size == 0, "every action is zero"),
    ):
        always = np.logical_and.reduceat(np.all(entries, axis=1), trajectories.starts)
        for episode in np.flatnonzero(always):
            yield int(episode), reason


def _outliers(trajectories: Trajectories, columns: tuple[Column, ...]) -> Iterator[tuple[int, str]]:
    """Observations far from the mean, in columns where few episodes have any."""
    values = trajectories.observations
    observed = columns[: trajectories.observation_size]
    center, deviation = (
        np.array([getattr(each, name) for each in observed]) for name in ("mean", "deviation")
    )
    reach = np.maximum(np.maximum.reduceat(values, trajectories.starts) - center, 0)
    reach = np.maximum(reach, center - np.minimum.reduceat(values, trajectories.starts))
    far = reach > FAR * np.maximum(deviation, np.finfo(np.float32).tiny)  # (episodes, S)
    far &= far.sum(axis=0) <= max(1, RARE * len(trajectories))
    for episode, column in np.argwhere(far):
        times = reach[episode, column] / deviation[column]
        yield int(episode), f"{observed[column].name} is {times:.0f} deviations from its mean"


def _episode_digests(trajectories: Trajectories) -> Iterator[bytes]:
    for start, length in zip(trajectories.starts, trajectories.lengths, strict=True):
        rows = slice(start, start + length)
        digest = hashlib.sha256(f"{length} ".encode())
        digest.update(trajectories.observations[rows].data)
        digest.update(trajectories.actions[rows].data)
        yield digest.digest()


def _spread(values: npt.NDArray[Any]) -> Spread:
    return Spread(float(values.min()), float(np.median(values)), float(values.max()), float(values.mean()))
