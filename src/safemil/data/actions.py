"""Actions of a table: numbers scaled to their bounds, or choices, and what is wrong with them."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from safemil.arrays import Bools, Doubles, Floats
from safemil.data.columns import natural
from safemil.data.episodes import Rows
from safemil.data.faults import Faults
from safemil.data.filling import fill_columns, flagged, rules
from safemil.data.interchange import Bounds, Options, action_limits, listed
from safemil.data.matrices import Entry, read_matrix
from safemil.data.parts import Loaded, is_list, is_number, together
from safemil.data.trajectories import ROUNDING
from safemil.errors import InputError

MOST_CHOICES = 256  # categories of an action; a column with more holds numbers


class Actions(NamedTuple):
    """Actions of all sorted rows."""

    values: Floats  # (rows, A), scaled to [-1, 1]; NaN where empty
    low: Doubles
    high: Doubles
    is_step: Bools  # (rows,)
    entries: list[Entry]
    categories: tuple[str, ...] | None


def read_actions(
    loaded: Sequence[Loaded],
    rows: Rows,
    entries: list[Entry],
    options: Options,
    recorded: Mapping[str, Any],
    faults: Faults,
) -> Actions:
    """Read the actions of all rows; a row whose action is empty is no step."""
    if flagged([each.name for each in entries], options.fills):
        raise InputError("empty cells of an action can't be flagged; fill them with a number or previous.")
    single = entries[0].column
    if all(each.column == single for each in entries) and (labels := _labels(loaded, single, options)):
        return _choices(labels, rows, single, options, faults)
    count = len(rows.episodes)
    values = np.empty((count, len(entries)))

    def write(start: int, columns: slice, block: npt.NDArray[Any]) -> None:
        values[rows.places(start, len(block)), columns] = block

    seen = read_matrix(loaded, entries, np.float64, write)
    names, present = [each.name for each in entries], np.ones(count, bool)
    low, high, given = _limits(names, options, recorded, faults)
    sound = bool(((seen.low >= low) & (seen.high <= high)).all())
    if seen.suspect.any():
        # An empty cell is NaN now, and so is a number that is NaN: both count as empty only in a last row.
        there = ~np.isnan(values)
        there[:, seen.empty == 0] = True
        present, whole = np.any(there, axis=1), np.all(there, axis=1)
        _fill(values, names, rows, options, present, whole)
        _check_present(values, names, rows, present, whole, faults)
    if not sound:
        known = np.where(np.isfinite(values), values, np.nan)
        lowest = np.nanmin(known, axis=0, initial=np.inf)
        highest = np.nanmax(known, axis=0, initial=-np.inf)
        if options.lenient and not given:  # describe the episodes in bounds that would fit
            _check_bounds(values, (low, high), (lowest, highest), names, faults, blame=False)
            low, high = np.minimum(low, lowest), np.maximum(high, highest)
    scaled = _scale(values, low, high)
    if not sound:
        _check_bounds(scaled, (low, high), (lowest, highest), names, faults)
    return Actions(scaled.astype(np.float32), low, high, present, entries, recorded.get("action_categories"))


def _limits(
    names: Sequence[str], options: Options, recorded: Mapping[str, Any], faults: Faults
) -> tuple[Doubles, Doubles, bool]:
    """Bounds of the actions, and whether they were given or recorded."""
    noted = _bounds(recorded)
    try:
        low, high = action_limits(options.action_bounds, noted, names)
    except InputError as error:
        if not options.lenient:
            raise
        faults.texts.append(str(error))
        return *action_limits(None, None, names), False
    return low, high, options.action_bounds is not None or noted is not None


def _bounds(recorded: Mapping[str, Any]) -> Bounds | None:
    return (recorded["action_low"], recorded["action_high"]) if "action_low" in recorded else None


def _fill(
    values: Doubles, names: Sequence[str], rows: Rows, options: Options, present: Bools, whole: Bools
) -> None:
    """Fill empty cells, in place; a row that is filled is a step."""
    if not any(rules(name, options.fills) for name in names):
        return
    lengths = np.bincount(rows.episodes, minlength=len(rows.ids))
    fill_columns(values, names, options.fills, lengths, np.zeros((len(lengths), len(names))))
    present |= ~np.isnan(values).all(axis=1)
    whole |= ~np.isnan(values).any(axis=1)


def _check_present(
    values: Doubles, names: Sequence[str], rows: Rows, present: Bools, whole: Bools, faults: Faults
) -> None:
    """Note actions that are empty, in part or before the last row, and numbers that are not finite."""
    last = np.append(np.diff(rows.episodes) != 0, True)
    absent = (present & ~whole) | (~present & ~last)
    if absent.any():
        row = int(np.argmax(absent))
        name = names[int(np.argmax(np.isnan(values[row])))] if present[row] else names[0].removesuffix("[0]")
        faults.add(
            f'"{name}" is empty at {rows.where(row)} (an action is, in {int(absent.sum())} rows); only the '
            "last row of an episode may lack an action (it holds the final observation): fill it with "
            f'`fill="{name}=previous"`, or leave the row out.',
            absent,
        )
    present |= absent
    known = np.flatnonzero(present & ~absent)
    for column, name in enumerate(names):
        faults.add_not_finite("actions", values[known, column], name, known)


def _scale(values: Doubles, low: Doubles, high: Doubles) -> Doubles:
    """Map [low, high] onto [-1, 1], in place, as `scaled_actions` does."""
    middle, half = high / 2 + low / 2, high / 2 - low / 2
    if middle.any() or (half != 1).any():
        values -= middle
        values /= half
    return values


def _check_bounds(
    scaled: Doubles, bounds: tuple[Doubles, Doubles], seen: tuple[Doubles, Doubles], names: Sequence[str],
    faults: Faults, *, blame: bool = True,
) -> None:  # fmt: skip
    """Note actions outside of their bounds, with the bounds that would hold them all.

    Without `blame`, no episode is faulty for it.
    """
    with np.errstate(invalid="ignore"):
        far = (np.abs(scaled) > 1 + ROUNDING) & np.isfinite(scaled)
    if not far.any():
        return
    low, high = bounds
    fits = [
        " ".join(f"{value:g}" for value in values)
        for values in (np.minimum(low, seen[0]), np.maximum(high, seen[1]))
    ]
    for column in np.flatnonzero(far.any(axis=0)).tolist():
        rows = far[:, column]
        worst = seen[0][column] if seen[0][column] < low[column] else seen[1][column]
        text = (
            f'"{names[column]}" holds {worst:g}, outside its bounds {low[column]:g} to {high[column]:g} '
            f"({int(rows.sum())} rows, the first at {faults.rows.where(int(np.argmax(rows)))}); give the "
            "action bounds that the log was recorded with, low and high, one number each or one per column: "
            f"all actions lie in `action_low=...` {fits[0]} `action_high=...` {fits[1]}."
        )
        faults.add(text, rows if blame else np.zeros(len(rows), bool))


def _labels(loaded: Sequence[Loaded], column: str, options: Options) -> pa.ChunkedArray | None:
    """Choices of a column as text; None if it holds numbers that are no choices, or lists."""
    kinds = [each.schema.field(column).type for each in loaded]
    if any(is_list(kind) for kind in kinds):
        if options.action_kind == "discrete":
            raise InputError(f'"{column}" holds lists; a choice is one column of texts or whole numbers.')
        return None
    numbers = all(is_number(kind) for kind in kinds)
    if options.action_kind == "continuous" or (numbers and options.action_kind is None):
        return None
    parts = [each.whole([column]).column(0) for each in loaded]
    return together([_as_labels(part, column) for part in parts])


def _as_labels(part: pa.ChunkedArray, column: str) -> pa.ChunkedArray:
    try:
        if pa.types.is_floating(part.type) or pa.types.is_decimal(part.type):
            part = pc.cast(part, pa.int64())
        return pc.cast(part, pa.string())
    except pa.ArrowInvalid as error:
        raise InputError(f'"{column}" must hold texts or whole numbers to be a choice: {error}.') from error


def _choices(labels: pa.ChunkedArray, rows: Rows, column: str, options: Options, faults: Faults) -> Actions:
    """One column per choice: 1 for the one taken, -1 for the others."""
    found = sorted(labels.unique().drop_null().to_pylist(), key=natural)
    known = found if options.action_categories is None else list(options.action_categories)
    if len(known) > MOST_CHOICES or len(known) < 2:
        raise InputError(
            f'"{column}" has {len(known)} different values; a choice has 2 to {MOST_CHOICES}, numbers are '
            "`action_kind=...` continuous."
        )
    codes = pc.index_in(labels, pa.array(known, pa.string())).fill_null(-1).to_numpy()
    present = rows.sort(np.asarray(labels.is_valid()))
    codes = rows.sort(codes)
    for name in [name for name in found if name not in known][:1]:
        strange = present & (codes < 0)
        faults.add(
            f'"{column}" holds "{name}" at {rows.where(int(np.argmax(strange)))}; {int(strange.sum())} rows '
            f"have an action that is none of the choices {listed(known)}.",
            strange,
        )
    values = np.full((len(codes), len(known)), -1, np.float32)
    values[np.arange(len(codes)), codes] = 1
    _check_present(values[:, :1].astype(np.float64), [column], rows, present, present.copy(), faults)
    low, high = np.full(len(known), -1.0), np.full(len(known), 1.0)
    entries = [Entry(column, f"{column}={label}") for label in known]
    return Actions(values, low, high, present, entries, tuple(known))
