"""Parquet tables. `write` makes columns of lists, and puts the action bounds into the schema's metadata."""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from safemil.data.interchange import Contents, Options, begins_with, bounds_from_json, bounds_to_json
from safemil.data.table import from_table, to_table
from safemil.errors import InputError

SUFFIXES: tuple[str, ...] = (".parquet",)
MAGIC = b"PAR1"
METADATA = b"safemil"


def recognises(path: Path) -> bool:
    return begins_with(path, MAGIC)


def read(path: Path, options: Options) -> Contents:
    try:
        with pq.ParquetFile(path) as file:
            table = file.read()
    except (pa.ArrowException, OSError) as error:
        raise InputError(f"the Parquet file is damaged or cut short: {error}") from error
    bounds = (table.schema.metadata or {}).get(METADATA)
    return from_table(table, options, None if bounds is None else bounds_from_json(bounds))


def write(path: Path, contents: Contents) -> None:
    table = to_table(contents, lists=True)
    pq.write_table(
        table.replace_schema_metadata({METADATA: bounds_to_json(contents.trajectories)}),
        path,
        compression="zstd",
    )
