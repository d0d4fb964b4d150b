"""Parquet tables. Ours hold list columns, and the recorded action bounds in the schema's metadata."""

# pyarrow has no types and exports what mypy takes for private names.

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from safemil.data.interchange import Contents, Options, bounds_from_json, bounds_to_json
from safemil.data.table import from_table, to_table
from safemil.errors import InputError

SUFFIXES: tuple[str, ...] = (".parquet",)
MAGIC = b"PAR1"
METADATA = b"safemil"


def recognises(path: Path) -> bool:
    if not path.is_file():
        return False
    with open(path, "rb") as file:
        return file.read(len(MAGIC)) == MAGIC


def read(path: Path, options: Options) -> Contents:
    try:
        with pq.ParquetFile(path) as file:
            table = file.read()
    except (pa.ArrowException, OSError) as error:
        raise InputError(f"the Parquet file is damaged or cut short: {error}") from error
    noted = (table.schema.metadata or {}).get(METADATA)
    return from_table(table, options, None if noted is None else bounds_from_json(noted))


def write(path: Path, contents: Contents) -> None:
    table = to_table(contents, lists=True)
    pq.write_table(
        table.replace_schema_metadata({METADATA: bounds_to_json(contents.trajectories)}),
        path,
        compression="zstd",
    )
