"""What a bag unpacks to, learned before the libraries that read bags unpack it without a limit.

Chunks are unpacked once, piece by piece. An index that leads to anything but a chunk is refused, since only
what was looked at may be read.
"""

import bz2
import os
import re
import sqlite3
import struct
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import BinaryIO, NamedTuple

import pyarrow as pa

from safemil.data.interchange import begins_with, check_declared_size
from safemil.errors import InputError

PIECE = 1 << 20  # bytes
MCAP, DATABASE, ZSTD = b"\x89MCAP0\r\n", b"SQLite format 3\0", b"\x28\xb5\x2f\xfd"  # first bytes
MCAP_CHUNK, MCAP_CHUNK_INDEX = 6, 8  # opcodes of https://mcap.dev/spec
ROS1_CHUNK, ROS1_CHUNK_INFO = 5, 6  # opcodes of https://wiki.ros.org/Bags/Format/2.0
COMPUTED = re.compile(r"\b(virtual|generated|as\s*\()", re.IGNORECASE)  # in SQL: columns that are no data
CODECS = {"zstd": "zstd", "lz4": "lz4"}  # names in bags, and those of Arrow


class Chunk(NamedTuple):
    """Chunk of a bag, or an index of one."""

    place: int  # of a chunk: its own; of an index: that of the chunk which it leads to
    compression: str | None  # None for an index
    size: int = 0  # compressed bytes, which begin where the file is


def check_mcap(path: Path) -> None:
    """Refuse an MCAP file that would unpack to far more than it holds."""
    with open(path, "rb") as file:
        _check(path, file, _mcap_chunks(file))


def check_ros1(path: Path) -> None:
    """Refuse a ROS 1 bag that would unpack to far more than it holds."""
    with open(path, "rb") as file:
        _check(path, file, _ros1_chunks(file))


def check_ros2(folder: Path) -> None:
    """Refuse a ROS 2 bag whose files unpack to far more than they hold, or compute what they hold."""
    for path in folder.iterdir():
        if not path.is_file():
            raise InputError(f"{path.name} in a bag must be a file.")
        if begins_with(path, MCAP):
            check_mcap(path)
        elif begins_with(path, DATABASE):
            _check_database(path)
        elif begins_with(path, ZSTD):
            raise InputError(f"{path.name} is compressed as a whole; unpack it, or convert the bag to MCAP.")


def _check(path: Path, file: BinaryIO, chunks: Iterator[Chunk]) -> None:
    places, indexed, total = set(), set(), 0
    for chunk in chunks:
        if chunk.compression is None:
            indexed.add(chunk.place)
            continue
        places.add(chunk.place)
        content = pa.BufferReader(file.read(chunk.size))
        if chunk.compression == "bz2":
            total = _check_unpacked(path, total, bz2.BZ2File(content))
        elif chunk.compression in CODECS:
            codec = CODECS[chunk.compression]
            total = _check_unpacked(path, total, pa.CompressedInputStream(content, codec))
        elif chunk.compression not in ("", "none"):
            raise InputError(f"its chunks are compressed by {chunk.compression[:20]!r}, which is not known.")
    if not indexed <= places:
        raise InputError("an index in it leads to a place where no chunk begins; it is damaged.")


def _check_unpacked(path: Path, size: int, stream: BinaryIO | pa.NativeFile) -> int:
    with closing(stream):
        while piece := stream.read(PIECE):
            size += len(piece)
            check_declared_size(path, size)
    return size


def _mcap_chunks(file: BinaryIO) -> Iterator[Chunk]:
    """Chunks and their indices; while a chunk is out, the file stands at its compressed bytes."""
    end = os.fstat(file.fileno()).st_size
    at = 8  # after the magic bytes
    while at + 9 <= end:
        file.seek(at)
        opcode, length = struct.unpack("<BQ", file.read(9))
        if opcode == MCAP_CHUNK:
            *_, letters = struct.unpack("<QQQII", file.read(32))
            name = file.read(min(letters, 99)).decode()
            (size,) = struct.unpack("<Q", file.read(8))
            yield Chunk(at, name, min(size, length))
        elif opcode == MCAP_CHUNK_INDEX:
            _, _, place = struct.unpack("<QQQ", file.read(24))
            yield Chunk(place, None)
        at += 9 + length


def _ros1_chunks(file: BinaryIO) -> Iterator[Chunk]:
    """Chunks and their indices; while a chunk is out, the file stands at its compressed bytes."""
    end = os.fstat(file.fileno()).st_size
    at = len(file.readline(PIECE))
    while at + 4 <= end:
        file.seek(at)
        fields = _ros1_fields(file.read(struct.unpack("<I", file.read(4))[0]))
        (size,) = struct.unpack("<I", file.read(4))
        opcode = fields.get(b"op", b"\0")[0]
        here = file.tell()
        if opcode == ROS1_CHUNK:
            yield Chunk(at, fields.get(b"compression", b"").decode(), size)
        elif opcode == ROS1_CHUNK_INFO:
            yield Chunk(struct.unpack("<Q", fields.get(b"chunk_pos", b""))[0], None)
        at = here + size


def _ros1_fields(header: bytes) -> dict[bytes, bytes]:
    found, at = {}, 0
    while at < len(header):
        (length,) = struct.unpack_from("<I", header, at)
        name, _, value = header[at + 4 : at + 4 + length].partition(b"=")
        found[name] = value
        at += 4 + length
    return found


def _check_database(path: Path) -> None:
    """Refuse a database whose rows are computed when they are read, which may go on without end."""
    with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro&immutable=1", uri=True)) as database:
        known = database.execute("SELECT type, name, sql FROM sqlite_master").fetchmany(1000)
        for kind, name, text in known:
            if kind not in ("table", "index") or COMPUTED.search(str(text)):
                raise InputError(f"its database holds {kind} {str(name)[:60]!r}, and not only plain tables.")
