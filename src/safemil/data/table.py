"""Tables with one row per step, in any order: the common part of Parquet and CSV.

The final observation of an episode is one more row, the last of its episode, whose action is empty.
"""

import re
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from safemil.arrays import Bools, Ints
from safemil.data.interchange import (
    Bounds,
    Columns,
    ColumnSpec,
    Contents,
    Options,
    in_unit_box,
    listed,
    written_actions,
)
from safemil.data.trajectories import Trajectories, check_finite, check_name_length, first_true, starts_of
from safemil.errors import InputError, unknown

NUMERIC = (pa.types.is_floating, pa.types.is_integer, pa.types.is_boolean, pa.types.is_decimal)
DEFAULTS = {"observation": ("observation", "obs_*"), "action": ("action", "act_*")}


@dataclass(frozen=True)
class Rows:
    """Episode and step of each row, sorted: episodes in order of appearance, steps by number."""

    ids: npt.NDArray[Any]  # (episodes,)
    episodes: Ints  # (rows,) number of the episode
    steps: Ints  # (rows,)
    order: Ints | slice  # index that sorts the rows of the table; a slice, without a copy, if they are sorted

    def where(self, row: int) -> str:
        """Episode and step of a row, as named in the file."""
        return f"episode {self.ids[self.episodes[row]]}, step {self.steps[row]}"


class Block(NamedTuple):
    """Columns of an observation or of an action."""

    values: npt.NDArray[Any]  # (rows, width)
    present: Bools  # (rows, width), or (rows, 1) for a column of lists
    names: list[str]
    columns: tuple[str, ...]  # in the table: one of lists, or `names`

    def column_names(self) -> tuple[str, ...] | None:
        """Names of the columns; None for a column of lists, whose entries have none."""
        return self.columns if self.columns == tuple(self.names) else None


def from_table(table: pa.Table, options: Options, recorded: Bounds | None = None) -> Contents:
    """Check the rows of a table and sort them into episodes."""
    columns = options.columns
    rows = _sorted_rows(table, columns)
    observations = _block(table, "observation", columns.observation, pa.float32(), rows.order)
    actions = _block(table, "action", columns.action, pa.float64(), rows.order)
    is_step: Bools = np.any(actions.present, axis=1)
    _check_blocks(rows, observations, actions, is_step)
    rewards, costs, terminated = (
        _numbers(table, name, rows.order) for name in (columns.reward, columns.cost, columns.terminated)
    )
    return Contents(
        _trajectories(rows, observations, actions, is_step, terminated, options, recorded),
        rewards=None if rewards is None else rewards[is_step],
        costs=None if costs is None else costs[is_step],
        names=(columns.reward, columns.cost),
        resolved=_resolved(options, observations, actions),
    )


def _resolved(options: Options, observations: Block, actions: Block) -> Options:
    names: dict[str, Any] = {"observation": observations.columns, "action": actions.columns}
    return replace(options, columns=replace(options.columns, **names))


def _trajectories(
    rows: Rows,
    observations: Block,
    actions: Block,
    is_step: Bools,
    terminated: npt.NDArray[Any] | None,
    options: Options,
    recorded: Bounds | None,
) -> Trajectories:
    count = len(rows.ids)
    scaled, low, high = in_unit_box(actions.values[is_step], options.action_bounds, recorded, actions.names)
    finals = np.zeros((count, observations.values.shape[1]), np.float32)
    finals[rows.episodes[~is_step]] = observations.values[~is_step]
    flags = np.zeros(len(is_step)) if terminated is None else np.nan_to_num(terminated)
    return Trajectories(
        observations=observations.values[is_step],
        actions=scaled,
        lengths=np.bincount(rows.episodes[is_step], minlength=count),
        final_observations=finals,
        has_final=np.bincount(rows.episodes[~is_step], minlength=count) > 0,
        terminated=np.bincount(rows.episodes, flags != 0) > 0,
        action_low=low,
        action_high=high,
        ids=rows.ids,
        observation_names=observations.column_names(),
        action_names=actions.column_names(),
        first_steps=rows.steps[np.searchsorted(rows.episodes, np.arange(count))],
    )


def _sorted_rows(table: pa.Table, columns: Columns) -> Rows:
    if not table.num_rows:
        raise InputError("the table has no rows; need at least one step.")
    ids, episodes = _episodes(table, columns.episode)
    steps = _integers(table, columns.step)
    sorting = np.lexsort((steps, episodes))
    order = slice(None) if np.array_equal(sorting, np.arange(len(steps))) else sorting
    rows = Rows(ids, episodes[order], steps[order], order)
    differences = np.diff(rows.steps)
    bad = (np.diff(rows.episodes) == 0) & (differences != 1)
    if bad.any():
        row = int(np.argmax(bad))
        step = rows.steps[row]
        what = f"has step {step} twice" if differences[row] == 0 else f"has no step {step + 1}"
        raise InputError(
            f"steps must be consecutive, but episode {ids[rows.episodes[row]]} {what}; "
            "correct the log, or give the parts of the episode different names."
        )
    return rows


def _episodes(table: pa.Table, name: str) -> tuple[npt.NDArray[Any], Ints]:
    """Names of the episodes in order of first appearance, and the number of each row's episode."""
    column = _column(table, name)
    if pa.types.is_dictionary(column.type) and _is_text(column.type.value_type):
        return _named_episodes(column.combine_chunks(), name)
    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    if pa.types.is_floating(column.type) or pa.types.is_integer(column.type):
        column = pa.chunked_array([_integers(table, name)])
    elif not _is_text(column.type):
        raise InputError(f'"{name}" must hold whole numbers or text, but holds {column.type}.')
    return _named_episodes(column.combine_chunks().dictionary_encode(), name)


def _named_episodes(encoded: pa.DictionaryArray, name: str) -> tuple[npt.NDArray[Any], Ints]:
    if encoded.null_count:
        raise InputError(f'"{name}" is empty in row {_first_null(encoded)}; name the episode of every row.')
    # A file may list names that no row has, the same name twice, or names in another order.
    distinct = encoded.dictionary.dictionary_encode()
    used = distinct.indices.take(encoded.indices).dictionary_encode()
    names = distinct.dictionary.take(used.dictionary)
    if _is_text(names.type):
        _check_names(names, name)
    return np.asarray(names.to_pylist()), used.indices.to_numpy(zero_copy_only=False).astype(np.int64)


def _check_names(names: pa.Array, column: str) -> None:
    """Refuse names of episodes that are not text, or so long that an array of them would fill the memory."""
    try:
        names.validate(full=True)
    except pa.ArrowInvalid as error:
        raise InputError(f'"{column}" must hold text in UTF-8: {error}.') from error
    check_name_length(pc.max(pc.utf8_length(names)).as_py() or 0)


def _integers(table: pa.Table, name: str) -> Ints:
    column = _column(table, name)
    if column.null_count:
        raise InputError(f'"{name}" is empty in row {_first_null(column)}; every row needs one.')
    try:
        values: Ints = pc.cast(column, pa.int64()).to_numpy()
    except pa.ArrowInvalid as error:
        raise InputError(f'"{name}" must hold whole numbers: {error}.') from error
    except pa.ArrowNotImplementedError as error:
        raise InputError(f'"{name}" must hold whole numbers, but holds {column.type}.') from error
    return values


def _block(table: pa.Table, kind: str, spec: ColumnSpec, dtype: pa.DataType, order: Ints | slice) -> Block:
    """Read the columns of an observation or an action, rows in the given order."""
    names = _names(table, kind, spec)
    first = _column(table, names[0])
    if len(names) == 1 and _is_list(first.type):
        values, present = _from_lists(first, names[0], dtype)
        return Block(
            values[order], present[order], [f"{names[0]}[{i}]" for i in range(values.shape[1])], tuple(names)
        )
    values = np.empty((len(names), table.num_rows), dtype.to_pandas_dtype())
    present = np.empty((len(names), table.num_rows), bool)
    for i, name in enumerate(names):
        values[i], present[i] = _from_column(_column(table, name), name, dtype)
    return Block(values.T[order], present.T[order], names, tuple(names))


def _names(table: pa.Table, kind: str, spec: ColumnSpec) -> list[str]:
    """Names of the columns that match a specification such as "speed,gap_*"."""
    if isinstance(spec, tuple):
        return list(spec)
    if spec is not None:
        return [name for part in spec.split(",") for name in _matching(table, part.strip())]
    for part in DEFAULTS[kind]:
        if part in table.column_names or (part.endswith("*") and _with_prefix(table, part)):
            return _matching(table, part)
    raise InputError(
        f'need a column "{kind}" of lists or columns {DEFAULTS[kind][1]} of numbers, but there is neither '
        f"(columns: {listed(table.column_names)}); say which columns hold the {kind}."
    )


def _matching(table: pa.Table, part: str) -> list[str]:
    if not part.endswith("*"):
        return [part]
    found = _with_prefix(table, part)
    if not found:
        raise InputError(f'no column begins with "{part[:-1]}" (columns: {listed(table.column_names)}).')
    return found


def _with_prefix(table: pa.Table, pattern: str) -> list[str]:
    """Columns that match "prefix*", sorted by the number at their end if all of them end in one."""
    found = [name for name in table.column_names if name.startswith(pattern[:-1])]
    numbers = {name: int(number[0]) for name in found if (number := re.search(r"(?<!\d)\d{1,18}$", name))}
    return sorted(found, key=lambda name: numbers[name]) if len(numbers) == len(found) else found


def _column(table: pa.Table, name: str) -> pa.ChunkedArray:
    found = table.column_names.count(name)
    if found > 1:
        raise InputError(f'the table has {found} columns called "{name}"; rename one of them.')
    if not found:
        raise unknown("column", name, table.column_names)
    return table.column(name)


def _from_lists(column: pa.ChunkedArray, name: str, dtype: pa.DataType) -> tuple[npt.NDArray[Any], Bools]:
    present = column.is_valid().to_numpy()
    widths = pc.list_value_length(column).fill_null(0).to_numpy()
    width = int(widths.max())
    uneven = present & (widths != width)
    if uneven.any() or not width:
        row = int(np.argmax(uneven))
        raise InputError(
            f'the lists in "{name}" must all be equally long, at least 1, but row {row} has '
            f"{widths[row]} entries and another {width}."
        )
    flat, valid = _from_column(pc.list_flatten(column), name, dtype)
    if not valid.all():
        row = int(np.flatnonzero(present)[np.argmin(valid) // width])
        raise InputError(f'the list in row {row} of "{name}" has an empty entry; every number is needed.')
    values = flat.reshape(-1, width)
    if not present.all():
        values = np.zeros((len(column), width), flat.dtype)
        values[present] = flat.reshape(-1, width)
    return values, present[:, None]


def _from_column(column: pa.ChunkedArray, name: str, dtype: pa.DataType) -> tuple[npt.NDArray[Any], Bools]:
    kind = column.type
    if not any(check(kind) for check in NUMERIC):
        if column.null_count < len(column):
            raise InputError(f'"{name}" must hold numbers, but holds {kind}.')
        column = pa.chunked_array([pa.nulls(len(column), dtype)])
    # Not `safe`: numbers too large for float32 become inf, which check_finite refuses.
    numbers = pc.cast(pc.cast(column, pa.int8()) if pa.types.is_boolean(kind) else column, dtype, safe=False)
    return numbers.fill_null(0).to_numpy(), column.is_valid().to_numpy()


def _numbers(table: pa.Table, name: str, order: Ints | slice) -> npt.NDArray[Any] | None:
    """Read an optional column, NaN where it is empty."""
    if name not in table.column_names:
        return None
    values, present = _from_column(_column(table, name), name, pa.float64())
    return np.where(present, values, np.nan)[order]


def _check_blocks(rows: Rows, observations: Block, actions: Block, is_step: Bools) -> None:
    last = np.append(np.diff(rows.episodes) != 0, True)
    _check_present(rows, observations, np.zeros_like(last))
    _check_present(rows, actions, last & ~is_step)
    check_finite("observations", observations.values, rows.where, observations.names)
    check_finite("actions", actions.values, rows.where, actions.names)
    steps = np.bincount(rows.episodes[is_step], minlength=len(rows.ids))
    if not steps.all():
        raise InputError(
            f"episode {rows.ids[np.argmin(steps)]} has no step with an action, only a final observation; "
            "every episode needs at least one such step: leave the episode out."
        )


def _check_present(rows: Rows, block: Block, may_be_empty: Bools) -> None:
    absent = ~block.present & ~may_be_empty[:, None]
    if absent.any():
        row, column = first_true(absent)
        name = block.names[column] if block.present.shape[1] > 1 else block.names[0].removesuffix("[0]")
        raise InputError(
            f'"{name}" is empty at {rows.where(row)}; only the last row of an episode may lack an action '
            "(it holds the final observation), and no row may lack an observation: fill it in."
        )


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
    offsets = np.arange(len(step)) - np.repeat(starts_of(lengths), lengths)
    observations = np.empty((len(step), held.observation_size), np.float32)
    observations[step], observations[~step] = held.observations, held.final_observations[held.has_final]
    last = np.zeros(len(step), bool)
    last[starts_of(lengths) + held.lengths - 1] = held.terminated
    return pa.table(
        {
            "episode": np.repeat(held.ids, lengths),
            "step": np.repeat(held.first_steps, lengths) + offsets,
            **_columns("observation", observations, np.ones_like(step), lists),
            **_columns("action", written_actions(held), step, lists),
            **{
                name: _with_gaps(values, step)
                for name, values in (("reward", contents.rewards), ("cost", contents.costs))
                if values is not None
            },
            "terminated": last,
        }
    )


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


def _is_list(kind: pa.DataType) -> bool:
    checks = (pa.types.is_list, pa.types.is_large_list, pa.types.is_fixed_size_list)
    return any(check(kind) for check in checks)


def _is_text(kind: pa.DataType) -> bool:
    return pa.types.is_string(kind) or pa.types.is_large_string(kind)


def _first_null(column: pa.Array | pa.ChunkedArray) -> int:
    return int(np.argmin(np.asarray(column.is_valid())))
