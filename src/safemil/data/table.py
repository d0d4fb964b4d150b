"""Tables: one row per step, in any order; what Parquet and CSV have in common.

An episode's final observation is one more row, the last of its episode, whose action is empty.
"""

# pyarrow has no types and exports what mypy takes for private names.

import re
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from safemil.data.interchange import Bounds, Columns, Contents, Options, in_unit_box, listed, written_actions
from safemil.data.trajectories import Trajectories, starts_of
from safemil.errors import InputError, unknown
from safemil.typing import Bools, Ints

NUMERIC = (pa.types.is_floating, pa.types.is_integer, pa.types.is_boolean, pa.types.is_decimal)
DEFAULTS = {"observation": ("observation", "obs_*"), "action": ("action", "act_*")}


@dataclass(frozen=True)
class Rows:
    """Which episode and step each row is, sorted: episodes as they first appear, steps by number."""

    ids: npt.NDArray[Any]  # (episodes,)
    episodes: Ints  # (rows,) number of the episode
    steps: Ints  # (rows,)
    order: Ints | slice  # row of the table each comes from; a slice spares a copy of what is in order

    def where(self, row: int) -> str:
        return f"episode {self.ids[self.episodes[row]]}, step {self.steps[row]}"


class Block(NamedTuple):
    """Columns that belong together."""

    values: npt.NDArray[Any]  # (rows, width)
    present: Bools  # (rows, width), or (rows, 1) for a column of lists
    names: list[str]


def from_table(table: pa.Table, options: Options, recorded: Bounds | None = None) -> Contents:
    """Sort the rows into episodes and check them."""
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
    )


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
        first_steps=rows.steps[np.searchsorted(rows.episodes, np.arange(count))],
    )


def _sorted_rows(table: pa.Table, columns: Columns) -> Rows:
    if not table.num_rows:
        raise InputError("the table has no rows; need at least one step.")
    ids, episodes = _episodes(table, columns.episode)
    steps = _whole(table, columns.step)
    sorting = np.lexsort((steps, episodes))
    order = slice(None) if np.array_equal(sorting, np.arange(len(steps))) else sorting
    rows = Rows(ids, episodes[order], steps[order], order)
    gaps = np.diff(rows.steps)
    bad = (np.diff(rows.episodes) == 0) & (gaps != 1)
    if bad.any():
        row = int(np.argmax(bad))
        what = f"has step {rows.steps[row]} twice" if gaps[row] == 0 else f"has no step {rows.steps[row] + 1}"
        raise InputError(
            f"steps must follow one another, but episode {ids[rows.episodes[row]]} {what}; "
            "mend the log, or give its parts names of their own."
        )
    return rows


def _episodes(table: pa.Table, name: str) -> tuple[npt.NDArray[Any], Ints]:
    """Names in order of first appearance, and the number of each row's episode."""
    column = _column(table, name)
    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    if pa.types.is_floating(column.type) or pa.types.is_integer(column.type):
        column = pa.chunked_array([_whole(table, name)])
    elif not (pa.types.is_string(column.type) or pa.types.is_large_string(column.type)):
        raise InputError(f'"{name}" must hold whole numbers or text, but holds {column.type}.')
    elif column.null_count:
        raise InputError(f'"{name}" is empty in row {_first_null(column)}; name the episode of every row.')
    encoded = column.combine_chunks().dictionary_encode()
    names = np.asarray(encoded.dictionary.to_pylist())
    return names, encoded.indices.to_numpy(zero_copy_only=False).astype(np.int64)


def _whole(table: pa.Table, name: str) -> Ints:
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


def _block(table: pa.Table, kind: str, spec: str | None, dtype: pa.DataType, order: Ints | slice) -> Block:
    """The columns of an observation or an action, its rows in the given order."""
    names = _names(table, kind, spec)
    first = table.column(names[0])
    if len(names) == 1 and _is_list(first.type):
        values, present = _from_lists(first, names[0], dtype)
        return Block(values[order], present[order], [f"{names[0]}[{i}]" for i in range(values.shape[1])])
    values = np.empty((len(names), table.num_rows), dtype.to_pandas_dtype())
    present = np.empty((len(names), table.num_rows), bool)
    for i, name in enumerate(names):
        values[i], present[i] = _from_column(table.column(name), name, dtype)
    return Block(values.T[order], present.T[order], names)


def _names(table: pa.Table, kind: str, spec: str | None) -> list[str]:
    """Names of the columns a description like "speed,gap_*" stands for."""
    if spec is not None:
        return [name for part in spec.split(",") for name in _matching(table, part.strip())]
    for part in DEFAULTS[kind]:
        if part in table.column_names or (part.endswith("*") and _beginning(table, part)):
            return _matching(table, part)
    raise InputError(
        f'need a column "{kind}" of lists or columns {DEFAULTS[kind][1]} of numbers, but there is neither '
        f"(columns: {listed(table.column_names)}); name yours with --{kind}."
    )


def _matching(table: pa.Table, part: str) -> list[str]:
    if not part.endswith("*"):
        _column(table, part)
        return [part]
    found = _beginning(table, part)
    if not found:
        raise InputError(f'no column begins with "{part[:-1]}" (columns: {listed(table.column_names)}).')
    return found


def _beginning(table: pa.Table, pattern: str) -> list[str]:
    """Columns that begin so, by their last number if all of them end in one."""
    found = [name for name in table.column_names if name.startswith(pattern[:-1])]
    numbers = {name: int(number[0]) for name in found if (number := re.search(r"\d+$", name))}
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
    # Not `safe`: what float32 can't hold becomes inf, which is refused with its place.
    numbers = pc.cast(pc.cast(column, pa.int8()) if pa.types.is_boolean(kind) else column, dtype, safe=False)
    return numbers.fill_null(0).to_numpy(), column.is_valid().to_numpy()


def _numbers(table: pa.Table, name: str, order: Ints | slice) -> npt.NDArray[Any] | None:
    """An optional column, NaN where it is empty."""
    if name not in table.column_names:
        return None
    values, present = _from_column(_column(table, name), name, pa.float64())
    return np.where(present, values, np.nan)[order]


def _check_blocks(rows: Rows, observations: Block, actions: Block, is_step: Bools) -> None:
    last = np.append(np.diff(rows.episodes) != 0, True)
    _check_present(rows, observations, np.zeros_like(last))
    _check_present(rows, actions, last & ~is_step)
    _check_finite(rows, observations)
    _check_finite(rows, actions)
    steps = np.bincount(rows.episodes[is_step], minlength=len(rows.ids))
    if not steps.all():
        raise InputError(
            f"episode {rows.ids[np.argmin(steps)]} has no step with an action, only a final observation; "
            "every episode needs at least one: leave it out."
        )


def _check_present(rows: Rows, block: Block, may_be_empty: Bools) -> None:
    absent = ~block.present & ~may_be_empty[:, None]
    if absent.any():
        row, column = (int(i) for i in np.argwhere(absent)[0])
        name = block.names[column] if block.present.shape[1] > 1 else block.names[0].removesuffix("[0]")
        raise InputError(
            f'"{name}" is empty at {rows.where(row)}; only the last row of an episode may be without '
            "an action (it is the observation after the last step), and none without an observation."
        )


def _check_finite(rows: Rows, block: Block) -> None:
    if not np.isfinite(block.values).all():
        row, column = (int(i) for i in np.argwhere(~np.isfinite(block.values))[0])
        raise InputError(
            f'"{block.names[column]}" must be a finite number that float32 can hold, but is '
            f"{block.values[row, column]} at {rows.where(row)}; mend it, or leave the episode out."
        )


def to_table(contents: Contents, *, lists: bool) -> pa.Table:
    """The table that `from_table` reads back, with columns of lists or `obs_0`, `obs_1`, ... of numbers."""
    held = contents.trajectories
    if len(np.unique(held.ids)) < len(held):
        raise InputError(
            "a table needs a name of its own for each episode; give the Trajectories other `ids`."
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
    """`values` has a row for each row that is present."""
    if not lists:
        prefix = DEFAULTS[kind][1].removesuffix("*")
        return {f"{prefix}{i}": _with_gaps(values[:, i], present) for i in range(values.shape[1])}
    offsets = np.concatenate([[0], np.cumsum(present * values.shape[1])])
    flat = pa.array(np.ascontiguousarray(values).ravel())
    # Large: the offsets of ordinary lists end at 2^31 numbers.
    return {kind: pa.LargeListArray.from_arrays(pa.array(offsets), flat, mask=pa.array(~present))}


def _with_gaps(values: npt.NDArray[Any], present: Bools) -> pa.Array:
    spread = np.zeros(len(present), values.dtype)
    spread[present] = values
    return pa.array(spread, mask=~present)


def _is_list(kind: pa.DataType) -> bool:
    checks = (pa.types.is_list, pa.types.is_large_list, pa.types.is_fixed_size_list)
    return any(check(kind) for check in checks)


def _first_null(column: pa.ChunkedArray) -> int:
    return int(np.argmin(column.is_valid().to_numpy()))
