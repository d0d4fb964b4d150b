"""CSV tables, separated by commas, semicolons or tabs, plain or compressed (gzip, Zstandard).

CSV has no place for action bounds.
"""

import csv as text_csv
from pathlib import Path

import pyarrow as pa
from pyarrow import csv

from safemil.data.interchange import Contents, Options, begins_with, check_declared_size
from safemil.data.table import Loaded, Part, from_parts, to_table
from safemil.errors import InputError

SUFFIXES: tuple[str, ...] = (".csv", ".csv.gz", ".csv.zst")
SEPARATORS = ",;\t"
COMPRESSIONS = {"gzip": b"\x1f\x8b", "zstd": b"\x28\xb5\x2f\xfd"}
LONGEST_HEADER = 1 << 20  # bytes
MOST_COLUMNS = 20_000  # Arrow takes some kilobytes for each


def recognises(path: Path) -> bool:
    """Whether the first line is text and contains a separator."""
    return path.is_file() and any(separator in _first_line(path) for separator in SEPARATORS)


def read(path: Path, options: Options) -> Contents:
    return from_parts([part(path)], options)


def part(path: Path) -> Part:
    """Open a file as one part of a log; only its first line is read."""
    line = _first_line(path)
    separator = max(SEPARATORS, key=line.count)
    if line.count(separator) >= MOST_COLUMNS:
        raise InputError(
            f"the first line names {line.count(separator) + 1:,} columns, but {MOST_COLUMNS:,} can be read; "
            "is it a table?"
        )
    columns = next(text_csv.reader([line.rstrip("\r\n")], delimiter=separator), [])
    return Part(columns, lambda names: _load(path, separator, names))


def _load(path: Path, separator: str, names: list[str]) -> Loaded:
    try:
        _check_unpacked_size(path)
        with pa.input_stream(str(path), compression=_compression(path)) as stream:
            table = csv.read_csv(
                stream,
                parse_options=csv.ParseOptions(delimiter=separator),
                # Only empty fields are missing values; "nan" is a number.
                convert_options=csv.ConvertOptions(null_values=[""], include_columns=names),
            )
    except (pa.ArrowException, OSError) as error:
        raise InputError(f"the CSV file can't be read: {error}") from error
    return Loaded(table)


def write(path: Path, contents: Contents) -> None:
    with pa.output_stream(str(path), compression="detect") as stream:
        csv.write_csv(to_table(contents, lists=False), stream)


def _check_unpacked_size(path: Path) -> None:
    """Unpack a compressed file once, piece by piece, to learn how much it holds."""
    compression, size = _compression(path), 0
    if compression is not None:
        with pa.input_stream(str(path), compression=compression) as stream:
            while piece := stream.read(LONGEST_HEADER):
                size += len(piece)
                check_declared_size(path, size)


def _compression(path: Path) -> str | None:
    return next((name for name, magic in COMPRESSIONS.items() if begins_with(path, magic)), None)


def _first_line(path: Path) -> str:
    try:
        with pa.input_stream(str(path), compression=_compression(path)) as stream:
            start: bytes = stream.read(LONGEST_HEADER)
        text = start.split(b"\n", 1)[0].decode("utf-8-sig")
    except (UnicodeDecodeError, pa.ArrowException, OSError):
        return ""
    return "" if "\0" in text else text
