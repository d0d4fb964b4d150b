"""One table of a log: its columns, read when they are asked for.

A log is one `Part` or several. Parquet and CSV files open as parts, and so does a table in memory.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

NUMERIC = (
    pa.types.is_floating,
    pa.types.is_integer,
    pa.types.is_boolean,
    pa.types.is_decimal,
    pa.types.is_null,
)
ROWS_AT_ONCE = 16384


class Loaded:
    """The columns of a part that are needed. Each is read once, and is then let go."""

    columns_at_once = 1 << 16  # rows of a table in memory are let go as a whole

    def __init__(self, table: pa.Table) -> None:
        self.schema: pa.Schema = table.schema
        self._table = table

    def whole(self, names: Sequence[str]) -> pa.Table:
        """Read some columns as a table."""
        table = self._table.select(list(names))
        self._table = self._table.drop_columns(list(names))
        return table

    def batches(self, names: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Read some columns in the order of the file."""
        batches = self.whole(names).to_batches(ROWS_AT_ONCE)[::-1]
        for number in range(len(batches)):
            yield batches.pop()
            if number % 16 == 15:  # Arrow would keep the memory for later
                pa.default_memory_pool().release_unused()

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


def with_partition(table: pa.Table, part: Part, wanted: Sequence[str]) -> pa.Table:
    """Add the columns that the names of the folders give."""
    for name in wanted:
        if name not in table.column_names and name in part.partition:
            value = pa.scalar(part.partition[name])
            table = table.append_column(name, pa.repeat(value, table.num_rows))
    return table


def is_number(kind: pa.DataType) -> bool:
    """Whether a column holds numbers, or lists of numbers."""
    inner = kind.value_type if is_list(kind) else kind
    return any(check(inner) for check in NUMERIC)


def is_list(kind: pa.DataType) -> bool:
    checks = (pa.types.is_list, pa.types.is_large_list, pa.types.is_fixed_size_list)
    return any(check(kind) for check in checks)


def floats(array: pa.Array) -> npt.NDArray[Any]:
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


def together(columns: Sequence[pa.ChunkedArray]) -> pa.ChunkedArray:
    """One column of several parts, as text where their types differ."""
    if len({each.type for each in columns}) > 1:
        columns = [pc.cast(each, pa.string()) for each in columns]
    return pa.chunked_array([chunk for each in columns for chunk in each.chunks], columns[0].type)
