"""Parquet tables. `write` makes columns of lists, and notes what they leave out in the schema's metadata."""

import json
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from safemil.data.interchange import (
    Contents,
    Options,
    begins_with,
    bounds_from_json,
    bounds_to_json,
    check_declared_size,
)
from safemil.data.parquet_footer import values_declared
from safemil.data.parts import ROWS_AT_ONCE, Loaded, Part
from safemil.data.table import from_parts
from safemil.data.table_writing import to_table, written_flags
from safemil.errors import InputError

SUFFIXES: tuple[str, ...] = (".parquet",)
MAGIC = b"PAR1"
METADATA = b"safemil"
ROWS_DECODED, ROWS_PEEKED = 65536, 256
BUFFER = 1 << 16  # bytes of a column that are read at once; Arrow would hold the whole column otherwise


def recognises(path: Path) -> bool:
    return begins_with(path, MAGIC)


def read(path: Path, options: Options) -> Contents:
    return from_parts([part(path)], options)


def part(path: Path) -> Part:
    """Open a file as one part of a log; only its description is read."""
    with _damage(), _buffered(path) as file:
        _check_size(path, file)
        schema = file.schema_arrow
    noted = (schema.metadata or {}).get(METADATA)
    return Part(
        schema.names, lambda names, _: File(path, names, schema), {} if noted is None else _noted(noted)
    )


class File(Loaded):
    """Columns of a file, read when they are asked for."""

    columns_at_once = 8  # Arrow holds some megabytes for each column that it decodes

    def __init__(self, path: Path, names: Sequence[str], schema: pa.Schema) -> None:
        self.path = path
        self.schema = pa.schema([field for name in names for field in schema if field.name == name])
        self.texts = [field.name for field in self.schema if _is_text(field.type)]

    def whole(self, names: Sequence[str]) -> pa.Table:
        with _damage(), pq.ParquetFile(self.path, read_dictionary=self.texts) as file:
            table = file.read(columns=list(names))
            check_declared_size(self.path, sum(map(_text_size, table.columns)))
            return table.cast(self._plain(table.schema))

    def batches(self, names: Sequence[str]) -> Iterator[pa.RecordBatch]:
        texts = 0
        with _damage(), _buffered(self.path, self.texts) as file:
            for batch in _ahead(file.iter_batches(ROWS_DECODED, columns=list(names), use_threads=False)):
                if self.texts:
                    texts += sum(map(_text_size, batch.columns))
                    check_declared_size(self.path, texts)
                    batch = batch.cast(self._plain(batch.schema))
                for row in range(0, batch.num_rows, ROWS_AT_ONCE):
                    yield batch.slice(row, ROWS_AT_ONCE).select(list(names))

    def _plain(self, found: pa.Schema) -> pa.Schema:
        """The schema with text written out, as the file declares it."""
        return pa.schema(
            [self.schema.field(each.name) if each.name in self.texts else each for each in found],
            found.metadata,
        )

    def peek(self, name: str) -> Iterator[pa.RecordBatch]:
        with _damage(), _buffered(self.path) as file:
            yield from file.iter_batches(ROWS_PEEKED, columns=[name])


def _buffered(path: Path, texts: Sequence[str] = ()) -> pq.ParquetFile:
    return pq.ParquetFile(path, read_dictionary=[*texts], buffer_size=BUFFER, pre_buffer=False)


def _ahead(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Decode the next batch on another core while one is used."""
    with ThreadPoolExecutor(1) as decoder:
        coming = decoder.submit(next, batches, None)
        while (batch := coming.result()) is not None:
            coming = decoder.submit(next, batches, None)
            yield batch


def declared_size(metadata: pq.FileMetaData) -> int:
    """Bytes that the columns take in memory, at 8 or more for each row.

    What the file says of single columns is left alone: Arrow ends the process where it is damaged.
    """
    groups = (metadata.row_group(i) for i in range(metadata.num_row_groups))
    return max(sum(each.total_byte_size for each in groups), 8 * metadata.num_rows * metadata.num_columns)


def _check_size(path: Path, file: pq.ParquetFile) -> None:
    """Compare what a file declares with its size; each entry of a list counts."""
    check_declared_size(path, declared_size(file.metadata), rows=file.metadata.num_rows)
    if any(pa.types.is_nested(field.type) for field in file.schema_arrow):
        check_declared_size(path, 8 * values_declared(path))


def _text_size(column: pa.Array | pa.ChunkedArray) -> int:
    """Bytes of the texts of all rows, many of which may refer to the same text; refuse what is not UTF-8."""
    chunks = column.chunks if isinstance(column, pa.ChunkedArray) else [column]
    encoded = [
        each for each in chunks if pa.types.is_dictionary(each.type) and _is_text(each.type.value_type)
    ]
    for each in encoded:
        each.dictionary.validate(full=True)
    sizes = (pc.sum(pc.binary_length(each.dictionary).take(each.indices)).as_py() for each in encoded)
    return sum(size or 0 for size in sizes)


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def write(path: Path, contents: Contents) -> None:
    held = contents.trajectories
    table = to_table(contents, lists=True)
    noted: dict[str, Any] = json.loads(bounds_to_json(held))
    if (np.sort(held.ids) != held.ids).any():
        noted["episodes"] = held.ids.tolist()
    if held.action_categories is not None:
        noted["action_categories"] = held.action_categories
    if flags := written_flags(held):
        noted["flags"] = flags
    metadata = (table.schema.metadata or {}) | {METADATA: json.dumps(noted)}
    pq.write_table(table.replace_schema_metadata(metadata), path, compression="zstd")


def _noted(text: bytes) -> dict[str, Any]:
    """What `write` noted, as far as it is of the right kind."""
    low, high = bounds_from_json(text)
    found = json.loads(text)
    lists = {name: found.get(name) for name in ("episodes", "flags", "action_categories")}
    return {"action_low": low, "action_high": high} | {
        name: value for name, value in lists.items() if isinstance(value, list)
    }


@contextmanager
def _damage() -> Iterator[None]:
    try:
        yield
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        raise InputError(f"the Parquet file is damaged or cut short: {error}") from error
