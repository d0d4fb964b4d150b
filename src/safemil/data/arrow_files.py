"""Arrow files, read from front to back as streams, so that what was checked is what is read."""

import struct
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa

from safemil.errors import InputError

MAGIC = 8  # bytes before the messages: "ARROW1" and two zeros
# Fields of https://github.com/apache/arrow/tree/main/format: Message.fbs and its record batches.
HEADER_TYPE, HEADER = 1, 2
DICTIONARY, RECORDS = 2, 3  # types of headers
DICTIONARY_DATA, COMPRESSION = 1, 3


def opened(path: Path) -> pa.Table:
    """Table of a file, which stays on the disk until its columns are used."""
    memory = pa.memory_map(str(path))
    memory.seek(MAGIC)
    with pa.ipc.open_stream(memory) as stream:
        return stream.read_all()


def declared_size(path: Path) -> int:
    """Bytes that the columns take; compressed ones are refused, since they say nothing of their size."""
    for message in _messages(path):
        if _is_compressed(message.metadata.to_pybytes()):
            raise InputError(
                f"{path.name} is compressed within; write it again as Minari does, or as Parquet."
            )
    return int(opened(path).nbytes)


def _messages(path: Path) -> Iterator[pa.ipc.Message]:
    with pa.memory_map(str(path)) as memory:
        memory.seek(MAGIC)
        yield from pa.ipc.MessageReader.open_stream(memory)


def _is_compressed(message: bytes) -> bool:
    root = struct.unpack_from("<I", message)[0]
    kind = _field(message, root, HEADER_TYPE)
    header = _field(message, root, HEADER)
    if kind is None or header is None or message[kind] not in (DICTIONARY, RECORDS):
        return False
    table: int | None = _target(message, header)
    if message[kind] == DICTIONARY:
        data = _field(message, _target(message, header), DICTIONARY_DATA)
        table = None if data is None else _target(message, data)
    return table is not None and _field(message, table, COMPRESSION) is not None


def _target(message: bytes, place: int) -> int:
    """Place that an offset leads to."""
    return place + int(struct.unpack_from("<I", message, place)[0])


def _field(message: bytes, table: int, number: int) -> int | None:
    """Place of a field of a table in the format of FlatBuffers; None if it is not there."""
    names = table - struct.unpack_from("<i", message, table)[0]
    if 4 + 2 * number >= struct.unpack_from("<H", message, names)[0]:
        return None
    offset = struct.unpack_from("<H", message, names + 4 + 2 * number)[0]
    return table + offset if offset else None
