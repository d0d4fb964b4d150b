"""Episodes of any length, laid end to end, and what is known about them in hindsight.

Rewards and costs live in a type of their own, `Annotations`: a learner is given `Trajectories` and
can't see them by accident.
"""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from safemil.errors import InputError
from safemil.typing import Bools, Doubles, Floats, Ints

CONTENT = (  # what is learned from; names and numbers of episodes and steps are not
    "observations",
    "actions",
    "lengths",
    "final_observations",
    "has_final",
    "terminated",
    "action_low",
    "action_high",
)
ROUNDING = 1e-5  # how far outside its bounds an action may lie and still be called rounded


@dataclass(frozen=True, eq=False, init=False, repr=False)
class Trajectories:
    """E episodes of any length, checked, copied and made read-only on construction.

    Actions are held in [-1, 1]; `action_low` and `action_high` are the bounds they were recorded with,
    and `recorded_actions` goes back. An episode whose log ends with an observation after its last
    action has it in `final_observations` (zeros elsewhere, see `has_final`).

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
    terminated: Bools  # (episodes,): ended by the task itself, not by a time limit
    action_low: Doubles  # (A,)
    action_high: Doubles  # (A,)
    ids: npt.NDArray[Any]  # (episodes,) int64 or str: the episode's name in its file
    first_steps: Ints  # (episodes,): number of the first step in its file

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
    ) -> None:
        def keep(name: str, array: npt.NDArray[Any]) -> None:
            array.setflags(write=False)
            object.__setattr__(self, name, array)

        keep("observations", _matrix("observations", observations))
        keep("actions", _matrix("actions", actions))
        keep("lengths", _whole("lengths", lengths))
        self._check_lengths()
        episodes, given = len(self.lengths), final_observations is not None

        def per_episode(values: npt.ArrayLike | None, default: object) -> npt.ArrayLike:
            return np.full(episodes, default) if values is None else values

        finals = (
            np.zeros((episodes, self.observation_size)) if final_observations is None else final_observations
        )
        keep("final_observations", _matrix("final_observations", finals))
        keep("has_final", _flags("has_final", per_episode(has_final, given)))
        keep("terminated", _flags("terminated", per_episode(terminated, False)))
        keep("first_steps", _whole("first_steps", per_episode(first_steps, 0)))
        keep("ids", _names(np.arange(episodes) if ids is None else ids))
        keep("action_low", _bound("action_low", action_low, -1, self.action_size))
        keep("action_high", _bound("action_high", action_high, 1, self.action_size))
        self._check_per_episode(given)
        check_bounds(self.action_low, self.action_high)
        keep("final_observations", np.where(self.has_final[:, None], self.final_observations, np.float32(0)))
        self._check_finite()
        keep("actions", self._rounded_actions())

    def _check_lengths(self) -> None:
        if len(self.observations) != len(self.actions):
            raise InputError(
                f"need one action for each observation, got {len(self.observations)} observations and "
                f"{len(self.actions)} actions; put an episode's last observation in `final_observations`."
            )
        if not len(self.lengths):
            raise InputError("need at least one episode, got none.")
        if self.lengths.min() < 1:
            raise InputError(
                f"episode number {int(self.lengths.argmin())} has {self.lengths.min()} steps; "
                "every episode needs at least one: leave it out."
            )
        if self.lengths.sum() != len(self.observations):
            raise InputError(
                f"the lengths add up to {self.lengths.sum()} steps, but there are {self.steps} observations."
            )

    def _check_per_episode(self, given_finals: bool) -> None:
        for name in ("ids", "first_steps", "terminated", "has_final", "final_observations"):
            if len(getattr(self, name)) != len(self):
                got = f"{len(getattr(self, name))} for {len(self)} episodes"
                raise InputError(f"need one entry of `{name}` per episode, got {got}.")
        if self.final_observations.shape[1] != self.observation_size:
            raise InputError(
                f"final observations are {self.final_observations.shape[1]} wide, "
                f"the other observations {self.observation_size}."
            )
        if self.has_final.any() and not given_finals:
            raise InputError("`has_final` is set, but there are no `final_observations`.")

    def _check_finite(self) -> None:
        for name in ("observations", "actions", "final_observations"):
            values = getattr(self, name)
            if not np.isfinite(values).all():
                row, column = (int(i) for i in np.argwhere(~np.isfinite(values))[0])
                where = f"the end of episode {self.ids[row]}" if name.startswith("final") else self.where(row)
                raise InputError(
                    f"{name} must be finite numbers that float32 can hold, but column {column} is "
                    f"{values[row, column]} at {where}; mend it, or leave the episode out."
                )

    def _rounded_actions(self) -> Floats:
        far = np.abs(self.actions) > 1 + ROUNDING
        if far.any():
            row, column = (int(i) for i in np.argwhere(far)[0])
            raise InputError(
                f"actions must lie in [-1, 1], but column {column} is {self.actions[row, column]:g} at "
                f"{self.where(row)}; rescale them from their recorded bounds (`safemil.data.scaled_actions`)."
            )
        return np.clip(self.actions, np.float32(-1), np.float32(1))

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
        """What each row's step is called in its file, (steps,)."""
        return np.arange(self.steps) + np.repeat(self.first_steps - self.starts, self.lengths)

    def where(self, row: int) -> str:
        """The file's own words for a row."""
        episode = int(np.searchsorted(self.starts, row, side="right")) - 1
        return f"episode {self.ids[episode]}, step {self.first_steps[episode] + row - self.starts[episode]}"

    def by_episode(self, values: npt.NDArray[Any]) -> list[npt.NDArray[Any]]:
        """Cut an array with one entry per step into one array per episode."""
        return np.split(values, self.starts[1:])

    def recorded_actions(self) -> Doubles:
        """Actions in the units of the log, (steps, A)."""
        return recorded_actions(self.actions, self.action_low, self.action_high)

    def take(self, episodes: npt.ArrayLike) -> "Trajectories":
        """The episodes with these numbers, in this order."""
        chosen = _chosen(episodes, len(self))
        rows = rows_of(self.lengths, chosen)
        return Trajectories(
            observations=self.observations[rows],
            actions=self.actions[rows],
            lengths=self.lengths[chosen],
            final_observations=self.final_observations[chosen],
            has_final=self.has_final[chosen],
            terminated=self.terminated[chosen],
            action_low=self.action_low,
            action_high=self.action_high,
            ids=self.ids[chosen],
            first_steps=self.first_steps[chosen],
        )

    @staticmethod
    def concatenate(parts: "Sequence[Trajectories]") -> "Trajectories":
        """All episodes of all parts; they are numbered anew if two parts use the same name for an episode."""
        if not parts:
            raise InputError("need at least one part to concatenate, got none.")
        _check_alike(parts)
        ids = np.concatenate([part.ids for part in parts])
        fields = (
            "observations",
            "actions",
            "lengths",
            "final_observations",
            "has_final",
            "terminated",
            "first_steps",
        )
        return Trajectories(
            **{name: np.concatenate([getattr(part, name) for part in parts]) for name in fields},
            action_low=parts[0].action_low,
            action_high=parts[0].action_high,
            ids=ids if len(np.unique(ids)) == len(ids) else None,
        )

    def content_hash(self) -> str:
        """SHA-256 of what is learned from, the same in every format and whatever the episodes are called."""
        return digest({name: getattr(self, name) for name in CONTENT})


@dataclass(frozen=True, eq=False, init=False, repr=False)
class Annotations:
    """Rewards and costs of each step, which no learner sees unless it asks.

    >>> marks = Annotations(rewards=[1, 1, 5], costs=[0, 1, 0])
    >>> marks.episode_sums([2, 1])
    (array([2., 5.]), array([1., 0.]))
    """

    rewards: Floats  # (steps,)
    costs: Floats  # (steps,)

    def __init__(self, rewards: npt.ArrayLike, costs: npt.ArrayLike) -> None:
        for name, values in (("rewards", rewards), ("costs", costs)):
            array = _matrix(name, np.asarray(values)[..., None])[:, 0]
            if not np.isfinite(array).all():
                row = int(np.argmin(np.isfinite(array)))
                raise InputError(
                    f"{name} must be finite numbers that float32 can hold: row {row} is {array[row]}."
                )
            array.setflags(write=False)
            object.__setattr__(self, name, array)
        if len(self.rewards) != len(self.costs):
            raise InputError(f"need a cost for each reward, got {len(self.costs)} and {len(self.rewards)}.")

    def __len__(self) -> int:
        return len(self.rewards)

    def __repr__(self) -> str:
        return f"Annotations({_count(len(self), 'step')})"

    def episode_sums(self, lengths: npt.ArrayLike) -> tuple[Doubles, Doubles]:
        """Return and total cost of each episode, undiscounted."""
        lengths = _whole("lengths", lengths)
        if lengths.sum() != len(self):
            raise InputError(f"the episodes have {lengths.sum()} steps, but {len(self)} steps are annotated.")
        starts = starts_of(lengths)
        sums = [np.add.reduceat(each, starts, dtype=np.float64) for each in (self.rewards, self.costs)]
        return sums[0], sums[1]

    def take(self, lengths: npt.ArrayLike, episodes: npt.ArrayLike) -> Self:
        """Those of the episodes with these numbers, in this order."""
        lengths = _whole("lengths", lengths)
        rows = rows_of(lengths, _chosen(episodes, len(lengths)))
        return type(self)(self.rewards[rows], self.costs[rows])

    def content_hash(self) -> str:
        """SHA-256 of both arrays."""
        return digest({"rewards": self.rewards, "costs": self.costs})


def starts_of(lengths: Ints) -> Ints:
    """First row of each episode."""
    return np.cumsum(lengths) - lengths


def rows_of(lengths: Ints, episodes: Ints) -> Ints:
    """Rows of these episodes, one after the other."""
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
    """Map [-1, 1] onto [low, high]: the way back from `scaled_actions`.

    In float64, so that float32 actions of a log survive being written and read again unchanged.
    """
    middle, half = _middle_and_half(low, high)
    return np.asarray(middle + half * np.asarray(actions, np.float64))


def check_bounds(low: Doubles, high: Doubles) -> None:
    """Refuse bounds that can't hold an action."""
    good = np.isfinite(low) & np.isfinite(high) & (low < high)
    if not good.all():
        column = int(np.argmin(good))
        raise InputError(
            f"action bounds must be finite with low < high, got {low[column]:g} and {high[column]:g} "
            f"for action column {column}."
        )


def digest(arrays: Mapping[str, npt.NDArray[Any]]) -> str:
    """SHA-256 of named arrays: their types, shapes and bytes, the same on every machine."""
    found = hashlib.sha256()
    for name, array in arrays.items():
        little = np.ascontiguousarray(array, array.dtype.newbyteorder("<"))
        found.update(f"{name} {little.dtype.str} {little.shape};".encode())
        found.update(little.data)
    return found.hexdigest()


def _middle_and_half(low: npt.ArrayLike, high: npt.ArrayLike) -> tuple[Doubles, Doubles]:
    # Halved before they are added, so that huge bounds don't overflow.
    low, high = np.asarray(low, np.float64) / 2, np.asarray(high, np.float64) / 2
    return high + low, high - low


def _matrix(name: str, values: npt.ArrayLike) -> Floats:
    try:
        with np.errstate(
            over="ignore"
        ):  # what float32 can't hold becomes inf, which is refused with its place
            array = np.array(values, dtype=np.float32, order="C")
            array += np.float32(0)  # -0 becomes 0: equal numbers have equal bytes, so equal hashes
    except (TypeError, ValueError) as error:
        raise InputError(f"{name} must be rows of numbers of one width: {error}.") from error
    if array.ndim != 2 or not array.shape[1]:
        raise InputError(
            f"{name} must have one row per step, each at least one wide; got shape {array.shape}."
        )
    return array


def _whole(name: str, values: npt.ArrayLike) -> Ints:
    array = np.asarray(values)
    if array.ndim != 1 or (array.size and array.dtype.kind not in "iu"):
        raise InputError(f"{name} must be a row of whole numbers, got {array.dtype} of shape {array.shape}.")
    return array.astype(np.int64)


def _flags(name: str, values: npt.ArrayLike) -> Bools:
    array = np.asarray(values)
    if array.ndim != 1 or array.dtype.kind != "b":
        raise InputError(f"{name} must be a row of true and false, got {array.dtype} of shape {array.shape}.")
    return array.astype(np.bool_)


def _names(values: npt.ArrayLike) -> npt.NDArray[Any]:
    array = np.asarray(values)
    if array.ndim == 1 and array.dtype.kind in "iu":
        return array.astype(np.int64)
    if array.ndim == 1 and all(isinstance(each, str) for each in array):
        return array.astype(np.str_)
    raise InputError(
        f"ids must be a row of whole numbers or of text, got {array.dtype} of shape {array.shape}."
    )


def _bound(name: str, values: npt.ArrayLike | None, default: float, size: int) -> Doubles:
    array = np.asarray(default if values is None else values, np.float64)
    if array.shape not in ((), (1,), (size,)):
        raise InputError(
            f"{name} must be one number or {size}, one per action column; got shape {array.shape}."
        )
    return np.broadcast_to(array, (size,)).copy()


def _chosen(episodes: npt.ArrayLike, count: int) -> Ints:
    chosen = _whole("episode numbers", episodes)
    if chosen.size and (chosen.min() < 0 or chosen.max() >= count):
        raise InputError(f"episode numbers go from 0 to {count - 1}, got {chosen.min()} to {chosen.max()}.")
    return chosen


def _check_alike(parts: Sequence[Trajectories]) -> None:
    first = parts[0]
    for part in parts[1:]:
        ours, theirs = ((p.observation_size, p.action_size) for p in (first, part))
        if ours != theirs:
            raise InputError(f"parts must be equally wide (observations, actions), got {ours} and {theirs}.")
        if (first.action_low != part.action_low).any() or (first.action_high != part.action_high).any():
            raise InputError(
                f"parts must have the same action bounds, got {first.action_low} to {first.action_high} "
                f"and {part.action_low} to {part.action_high}."
            )


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
