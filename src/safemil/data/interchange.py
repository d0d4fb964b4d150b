"""Types that readers return and writers take, and functions that several formats share."""

import json
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from safemil.arrays import Doubles
from safemil.data.trajectories import (
    ROUNDING,
    Annotations,
    Trajectories,
    check_bounds,
    check_finite,
    first_true,
    scaled_actions,
)
from safemil.errors import InputError

Bounds = tuple[npt.ArrayLike, npt.ArrayLike]  # lowest and highest action: one number each, or one per column
KINDS: dict[type, str] = {dict: "an object", int: "a whole number", list: "a list", str: "a text"}


@dataclass(frozen=True)
class Columns:
    """Names of the columns of a table.

    `observation` and `action` name one column of lists, or several columns of numbers: `"speed,gap"`,
    or `"obs_*"` for all that begin with `obs_`. The defaults are `observation` or else `obs_*`, and
    `action` or else `act_*`.
    """

    episode: str = "episode"
    step: str = "step"
    observation: str | None = None
    action: str | None = None
    reward: str = "reward"
    cost: str = "cost"
    terminated: str = "terminated"


@dataclass(frozen=True)
class Options:
    """Column names and action bounds that the caller gives to a reader."""

    columns: Columns = Columns()
    action_bounds: Bounds | None = None

    def refuse_columns(self, format: str) -> None:
        """Raise if column names were given for a format that has none."""
        if self.columns != Columns():
            raise InputError(f"column names are for tables (Parquet, CSV), but this is {format}; omit them.")


@dataclass(frozen=True)
class Contents:
    """Everything in a file. Rewards and costs are as found; `annotations` checks them."""

    trajectories: Trajectories
    rewards: npt.NDArray[Any] | None = None  # (steps,)
    costs: npt.NDArray[Any] | None = None  # (steps,)
    names: tuple[str, str] = ("rewards", "costs")  # names of rewards and costs in the file
    manifest: dict[str, Any] = field(default_factory=dict)  # origin of the episodes, kept by stores

    def annotations(self) -> Annotations:
        """Return rewards and costs; raise if they are missing or not finite."""
        found = []
        for name, values in zip(self.names, (self.rewards, self.costs), strict=True):
            if values is None:
                raise InputError(f'need rewards and costs for this, but there is no "{name}".')
            check_finite("rewards and costs", values[:, None], self.trajectories.where, [name])
            found.append(values)
        return Annotations(*found)


def begins_with(path: Path, magic: bytes) -> bool:
    """Whether a path is a file with these first bytes."""
    if not path.is_file():
        return False
    with open(path, "rb") as file:
        return file.read(len(magic)) == magic


@contextmanager
def damage_reported(what: str) -> Iterator[None]:
    """Turn whatever a library raises about a damaged file into an InputError that says what is damaged."""
    try:
        yield
    except InputError:
        raise
    except Exception as error:  # parsers of other projects raise anything, from KeyError to AssertionError
        reason = (str(error).splitlines() or [type(error).__name__])[0][:300]
        raise InputError(f"{what} is damaged or cut short: {reason}") from error


def json_object(text: str | bytes, what: str) -> dict[str, Any]:
    """Parse JSON whose top level is an object; `what` names it in errors."""
    with damage_reported(what):
        found = json.loads(text)
    if not isinstance(found, dict):
        raise InputError(f"{what} must hold a JSON object, but holds {type(found).__name__}.")
    return found


def entry(described: dict[str, Any], name: str, kind: type, what: str) -> Any:
    """Return an entry of a JSON object, which must be there and of a kind; a number must not be negative."""
    found = described.get(name)
    if type(found) is not kind or (isinstance(found, int) and found < 0):
        raise InputError(f'"{name}" in {what} must be {KINDS[kind]}, but is {str(found)[:80]!r}.')
    return found


def with_defaults(given: Columns, defaults: Columns) -> Columns:
    """Replace the column names that the caller left as they are by those of a format."""
    plain = Columns()
    return replace(
        defaults,
        **{
            name: getattr(given, name)
            for name in Columns.__dataclass_fields__
            if getattr(given, name) != getattr(plain, name)
        },
    )


def refuse_writing(format: str) -> Callable[[Path, Contents], None]:
    """Make the `write` of a format that is only read."""

    def write(path: Path, contents: Contents) -> None:
        raise InputError(f"{format} can be read but not written; choose another format, such as parquet.")

    return write


def in_unit_box(
    actions: npt.NDArray[Any], given: Bounds | None, recorded: Bounds | None, names: list[str]
) -> tuple[Doubles, Doubles, Doubles]:
    """Scale actions to [-1, 1] from the bounds given, else those recorded in the file, else -1 and 1."""
    low, high = (_per_column(bound, len(names)) for bound in given or recorded or (-1.0, 1.0))
    check_bounds(low, high)
    scaled = scaled_actions(actions, low, high)
    far = (np.abs(scaled) > 1 + ROUNDING) & np.isfinite(scaled)
    if far.any():
        row, column = first_true(far)
        raise InputError(
            f'"{names[column]}" holds {actions[row, column]:g}, outside its bounds '
            f"{low[column]:g} to {high[column]:g}; give the action bounds that the log was recorded with, "
            "low and high, one number each or one per column."
        )
    return scaled, low, high


def written_actions(trajectories: Trajectories) -> npt.NDArray[Any]:
    """Actions in recorded units: float64, or float32 if the bounds are -1 and 1 and nothing is scaled."""
    unit = (trajectories.action_low == -1).all() and (trajectories.action_high == 1).all()
    return trajectories.actions if unit else trajectories.recorded_actions()


def listed(names: Iterable[str], most: int = 12) -> str:
    """Join names for a message, at most the first `most`."""
    found = list(names)
    return ", ".join(found[:most]) + (", ..." if len(found) > most else "") or "none"


def bounds_to_json(trajectories: Trajectories) -> str:
    """Recorded bounds as JSON, which holds Python's floats exactly."""
    return json.dumps(
        {"action_low": trajectories.action_low.tolist(), "action_high": trajectories.action_high.tolist()}
    )


def bounds_from_json(text: str | bytes) -> Bounds:
    """Recorded bounds from what `bounds_to_json` wrote."""
    try:
        found = json.loads(text)
        return found["action_low"], found["action_high"]
    except (ValueError, TypeError, KeyError) as error:
        raise InputError(
            f"the recorded action bounds can't be read ({text!r}); write the file again."
        ) from error


def _per_column(bound: npt.ArrayLike, size: int) -> Doubles:
    try:
        array = np.atleast_1d(np.asarray(bound, np.float64))
        return np.broadcast_to(array, (size,))
    except (TypeError, ValueError) as error:
        raise InputError(
            f"an action bound must be one number or {size}, one per action column; got {bound!r}."
        ) from error
