"""The small form of a run: one safetensors file with the constants of a graph, and its nodes as JSON.

It is written and read here with NumPy and `json` alone. A file of unknown origin is safe to read: its sizes
are bounded, offsets have to match the shapes, and nothing in it is executed.
"""

import json
import math
import os
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from safemil.deploy.graph import Graph
from safemil.errors import InputError

FORMAT = 1
KEY = "safemil"  # of the metadata
TYPES: dict[str, np.dtype[Any]] = {"F32": np.dtype("<f4"), "I64": np.dtype("<i8"), "BOOL": np.dtype("?")}
DAMAGED = (KeyError, TypeError, ValueError, AttributeError, IndexError, RecursionError, MemoryError)
MOST_HEADER, MOST_BYTES = 2**22, 2**28  # 4 MiB and 256 MiB


def to_bytes(graph: Graph, header: dict[str, Any]) -> bytes:
    """Encode a graph, with further entries of the header."""
    codes = {kind: code for code, kind in TYPES.items()}
    content = {"format": FORMAT, **header, "graph": graph.to_json()}
    entries: dict[str, Any] = {"__metadata__": {KEY: json.dumps(content)}}
    parts, end = [], 0
    for name, array in graph.constants.items():
        little = np.ascontiguousarray(array, array.dtype.newbyteorder("<")).reshape(array.shape)
        start, end = end, end + little.nbytes
        entries[name] = {
            "dtype": codes[little.dtype],
            "shape": list(array.shape),
            "data_offsets": [start, end],
        }
        parts.append(little.tobytes())
    text = json.dumps(entries).encode()
    text += b" " * (-len(text) % 8)  # numbers begin at a multiple of 8 bytes
    return b"".join([len(text).to_bytes(8, "little"), text, *parts])


def read(path: str | os.PathLike[str]) -> tuple[Graph, dict[str, Any]]:
    """Read a file of what `to_bytes` made: the graph and the header."""
    return from_bytes(read_bytes(path), os.fspath(path))


def read_bytes(path: str | os.PathLike[str]) -> bytes:
    """Read a file of bounded size."""
    file = Path(path)
    if not file.is_file():
        raise InputError(f"there is no file {file}; write one with `safemil export`.")
    if file.stat().st_size > MOST_BYTES:
        raise InputError(f"{file} has more than {MOST_BYTES:,} bytes; `safemil export` writes no such file.")
    return file.read_bytes()


def from_bytes(content: bytes, name: str) -> tuple[Graph, dict[str, Any]]:
    """Decode what `to_bytes` made; `name` is that of the file, for messages."""
    try:
        entries, data = _split(content)
        header = json.loads(entries.pop("__metadata__")[KEY])
        if header["format"] != FORMAT:
            raise InputError(
                f"it is of format {header['format']}, but this version of safemil reads format {FORMAT}"
            )
        return Graph.from_json(header.pop("graph"), _arrays(entries, data)), header
    except DAMAGED as error:
        reason = str(error) if isinstance(error, InputError) else f"{type(error).__name__}: {error}"
        raise InputError(f"{name} can't be used: {reason}; write it again with `safemil export`.") from None


def _split(content: bytes) -> tuple[dict[str, Any], memoryview]:
    length = int.from_bytes(content[:8], "little")
    if len(content) < 8 or length > min(MOST_HEADER, len(content) - 8):
        raise InputError("it is not a safetensors file, or is cut short")
    return json.loads(content[8 : 8 + length]), memoryview(content)[8 + length :]


def _arrays(entries: dict[str, Any], data: memoryview) -> dict[str, npt.NDArray[Any]]:
    arrays, end = {}, 0
    for name, entry in sorted(entries.items(), key=lambda item: item[1]["data_offsets"]):
        kind, shape = TYPES[entry["dtype"]], tuple(entry["shape"])
        start, stop = entry["data_offsets"]
        if start != end or stop - start != kind.itemsize * math.prod(shape) or min(shape, default=0) < 0:
            raise InputError(f"the place of {name} does not fit its shape")
        arrays[name] = np.frombuffer(data[start:stop], kind).reshape(shape)
        end = stop
    if end != len(data):
        raise InputError("it is cut short, or longer than its header says")
    return arrays
