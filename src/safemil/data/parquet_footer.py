"""Number of values that the footer of a Parquet file declares, of lists too.

Arrow would tell it as well, but ends the process where the footer is damaged. The footer is a structure in
Thrift's compact protocol (https://github.com/apache/thrift/blob/master/doc/specs/thrift-compact-protocol.md),
whose fields https://github.com/apache/parquet-format numbers.
"""

import os
from pathlib import Path
from typing import Any

from safemil.errors import InputError

STOP, TRUE, FALSE, BYTE, DOUBLE, TEXT, LIST, SET, MAP, STRUCT = 0, 1, 2, 3, 7, 8, 9, 10, 11, 12
DEEPEST = 20
# Field by field, from the footer to the number of values of a column in a row group.
GROUPS, COLUMNS, COLUMN, VALUES = 4, 1, 3, 5
WANTED: dict[int, Any] = {GROUPS: {COLUMNS: {COLUMN: {VALUES: None}}}}


def values_declared(path: Path) -> int:
    """Sum over all columns, an entry of a list being a value."""
    with open(path, "rb") as file:
        size = os.fstat(file.fileno()).st_size
        file.seek(max(size - 8, 0))
        length = int.from_bytes(file.read(4), "little")
        file.seek(max(size - 8 - length, 0))
        footer = file.read(length)
    try:
        found = _Reader(footer).structure(WANTED, 0)
        columns = [column for group in found.get(GROUPS, []) for column in group.get(COLUMNS, [])]
        return sum(abs(column.get(COLUMN, {}).get(VALUES, 0)) for column in columns)
    except (AttributeError, IndexError, RecursionError, TypeError) as error:
        raise InputError("the footer of the Parquet file is damaged.") from error


class _Reader:
    """Reads a structure, and keeps the fields that are wanted."""

    def __init__(self, content: bytes):
        self.content, self.at = content, 0

    def structure(self, wanted: dict[int, Any], depth: int) -> dict[int, Any]:
        if depth > DEEPEST:
            raise RecursionError
        found: dict[int, Any] = {}
        number = 0
        while head := self._byte():
            kind, step = head & 15, head >> 4
            number = number + step if step else self._signed()
            value = self._value(kind, wanted.get(number, {}), depth + 1)
            if number in wanted:
                found[number] = value
        return found

    def _value(self, kind: int, wanted: Any, depth: int) -> Any:
        if kind in (TRUE, FALSE):
            return kind == TRUE
        if kind == STRUCT:
            return self.structure(wanted or {}, depth)
        if kind in (LIST, SET):
            head = self._byte()
            count = head >> 4 if head >> 4 < 15 else self._number()
            return [self._item(head & 15, wanted, depth) for _ in range(count)]
        if kind == MAP:
            return self._map(depth)
        if kind in (BYTE, DOUBLE, TEXT):
            length = self._number() if kind == TEXT else {BYTE: 1, DOUBLE: 8}[kind]
            self.at += length
            if self.at > len(self.content):
                raise IndexError
            return None
        if STOP < kind < TEXT:
            return self._signed()
        raise IndexError

    def _item(self, kind: int, wanted: Any, depth: int) -> Any:
        if kind in (TRUE, FALSE):  # which take a byte in a list
            return self._byte() == TRUE
        return self._value(kind, wanted, depth)

    def _map(self, depth: int) -> None:
        count = self._number()
        kinds = self._byte() if count else 0
        for _ in range(count):
            self._item(kinds >> 4, {}, depth)
            self._item(kinds & 15, {}, depth)

    def _byte(self) -> int:
        self.at += 1
        return self.content[self.at - 1]

    def _number(self) -> int:
        found = shift = 0
        while shift < 70:
            byte = self._byte()
            found |= (byte & 127) << shift
            if byte < 128:
                return found
            shift += 7
        raise IndexError

    def _signed(self) -> int:
        number = self._number()
        return (number >> 1) ^ -(number & 1)
