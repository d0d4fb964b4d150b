"""Episodes of any length, concatenated, and their rewards and costs.

Rewards and costs have a type of their own, `Annotations`: an algorithm is given `Trajectories` and can't
see them by accident.
"""

import copy
import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self
from zoneinfo import ZoneInfo

import numpy as np
import numpy.typing as npt

from safemil.arrays import Bools, Doubles, Floats, Ints
from safemil.errors import InputError

if TYPE_CHECKING:
    from safemil.data.interchange import Options

CONTENT = (  # the arrays in the content hash; `ids` and `first_steps` are only names
    "observations",
    "actions",
    "lengths",
    "final_observations",
    "has_final",
    "terminated",
    "action_low",
    "action_high",
)
PER_STEP = ("observations", "actions", "marks", "after_gap")
PER_EPISODE = ("lengths", "ids", "first_steps", "terminated", "has_final", "final_observations")
NAMES = ("observation_names", "action_names", "action_categories")
SHARED = ("action_low", "action_high", "step_zone", "reading", *NAMES)
HASHED_IF_ANY = ("marks", "after_gap")  # left out of the hash where none is true
STEP_TYPES = {"i": "int64", "u": "int64", "f": "float64", "M": "datetime64[ns]", "m": "timedelta64[ns]"}
LONGEST_NAME = 256  # characters of an episode's name, or of a step's
ROUNDING = 1e-5  # tolerance: an action this far outside [-1, 1] counts as a rounding error


@dataclass(frozen=True, eq=False, init=False, repr=False)
class Trajectories:
    """Episodes of any length. The arrays are checked, copied and made read-only on construction.

    With `owned=True`, float32 matrices that nobody else holds are taken over without a copy.

    Actions are scaled to [-1, 1]; `action_low` and `action_high` are the bounds they were recorded with, and
    `recorded_actions` undoes the scaling. `final_observations` holds the observation after the last action
    of each episode that has one (`has_final`), and zeros for the others. `marks` are the steps at which an
    incident is known to have happened; an incident without a mark is one whose moment nobody noted.
    `after_gap` is true at the first step after a gap in the log, which no segment crosses. Actions that are
    choices have `action_categories`: one column each, 1 for the choice taken and -1 for the others.

    >>> walk = Trajectories(observations=np.zeros((5, 3)), actions=np.zeros((5, 1)), lengths=[2, 3])
    >>> walk
    Trajectories(2 episodes of 2 to 3 steps, 3 observed, 1 action)
    >>> walk.take([1]).steps
    3
    """

    observations: Floats  # (steps, S)
    actions: Floats  # (steps, A), in [-1, 1]
    lengths: Ints  # (episodes,), each at least 1
    final_observations: Floats  # (episodes, S)
    has_final: Bools  # (episodes,)
    terminated: Bools  # (episodes,): the task itself ended the episode, not a time limit
    action_low: Doubles  # (A,)
    action_high: Doubles  # (A,)
    ids: npt.NDArray[Any]  # (episodes,) int64 or str: name of the episode in its file
    first_steps: Ints  # (episodes,): number of the first step in its file
    marks: Bools  # (steps,)
    after_gap: Bools  # (steps,)
    step_values: npt.NDArray[Any] | None  # (steps,) the log's own steps; None if they are `step_numbers`
    step_zone: str | None  # time zone of `step_values`, which are in UTC
    observation_names: tuple[str, ...] | None  # one per column; None if the log has no names
    action_names: tuple[str, ...] | None
    action_categories: tuple[str, ...] | None  # the choices as logged, one per column; None if continuous
    reading: "Options | None"  # how a table was read, for a run that reads others in the same way

    def __init__(
        self,
        observations: npt.ArrayLike,
        actions: npt.ArrayLike,
        lengths: npt.ArrayLike,
        final_observations: npt.ArrayLike | None = None,
        has_final: npt.ArrayLike | None = None,
        terminated: npt.ArrayLike | None = None,
        action_low: npt.ArrayLike | None = None,
        action_high: npt.ArrayLike | None = None,
        ids: npt.ArrayLike | None = None,
        first_steps: npt.ArrayLike | None = None,
        marks: npt.ArrayLike | None = None,
        after_gap: npt.ArrayLike | None = None,
        step_values: npt.ArrayLike | None = None,
        step_zone: str | None = None,
        observation_names: Sequence[str] | None = None,
        action_names: Sequence[str] | None = None,
        action_categories: Sequence[str] | None = None,
        reading: "Options | None" = None,
        *,
        owned: bool = False,
    ) -> None:
        def keep(name: str, array: npt.NDArray[Any]) -> None:
            array.setflags(write=False)
            object.__setattr__(self, name, array)

        keep("observations", _matrix("observations", observations, owned=owned))
        unclipped = _matrix("actions", actions, owned=owned)
        object.__setattr__(self, "actions", unclipped)
        if len(self.observations) != len(self.actions):
            raise InputError(
                f"need one action for each observation, got {len(self.observations)} observations and "
                f"{len(self.actions)} actions; put an episode's last observation in `final_observations`."
            )
        keep("lengths", _lengths(lengths, self.steps, f"there are {self.steps} observations"))
        episodes = len(self.lengths)
        for name, flags in (("marks", marks), ("after_gap", after_gap)):
            keep(name, _booleans(name, np.zeros(self.steps, bool) if flags is None else flags))
            if len(getattr(self, name)) != self.steps:
                got = f"{len(getattr(self, name))} for {self.steps}"
                raise InputError(f"need one entry of `{name}` per step, got {got}.")

        def per_episode(values: npt.ArrayLike | None, default: object) -> npt.ArrayLike:
            return np.full(episodes, default) if values is None else values

        given = final_observations is not None
        finals = (
            np.zeros((episodes, self.observation_size)) if final_observations is None else final_observations
        )
        keep("final_observations", _matrix("final_observations", finals))
        keep("has_final", _booleans("has_final", per_episode(has_final, given)))
        keep("terminated", _booleans("terminated", per_episode(terminated, False)))
        keep("first_steps", _integers("first_steps", per_episode(first_steps, 0)))
        keep("ids", _ids(np.arange(episodes) if ids is None else ids))
        keep("action_low", _bound("action_low", action_low, -1, self.action_size))
        keep("action_high", _bound("action_high", action_high, 1, self.action_size))
        for kind, names, size in (
            ("observation_names", observation_names, self.observation_size),
            ("action_names", action_names, self.action_size),
            ("action_categories", action_categories, self.action_size),
        ):
            object.__setattr__(self, kind, None if names is None else _column_names(kind, names, size))
        object.__setattr__(self, "step_values", _step_values(step_values, self.steps))
        object.__setattr__(self, "step_zone", step_zone)
        object.__setattr__(self, "reading", reading)
        self._check_per_episode(given)
        self._check_step_numbers()
        check_bounds(self.action_low, self.action_high)
        keep("final_observations", np.where(self.has_final[:, None], self.final_observations, np.float32(0)))
        self._check_finite()
        self._check_unit_box()
        keep("actions", np.clip(unclipped, np.float32(-1), np.float32(1), out=unclipped))

    def _check_per_episode(self, given_finals: bool) -> None:
        for name in PER_EPISODE:
            if len(getattr(self, name)) != len(self):
                got = f"{len(getattr(self, name))} for {len(self)} episodes"
                raise InputError(f"need one entry of `{name}` per episode, got {got}.")
        if self.final_observations.shape[1] != self.observation_size:
            raise InputError(
                f"final observations are {self.final_observations.shape[1]} wide, "
                f"the other observations {self.observation_size}."
            )
        if self.has_final.any() and not given_finals:
            raise InputError("`has_final` is true, but there are no `final_observations`; give them too.")

    def _check_step_numbers(self) -> None:
        most = np.iinfo(np.int64).max - self.steps
        if self.first_steps.max() > most:
            raise InputError(
                f"`first_steps` must be at most {most}, so that int64 can number every step, got "
                f"{self.first_steps.max()}."
            )

    def _check_finite(self) -> None:
        observed, acted = self.observation_names, self.action_names
        check_finite("observations", self.observations, self.where, observed)
        check_finite("actions", self.actions, self.where, acted)
        ends = self.final_observations
        check_finite("final_observations", ends, lambda row: f"the end of episode {self.ids[row]}", observed)

    def _check_unit_box(self) -> None:
        largest = 1 + ROUNDING
        if self.actions.min() < -largest or self.actions.max() > largest:
            row, column = first_true(np.abs(self.actions) > largest)
            raise InputError(
                f"actions must lie in [-1, 1], but {_label(self.action_names, column)} is "
                f"{self.actions[row, column]:g} at "
                f"{self.where(row)}; rescale them from their recorded bounds (`safemil.data.scaled_actions`)."
            )

    def __len__(self) -> int:
        return len(self.lengths)

    def __repr__(self) -> str:
        low, high = self.lengths.min(), self.lengths.max()
        steps = f"{low}" if low == high else f"{low} to {high}"
        return (
            f"Trajectories({_count(len(self), 'episode')} of {steps} steps, "
            f"{self.observation_size} observed, {_count(self.action_size, 'action')})"
        )

    @property
    def episodes(self) -> int:
        return len(self.lengths)

    @property
    def steps(self) -> int:
        return len(self.observations)

    @property
    def starts(self) -> Ints:
        """Row of each episode's first step, (episodes,)."""
        return starts_of(self.lengths)

    @property
    def observation_size(self) -> int:
        return int(self.observations.shape[1])

    @property
    def action_size(self) -> int:
        return int(self.actions.shape[1])

    @property
    def episode_of_step(self) -> Ints:
        """Number of the episode each row belongs to, (steps,)."""
        return np.repeat(np.arange(len(self)), self.lengths)

    @property
    def step_numbers(self) -> Ints:
        """Number of each step in its file, (steps,)."""
        return np.arange(self.steps) + np.repeat(self.first_steps - self.starts, self.lengths)

    @property
    def logged_steps(self) -> npt.NDArray[Any]:
        """Step of each row as in its file: `step_values`, else `step_numbers`, (steps,)."""
        return self.step_numbers if self.step_values is None else self.step_values

    @property
    def column_names(self) -> list[str]:
        """Names of the observation columns, then of the action columns; numbered if they have none."""
        return column_labels(
            self.observation_names, self.observation_size, self.action_names, self.action_size
        )

    def where(self, row: int) -> str:
        """Episode and step of a row, as named in the file."""
        episode = int(np.searchsorted(self.starts, row, side="right")) - 1
        number = self.first_steps[episode] + row - self.starts[episode]
        step = number if self.step_values is None else spelled(self.step_values[row], self.step_zone)
        return f"episode {self.ids[episode]}, step {step}"

    def blocks(self) -> "Iterator[Trajectories]":
        """All episodes at once; those of a store come in several blocks."""
        yield self

    def by_episode(self, values: npt.NDArray[Any]) -> list[npt.NDArray[Any]]:
        """Cut an array with one entry per step into one array per episode."""
        return np.split(values, self.starts[1:])

    def recorded_actions(self) -> Doubles:
        """Actions in the units of the log, (steps, A)."""
        return recorded_actions(self.actions, self.action_low, self.action_high)

    def take(self, episodes: npt.ArrayLike) -> "Trajectories":
        """Select episodes by number, in the given order."""
        chosen = _chosen(episodes, len(self))
        rows = rows_of(self.lengths, chosen)
        return Trajectories(
            **{name: getattr(self, name)[rows] for name in PER_STEP},
            **{name: getattr(self, name)[chosen] for name in PER_EPISODE},
            **{name: getattr(self, name) for name in SHARED},
            step_values=None if self.step_values is None else self.step_values[rows],
            owned=True,
        )

    def select_columns(self, observations: Sequence[int], actions: Sequence[int]) -> "Trajectories":
        """Select columns by number, in the given order."""
        chosen = {"observation_names": observations, "action_names": actions, "action_categories": actions}
        named = {
            kind: None if (names := getattr(self, kind)) is None else [names[i] for i in columns]
            for kind, columns in chosen.items()
        }
        wide = {name: getattr(self, name)[:, observations] for name in ("observations", "final_observations")}
        bounds = {name: getattr(self, name)[list(actions)] for name in ("action_low", "action_high")}
        return self._rebuilt(**wide, **bounds, **named, actions=self.actions[:, actions])

    def with_choices(self, categories: Sequence[str], names: Sequence[str] | None) -> "Trajectories":
        """Give actions that are choices these columns; categories that are not among ours are never taken."""
        ours = self.action_categories or ()
        columns = [ours.index(each) if each in ours else len(ours) for each in categories]
        never = np.full((self.steps, 1), -1, np.float32)
        return self._rebuilt(
            actions=np.hstack([self.actions, never])[:, columns],
            action_low=-1,
            action_high=1,
            action_names=names,
            action_categories=categories,
        )

    def _rebuilt(self, **changes: Any) -> "Trajectories":
        own = {name: getattr(self, name) for name in (*PER_STEP, *PER_EPISODE, *SHARED, "step_values")}
        return Trajectories(**own | changes)

    def read_with(self, reading: "Options") -> "Trajectories":
        """Return the same episodes with another note of how they were read."""
        made = copy.copy(self)
        object.__setattr__(made, "reading", reading)
        return made

    def marked(self, marks: npt.ArrayLike) -> "Trajectories":
        """Return the same episodes with other marks, (steps,)."""
        return self._with("marks", _booleans("marks", marks), self.steps)

    def renamed(self, ids: npt.ArrayLike) -> "Trajectories":
        """Return the same episodes with other names, (episodes,)."""
        return self._with("ids", _ids(ids), len(self))

    def _with(self, name: str, values: npt.NDArray[Any], count: int) -> "Trajectories":
        if len(values) != count:
            raise InputError(f"need {count} entries of `{name}`, got {len(values)}.")
        made, kept = copy.copy(self), values.copy()
        kept.setflags(write=False)
        object.__setattr__(made, name, kept)
        return made

    @staticmethod
    def concatenate(parts: "Sequence[Trajectories]") -> "Trajectories":
        """Join the episodes of all parts; if two have the same name, all are numbered instead."""
        if not parts:
            raise InputError("need at least one part to concatenate, got none.")
        _check_alike(parts)
        joined: dict[str, Any] = {
            name: np.concatenate([getattr(part, name) for part in parts]) for name in PER_STEP + PER_EPISODE
        }
        if len(np.unique(joined["ids"])) < len(joined["ids"]):
            del joined["ids"]
        return Trajectories(
            **joined,
            **{name: getattr(parts[0], name) for name in SHARED},
            step_values=_joined_steps(parts),
            owned=True,
        )

    def content_hash(self) -> str:
        """SHA-256 of the arrays in `CONTENT`, and of `marks` and `after_gap` if there are any.

        It is the same in every format and for any names of episodes, steps and columns.
        """
        names = [*CONTENT, *(name for name in HASHED_IF_ANY if getattr(self, name).any())]
        return digest({name: getattr(self, name) for name in names})


@dataclass(frozen=True, eq=False, init=False, repr=False)
class Annotations:
    """Reward and cost of each step. Only algorithms that declare the need are given them.

    >>> marks = Annotations(rewards=[1, 1, 5], costs=[0, 1, 0])
    >>> marks.episode_sums([2, 1])
    (array([2., 5.]), array([1., 0.]))
    """

    rewards: Floats  # (steps,)
    costs: Floats  # (steps,)

    def __init__(self, rewards: npt.ArrayLike, costs: npt.ArrayLike) -> None:
        for name, values in (("rewards", rewards), ("costs", costs)):
            column = _matrix(name, np.asarray(values)[..., None])
            check_finite(name, column, lambda row: f"row {row}", [name])
            array = column[:, 0]
            array.setflags(write=False)
            object.__setattr__(self, name, array)
        if len(self.rewards) != len(self.costs):
            raise InputError(f"need a cost for each reward, got {len(self.costs)} and {len(self.rewards)}.")

    def __len__(self) -> int:
        return len(self.rewards)

    def __repr__(self) -> str:
        return f"Annotations({_count(len(self), 'step')})"

    def episode_sums(self, lengths: npt.ArrayLike) -> tuple[Doubles, Doubles]:
        """Undiscounted return and total cost of each episode."""
        starts = starts_of(self._lengths(lengths))
        sums = [np.add.reduceat(each, starts, dtype=np.float64) for each in (self.rewards, self.costs)]
        return sums[0], sums[1]

    def take(self, lengths: npt.ArrayLike, episodes: npt.ArrayLike) -> Self:
        """Select the rewards and costs of episodes by number, in the given order."""
        lengths = self._lengths(lengths)
        rows = rows_of(lengths, _chosen(episodes, len(lengths)))
        return type(self)(self.rewards[rows], self.costs[rows])

    def content_hash(self) -> str:
        """SHA-256 of both arrays."""
        return digest({"rewards": self.rewards, "costs": self.costs})

    def _lengths(self, lengths: npt.ArrayLike) -> Ints:
        return _lengths(lengths, len(self), f"{len(self)} steps are annotated")


def spelled(step: Any, zone: str | None) -> str:
    """Spell a step for a reader; a time in its own zone and without empty fractions.

    >>> spelled(np.datetime64("2026-03-01T08:00:00.500000000"), "Europe/Berlin")
    '2026-03-01T09:00:00.500+0100'
    """
    if not isinstance(step, np.datetime64):
        return str(step)
    if zone is None:
        return str(np.datetime_as_string(step, unit="auto"))
    try:
        return str(np.datetime_as_string(step, unit="auto", timezone=ZoneInfo(zone)))
    except (KeyError, ValueError, OSError):  # an offset such as "+01:00", or a zone that is not known here
        return str(np.datetime_as_string(step, unit="auto", timezone="UTC"))


def is_constant(deviation: Doubles, largest: Doubles) -> Bools:
    """Whether columns vary within rounding of their largest magnitude, whatever their unit."""
    return ~(deviation > np.maximum(1e-6 * largest, np.finfo(np.float32).tiny))


def starts_of(lengths: Ints) -> Ints:
    """First row of each episode."""
    return np.cumsum(lengths) - lengths


def rows_of(lengths: Ints, episodes: Ints) -> Ints:
    """Rows of the given episodes, concatenated."""
    taken = lengths[episodes]
    return np.arange(taken.sum()) + np.repeat(starts_of(lengths)[episodes] - starts_of(taken), taken)


def scaled_actions(actions: npt.ArrayLike, low: npt.ArrayLike, high: npt.ArrayLike) -> Doubles:
    """Map [low, high] onto [-1, 1].

    >>> scaled_actions([[0.0], [5.0]], low=[0.0], high=[10.0]).ravel()
    array([-1.,  0.])
    """
    middle, half = _middle_and_half(low, high)
    return np.asarray((np.asarray(actions, np.float64) - middle) / half)


def recorded_actions(actions: npt.ArrayLike, low: npt.ArrayLike, high: npt.ArrayLike) -> Doubles:
    """Map [-1, 1] onto [low, high], the inverse of `scaled_actions`.

    The result is float64, so that float32 actions are the same bits after being written and read again.
    """
    middle, half = _middle_and_half(low, high)
    return np.asarray(middle + half * np.asarray(actions, np.float64))


def check_bounds(low: Doubles, high: Doubles) -> None:
    """Refuse bounds that are not finite or not in order."""
    bad = ~(np.isfinite(low) & np.isfinite(high) & (low < high))
    if bad.any():
        column = int(np.argmax(bad))
        raise InputError(
            f"action bounds must be finite with low < high, got {low[column]:g} and {high[column]:g} "
            f"for action column {column}."
        )


def check_finite(
    what: str, values: npt.NDArray[Any], where: Callable[[int], str], names: Sequence[str] | None = None
) -> None:
    """Refuse NaN and infinity in (rows, columns), and name the first one's column and row."""
    with np.errstate(over="ignore", invalid="ignore"):
        if np.isfinite(values.sum()):  # one pass without further memory; large numbers may add up to infinity
            return
    finite = np.isfinite(values)
    if not finite.all():
        row, column = first_true(~finite)
        raise InputError(
            f"{what} must be finite numbers that float32 can hold, but {_label(names, column)} is "
            f"{values[row, column]} at "
            f"{where(row)}; correct it, or leave the episode out."
        )


def column_labels(
    observed: Sequence[str] | None, observation_size: int, acted: Sequence[str] | None, action_size: int
) -> list[str]:
    """Names of columns for a reader: "observation 0", "action 0" and so on where there are none.

    >>> column_labels(["gap"], 1, None, 2)
    ['gap', 'action 0', 'action 1']
    """
    return [
        *(observed or (f"observation {i}" for i in range(observation_size))),
        *(acted or (f"action {i}" for i in range(action_size))),
    ]


def _label(names: Sequence[str] | None, column: int) -> str:
    return f"column {column}" if names is None else f'"{names[column]}"'


def first_true(matrix: Bools) -> tuple[int, int]:
    """Row and column of the first true entry."""
    row, column = np.argwhere(matrix)[0].tolist()
    return row, column


def digest(arrays: Mapping[str, npt.NDArray[Any]]) -> str:
    """SHA-256 of named arrays (types, shapes, little-endian bytes), the same on every machine."""
    hashed = hashlib.sha256()
    for name, array in arrays.items():
        little = np.ascontiguousarray(array, array.dtype.newbyteorder("<"))
        hashed.update(array_header(name, little.dtype, little.shape))
        hashed.update(little.data)
    return hashed.hexdigest()


def array_header(name: str, kind: np.dtype[Any], shape: tuple[int, ...]) -> bytes:
    """What precedes the bytes of an array in a content hash."""
    return f"{name} {kind.str} {shape};".encode()


def _middle_and_half(low: npt.ArrayLike, high: npt.ArrayLike) -> tuple[Doubles, Doubles]:
    # Bounds are halved before they are added, so that large ones don't overflow.
    low, high = np.asarray(low, np.float64) / 2, np.asarray(high, np.float64) / 2
    return high + low, high - low


def _matrix(name: str, values: npt.ArrayLike, *, owned: bool = False) -> Floats:
    try:
        with np.errstate(over="ignore"):  # numbers too large for float32 become inf; check_finite refuses it
            array = np.array(values, dtype=np.float32, order="C", copy=None if owned else True)
            array += np.float32(0)  # -0 becomes 0, so that equal numbers have equal bytes and hashes
    except (TypeError, ValueError) as error:
        raise InputError(f"{name} must be rows of numbers of one width: {error}.") from error
    if array.ndim != 2 or not array.shape[1]:
        raise InputError(
            f"{name} must have one row per step, each at least one wide; got shape {array.shape}."
        )
    return array


def _lengths(values: npt.ArrayLike, steps: int, held: str) -> Ints:
    """Check that episode lengths are positive and add up to the number of steps."""
    lengths = _integers("lengths", values)
    if not len(lengths):
        raise InputError("need at least one episode, got none.")
    if lengths.min() < 1:
        raise InputError(
            f"episode number {lengths.argmin()} has {lengths.min()} steps; "
            "every episode needs at least one: leave it out."
        )
    total = sum(lengths.tolist())  # Python's integers, since a sum in int64 can wrap around
    if total != steps:
        raise InputError(f"the lengths add up to {total} steps, but {held}; correct the lengths.")
    return lengths


def _integers(name: str, values: npt.ArrayLike) -> Ints:
    array = _vector(name, values, "iu", "whole numbers that int64 can hold")
    if array.size and array.max() > np.iinfo(np.int64).max:
        raise InputError(f"{name} must be whole numbers that int64 can hold, got {array.max()}.")
    return array.astype(np.int64)


def _booleans(name: str, values: npt.ArrayLike) -> Bools:
    flags = _vector(name, values, "b", "true and false").astype(np.bool_)
    return flags.view(np.uint8) != 0  # a damaged file may hold true as another byte than 1


def check_name_length(longest: int) -> None:
    """Refuse long names of episodes and steps: NumPy gives each the space of the longest one."""
    if longest > LONGEST_NAME:
        raise InputError(
            f"a name of an episode or a step may have {LONGEST_NAME} characters, but one has {longest}; "
            "shorten it."
        )


def _ids(values: npt.ArrayLike) -> npt.NDArray[Any]:
    wanted = "whole numbers or of text"
    array = _vector("ids", values, "iuUTO", wanted)
    return _integers("ids", array) if array.dtype.kind in "iu" else _texts("ids", array, wanted)


def _texts(name: str, array: npt.NDArray[Any], wanted: str) -> npt.NDArray[np.str_]:
    """Convert to NumPy's text, of a length that fits the memory and of characters that UTF-8 can hold."""
    if array.dtype.kind == "O" and not all(isinstance(each, str) for each in array):
        raise InputError(f"{name} must be an array of {wanted}, got other objects.")
    check_name_length(max(map(len, array)) if array.dtype.kind in "TO" and array.size else 0)
    texts = np.ascontiguousarray(array, np.str_)
    check_name_length(texts.dtype.itemsize // 4)
    codes = texts.view(np.uint32) if texts.dtype.itemsize else np.zeros(0, np.uint32)
    if ((codes >= 0xD800) & (codes < 0xE000)).any():
        raise InputError(f"{name} must be text that UTF-8 can hold, but one has half of a surrogate pair.")
    return texts


def _step_values(values: npt.ArrayLike | None, steps: int) -> npt.NDArray[Any] | None:
    if values is None:
        return None
    wanted = "numbers, times, durations or text"
    array = _vector("step_values", values, "iufMmUTO", wanted)
    if len(array) != steps:
        raise InputError(f"need one entry of `step_values` per step, got {len(array)} for {steps}.")
    kind = STEP_TYPES.get(array.dtype.kind)
    kept = _texts("step_values", array, wanted) if kind is None else array.astype(kind)
    kept.setflags(write=False)
    return kept


def _joined_steps(parts: Sequence[Trajectories]) -> npt.NDArray[Any] | None:
    """Steps of all parts as logged; None if each part only numbers them."""
    if all(part.step_values is None for part in parts):
        return None
    steps = [part.logged_steps for part in parts]
    if len({each.dtype.kind for each in steps}) > 1:
        steps = [each.astype(np.str_) for each in steps]
    return np.concatenate(steps)


def _vector(name: str, values: npt.ArrayLike, kinds: str, wanted: str) -> npt.NDArray[Any]:
    """Convert to an array of one dimension, with one of these kinds of NumPy's types."""
    if isinstance(values, Sequence):
        check_name_length(max((len(each) for each in values if isinstance(each, str)), default=0))
    try:
        array = np.asarray(values)
    except ValueError as error:
        raise InputError(f"{name} must be an array of {wanted}: {error}.") from error
    if array.ndim != 1 or (array.size and array.dtype.kind not in kinds):
        raise InputError(f"{name} must be an array of {wanted}, got {array.dtype} of shape {array.shape}.")
    return array


def _column_names(kind: str, names: Sequence[str], size: int) -> tuple[str, ...]:
    found = tuple(names) if isinstance(names, Sequence) and not isinstance(names, str) else ()
    if len(found) != size or not all(isinstance(name, str) for name in found):
        raise InputError(f"need {size} texts in `{kind}`, one per column, got {names!r}.")
    repeated = sorted({name for name in found if found.count(name) > 1})
    if repeated:
        raise InputError(f'each column needs a name of its own, but "{repeated[0]}" is in `{kind}` twice.')
    return found


def _bound(name: str, values: npt.ArrayLike | None, default: float, size: int) -> Doubles:
    array = np.asarray(default if values is None else values, np.float64)
    if array.shape not in ((), (1,), (size,)):
        raise InputError(
            f"{name} must be one number or {size}, one per action column; got shape {array.shape}."
        )
    return np.broadcast_to(array, (size,)).copy()


def _chosen(episodes: npt.ArrayLike, count: int) -> Ints:
    chosen = _integers("episode numbers", episodes)
    if chosen.size and (chosen.min() < 0 or chosen.max() >= count):
        raise InputError(f"episode numbers go from 0 to {count - 1}, got {chosen.min()} to {chosen.max()}.")
    return chosen


def _check_alike(parts: Sequence[Trajectories]) -> None:
    first = parts[0]
    for part in parts[1:]:
        ours, theirs = ((p.observation_size, p.action_size) for p in (first, part))
        if ours != theirs:
            raise InputError(
                f"parts must be equally wide (columns of observations, of actions), got {ours} and {theirs}."
            )
        if (first.action_low != part.action_low).any() or (first.action_high != part.action_high).any():
            raise InputError(
                f"parts must have the same action bounds, got {first.action_low} to {first.action_high} "
                f"and {part.action_low} to {part.action_high}."
            )
        for kind in NAMES:
            if getattr(first, kind) != getattr(part, kind):
                raise InputError(
                    f"parts must have the same columns in the same order, got `{kind}` "
                    f"{getattr(first, kind)} and {getattr(part, kind)}."
                )


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
