"""Parquet tables. `write` makes columns of lists, and puts the action bounds into the schema's metadata."""

from pathlib import Path

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
            check_declared_size(path, _declared_size(file.metadata))
            texts = [field.name for field in file.schema_arrow if _is_text(field.type)]
        # Each text is read once: a long one that every row refers to would fill the memory.
        with pq.ParquetFile(path, read_dictionary=texts) as file:
            table = _with_plain_texts(file.read(), texts, path)
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        raise InputError(f"the Parquet file is damaged or cut short: {error}") from error
    bounds = (table.schema.metadata or {}).get(METADATA)
    return from_table(table, options, None if bounds is None else bounds_from_json(bounds))


def _declared_size(metadata: pq.FileMetaData) -> int:
    """Bytes that the columns take in memory, at 8 or more for each entry."""
    groups = (metadata.row_group(i) for i in range(metadata.num_row_groups))
    chunks = (group.column(i) for group in groups for i in range(metadata.num_columns))
    return sum(max(8 * chunk.num_values, chunk.total_uncompressed_size) for chunk in chunks)


def _with_plain_texts(table: pa.Table, names: list[str], path: Path) -> pa.Table:
    """Write out the text of every row, where that is not much more than the file holds."""
    chosen = [i for i, name in enumerate(table.column_names) if name in names]
    encoded = [
        chunk for i in chosen for chunk in table.column(i).chunks if pa.types.is_dictionary(chunk.type)
    ]
    sizes = (pc.sum(pc.binary_length(chunk.dictionary).take(chunk.indices)).as_py() or 0 for chunk in encoded)
    check_declared_size(path, sum(sizes))
    for i in chosen:
        kind = table.column(i).type
        if pa.types.is_dictionary(kind):
            table = table.set_column(i, table.column_names[i], table.column(i).cast(kind.value_type))
    return table


def _is_text(kind: pa.DataType) -> bool:
    return pa.types.is_string(kind) or pa.types.is_large_string(kind)


def write(path: Path, contents: Contents) -> None:
    table = to_table(contents, lists=True)
    pq.write_table(
        table.replace_schema_metadata({METADATA: bounds_to_json(contents.trajectories)}),
        path,
        compression="zstd",
    )
