"""Columns of the training data, with which later data are matched by name and compared."""

import difflib
import re
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from safemil.arrays import Bools, Doubles, Floats
from safemil.data.filling import fill_rows, flagged
from safemil.data.interchange import Options, listed
from safemil.data.sources import Episodes, column_statistics
from safemil.data.trajectories import NAMES, Trajectories, check_bounds, column_labels
from safemil.errors import InputError, InputWarning

FAR = 1.0  # standard deviations beyond the range seen: a step that far out is unlike the training data
UNTRUSTED = 0.05  # share of such steps above which the cost of an episode should not be trusted
BLOCK = 65_536  # rows compared at once: bounds the memory
ARRAYS = ("action_low", "action_high", "low", "high", "deviation")


class Novelty(NamedTuple):
    """Distance of steps from the training data, one array per episode."""

    share: list[Floats]  # share of the columns that lie beyond the range seen in training
    deviations: list[Floats]  # largest distance beyond that range, in standard deviations of the column

    def untrusted(self) -> Bools:
        """Episodes whose cost should not be trusted: over 5% of the steps lie over one deviation out."""
        return np.array([(each > FAR).mean() > UNTRUSTED for each in self.deviations])


@dataclass(frozen=True, eq=False)
class Schema:
    """Names, action bounds, ranges and standard deviations of the columns of the training data."""

    observation_names: tuple[str, ...] | None
    action_names: tuple[str, ...] | None
    action_categories: tuple[str, ...] | None  # None for actions that are numbers
    action_low: Doubles  # (A,), in the units of the log
    action_high: Doubles
    low: Doubles  # (S + A,) least value seen; actions are scaled to [-1, 1]
    high: Doubles
    deviation: Doubles  # 1 for constant columns
    reading: Options | None = None  # how the log was read, if it was a table

    @staticmethod
    def of(unlabeled: Episodes, others: Sequence[Trajectories], deviation: npt.ArrayLike) -> "Schema":
        """Measure the ranges of all piles; `deviation` is that of the unlabeled observations."""
        ranges = [_range(block) for pile in (unlabeled, *others) for block in pile.blocks()]
        if isinstance(unlabeled, Trajectories):
            spread = unlabeled.actions.std(axis=0, dtype=np.float64)
        else:
            _, spread = column_statistics(unlabeled, "actions")
        return Schema(
            unlabeled.observation_names,
            unlabeled.action_names,
            unlabeled.action_categories,
            unlabeled.action_low,
            unlabeled.action_high,
            low=np.min([low for low, _ in ranges], axis=0),
            high=np.max([high for _, high in ranges], axis=0),
            deviation=np.concatenate([np.asarray(deviation, np.float64), np.where(spread > 0, spread, 1.0)]),
            reading=unlabeled.reading and unlabeled.reading.without_incidents(),
        )

    def widened(self, other: "Schema") -> "Schema":
        """Add the ranges of other data with the same columns; deviation and reading are those of `other`."""
        return replace(other, low=np.minimum(self.low, other.low), high=np.maximum(self.high, other.high))

    @property
    def observation_size(self) -> int:
        return len(self.low) - self.action_size

    @property
    def action_size(self) -> int:
        return len(self.action_low)

    @property
    def column_names(self) -> list[str]:
        """Names of the observation columns, then of the action columns; numbered if they have none."""
        return column_labels(
            self.observation_names, self.observation_size, self.action_names, self.action_size
        )

    @property
    def choices(self) -> tuple[str, ...] | tuple[int, ...] | None:
        """Actions to choose from as logged: texts, or whole numbers if all of them are."""
        texts = self.action_categories
        if texts is None or not all(re.fullmatch("0|-?[1-9][0-9]{0,17}", each) for each in texts):
            return texts
        return tuple(int(each) for each in texts)

    def to_json(self) -> dict[str, Any]:
        """All fields, as JSON holds them."""
        arrays = {name: getattr(self, name).tolist() for name in ARRAYS}
        names = {name: getattr(self, name) for name in NAMES}
        return names | arrays | {"reading": self.reading and self.reading.to_dict()}

    @staticmethod
    def from_json(content: Mapping[str, Any]) -> "Schema":
        """Read what `to_json` returned; raise a TypeError, ValueError or KeyError if it is damaged."""
        try:
            arrays: dict[str, Any] = {name: np.asarray(content[name], np.float64) for name in ARRAYS}
        except OverflowError as error:
            raise ValueError(str(error)) from None
        names = {kind: content[kind] for kind in NAMES}
        kept: dict[str, Any] = {kind: each if each is None else (*each,) for kind, each in names.items()}
        reading = content["reading"]
        found = Schema(**kept, **arrays, reading=None if reading is None else Options.from_dict(reading))
        sizes = {kind: found.action_size for kind in NAMES} | {"observation_names": found.observation_size}
        if not (
            all(each.ndim == 1 and np.isfinite(each).all() for each in arrays.values())
            and len(found.low) == len(found.high) == len(found.deviation) > found.action_size > 0
            and len(found.action_high) == found.action_size
            and all(each is None or len(each) == sizes[kind] for kind, each in names.items())
            and all(isinstance(each, str) for kind in names.values() for each in kind or ())
        ):
            raise ValueError("the columns of the training data do not fit together")
        check_bounds(found.action_low, found.action_high)
        return found

    def match(self, held: Trajectories) -> Trajectories:
        """Put the columns of other data into the order of the training data, as `matched` does."""
        return matched(held, self, LOGS)

    def novelty(self, held: Trajectories) -> Novelty:
        """Compare matched data with the range of the training data."""
        share, deviations = (np.empty(held.steps, np.float32) for _ in range(2))
        for first in range(0, held.steps, BLOCK):
            rows = slice(first, first + BLOCK)
            beyond = self.beyond(np.concatenate([held.observations[rows], held.actions[rows]], axis=1))
            share[rows], deviations[rows] = (beyond > 0).mean(axis=1), beyond.max(axis=1)
        return Novelty(held.by_episode(share), held.by_episode(deviations))

    def beyond(self, values: npt.NDArray[Any]) -> Doubles:
        """Distance of (rows, S or S + A) beyond the range seen, in standard deviations; 0 within it."""
        width = values.shape[1]
        outside = np.maximum(self.low[:width] - values, values - self.high[:width])
        return np.maximum(outside, 0.0) / self.deviation[:width]

    def warn_if_far(self, observations: Floats) -> None:
        """Warn of observations (rows, S) far beyond the range of the training data."""
        beyond = self.beyond(observations)
        far = beyond.max(axis=0) > FAR
        if far.any():
            worst = int(np.argmax(beyond.max(axis=0)))
            names = [name for name, is_far in zip(self.column_names, far, strict=False) if is_far]
            warnings.warn(
                f"the observation is unlike the training data: {listed(names)} "
                f"lie{'s' if len(names) == 1 else ''} beyond the range seen, {self.column_names[worst]} by "
                f"{beyond.max():.3g} standard deviations (it went from {self.low[worst]:g} to "
                f"{self.high[worst]:g}); the action should not be trusted.",
                InputWarning,
                stacklevel=3,
            )

    def observations(self, named: Mapping[str, Any]) -> Floats:
        """Make (S,), or (N, S) from arrays of N, of values by name, and fill empty ones as in the log.

        None and NaN are empty. Names that the run lacks are left out.
        """
        if self.observation_names is None:
            raise InputError(
                f"the columns of this run have no names; give an array of {self.observation_size} numbers."
            )
        fills = self.reading.fills if self.reading else ()
        logged = self.observation_names[: self.observation_size - len(flagged(self.observation_names, fills))]
        missing = [name for name in logged if name not in named]
        if missing:
            raise _missing("the observation lacks columns that this run was trained on", missing, [*named])
        values = {name: _numbers(name, named[name]) for name in logged}
        shape = values[logged[0]].shape
        for name, each in values.items():
            if each.shape != shape or each.ndim > 1:
                raise InputError(
                    "an observation by name holds numbers, or arrays of one length, got shape "
                    f'{shape} for "{logged[0]}" and {each.shape} for "{name}".'
                )
        stacked = np.stack([*values.values()], axis=-1)
        filled = fill_rows(stacked.reshape(-1, len(logged)), logged, fills)
        return filled.reshape(*shape, self.observation_size)


def _range(block: Trajectories) -> tuple[Floats, Floats]:
    """Least and greatest value of each column, observations first."""
    matrices = block.observations, block.actions
    low, high = (np.concatenate([pick(each, axis=0) for each in matrices]) for pick in (np.min, np.max))
    return low, high


def _numbers(name: str, value: Any) -> Floats:
    try:
        return np.asarray(value, np.float32)
    except (TypeError, ValueError):
        raise InputError(f'"{name}" must be a number or an array of numbers, got {value!r}.') from None


class Wording(NamedTuple):
    """How messages name data, and what the data are matched with."""

    have: str
    lack: str
    expected: str
    other: str


LOGS = Wording("the data have", "the data lack", "this run was trained on", "the training data have")
PILE = Wording(
    "the non-preferred pile has",
    "the non-preferred pile lacks",
    "the unlabeled pile has",
    "the unlabeled pile has",
)
KNOWN_GOOD = PILE._replace(have="the preferred pile has", lack="the preferred pile lacks")


def matched(held: Trajectories, like: Schema | Episodes, wording: Wording) -> Trajectories:
    """Put columns into the order of `like`, by name; further columns are left out.

    Columns are matched by position where names are lacking, with a warning if only one side has them. A
    missing column is refused, and so are other action bounds.
    """
    held = _with_choices(held, like, wording)
    observations, actions = (_places(kind, held, like, wording) for kind in ("observation", "action"))
    if [*map(len, (observations, actions))] != [held.observation_size, held.action_size] or any(
        each != sorted(each) for each in (observations, actions)
    ):
        held = held.select_columns(observations, actions)
    differ = (held.action_low != like.action_low) | (held.action_high != like.action_high)
    if differ.any():
        i = int(np.argmax(differ))
        raise InputError(
            f"{wording.expected} {like.column_names[like.observation_size + i]} bounded by "
            f"{like.action_low[i]:g} and {like.action_high[i]:g}, but {wording.have} it bounded by "
            f"{held.action_low[i]:g} and {held.action_high[i]:g}; read all data with the same action bounds."
        )
    return held


def all_choices(held: Trajectories, other: Trajectories | None) -> Trajectories:
    """Give actions that are choices a column for every choice of either pile."""
    ours, theirs = held.action_categories, None if other is None else other.action_categories
    if other is None or ours is None or theirs is None:
        return held
    added = [i for i, each in enumerate(theirs) if each not in ours]
    names = (
        held.action_names
        and other.action_names
        and (*held.action_names, *(other.action_names[i] for i in added))
    )
    return held.with_choices([*ours, *(theirs[i] for i in added)], names) if added else held


def _with_choices(held: Trajectories, like: Schema | Episodes, wording: Wording) -> Trajectories:
    """Give actions that are choices the columns of `like`; refuse choices that it has not."""
    ours, theirs = like.action_categories, held.action_categories
    if ours == theirs:
        return held
    if ours is None or theirs is None:
        kinds = ("numbers", "choices") if ours is None else ("choices", "numbers")
        raise InputError(
            f"{wording.expected} actions that are {kinds[0]}, but {wording.have} {kinds[1]}; read all data "
            "with the same `action_kind=...`."
        )
    for i, name in enumerate(theirs):
        if name not in ours and (held.actions[:, i] > 0).any():
            raise InputError(
                f'{wording.have} the action "{name}", but {wording.expected} only {listed(ours)}; '
                "leave its episodes out, or train on data that hold it."
            )
    return held.with_choices(ours, like.action_names)


def _places(kind: str, held: Trajectories, like: Schema | Episodes, wording: Wording) -> list[int]:
    """Numbers of the columns of `held` in the order of those of `like`."""
    ours, theirs = (getattr(each, f"{kind}_names") for each in (like, held))
    if ours is not None and theirs is not None:
        missing = [name for name in ours if name not in theirs]
        if missing:
            raise _missing(f"{wording.lack} {kind} columns that {wording.expected}", missing, theirs)
        return [theirs.index(name) for name in ours]
    wanted, found = (getattr(each, f"{kind}_size") for each in (like, held))
    if found != wanted:
        raise InputError(
            f"{wording.expected} {wanted} {kind} columns, but {wording.have} {found}; give all data the same "
            "columns."
        )
    if ours is not theirs:
        which = wording.have if theirs is None else wording.other
        warnings.warn(
            f"{kind} columns are matched by position: {which} no names.", InputWarning, stacklevel=6
        )
    return [*range(wanted)]


def _missing(what: str, missing: Sequence[str], known: Sequence[str]) -> InputError:
    """Make the error for missing columns, each with the nearest name there is."""
    near = {name: difflib.get_close_matches(name, known, n=1) for name in missing}
    told = [f'"{name}"' + (f' (did you mean "{found[0]}"?)' if found else "") for name, found in near.items()]
    return InputError(f"{what}: {listed(told)}; there are {listed(known)}.")
