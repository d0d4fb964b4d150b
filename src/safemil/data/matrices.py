"""Columns of numbers and of lists, read into the rows of one matrix.

Blocks of a few columns and some thousand rows are written straight to their places, so that no second copy of
a matrix is ever held, and are checked while they are in the processor's cache.
"""

import json
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from safemil.arrays import Bools, Doubles, Ints
from safemil.data.parts import Loaded, floats, is_list, is_number
from safemil.errors import InputError

ENTRY_NAMES = b"safemil entries"  # key of a field's metadata: the names of the entries of its lists, as JSON
LARGEST = float(np.finfo(np.float32).max)

Write = Callable[[int, slice, npt.NDArray[Any]], None]  # of a block: first row, columns, numbers


class Entry(NamedTuple):
    """One column of a matrix: a column of the table, or an entry of its lists."""

    column: str
    name: str


class Seen(NamedTuple):
    """What reading a matrix has found in its columns."""

    empty: Ints  # (entries,) number of empty cells; for lists, of all entries together
    low: Doubles  # (entries,) least number; NaN where any is NaN or empty
    high: Doubles

    @property
    def suspect(self) -> Bools:
        """Columns with an empty cell, NaN or a number that float32 can't hold."""
        return ~((self.low >= -LARGEST) & (self.high <= LARGEST))


def entries_of(loaded: Sequence[Loaded], columns: Sequence[str]) -> list[Entry]:
    """Columns of a matrix, one for each entry of a list."""
    found = []
    for column in columns:
        name = next((each.schema.field(column) for each in loaded if column in each.schema.names), None)
        if name is None or not is_list(name.type):
            found.append(Entry(column, column))
            continue
        given = (name.metadata or {}).get(ENTRY_NAMES)
        names = json.loads(given) if given else [f"{column}[{i}]" for i in range(_width(loaded, column))]
        found += [Entry(column, each) for each in names]
    return found


def names_of(entries: Sequence[Entry], names: Sequence[str]) -> tuple[str, ...] | None:
    """Names of columns; None for the entries of one column of lists, which have none."""
    unnamed = len({each.column for each in entries}) == 1 and all(
        each.name == f"{each.column}[{i}]" for i, each in enumerate(entries)
    )
    return None if unnamed else tuple(names)


def _width(loaded: Sequence[Loaded], column: str) -> int:
    """Number of entries of the first list in a column."""
    for each in loaded:
        for batch in each.peek(column):
            lengths = pc.list_value_length(batch.column(0)).drop_null()
            if len(lengths) and lengths[0].as_py():
                return int(lengths[0].as_py())
    raise InputError(f'the lists in "{column}" must all be equally long, at least 1, but all are empty.')


def uneven_lists(loaded: Sequence[Loaded], columns: Sequence[str]) -> dict[str, str]:
    """Say which columns hold lists of different lengths, or of none."""
    found = {}
    for column in columns:
        parts = [each for each in loaded if column in each.schema.names]
        if not any(is_list(each.schema.field(column).type) for each in parts):
            continue
        widths = {
            width
            for each in parts
            for batch in each.peek(column)
            for width in pc.unique(pc.list_value_length(batch.column(0))).to_pylist()
        } - {None}
        if len(widths) != 1 or widths == {0}:
            lengths = " and ".join(map(str, sorted(widths)[:2])) or "no"
            found[column] = (
                f'the lists in "{column}" must all be equally long, at least 1, but have {lengths} entries.'
            )
    return found


def read_matrix(
    loaded: Sequence[Loaded], entries: Sequence[Entry], dtype: npt.DTypeLike, write: Write
) -> Seen:
    """Read all entries in blocks, which `write` puts to their places; an empty cell is NaN.

    Rows are numbered over all parts, in the order of the files.
    """
    held = [each.column for each in entries]
    columns = [*dict.fromkeys(held)]
    low, high = np.full(len(entries), np.inf), np.full(len(entries), -np.inf)
    seen = Seen(np.zeros(len(entries), np.int64), low, high)
    with np.errstate(over="ignore", invalid="ignore"):  # what float32 can't hold becomes inf, and is noted
        row = 0
        for each in loaded:
            for start in range(0, len(columns), each.columns_at_once):
                some = columns[start : start + each.columns_at_once]
                counts = [held.count(name) for name in some]
                first, end = held.index(some[0]), row
                for batch in each.batches(some):
                    block = np.empty((batch.num_rows, sum(counts)), dtype)
                    place = 0
                    for name, count, array in zip(some, counts, batch.columns, strict=True):
                        _fill(block[:, place : place + count], array, name, seen, first + place)
                        place += count
                    write(end, slice(first, first + place), block)
                    end += batch.num_rows
            row = end
    return seen


def _fill(into: npt.NDArray[Any], array: pa.Array, name: str, seen: Seen, first: int) -> None:
    """Write the numbers of an array, or of each entry of its lists, and note what they are."""
    if not len(array):
        return
    if not is_list(array.type):
        values = floats(array)
        into[:, 0] = values
        seen.empty[first] += array.null_count
        _note(seen, first, values.min(), values.max())
        return
    values, empty = _list_values(array, into.shape[1], name)
    into[:] = values
    entries = slice(first, first + into.shape[1])
    seen.empty[entries] += empty
    low, high = values.min(), values.max()
    if not (low >= -LARGEST and high <= LARGEST):  # tell which columns
        low, high = ([each(column) for column in values.T] for each in (np.min, np.max))
    _note(seen, entries, low, high)


def _note(seen: Seen, columns: int | slice, low: npt.ArrayLike, high: npt.ArrayLike) -> None:
    seen.low[columns] = np.minimum(seen.low[columns], low)
    seen.high[columns] = np.maximum(seen.high[columns], high)


def _list_values(array: pa.Array, width: int, name: str) -> tuple[npt.NDArray[Any], int]:
    """Numbers of lists, (rows, width), and how many are empty."""
    lengths = pc.list_value_length(array).drop_null().to_numpy(zero_copy_only=False)
    if (lengths != width).any():
        other = lengths[np.argmax(lengths != width)]
        raise InputError(
            f'the lists in "{name}" must all be equally long, at least 1, but one has {width} entries and '
            f"another {other}."
        )
    inner = array.flatten()
    if not is_number(inner.type) or is_list(inner.type):
        raise InputError(f'the lists in "{name}" must hold numbers, but hold {inner.type}.')
    numbers = floats(inner).reshape(-1, width)
    if not array.null_count:
        return numbers, inner.null_count
    values = np.full((len(array), width), np.nan, np.result_type(numbers, np.float32))
    values[np.asarray(array.is_valid())] = numbers
    return values, array.null_count + inner.null_count
