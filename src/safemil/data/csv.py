"""CSV tables, separated by commas, semicolons or tabs. CSV has no place for action bounds."""

from pathlib import Path

import pyarrow as pa
from pyarrow import csv

from safemil.data.interchange import Contents, Options
from safemil.data.table import from_table, to_table
from safemil.errors import InputError

SUFFIXES: tuple[str, ...] = (".csv",)
SEPARATORS = ",;\t"


def recognises(path: Path) -> bool:
    """Whether the first line is text and contains a separator."""
    return path.is_file() and any(separator in _first_line(path) for separator in SEPARATORS)


def read(path: Path, options: Options) -> Contents:
    line = _first_line(path)
    separator = max(SEPARATORS, key=line.count)
    try:
        table = csv.read_csv(
            path,
            parse_options=csv.ParseOptions(delimiter=separator),
            # Only empty fields are missing values; "nan" is a number, which is refused later.
            convert_options=csv.ConvertOptions(null_values=[""]),
        )
    except pa.ArrowInvalid as error:
        raise InputError(f"the CSV file can't be read: {error}") from error
    return from_table(table, options)


def write(path: Path, contents: Contents) -> None:
    csv.write_csv(to_table(contents, lists=False), path)


def _first_line(path: Path) -> str:
    with open(path, "rb") as file:
        line = file.readline(1 << 20)
    try:
        text = line.decode("utf-8-sig")
    except UnicodeDecodeError:
        return ""
    return "" if "\0" in text else text
