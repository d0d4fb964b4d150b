"""Types that readers return and writers take, and functions that several formats share."""

import json
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any, Literal, NamedTuple, Self

import numpy as np
import numpy.typing as npt

from safemil.arrays import Bools, Doubles, Ints
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

PathLike = str | os.PathLike[str]
Paths = PathLike | Sequence[PathLike]
Bounds = tuple[npt.ArrayLike, npt.ArrayLike]  # lowest and highest action: one number each, or one per column
SMALL, MOST_IN_SMALL = 1_000_000, 100_000_000  # bytes of a small file, and of the data that it may declare
BYTES_OF_ROW = 64
MOST_PER_BYTE = 1000  # of a larger file; gzip reaches this where all bytes are the same


ColumnSpec = str | tuple[str, ...] | None
ActionKind = Literal["continuous", "discrete"]


@dataclass(frozen=True)
class Columns:
    """Names of the columns of a table.

    `observation` and `action` name one column of lists, or several columns of numbers: `"speed,gap"`, or
    `"obs_*"` for all that begin with `obs_`. A tuple holds names that are taken as they are. The defaults
    are `observation` or else `obs_*`, and `action` or else `act_*`.
    """

    episode: str = "episode"
    step: str = "step"
    observation: ColumnSpec = None
    action: ColumnSpec = None
    reward: str = "reward"
    cost: str = "cost"
    terminated: str = "terminated"


@dataclass(frozen=True)
class Fill:
    """What replaces empty cells of the columns that match a pattern.

    A number; "previous", the last value before it in the episode (before the first value: that one); or
    "flag", which adds a column "... is missing" of 0 and 1, and fills with 0 what no other rule fills.
    """

    pattern: str
    value: float | Literal["previous", "flag"]

    def __post_init__(self) -> None:
        if not isinstance(self.pattern, str):
            raise InputError(f"columns to be filled are named by a text, got {self.pattern!r}.")
        number = isinstance(self.value, (int, float)) and not isinstance(self.value, bool)
        if not (number and np.isfinite(self.value)) and self.value not in ("previous", "flag"):
            raise InputError(
                f'empty cells of "{self.pattern}" can be filled with a number, previous or flag, '
                f"got {self.value!r}."
            )

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read "PATTERN=VALUE".

        >>> Fill.parse("gap_*=90")
        Fill(pattern='gap_*', value=90.0)
        """
        pattern, _, value = text.rpartition("=")
        if not pattern.strip():
            raise InputError(
                f'need PATTERN=VALUE, PATTERN=previous or PATTERN=flag, as in "gap_*=90"; got "{text}".'
            )
        try:
            return cls(pattern.strip(), float(value))
        except ValueError as error:
            if isinstance(error, InputError) or value.strip() not in ("previous", "flag"):
                raise InputError(
                    f'"{pattern}" can be filled with a number, previous or flag, got "{value}".'
                ) from None
            return cls(pattern.strip(), value.strip())  # type: ignore[arg-type]


@dataclass(frozen=True)
class Options:
    """How a file is read: names of its columns, and what to make of them. The same for every format.

    `to_dict` and `from_dict` take it through JSON. A reader returns the options with patterns replaced by
    the names that they matched (`Contents.resolved`), so that other files can be read in the same way.
    """

    columns: Columns = Columns()
    action_bounds: Bounds | None = None
    incident: str | None = None  # column that marks incidents, or "column=value"
    incident_episodes: tuple[str, ...] | None = None  # names of the episodes that are incidents
    fills: tuple[Fill, ...] = ()  # the first rule that applies to an empty cell fills it
    max_gap: float | str | None = None  # in the units of the step column, or a duration such as "1s"
    action_kind: ActionKind | None = None  # default: discrete if the action is one column of texts
    action_categories: tuple[str, ...] | None = (
        None  # choices in the order of their columns; default: as found
    )
    lenient: bool = False  # leave faulty episodes out and list the faults in `Contents.faults`

    def refuse_columns(self, format: str) -> None:
        """Raise if column names, or rules for columns, were given for a format that has none."""
        if self.columns != Columns() or self.incident is not None or self.fills:
            raise InputError(f"column names are for tables (Parquet, CSV), but this is {format}; omit them.")

    def over(self, noted: Self | None) -> Self:
        """Options that a run noted, changed where these differ from the defaults; without a note, these."""
        if noted is None:
            return self
        return replace(
            noted, **_changed(self) | {"columns": replace(noted.columns, **_changed(self.columns))}
        )

    @property
    def tells_incidents(self) -> bool:
        return self.incident is not None or self.incident_episodes is not None

    def without_incidents(self) -> Self:
        """How to read other logs in the same way, in which nobody has looked for incidents."""
        return replace(self, incident=None, incident_episodes=None)

    def to_dict(self) -> dict[str, Any]:
        """Return what JSON can hold.

        >>> Options.from_dict(json.loads(json.dumps(Options(max_gap="1s").to_dict()))).max_gap
        '1s'
        """
        bounds = self.action_bounds and [np.asarray(bound).tolist() for bound in self.action_bounds]
        return asdict(self) | {"action_bounds": bounds}

    @classmethod
    def from_dict(cls, found: Mapping[str, Any]) -> Self:
        """Read what `to_dict` returned, and refuse anything else."""
        try:
            given = {name: _tupled(value) for name, value in dict(found).items()}
            given["columns"] = Columns(
                **{name: _tupled(value) for name, value in dict(given.get("columns", {})).items()}
            )
            given["fills"] = tuple(Fill(**fill) for fill in given.get("fills", ()))
            options = cls(**given)
            options._check_types()
        except (TypeError, ValueError, AttributeError, OverflowError) as error:
            raise InputError(f"options of a reader are damaged: {error}.") from error
        return options

    def _check_types(self) -> None:
        texts = (str, type(None))
        names = (*texts, tuple)
        kinds: dict[str, tuple[type, ...]] = {name.name: (str,) for name in fields(Columns)}
        for held, name, wanted in (
            *(
                (self.columns, name, names if name in ("observation", "action") else kind)
                for name, kind in kinds.items()
            ),
            (self, "incident", texts),
            (self, "incident_episodes", (tuple, type(None))),
            (self, "max_gap", (int, float, *texts)),
            (self, "action_categories", (tuple, type(None))),
            (self, "lenient", (bool,)),
        ):
            value = getattr(held, name)
            if not isinstance(value, wanted) or (
                isinstance(value, tuple) and not all(isinstance(each, str) for each in value)
            ):
                raise TypeError(f"{name} is {value!r}")
        if self.action_kind not in (None, "continuous", "discrete"):
            raise TypeError(f"action_kind is {self.action_kind!r}")
        if self.action_bounds is not None:
            low, high = self.action_bounds
            np.asarray(low, np.float64), np.asarray(high, np.float64)


def _changed(given: Any) -> dict[str, Any]:
    """Fields of a dataclass that differ from their defaults."""
    return {
        each.name: value
        for each in fields(given)
        if (value := getattr(given, each.name)) is not each.default and value != each.default
    }


def _tupled(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


@dataclass(frozen=True)
class Contents:
    """Everything in a file. Rewards and costs are as found; `annotations` checks them."""

    trajectories: Trajectories
    rewards: npt.NDArray[Any] | None = None  # (steps,)
    costs: npt.NDArray[Any] | None = None  # (steps,)
    names: tuple[str, str] = ("rewards", "costs")  # names of rewards and costs in the file
    manifest: dict[str, Any] = field(default_factory=dict)  # origin of the episodes, kept by stores
    incidents: Bools | None = None  # (steps,) where the incident column is true; None if none was asked for
    resolved: Options | None = None  # options with names instead of patterns; None if the format has no names
    incident_values: str = ""  # what the incident column holds, for messages
    faults: tuple[str, ...] = ()  # why episodes were passed over, if the options are `lenient`
    notes: tuple[str, ...] = ()  # facts that a user should know, such as missing steps
    declared: int | None = None  # episodes in the file, with those passed over; None if all were read
    step_rows: Ints | None = None  # (steps,) row of the table that each step comes from; None without a table
    row_episodes: Ints | None = None  # (rows,) number of the episode of each row, faulty ones included
    empty: Mapping[str, float] = field(default_factory=dict)  # share of empty cells by column, before fills

    def __post_init__(self) -> None:
        for name, values in zip(self.names, (self.rewards, self.costs), strict=True):
            steps = self.trajectories.steps
            if values is not None and (values.shape != (steps,) or values.dtype.kind not in "fiub"):
                raise InputError(
                    f'"{name}" must hold one number for each of the {steps} steps, but holds '
                    f"{values.dtype} of shape {values.shape}."
                )

    def annotations(self) -> Annotations:
        """Return rewards and costs; raise if they are missing or not finite."""
        found = []
        for name, values in zip(self.names, (self.rewards, self.costs), strict=True):
            if values is None:
                raise InputError(f'need rewards and costs for this, but there is no "{name}".')
            check_finite("rewards and costs", values[:, None], self.trajectories.where, [name])
            found.append(values)
        return Annotations(*found)


class RawColumn(NamedTuple):
    """Column of a table in which no episode can be read."""

    name: str
    low: float
    high: float
    empty: float  # share of its cells
    constant: float  # share of its rows that repeat the row before


class Unreadable(InputError):
    """A log in which no episode is without faults; `columns` describes its cells all the same."""

    def __init__(
        self,
        faults: Sequence[str],
        columns: Sequence[RawColumn] = (),
        notes: Sequence[str] = (),
        declared: int | None = None,
    ) -> None:
        super().__init__("\n  also: ".join(faults))
        self.faults = (*faults,)
        self.columns = (*columns,)
        self.notes = (*notes,)  # facts such as missing steps, where rows could be sorted
        self.declared = declared  # episodes, where rows could be sorted


def single_path(paths: Paths) -> Path:
    """First of the paths."""
    return Path(paths if isinstance(paths, str | os.PathLike) else paths[0])


def check_declared_size(path: Path, declared: int, *, rows: int = 0) -> None:
    """Refuse a file, or a folder, that declares far more data than it can hold, before any is read.

    `declared` counts the bytes of the columns; each of the rows takes some more, for its episode and step.
    """
    declared += BYTES_OF_ROW * rows
    inside = (os.path.join(folder, name) for folder, _, names in os.walk(path) for name in names)
    files = inside if path.is_dir() else iter([path])
    size = sum(os.path.getsize(each) for each in files if os.path.isfile(each))
    if declared > (MOST_IN_SMALL if size < SMALL else MOST_PER_BYTE * size):
        raise InputError(
            f"there are {size:,} bytes, but they declare {declared:,} bytes of data: they are damaged, or "
            "made to fill the memory; if the data are real, write them again without compression."
        )


def join_contents(parts: Sequence[Contents], labels: Sequence[str]) -> Contents:
    """Join what several files hold; where names of episodes repeat, each is preceded by its file's label."""
    names = [name for part in parts for name in part.trajectories.ids.tolist()]
    held = [part.trajectories for part in parts]
    notes = [note for part in parts for note in part.notes]
    if len({str(name) for name in names}) < len(names):
        held = [
            each.renamed([f"{label}/{name}" for name in each.ids])
            for each, label in zip(held, labels, strict=True)
        ]
        notes.append("names of episodes are in several files, and are told apart by the file")

    def joined(name: str) -> npt.NDArray[Any] | None:
        found = [getattr(part, name) for part in parts]
        return None if any(each is None for each in found) else np.concatenate(found)

    return Contents(
        Trajectories.concatenate(held),
        rewards=joined("rewards"),
        costs=joined("costs"),
        names=parts[0].names,
        incidents=joined("incidents"),
        incident_values=listed(part.incident_values for part in parts),
        resolved=parts[0].resolved,
        faults=tuple(fault for part in parts for fault in part.faults),
        notes=tuple(notes),
    )


def begins_with(path: Path, magic: bytes) -> bool:
    """Whether a path is a file with these first bytes."""
    if not path.is_file():
        return False
    with open(path, "rb") as file:
        return file.read(len(magic)) == magic


def in_unit_box(
    actions: npt.NDArray[Any], given: Bounds | None, recorded: Bounds | None, names: list[str]
) -> tuple[Doubles, Doubles, Doubles]:
    """Scale actions to [-1, 1] from the bounds given, else those recorded in the file, else -1 and 1."""
    low, high = action_limits(given, recorded, names)
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


def action_limits(
    given: Bounds | None, recorded: Bounds | None, names: Sequence[str]
) -> tuple[Doubles, Doubles]:
    """Bounds of each action column: those given, else those recorded in the file, else -1 and 1."""
    low, high = (_per_column(bound, len(names)) for bound in given or recorded or (-1.0, 1.0))
    check_bounds(low, high)
    return low, high


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
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise InputError(
            f"the recorded action bounds can't be read ({text[:100]!r}); write the file again."
        ) from error


def _per_column(bound: npt.ArrayLike, size: int) -> Doubles:
    try:
        array = np.atleast_1d(np.asarray(bound, np.float64))
        return np.broadcast_to(array, (size,))
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        raise InputError(
            f"an action bound must be one number or {size}, one per action column; got {bound!r}."
        ) from error
