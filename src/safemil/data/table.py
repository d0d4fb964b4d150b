"""Tables with one row per step, in any order: the common part of Parquet and CSV.

The final observation of an episode is one more row, the last of its episode, whose action is empty.

A log is one `Part` or several. Rows are read in blocks of a few columns and written straight to their places
in the arrays of `Trajectories`, so that no second copy of the observations is ever held.
"""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from safemil.arrays import Bools, Doubles, Floats, Ints
from safemil.data.columns import DEFAULTS, Plan, joined, matching, natural, plan
from safemil.data.episodes import Rows, check_doubles, sorted_rows
from safemil.data.filling import MISSING, fill_columns, flagged, rules
from safemil.data.incidents import is_incident, values_seen
from safemil.data.interchange import (
    Bounds,
    Contents,
    Fill,
    Options,
    Unreadable,
    action_limits,
    listed,
    written_actions,
)
from safemil.data.steps import describe_gaps, gap_limit
from safemil.data.trajectories import HASHED_IF_ANY, ROUNDING, Trajectories, recorded_actions, starts_of
from safemil.errors import InputError

NUMERIC = (
    pa.types.is_floating,
    pa.types.is_integer,
    pa.types.is_boolean,
    pa.types.is_decimal,
    pa.types.is_null,
)
ENTRY_NAMES = b"safemil entries"  # key of a field's metadata: the names of the entries of its lists, as JSON
COLUMNS_AT_ONCE = 8  # read together: Arrow holds some megabytes for each column that it decodes
ROWS_AT_ONCE = 16384
MOST_CHOICES = 256  # categories of an action; a column with more holds numbers
MOST_NAMED = 12  # columns in a message


class Loaded:
    """The columns of a part that are needed."""

    def __init__(self, table: pa.Table) -> None:
        self.schema: pa.Schema = table.schema
        self._table = table

    def whole(self, names: Sequence[str]) -> pa.Table:
        """Read some columns as a table."""
        return self._table.select(list(names))

    def batches(self, names: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Read some columns in the order of the file; each may be asked for once, and is let go."""
        batches = self._table.select(list(names)).to_batches(ROWS_AT_ONCE)[::-1]
        self._table = self._table.drop_columns(list(names))
        while batches:
            yield batches.pop()

    def peek(self, name: str) -> Iterator[pa.RecordBatch]:
        """Read one column, which stays to be asked for."""
        yield from self._table.select([name]).to_batches(ROWS_AT_ONCE)


@dataclass(frozen=True)
class Part:
    """One table of a log: a file, or a table in memory."""

    columns: Sequence[str]
    load: Callable[[list[str], Sequence[str]], Loaded]  # of columns by name, and which may be float32
    recorded: Mapping[str, Any] = field(default_factory=dict)  # what our writer noted: bounds, choices, order
    path: str = ""  # within the log, with / between folders
    partition: Mapping[str, str] = field(default_factory=dict)  # columns that the names of folders give


@dataclass
class Faults:
    """What is wrong with sorted rows, and the episodes concerned."""

    rows: Rows
    texts: list[str]
    bad: Bools  # (episodes,)

    def add(self, text: str, rows: npt.NDArray[Any]) -> None:
        """Note a fault of some sorted rows."""
        self.texts.append(text)
        self.bad[self.rows.episodes[rows]] = True


class Entry(NamedTuple):
    """One column of a matrix: a column of the table, or an entry of its lists."""

    column: str
    name: str


class Matrix(NamedTuple):
    """Observations of steps and of ends of episodes."""

    values: Floats  # (steps, width)
    finals: Floats  # (episodes, width)
    entries: list[Entry]
    flags: list[int]  # entries with a further column that is 1 where they are empty
    empty: dict[str, float]  # share of empty cells by name

    def names(self) -> list[str]:
        return [each.name for each in self.entries] + [
            MISSING.format(self.entries[i].name) for i in self.flags
        ]


class Actions(NamedTuple):
    """Actions of all sorted rows."""

    values: Floats  # (rows, A), scaled to [-1, 1]; NaN where empty
    low: Doubles
    high: Doubles
    is_step: Bools  # (rows,)
    entries: list[Entry]
    categories: tuple[str, ...] | None


def from_table(table: pa.Table, options: Options, recorded: Bounds | None = None) -> Contents:
    """Check the rows of a table and sort them into episodes."""
    noted = {} if recorded is None else {"action_low": recorded[0], "action_high": recorded[1]}
    part = Part(table.column_names, lambda names, _: Loaded(table.select(names)), noted)
    return from_parts([part], options)


def from_parts(parts: Sequence[Part], options: Options) -> Contents:
    """Check the rows of all parts of a log and sort them into episodes.

    The result does not depend on the order of parts, rows and columns.
    """
    recorded = _recorded(parts)
    chosen = _plan(parts, options, recorded)
    loaded = [_load(part, chosen) for part in parts]
    _check_types(loaded, chosen, options)
    keys = [each.whole([name for name in chosen.singles() if name in each.schema.names]) for each in loaded]
    keys = [with_partition(table, part, chosen.singles()) for table, part in zip(keys, parts, strict=True)]
    if not sum(table.num_rows for table in keys):
        raise InputError("the table has no rows; need at least one step.")
    rows = sorted_rows(keys, [part.path for part in parts], chosen, recorded.get("episodes"), options)
    observed, acted = (_entries(loaded, columns) for columns in (chosen.observation, chosen.action))
    _check_fills(options.fills, [each.name for each in (*observed, *acted)])
    faults = Faults(rows, [], np.zeros(len(rows.ids), bool))
    for text, doubled in check_doubles(rows):
        faults.add(text, doubled)
    actions = _actions(loaded, rows, acted, options, recorded, faults)
    notes = describe_gaps(rows.steps, rows.episodes, rows.where)
    singles = _singles(keys, rows, chosen, actions.is_step)
    del keys
    observations = _observations(loaded, rows, observed, options, actions.is_step, faults)
    return _contents(rows, actions, observations, singles, faults, chosen, options, tuple(notes))


def _contents(
    rows: Rows,
    actions: Actions,
    observations: Matrix,
    singles: dict[str, Any],
    faults: Faults,
    chosen: Plan,
    options: Options,
    notes: tuple[str, ...],
) -> Contents:
    lengths = np.bincount(rows.episodes[actions.is_step], minlength=len(rows.ids))
    for episode in np.flatnonzero(lengths == 0)[:1]:
        ends = lengths[rows.episodes] == 0
        faults.add(
            f"episode {rows.ids[episode]} has no step with an action, only a final observation; "
            "every episode needs at least one such step: leave the episode out.",
            ends,
        )
    if faults.texts and not options.lenient:
        raise joined(faults.texts)
    if faults.bad.all():
        raise Unreadable(str(joined(faults.texts)), _raw_columns(observations, actions))
    kept = ~faults.bad
    steps = slice(None) if kept.all() else np.repeat(kept, lengths)
    acting = actions.is_step if kept.all() else actions.is_step & kept[rows.episodes]
    numbered, first_steps = _numbering(rows, acting, lengths[kept])
    has_final = np.bincount(rows.episodes[~actions.is_step], minlength=len(rows.ids)) > 0
    values = actions.values[acting] if not acting.all() else actions.values
    trajectories = Trajectories(
        observations=observations.values[steps],
        actions=values,
        lengths=lengths[kept],
        final_observations=observations.finals[kept],
        has_final=has_final[kept],
        terminated=singles["terminated"][kept],
        action_low=actions.low,
        action_high=actions.high,
        ids=rows.ids[kept],
        first_steps=first_steps,
        marks=singles["marks"][steps],
        after_gap=_after_gap(rows, acting, options, chosen.step) | singles["after_gap"][steps],
        step_values=None if numbered else rows.steps.logged[acting],
        step_zone=None if numbered else rows.steps.zone,
        observation_names=_names(observations.entries, observations.names()),
        action_names=_names(actions.entries, [each.name for each in actions.entries]),
        action_categories=actions.categories,
        reading=(resolved := _resolved(options, chosen, observations, actions)),
        owned=True,
    )
    return Contents(
        trajectories,
        rewards=None if singles["reward"] is None else singles["reward"][steps],
        costs=None if singles["cost"] is None else singles["cost"][steps],
        names=(options.columns.reward, options.columns.cost),
        incidents=None if singles["incident"] is None else singles["incident"][steps],
        incident_values=singles["incident_values"],
        resolved=resolved,
        step_rows=np.flatnonzero(acting) if rows.place is None else np.argsort(rows.place)[acting],
        faults=tuple(faults.texts),
        notes=notes,
        declared=len(rows.ids),
        empty=observations.empty,
    )


def _resolved(options: Options, chosen: Plan, observations: Matrix, actions: Actions) -> Options:
    """The options, with names instead of patterns, and with the bounds and choices that were found."""
    names = [each.name for each in (*observations.entries, *actions.entries)]
    fills = tuple(
        replace(fill, pattern=name) for fill in options.fills for name in matching(fill.pattern, names)
    )
    columns = replace(options.columns, observation=chosen.observation, action=chosen.action)
    if actions.categories is not None:
        choices: dict[str, Any] = {"action_kind": "discrete", "action_categories": actions.categories}
    else:
        choices = {"action_bounds": (actions.low.tolist(), actions.high.tolist())}
    return replace(options, columns=columns, fills=fills, **choices)


def _check_fills(fills: Sequence[Fill], names: Sequence[str]) -> None:
    for fill in fills:
        if not matching(fill.pattern, names):
            raise InputError(
                f'no observation or action is called "{fill.pattern}", which should be filled '
                f"({listed(names)}); correct the rule."
            )


def _recorded(parts: Sequence[Part]) -> Mapping[str, Any]:
    """What our writer noted about the actions; the same in all parts."""
    first = parts[0].recorded
    for part in parts[1:]:
        if any(part.recorded.get(name) != first.get(name) for name in ("action_low", "action_high")):
            raise InputError(f"{parts[0].path} and {part.path} record different action bounds; give them.")
    return first if len(parts) == 1 else {name: first[name] for name in first if name != "episodes"}


def _plan(parts: Sequence[Part], options: Options, recorded: Mapping[str, Any]) -> Plan:
    """Choose columns, and refuse files that lack one of them."""
    names = [*dict.fromkeys(name for part in parts for name in (*part.columns, *part.partition))]
    for part in parts:
        columns = [*part.columns]
        names += [
            name for name in dict.fromkeys(columns) for _ in range(columns.count(name) - names.count(name))
        ]
    chosen = plan(names, options, many=len(parts) > 1, flags=tuple(recorded.get("flags", ())))
    lacking = [
        f'{part.path} has no column "{name}"'
        for part in parts
        for name in chosen.needed()
        if name not in part.columns and name not in part.partition
    ]
    if lacking:
        raise InputError(f"all files need the same columns, but {listed(lacking, 5)}.")
    return chosen


def _load(part: Part, chosen: Plan) -> Loaded:
    others = {*chosen.singles(), *chosen.action}
    narrow = [name for name in chosen.observation if name not in others]
    return part.load([name for name in chosen.all() if name in part.columns], narrow)


def with_partition(table: pa.Table, part: Part, wanted: Sequence[str]) -> pa.Table:
    """Add the columns that the names of the folders give."""
    for name in wanted:
        if name not in table.column_names and name in part.partition:
            value = pa.scalar(part.partition[name])
            table = table.append_column(name, pa.repeat(value, table.num_rows))
    return table


def _check_types(loaded: Sequence[Loaded], chosen: Plan, options: Options) -> None:
    """Name all columns that should hold numbers and do not."""
    numbers = [chosen.reward, chosen.cost, chosen.terminated, *chosen.observation]
    if options.action_kind == "continuous" or len(chosen.action) > 1:
        numbers += chosen.action
    wrong = {
        name: str(kind)
        for each in loaded
        for name in numbers
        if name in each.schema.names and not _is_number(kind := each.schema.field(name).type)
    }
    if wrong:
        faults = [f'"{name}" must hold numbers, but holds {kind}' for name, kind in wrong.items()]
        raise joined([f"{each}; choose other columns." for each in faults])


def _is_number(kind: pa.DataType) -> bool:
    inner = kind.value_type if _is_list(kind) else kind
    return any(check(inner) for check in NUMERIC)


def _is_list(kind: pa.DataType) -> bool:
    checks = (pa.types.is_list, pa.types.is_large_list, pa.types.is_fixed_size_list)
    return any(check(kind) for check in checks)


def _names(entries: Sequence[Entry], names: Sequence[str]) -> tuple[str, ...] | None:
    """Names of columns; None for the entries of one column of lists, which have none."""
    unnamed = len({each.column for each in entries}) == 1 and all(
        each.name == f"{each.column}[{i}]" for i, each in enumerate(entries)
    )
    return None if unnamed else tuple(names)


def _entries(loaded: Sequence[Loaded], columns: Sequence[str]) -> list[Entry]:
    """Columns of a matrix, one for each entry of a list."""
    found = []
    for column in columns:
        name = next((each.schema.field(column) for each in loaded if column in each.schema.names), None)
        if name is None or not _is_list(name.type):
            found.append(Entry(column, column))
            continue
        given = (name.metadata or {}).get(ENTRY_NAMES)
        width = _width(loaded, column)
        names = json.loads(given) if given else [f"{column}[{i}]" for i in range(width)]
        found += [Entry(column, each) for each in names]
    return found


def _width(loaded: Sequence[Loaded], column: str) -> int:
    """Number of entries of the first list in a column."""
    for each in loaded:
        for batch in each.peek(column):
            lengths = pc.list_value_length(batch.column(0)).drop_null()
            if len(lengths) and lengths[0].as_py():
                return int(lengths[0].as_py())
    raise InputError(f'the lists in "{column}" must all be equally long, at least 1, but all are empty.')


def _blocks(
    loaded: Sequence[Loaded], entries: Sequence[Entry]
) -> Iterator[tuple[int, int, npt.NDArray[Any], int]]:
    """Read the entries of a matrix: yields first row, number of the entry, values, number of empty cells.

    Empty cells are NaN.
    """
    columns = [*dict.fromkeys(each.column for each in entries)]
    held = [each.column for each in entries]
    first = {name: held.index(name) for name in columns}
    for start in range(0, len(columns), COLUMNS_AT_ONCE):
        some, row = columns[start : start + COLUMNS_AT_ONCE], 0
        for each in loaded:
            for batch in each.batches(some):
                for name, array in zip(some, batch.columns, strict=True):
                    for entry, values, empty in _numbers(array, held.count(name), name):
                        yield row, first[name] + entry, values, empty
                row += batch.num_rows


def _numbers(array: pa.Array, width: int, name: str) -> Iterator[tuple[int, npt.NDArray[Any], int]]:
    """Numbers of an array, or of each entry of its lists."""
    if not _is_list(array.type):
        yield 0, _floats(array), array.null_count
        return
    lengths = pc.list_value_length(array).drop_null().to_numpy(zero_copy_only=False)
    if (lengths != width).any():
        other = lengths[np.argmax(lengths != width)]
        raise InputError(
            f'the lists in "{name}" must all be equally long, at least 1, but one has {width} entries and '
            f"another {other}."
        )
    present, inner = np.asarray(array.is_valid()), array.flatten()
    values = np.full((len(array), width), np.nan, np.float64)
    values[present] = _floats(inner).reshape(-1, width)
    for entry in range(width):
        yield entry, values[:, entry], array.null_count + inner.null_count


def _floats(array: pa.Array) -> npt.NDArray[Any]:
    """Numbers as an array of NumPy, NaN where empty."""
    kind = array.type
    if pa.types.is_null(kind):
        return np.full(len(array), np.nan)
    if pa.types.is_boolean(kind):
        array = array.cast(pa.int8())
    elif pa.types.is_decimal(kind):
        array = array.cast(pa.float64())
    values: npt.NDArray[Any] = array.to_numpy(zero_copy_only=False)
    return values


def _singles(keys: Sequence[pa.Table], rows: Rows, chosen: Plan, is_step: Bools) -> dict[str, Any]:
    """Columns with one value per row: per step, or `terminated` per episode."""

    def numbers(name: str | None) -> Doubles | None:
        if name is None:
            return None
        columns = [table.column(name) for table in keys]
        return rows.sort(np.concatenate([_floats(chunk) for each in columns for chunk in each.chunks]))

    def per_step(values: npt.NDArray[Any] | None) -> npt.NDArray[Any] | None:
        return None if values is None else values[is_step]

    ended = numbers(chosen.terminated)
    flags = np.zeros(len(is_step)) if ended is None else np.nan_to_num(ended)
    found: dict[str, Any] = {
        "reward": per_step(numbers(chosen.reward)),
        "cost": per_step(numbers(chosen.cost)),
        "terminated": np.bincount(rows.episodes, flags != 0, minlength=len(rows.ids)) > 0,
        "incident": None,
        "incident_values": "",
    }
    for name in HASHED_IF_ANY:
        values = numbers(name) if name in chosen.flags else None
        found[name] = np.zeros(int(is_step.sum()), bool) if values is None else values[is_step] == 1
    if chosen.incident is not None:
        column = [table.column(chosen.incident) for table in keys]
        true = rows.sort(np.concatenate([is_incident(each, chosen.incident_value) for each in column]))
        # The row of a final observation is no step: the step before it stands for it.
        steps = np.flatnonzero(is_step)
        ends = np.searchsorted(steps, np.flatnonzero(true & ~is_step)) - 1
        found["incident"] = true[steps]
        found["incident"][ends[ends >= 0]] = True
        found["incident_values"] = values_seen(_together(column))
    return found


def _together(columns: Sequence[pa.ChunkedArray]) -> pa.ChunkedArray:
    """One column of several parts, as text where their types differ."""
    if len({each.type for each in columns}) > 1:
        columns = [pc.cast(each, pa.string()) for each in columns]
    return pa.chunked_array([chunk for each in columns for chunk in each.chunks], columns[0].type)


def _actions(
    loaded: Sequence[Loaded],
    rows: Rows,
    entries: list[Entry],
    options: Options,
    recorded: Mapping[str, Any],
    faults: Faults,
) -> Actions:
    single = entries[0].column
    if all(each.column == single for each in entries) and (labels := _labels(loaded, single, options)):
        return _choices(labels, rows, single, options, faults)
    count = len(rows.episodes)
    values = np.empty((count, len(entries)))
    present, whole = np.zeros(count, bool), np.ones(count, bool)
    for start, column, block, empty in _blocks(loaded, entries):
        places = rows.places(start, len(block))
        values[places, column] = block
        # An empty cell is NaN now, and so is a number that is NaN: both count as empty only in a last row.
        there = ~np.isnan(block) if empty else np.ones(len(block), bool)
        present[places] |= there
        whole[places] &= there
    names = [each.name for each in entries]
    _fill_actions(values, names, rows, options, present, whole)
    _check_actions(values, names, rows, present, whole, faults)
    low, high = action_limits(options.action_bounds, _bounds(recorded), names)
    lowest, highest = np.nanmin(values, axis=0, initial=np.inf), np.nanmax(values, axis=0, initial=-np.inf)
    scaled = _scale(values, low, high)
    _check_bounds(scaled, (low, high), (lowest, highest), names, faults)
    return Actions(scaled.astype(np.float32), low, high, present, entries, recorded.get("action_categories"))


def _bounds(recorded: Mapping[str, Any]) -> Bounds | None:
    return (recorded["action_low"], recorded["action_high"]) if "action_low" in recorded else None


def _fill_actions(
    values: Doubles, names: Sequence[str], rows: Rows, options: Options, present: Bools, whole: Bools
) -> None:
    """Fill empty cells of actions, in place; a row that is filled is a step."""
    ruled = [name for name in names if rules(name, options.fills)]
    if not ruled:
        return
    if flagged(names, options.fills):
        raise InputError("empty cells of an action can't be flagged; fill them with a number or previous.")
    lengths = np.bincount(rows.episodes, minlength=len(rows.ids))
    fill_columns(values, names, options.fills, lengths, np.zeros((len(lengths), len(names))))
    present |= ~np.isnan(values).all(axis=1)
    whole |= ~np.isnan(values).any(axis=1)


def _check_actions(
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
    _check_finite("actions", values[present & ~absent], names, np.flatnonzero(present & ~absent), faults)


def _raw_columns(observations: Matrix, actions: Actions) -> list[dict[str, float | str]]:
    """Range and share of empty cells of each column of a log in which no episode can be read."""
    recorded = recorded_actions(actions.values, actions.low, actions.high)
    columns: list[tuple[str, npt.NDArray[Any]]] = [
        (each.name, observations.values[:, i]) for i, each in enumerate(observations.entries)
    ]
    columns += [(each.name, recorded[:, i]) for i, each in enumerate(actions.entries)]
    found: list[dict[str, float | str]] = []
    for name, values in columns:
        known = values[np.isfinite(values)].astype(np.float64)
        low, high = (float(each(known)) if known.size else np.nan for each in (np.min, np.max))
        empty = observations.empty.get(name, float(np.isnan(values).mean()))
        found.append({"name": name, "low": low, "high": high, "empty": empty})
    return found


def _check_finite(
    what: str, values: npt.NDArray[Any], names: Sequence[str], rows: npt.NDArray[Any], faults: Faults
) -> None:
    """Note numbers that are not finite, by column; `rows` are the sorted rows of the values."""
    for column, name in enumerate(names):
        bad = ~np.isfinite(values[:, column]) if what == "actions" else np.isinf(values[:, column])
        if bad.any():
            first = int(np.argmax(bad))
            faults.add(
                f'{what} must be finite numbers that float32 can hold, but "{name}" is '
                f"{values[first, column]} at {faults.rows.where(rows[first])}, in {int(bad.sum())} rows; "
                "correct it, or leave the episode out.",
                rows[bad],
            )


def _scale(values: Doubles, low: Doubles, high: Doubles) -> Doubles:
    """Map [low, high] onto [-1, 1], in place, as `scaled_actions` does."""
    middle, half = high / 2 + low / 2, high / 2 - low / 2
    values -= middle
    values /= half
    return values


def _check_bounds(
    scaled: Doubles, bounds: tuple[Doubles, Doubles], seen: tuple[Doubles, Doubles], names: Sequence[str],
    faults: Faults,
) -> None:  # fmt: skip
    """Note actions outside of their bounds, with the bounds that would hold them all."""
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
        faults.add(
            f'"{names[column]}" holds {worst:g}, outside its bounds {low[column]:g} to {high[column]:g} '
            f"({int(rows.sum())} rows, the first at {faults.rows.where(int(np.argmax(rows)))}); give the "
            "action bounds that the log was recorded with, low and high, one number each or one per column: "
            f"all actions lie in `action_low=...` {fits[0]} `action_high=...` {fits[1]}.",
            rows,
        )


def _labels(loaded: Sequence[Loaded], column: str, options: Options) -> pa.ChunkedArray | None:
    """Choices of a column as text; None if it holds numbers that are no choices, or lists."""
    kinds = [each.schema.field(column).type for each in loaded]
    if any(_is_list(kind) for kind in kinds):
        if options.action_kind == "discrete":
            raise InputError(f'"{column}" holds lists; a choice is one column of texts or whole numbers.')
        return None
    numbers = all(_is_number(kind) for kind in kinds)
    if options.action_kind == "continuous" or (numbers and options.action_kind is None):
        return None
    parts = [each.whole([column]).column(0) for each in loaded]
    return _together([_as_labels(part, column) for part in parts])


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
    _check_actions(values[:, :1].astype(np.float64), [column], rows, present, present.copy(), faults)
    low, high = np.full(len(known), -1.0), np.full(len(known), 1.0)
    entries = [Entry(column, f"{column}={label}") for label in known]
    return Actions(values, low, high, present, entries, tuple(known))


def _observations(
    loaded: Sequence[Loaded],
    rows: Rows,
    entries: list[Entry],
    options: Options,
    is_step: Bools,
    faults: Faults,
) -> Matrix:
    names = [each.name for each in entries]
    flags = flagged(names, options.fills)
    width = len(entries) + len(flags)
    steps = np.flatnonzero(is_step) if not is_step.all() else None
    values = np.empty((len(is_step) if steps is None else len(steps), width), np.float32)
    finals = np.zeros((len(rows.ids), width), np.float32)
    index = None if steps is None else np.cumsum(is_step) - 1
    empty = np.zeros(len(entries), np.int64)
    with np.errstate(over="ignore"):  # numbers too large for float32 become inf, which is noted
        for start, column, block, count in _blocks(loaded, entries):
            places = rows.places(start, len(block))
            empty[column] += count
            if index is None:
                values[places, column] = block
            else:
                acting = is_step[places]
                values[index[places][acting], column] = block[acting]
                finals[rows.episodes[places][~acting], column] = block[~acting]
    shares = _empty_shares(values, finals, names, rows, is_step)
    lengths = np.bincount(rows.episodes[is_step], minlength=len(rows.ids))
    fill_columns(values, names, options.fills, lengths, finals)
    _check_empty(values, finals, entries, empty > 0, shares, rows, is_step, faults)
    return Matrix(values, finals, entries, flags, shares)


def _empty_shares(
    values: Floats, finals: Floats, names: Sequence[str], rows: Rows, is_step: Bools
) -> dict[str, float]:
    ends = finals[rows.episodes[~is_step]]
    count = len(values) + len(ends)
    return {
        name: float(np.isnan(values[:, i]).sum() + np.isnan(ends[:, i]).sum()) / count
        for i, name in enumerate(names)
    }


def _check_empty(
    values: Floats,
    finals: Floats,
    entries: Sequence[Entry],
    empty: Bools,
    shares: Mapping[str, float],
    rows: Rows,
    is_step: Bools,
    faults: Faults,
) -> None:
    """Note cells that are empty still, all columns in one message, and numbers that are not finite."""
    steps, ends = np.flatnonzero(is_step), np.flatnonzero(~is_step)
    blocks = ((values, steps), (finals[rows.episodes[ends]], ends))
    found, concerned = [], np.zeros(len(is_step), bool)
    for column, (_, name) in enumerate(entries):
        bad = np.concatenate([places[np.isnan(block[:, column])] for block, places in blocks])
        if bad.size:
            concerned[bad] = True
            found.append((name, "empty" if empty[column] else "nan", int(bad.min()), shares[name]))
    if found:
        named = ", ".join(
            f'"{name}" is {what} at {rows.where(row)} ({share:.2%} of its cells)'
            for name, what, row, share in found[:MOST_NAMED]
        )
        more = f" and {len(found) - MOST_NAMED} more columns" if len(found) > MOST_NAMED else ""
        mended = " ".join(f'`fill="{name}=previous"`' for name, *_ in found[:MOST_NAMED])
        faults.add(
            f"no row may lack an observation, but {named}{more}; fill them, with the value before "
            f"({mended}), with a number, as in gap=90, or with a column of its own, as in gap=flag.",
            concerned,
        )
    for block, places in blocks:
        _check_finite("observations", block, [each.name for each in entries], places, faults)


def _numbering(rows: Rows, acting: Bools, lengths: Ints) -> tuple[bool, Ints]:
    """Whether steps are consecutive whole numbers, and the first of each episode (else 0)."""
    steps, starts = rows.steps.order[acting], starts_of(lengths)
    inside = np.ones(len(steps), bool)
    inside[starts] = False
    if rows.steps.logged.dtype.kind == "i" and (np.diff(steps)[inside[1:]] == 1).all():
        return True, steps[starts]
    return False, np.zeros(len(lengths), np.int64)


def _after_gap(rows: Rows, acting: Bools, options: Options, name: str) -> Bools:
    """Steps that come more than the largest gap after the one before."""
    episodes, found = rows.episodes[acting], np.zeros(int(acting.sum()), bool)
    if options.max_gap is not None:
        limit = gap_limit(options.max_gap, rows.steps, name)
        differences = rows.steps.seconds(np.diff(rows.steps.order[acting]))
        found[1:] = (differences > limit) & (np.diff(episodes) == 0)
    return found


def to_table(contents: Contents, *, lists: bool) -> pa.Table:
    """Make a table that `from_table` reads, with columns of lists or `obs_0`, `obs_1`, ... of numbers."""
    held = contents.trajectories
    if len(np.unique(held.ids)) < len(held):
        raise InputError(
            "a table needs a name of its own for each episode; give the Trajectories different `ids`."
        )
    lengths = held.lengths + held.has_final
    step = np.ones(lengths.sum(), bool)
    step[(starts_of(lengths) + held.lengths)[held.has_final]] = False
    observations = np.empty((len(step), held.observation_size), np.float32)
    observations[step], observations[~step] = held.observations, held.final_observations[held.has_final]
    last = np.zeros(len(step), bool)
    last[starts_of(lengths) + held.lengths - 1] = held.terminated
    columns = {
        "episode": np.repeat(held.ids, lengths),
        "step": _written_steps(held, lengths, step),
        **_columns("observation", observations, np.ones_like(step), lists),
        **_columns("action", written_actions(held), step, lists),
        **{
            name: _with_gaps(values, step)
            for name, values in (("reward", contents.rewards), ("cost", contents.costs))
            if values is not None
        },
        "terminated": last,
        **{name: _with_gaps(getattr(held, name), step) for name in written_flags(held)},
    }
    table = pa.table(columns)
    for kind in ("observation", "action"):
        names = getattr(held, f"{kind}_names")
        if lists and names is not None:
            noted = pa.field(kind, table.schema.field(kind).type, metadata={ENTRY_NAMES: json.dumps(names)})
            table = table.set_column(table.column_names.index(kind), noted, table.column(kind))
    return table


def written_flags(held: Trajectories) -> list[str]:
    """Names of the flags of steps that a table holds: those that are true anywhere."""
    return [name for name in HASHED_IF_ANY if getattr(held, name).any()]


def _written_steps(held: Trajectories, lengths: Ints, step: Bools) -> pa.Array | npt.NDArray[Any]:
    """The log's own steps; a final observation comes one usual step after the last, or all are numbered."""
    offsets = np.arange(len(step)) - np.repeat(starts_of(lengths), lengths)
    logged = held.step_values
    if logged is None or (logged.dtype.kind == "U" and not step.all()):
        return np.repeat(held.first_steps, lengths) + offsets
    spread = np.empty(len(step), logged.dtype)
    spread[step] = logged
    if not step.all():
        inside = np.flatnonzero(np.diff(held.episode_of_step) == 0)
        gaps = np.diff(logged)[inside]
        usual = np.median(gaps) if len(gaps) else np.ones(1, np.int64).astype(np.diff(logged[:1]).dtype)[0]
        ends = np.flatnonzero(~step)
        spread[ends] = spread[ends - 1] + usual.astype(np.diff(logged[:1]).dtype)
    return _zoned(spread, held.step_zone)


def steps_as_logged(held: Trajectories) -> pa.Array | npt.NDArray[Any]:
    """Step of each row as the log has it, times in their own zone."""
    return _zoned(held.logged_steps, held.step_zone)


def _zoned(steps: npt.NDArray[Any], zone: str | None) -> pa.Array | npt.NDArray[Any]:
    if steps.dtype.kind != "M" or zone is None:
        return steps
    return pa.array(steps).cast(pa.timestamp("ns", zone))


def _columns(kind: str, values: npt.NDArray[Any], present: Bools, lists: bool) -> dict[str, pa.Array]:
    """Columns of an observation or an action; `values` has one row for each true entry of `present`."""
    if not lists:
        prefix = DEFAULTS[kind][1].removesuffix("*")
        return {f"{prefix}{i}": _with_gaps(values[:, i], present) for i in range(values.shape[1])}
    offsets = np.concatenate([[0], np.cumsum(present * values.shape[1])])
    flat = pa.array(np.ascontiguousarray(values).ravel())
    # Large lists, since the offsets of ordinary ones are int32.
    return {kind: pa.LargeListArray.from_arrays(pa.array(offsets), flat, mask=pa.array(~present))}


def _with_gaps(values: npt.NDArray[Any], present: Bools) -> pa.Array:
    """Spread values over the rows that are present; the others are null."""
    spread = np.zeros(len(present), values.dtype)
    spread[present] = values
    return pa.array(spread, mask=~present)
