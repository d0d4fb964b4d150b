"""Parquet tables. `write` makes columns of lists, and notes what they leave out in the schema's metadata."""

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from safemil.data.interchange import Contents, Options, begins_with, bounds_from_json, bounds_to_json
from safemil.data.table import ROWS_AT_ONCE, Loaded, Part, from_parts, to_table, written_flags
from safemil.errors import InputError

SUFFIXES: tuple[str, ...] = (".parquet",)
MAGIC = b"PAR1"
METADATA = b"safemil"
BUFFER = 1 << 16  # bytes of a column that are read at once; Arrow would hold the whole column otherwise


def recognises(path: Path) -> bool:
    return begins_with(path, MAGIC)


def read(path: Path, options: Options) -> Contents:
    return from_parts([part(path)], options)


def part(path: Path) -> Part:
    """Open a file as one part of a log; only its description is read."""
    with _damage(), pq.ParquetFile(path) as file:
        schema = file.schema_arrow
    noted = (schema.metadata or {}).get(METADATA)
    return Part(
        schema.names, lambda names, _: File(path, names, schema), {} if noted is None else _noted(noted)
    )


class File(Loaded):
    """Columns of a file, read when they are asked for."""

    def __init__(self, path: Path, names: Sequence[str], schema: pa.Schema) -> None:
        self.path = path
        self.schema = pa.schema([schema.field(name) for name in names])

    def whole(self, names: Sequence[str]) -> pa.Table:
        with _damage(), pq.ParquetFile(self.path) as file:
            return file.read(columns=list(names))

    def batches(self, names: Sequence[str]) -> Iterator[pa.RecordBatch]:
        with _damage(), pq.ParquetFile(self.path, buffer_size=BUFFER, pre_buffer=False) as file:
            for batch in file.iter_batches(ROWS_AT_ONCE, columns=list(names)):
                yield batch.select(list(names))

    def peek(self, name: str) -> Iterator[pa.RecordBatch]:
        yield from self.batches([name])


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
    except (pa.ArrowException, OSError) as error:
        raise InputError(f"the Parquet file is damaged or cut short: {error}") from error
