"""CSV tables, separated by commas, semicolons or tabs, plain or compressed (gzip, Zstandard).

CSV has no place for action bounds.
"""

import csv as text_csv
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyarrow import csv

from safemil.data.interchange import Contents, Options, begins_with, check_declared_size
from safemil.data.parts import Loaded, Part
from safemil.data.table import from_parts
from safemil.data.table_writing import to_table
from safemil.errors import InputError

SUFFIXES: tuple[str, ...] = (".csv", ".csv.gz", ".csv.zst")
SEPARATORS = ",;\t"
COMPRESSIONS = {"gzip": b"\x1f\x8b", "zstd": b"\x28\xb5\x2f\xfd"}
LONGEST_HEADER = 1 << 20  # bytes
PIECE = 2 << 20  # bytes that are parsed at once
BYTES_OF_LETTER = 4  # a digit and a comma become a number of eight bytes
MOST_COLUMNS = 20_000  # Arrow takes some kilobytes for each


def recognises(path: Path) -> bool:
    """Whether the first line is text and contains a separator."""
    return path.is_file() and any(separator in _first_line(path) for separator in SEPARATORS)


def read(path: Path, options: Options) -> Contents:
    return from_parts([part(path)], options)


def part(path: Path) -> Part:
    """Open a file as one part of a log; only its first line is read."""
    line = _first_line(path)
    separator = _separator(line)
    if line.count(separator) >= MOST_COLUMNS:
        raise InputError(
            f"the first line names {line.count(separator) + 1:,} columns, but {MOST_COLUMNS:,} can be read; "
            "is it a table?"
        )
    try:
        columns = next(text_csv.reader([line.rstrip("\r\n")], delimiter=separator), [])
    except text_csv.Error as error:
        raise InputError(f"the first line does not name columns: {error}.") from error
    return Part(columns, lambda names, narrow: _load(path, separator, names, narrow, columns))


def _separator(line: str) -> str:
    return max(SEPARATORS, key=line.count)


def _load(path: Path, separator: str, names: list[str], narrow: Sequence[str], columns: list[str]) -> Loaded:
    """Read columns; those in `narrow` may be float32.

    Arrow keeps the whole text until it knows the types of all columns, so the first piece tells them. Where
    it tells wrong, as for a column that is empty there, everything is read again without that knowledge.
    """
    try:
        _check_unpacked_size(path)
        try:
            pieces = [*_pieces(path, separator, names, narrow, columns)]
            return Loaded(pa.concat_tables(pieces))
        except pa.ArrowInvalid:
            with _opened(path) as stream:
                return Loaded(csv.read_csv(stream, **_how(separator, names)))
    except (pa.ArrowException, OSError) as error:
        raise InputError(f"the CSV file can't be read: {error}") from error


def as_text(path: Path, names: list[str]) -> pa.Table:
    """Read columns as they stand in the file."""
    separator = _separator(_first_line(path))
    how = _how(separator, names, dict.fromkeys(names, pa.string()))
    with _opened(path) as stream:
        return csv.read_csv(stream, **how)


def _pieces(
    path: Path, separator: str, names: list[str], narrow: Sequence[str], columns: list[str]
) -> Iterator[pa.Table]:
    """Read some columns in pieces of whole rows; the types of the first piece hold for all."""
    types: dict[str, pa.DataType] | None = None
    target: pa.Schema = None
    for text in _texts(path):
        how = _how(separator, names, types)
        if types is not None:  # the first line of the first piece has the names
            how["read_options"] = csv.ReadOptions(column_names=columns)
        table = csv.read_csv(pa.BufferReader(text), **how)
        if types is None:
            types = {each.name: _wide(each, narrow) for each in table.schema}
            if any(pa.types.is_null(kind) for kind in types.values()):
                raise pa.ArrowInvalid("a column is empty in the first piece")
            target = pa.schema([(name, _stored(types[name], name in narrow)) for name in names])
        stored = table.cast(target, safe=False).combine_chunks()
        del table
        pa.default_memory_pool().release_unused()  # Arrow would keep the memory for later
        yield stored


def _wide(field: pa.Field, narrow: Sequence[str]) -> pa.DataType:
    """Type with which a column is parsed: a column of numbers may have a point further down."""
    return pa.float64() if field.name in narrow and _is_number(field.type) else field.type


def _stored(kind: pa.DataType, narrow: bool) -> pa.DataType:
    return pa.float32() if narrow and kind == pa.float64() else kind


def _texts(path: Path) -> Iterator[bytes]:
    """Cut a file into pieces that end with a line; Arrow's own reader of pieces uses one core."""
    with _opened(path) as stream:
        rest = b""
        while read := stream.read(PIECE):
            text = rest + read
            end = text.rfind(b"\n") + 1 or text.rfind(b"\r") + 1
            if end:
                yield text[:end]
            rest = text[end:]
        if rest:
            yield rest


def stream(path: Path, names: list[str]) -> Iterator[tuple[pa.RecordBatch, float]]:
    """Read columns in batches, each with the share of the file up to it, where the file is not compressed.

    The first block tells the types of columns; numbers are read as float64.
    """
    separator = max(SEPARATORS, key=_first_line(path).count)
    size = path.stat().st_size if _compression(path) is None else None
    try:
        with _opened(path) as stream, csv.open_csv(stream, **_how(separator, names)) as reader:
            types = {
                each.name: pa.float64() if pa.types.is_floating(each.type) or pa.types.is_null(each.type)
                else each.type
                for each in reader.schema
            }  # fmt: skip
        with _opened(path) as stream, csv.open_csv(stream, **_how(separator, names, types)) as reader:
            for batch in reader:
                yield batch, 0.0 if size is None else stream.tell() / size
    except (pa.ArrowException, OSError) as error:
        raise InputError(
            f"the CSV file can't be read in pieces: {error}; write it as Parquet, or convert it without "
            "shards."
        ) from error


def _is_number(kind: pa.DataType) -> bool:
    return pa.types.is_integer(kind) or pa.types.is_floating(kind)


def _opened(path: Path) -> pa.NativeFile:
    return pa.input_stream(str(path), compression=_compression(path))


def _how(separator: str, names: list[str], types: Mapping[str, pa.DataType] | None = None) -> dict[str, Any]:
    # Only empty fields are missing values; "nan" is a number.
    convert = csv.ConvertOptions(null_values=[""], include_columns=names, column_types=types)
    return {"parse_options": csv.ParseOptions(delimiter=separator), "convert_options": convert}


def write(path: Path, contents: Contents) -> None:
    with pa.output_stream(str(path), compression="detect") as stream:
        csv.write_csv(to_table(contents, lists=False), stream)


def _check_unpacked_size(path: Path) -> None:
    """Unpack a compressed file once, piece by piece, to learn how much it holds."""
    compression, size, rows = _compression(path), 0, 0
    if compression is not None:
        with pa.input_stream(str(path), compression=compression) as stream:
            while piece := stream.read(LONGEST_HEADER):
                size += len(piece)
                rows += max(piece.count(b"\n"), piece.count(b"\r"))
                check_declared_size(path, BYTES_OF_LETTER * size, rows=rows)


def _compression(path: Path) -> str | None:
    return next((name for name, magic in COMPRESSIONS.items() if begins_with(path, magic)), None)


def _first_line(path: Path) -> str:
    try:
        with pa.input_stream(str(path), compression=_compression(path)) as stream:
            start: bytes = stream.read(LONGEST_HEADER)
        text = re.split(rb"[\r\n]", start, maxsplit=1)[0].decode("utf-8-sig")
    except (UnicodeDecodeError, pa.ArrowException, OSError):
        return ""
    return "" if "\0" in text else text
