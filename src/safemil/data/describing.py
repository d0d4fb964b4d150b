"""Summary statistics of a dataset, and its suspicious columns and episodes."""

import hashlib
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from safemil.arrays import Floats, Ints
from safemil.data.incidents import piles_of
from safemil.data.interchange import Contents, Options
from safemil.data.sources import Episodes
from safemil.data.trajectories import Annotations, Trajectories, is_constant
from safemil.errors import InputError

SHORT = 0.1  # flag episodes shorter than this share of the median length: they were probably cut
FROZEN = 0.5  # flag episodes in which more than this share of the observations repeats the previous one
SATURATED = 0.999  # an action this large, in [-1, 1], is at its bound
FAR = 10.0  # standard deviations from the mean; even heavy tails seldom go further
COLUMNS_AT_ONCE = 8  # copied out of the rows together, and
ROWS_AT_ONCE = 65_536  # compared together: both bound the memory
RARE = 0.05  # flag outliers of a column only if at most this share of the episodes has one


@dataclass(frozen=True)
class Spread:
    """Minimum, median, maximum and mean."""

    low: float
    median: float
    high: float
    mean: float


@dataclass(frozen=True)
class Column:
    """Minimum, maximum, mean and standard deviation of a column, in the units of the log."""

    name: str
    low: float
    high: float
    mean: float
    deviation: float
    empty: float  # share of its cells that were empty in the file
    constant: float  # share of its steps that repeat the step before


@dataclass(frozen=True)
class Suspicion:
    """An episode that may be faulty, and the reason; `kind` is the reason without its numbers."""

    episode: int | str
    reason: str
    kind: str


@dataclass(frozen=True)
class Description:
    """Summary of a dataset; `as_dict` returns what JSON can hold."""

    episodes: int
    steps: int
    observation_size: int
    action_size: int
    lengths: Spread
    final_observations: int  # number of episodes with a final observation
    terminated: int  # number of episodes that the task itself ended
    columns: tuple[Column, ...]  # of observations, then of actions
    action_low: tuple[float, ...]
    action_high: tuple[float, ...]
    constant: tuple[str, ...]  # names of columns that training treats as constant
    duplicate: tuple[tuple[str, ...], ...]  # names of columns that are equal to each other
    suspicious: tuple[Suspicion, ...]
    returns: Spread | None
    costs: Spread | None
    content_hash: str
    declared: int  # episodes in the file, with those that were passed over
    faults: tuple[str, ...]  # why episodes were passed over
    notes: tuple[str, ...]  # missing steps and the like
    incidents: int | None  # episodes with an incident; None if nobody asked

    def folded(self) -> list[str]:
        """Suspicions of one kind in one line, with their number and the first episode."""
        kinds: dict[str, list[Suspicion]] = defaultdict(list)
        for found in self.suspicious:
            kinds[found.kind].append(found)
        return [
            f"episode {group[0].episode}: {group[0].reason}"
            + (f" (and {len(group) - 1} more episodes like it)" if len(group) > 1 else "")
            for group in kinds.values()
        ]

    def fitting_bounds(self) -> tuple[tuple[float, ...], tuple[float, ...]]:
        """The least and the greatest action of each column."""
        actions = self.columns[self.observation_size :]
        return tuple(each.low for each in actions), tuple(each.high for each in actions)

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


def describe_contents(contents: Contents, options: Options) -> Description:
    """Summarise everything in a file, with what was wrong in it."""
    faults: list[str] = []
    annotations = incidents = None
    if contents.rewards is not None and contents.costs is not None:
        with _noting(faults):
            annotations = contents.annotations()
    if options.tells_incidents and (contents.incidents is not None or options.incident is None):
        with _noting(faults):
            incidents = len(piles_of(contents, options).nonpreferred)
    described = describe(contents.trajectories, annotations, contents.empty)
    return replace(
        described,
        declared=described.episodes if contents.declared is None else contents.declared,
        faults=(*contents.faults, *faults),
        notes=contents.notes,
        incidents=incidents,
    )


@contextmanager
def _noting(faults: list[str]) -> Iterator[None]:
    """Keep what is wrong instead of raising it."""
    try:
        yield
    except InputError as error:
        faults.append(str(error))


def describe(
    trajectories: Trajectories,
    annotations: Annotations | None = None,
    empty: Mapping[str, float] | None = None,
) -> Description:
    """Summarise a dataset and look for faulty columns and episodes; `empty` has shares of empty cells."""
    columns = _columns(trajectories, empty or {})
    largest = np.array([max(abs(column.low), abs(column.high)) for column in columns])
    still = is_constant(np.array([column.deviation for column in columns]), largest)
    constant = tuple(column.name for column, is_still in zip(columns, still, strict=True) if is_still)
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
        declared=trajectories.episodes,
        faults=(),
        notes=(),
        incidents=None,
    )


def shared_episodes(a: Episodes, b: Episodes) -> Ints:
    """Numbers of the episodes of `a` whose observations and actions are also those of an episode of `b`.

    >>> walk = Trajectories(np.arange(6).reshape(6, 1), np.zeros((6, 1)), lengths=[1, 2, 3])
    >>> shared_episodes(walk, walk.take([2, 0]))
    array([0, 2])
    """
    others = set(_episode_digests(b))
    return np.flatnonzero([digest in others for digest in _episode_digests(a)])


def _columns(trajectories: Trajectories, empty: Mapping[str, float]) -> tuple[Column, ...]:
    described = []
    inside = np.ones(trajectories.steps, bool)
    inside[trajectories.starts] = False
    units = _units(trajectories)
    for name, values, (middle, half) in zip(
        trajectories.column_names, _column_values(trajectories), units, strict=True
    ):
        wide = values.astype(np.float64) * half + middle
        repeats = (wide[1:] == wide[:-1])[inside[1:]]
        low, high, mean, deviation = map(float, (wide.min(), wide.max(), wide.mean(), wide.std()))
        share = float(repeats.mean()) if repeats.size else 0.0
        described.append(Column(name, low, high, mean, deviation, empty.get(name, 0.0), share))
    return tuple(described)


def _units(trajectories: Trajectories) -> list[tuple[float, float]]:
    """Middle and half of the range of each column: 0 and 1 for observations."""
    low, high = trajectories.action_low, trajectories.action_high
    scales = zip((high / 2 + low / 2).tolist(), (high / 2 - low / 2).tolist(), strict=True)
    return [(0.0, 1.0)] * trajectories.observation_size + [*scales]


def _column_values(trajectories: Trajectories) -> Iterator[Floats]:
    for block in (trajectories.observations, trajectories.actions):
        for first in range(0, block.shape[1], COLUMNS_AT_ONCE):
            yield from np.ascontiguousarray(block[:, first : first + COLUMNS_AT_ONCE].T)


def _duplicates(trajectories: Trajectories, constant: tuple[str, ...]) -> tuple[tuple[str, ...], ...]:
    groups = defaultdict(list)  # names by content
    for name, values in zip(trajectories.column_names, _column_values(trajectories), strict=True):
        if name not in constant:
            groups[hashlib.sha256(values.data).digest()].append(name)
    return tuple(tuple(names) for names in groups.values() if len(names) > 1)


def _suspicions(trajectories: Trajectories, columns: tuple[Column, ...]) -> Iterator[Suspicion]:
    """Run all checks and sort what they flag by episode."""
    reasons: dict[int, list[str]] = defaultdict(list)
    for check in (_short, _duplicate_episodes, _frozen, _saturated_or_zero_actions):
        for episode, reason in check(trajectories):
            reasons[episode].append(reason)
    for episode, reason in _outliers(trajectories, columns):
        reasons[episode].append(reason)
    for episode in sorted(reasons):
        for reason in reasons[episode]:
            kind = re.sub(r"-?[0-9][0-9.e+%-]*", "#", reason.split(" episode ")[0])
            yield Suspicion(trajectories.ids[episode].item(), reason, kind)


def _short(trajectories: Trajectories) -> Iterator[tuple[int, str]]:
    """Flag episodes far shorter than the median."""
    median = float(np.median(trajectories.lengths))
    for episode in np.flatnonzero(trajectories.lengths < SHORT * median):
        yield int(episode), f"only {trajectories.lengths[episode]} steps long, the median is {median:g}"


def _duplicate_episodes(trajectories: Trajectories) -> Iterator[tuple[int, str]]:
    """Flag episodes identical to an earlier one."""
    first: dict[bytes, int] = {}
    for episode, digest in enumerate(_episode_digests(trajectories)):
        if first.setdefault(digest, episode) != episode:
            yield episode, f"identical to episode {trajectories.ids[first[digest]]}"


def _frozen(trajectories: Trajectories) -> Iterator[tuple[int, str]]:
    """Flag episodes with many repeated observations."""
    observations, starts = trajectories.observations, trajectories.starts
    same = np.zeros(trajectories.steps, bool)
    for first in range(1, len(same), ROWS_AT_ONCE):
        rows = slice(first, first + ROWS_AT_ONCE)
        before = observations[first - 1 : first - 1 + len(same[rows])]
        same[rows] = (observations[rows] == before).all(axis=1)
    same[starts] = False
    share = np.add.reduceat(same, starts, dtype=np.int64) / trajectories.lengths
    for episode in np.flatnonzero(share > FROZEN):
        yield int(episode), f"{share[episode]:.0%} of its observations repeat the one before"


def _saturated_or_zero_actions(trajectories: Trajectories) -> Iterator[tuple[int, str]]:
    """Flag episodes in which every action is at its bounds, or every action is zero."""
    magnitude = np.abs(trajectories.actions)
    for matches, reason in (
        (magnitude >= SATURATED, "every action is at its bounds"),
        (magnitude == 0, "every action is zero"),
    ):
        always = np.logical_and.reduceat(np.all(matches, axis=1), trajectories.starts)
        for episode in np.flatnonzero(always):
            yield int(episode), reason


def _outliers(trajectories: Trajectories, columns: tuple[Column, ...]) -> Iterator[tuple[int, str]]:
    """Flag observations far from the mean, in columns where at most 5% of the episodes have one."""
    values = trajectories.observations
    observed = columns[: trajectories.observation_size]
    mean, deviation = (np.array([getattr(each, name) for each in observed]) for name in ("mean", "deviation"))
    distance = np.maximum(  # (episodes, S), the greatest distance from the mean
        np.maximum.reduceat(values, trajectories.starts) - mean,
        mean - np.minimum.reduceat(values, trajectories.starts),
    )
    far = distance > FAR * np.maximum(deviation, np.finfo(np.float32).tiny)
    far &= far.sum(axis=0) <= max(1, RARE * len(trajectories))
    for episode, column in np.argwhere(far):
        times = distance[episode, column] / deviation[column]
        yield int(episode), f"{observed[column].name} is {times:.0f} deviations from its mean"


def _episode_digests(episodes: Episodes) -> Iterator[bytes]:
    """SHA-256 of the observations and actions of each episode."""
    for block in episodes.blocks():
        for start, length in zip(block.starts, block.lengths, strict=True):
            rows = slice(start, start + length)
            digest = hashlib.sha256(f"{length} ".encode())
            digest.update(block.observations[rows].data)
            digest.update(block.actions[rows].data)
            yield digest.digest()


def _spread(values: npt.NDArray[Any]) -> Spread:
    return Spread(float(values.min()), float(np.median(values)), float(values.max()), float(values.mean()))
