"""Cases of datasets of other projects: LeRobot, Minari, bags of ROS."""

import bz2
import json
import os
import shutil
import sqlite3
import struct
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import hostile
import pyarrow as pa
import pyarrow.ipc
import pyarrow.parquet as pq
from case import Case, command, examine
from foreign_materials import BAGS, STORAGES
from readers import damage_hdf5, damaged_table

from safemil.data.interchange import Columns, Options

BOUNDS = (-2.0, 2.0)
PLACES = [
    "/etc/passwd",
    "../x.parquet",
    "data/../../x.parquet",
    "~/x.parquet",
    "s3://bucket/x.parquet",
    "{episode_index.__class__}",
    "{0}",
    "{episode_index!r:>99999999}",
    "{chunk_index:099999999d}",
    "data",
    "",
    "/dev/zero",
    "//host/x",
    "C:\\x",
    "data/chunk-000/*.parquet",
]


def lerobot(case: Case) -> None:
    """A LeRobot dataset with a changed description, list of episodes or table, or with links in it."""
    rng = case.rng
    path = _copied(case, f"lerobot-{rng.choice(['v2.1', 'v3.0'])}")
    for _ in range(rng.choice([1, 1, 2])):
        file = rng.choice(sorted(each for each in path.rglob("*") if each.is_file()) or [path / "x"])
        kind = rng.random()
        if kind < 0.1:
            _replace(case, file, path)
        elif file.suffix == ".json":
            described = _parsed(file)
            if rng.random() < 0.2 and isinstance(described, dict):
                described["data_path"] = rng.choice(PLACES)
            else:
                described = hostile.damaged_document(described, rng, case.values)
            file.write_bytes(hostile.json_text(described, rng))
        elif file.suffix == ".jsonl":
            _damage_lines(case, file)
        else:
            _damage_parquet(case, file)
    _read(case, path)


def minari(case: Case) -> None:
    """A Minari dataset with a changed description, file of arrays or folder of an episode."""
    rng = case.rng
    storage = rng.choice(STORAGES)
    path = _copied(case, f"minari-{storage}/x-v0")
    for _ in range(rng.choice([1, 1, 2])):
        files = sorted(each for each in path.rglob("*") if each.is_file())
        main = [each for each in files if each.name == "metadata.json" and each.parent == path / "data"]
        file = rng.choice(files) if not main or rng.random() < 0.6 else main[0]
        if rng.random() < 0.08:
            _replace(case, file, path)
        elif file.suffix == ".json":
            described = _parsed(file)
            if main and file == main[0] and rng.random() < 0.5 and isinstance(described, dict):
                _damage_space(case, described)
            else:
                described = hostile.damaged_document(described, rng, case.values)
            file.write_bytes(hostile.json_text(described, rng))
        elif file.suffix == ".hdf5":
            _damage_episodes(case, file)
        elif file.suffix == ".arrow":
            _damage_arrow(case, file)
        else:
            _damage_parquet(case, file)
    _read(case, path)


def bag(case: Case) -> None:
    """A mapping or a bag that was changed: bytes, sizes of records, chunks, databases."""
    rng = case.rng
    name = rng.choice(BAGS)
    path = _copied(case, f"bags-{name}")
    mapping = path / "mapping.toml"
    if rng.random() < 0.3:
        content = hostile.damaged_document(tomllib.loads(mapping.read_text()), rng, case.values)
        if rng.random() < 0.3:
            content["bags"] = [rng.choice([*PLACES, "**", "*", "**/**/**/*", name])]
        mapping.write_bytes(hostile.toml_text(content, rng))
    else:
        files = sorted(each for each in path.rglob("*") if each.is_file() and each != mapping)
        file = rng.choice(files)
        if rng.random() < 0.06:
            _replace(case, file, path)
        elif file.suffix == ".yaml":
            _damage_yaml(case, file)
        elif file.suffix == ".db3" and rng.random() < 0.6:
            _damage_database(case, file)
        elif file.suffix == ".mcap" and rng.random() < 0.7:
            _damage_mcap(case, file)
        elif file.suffix == ".bag" and rng.random() < 0.6:
            _damage_ros1(case, file)
        else:
            file.write_bytes(hostile.damaged_bytes(file.read_bytes(), rng))
    _read(case, mapping)


def _copied(case: Case, name: str) -> Path:
    path = case.folder / "dataset"
    shutil.copytree(case.materials / name, path)
    return path


def _read(case: Case, path: Path) -> None:
    case.prepared()
    kind = case.rng.random()
    if kind < 0.06:
        command(case, "data", "info", path, *case.rng.choice([[], ["--json"]]))
    elif kind < 0.12:
        command(case, "data", "convert", path, case.folder / "out.parquet", *_bounds(path))
    else:
        names = ["observation.state,timestamp", "infos.cost", "gap", "*", "x", "obs_0", "observation"]
        columns = Columns(observation=case.rng.choice([None, None, None, *names]))
        examine(case, path, Options(columns, BOUNDS if path.is_dir() else None))


def _bounds(path: Path) -> list[object]:
    return ["--action-low", -2, "--action-high", 2] if (path / "meta").is_dir() else []


def _parsed(file: Path) -> Any:
    try:
        return json.loads(file.read_bytes())
    except (ValueError, RecursionError):  # it was damaged before
        return {"x": 1}


def _replace(case: Case, file: Path, root: Path) -> None:
    """A pipe, a folder, a link out of the dataset or into a circle, or nothing, in place of a file."""
    outside = case.materials / case.rng.choice(["logs.parquet", "logs.csv", "logs.hdf5", "nowhere"])
    file.unlink()
    makers: list[Callable[[], Any]] = [
        lambda: file.mkdir(),
        lambda: os.mkfifo(file),
        lambda: file.symlink_to(outside),
        lambda: file.symlink_to(file.name),
        lambda: file.symlink_to("/dev/zero"),
        lambda: (root / "again").symlink_to("."),
        lambda: file.write_bytes(b""),
        lambda: None,
    ]
    case.rng.choice(makers)()


def _damage_lines(case: Case, file: Path) -> None:
    rng = case.rng
    lines = [line.encode() for line in file.read_text(errors="replace").splitlines()] or [b""]
    at = rng.randrange(len(lines))
    try:
        content = json.loads(lines[at])
    except (ValueError, RecursionError):
        content = {"x": 1}
    changed = hostile.json_text(hostile.damaged_document(content, rng, case.values), rng)
    lines[at] = rng.choice([changed, changed, changed, b"", b"null", b"\xff", lines[0] + b"\n" + lines[0]])
    file.write_bytes(b"\n".join(lines))


def _damage_parquet(case: Case, file: Path) -> None:
    if case.rng.random() < 0.2:
        file.write_bytes(hostile.damaged_bytes(file.read_bytes(), case.rng))
        return
    try:
        table = damaged_table(case, pq.ParquetFile(file).read())
        pq.write_table(table, file, compression=case.rng.choice(["zstd", "none", "gzip"]))
    except (pa.ArrowException, OSError, ValueError):  # a type that Parquet can't hold, or damaged before
        return


def _damage_arrow(case: Case, file: Path) -> None:
    rng = case.rng
    if rng.random() < 0.3:
        file.write_bytes(hostile.damaged_bytes(file.read_bytes(), rng))
        return
    try:
        table = damaged_table(case, pa.ipc.open_file(pa.BufferReader(file.read_bytes())).read_all())
        how = pa.ipc.IpcWriteOptions(compression=rng.choice([None, None, "zstd", "lz4"]))
        with pa.ipc.new_file(str(file), table.schema, options=how) as writer:
            writer.write_table(table, rng.choice([1, 3, 1000]))
    except (pa.ArrowException, OSError, ValueError):
        return


def _damage_episodes(case: Case, file: Path) -> None:
    try:
        with h5py.File(file, "r+") as opened:
            damage_hdf5(case, opened)
    except OSError:  # it was damaged before
        pass
    if case.rng.random() < 0.15:
        file.write_bytes(hostile.damaged_bytes(file.read_bytes(), case.rng))


def _damage_space(case: Case, described: dict[str, Any]) -> None:
    """Change a space, which Minari writes as JSON within a text."""
    name = case.rng.choice(["observation_space", "action_space"])
    try:
        space = json.loads(described[name])
    except (KeyError, TypeError, ValueError, RecursionError):
        return
    changed = hostile.damaged_document(space, case.rng, case.values)
    described[name] = hostile.json_text(changed, case.rng).decode("utf-8", "replace")


def _damage_yaml(case: Case, file: Path) -> None:
    rng = case.rng
    text = file.read_text()
    words = text.split()
    doubling = "\n".join(f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 9)}]" for i in range(1, 9))
    changed = rng.choice(
        [
            text.replace(rng.choice(words), str(rng.choice([*hostile.NUMBERS, *hostile.TEXTS[:12]])), 1),
            text.replace(rng.choice(words), rng.choice(words), 1),
            text.replace("mode: ''", "mode: 'file'").replace("format: ''", "format: 'zstd'"),
            text.replace("compression_mode: ''", "compression_mode: message"),
            f"a0: &a0 x\n{doubling}\n{text}",
            "!!python/object/apply:os.system ['true']\n" + text,
            "[" * 20_000,
            text.replace("ros2", "../ros2"),
        ]
    )
    file.write_bytes(changed.encode("utf-8", "replace"))


def _damage_database(case: Case, file: Path) -> None:
    endless = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT i, 1, i, x'00' FROM n"
    orders = [
        "UPDATE messages SET data = zeroblob(50000000)",
        "UPDATE messages SET timestamp = 9223372036854775807",
        "UPDATE messages SET timestamp = -1 WHERE id % 2",
        "UPDATE messages SET timestamp = 'x'",
        "UPDATE messages SET data = NULL",
        "UPDATE messages SET data = substr(data, 1, 3)",
        "UPDATE messages SET topic_id = 99",
        "UPDATE topics SET type = 'std_msgs/msg/String'",
        "UPDATE topics SET name = '/speed'",
        "DELETE FROM topics",
        "DELETE FROM messages",
        "DROP TABLE messages",
        f"DROP TABLE messages; CREATE VIEW messages(id, topic_id, timestamp, data) AS {endless}",
        "ALTER TABLE messages ADD COLUMN more GENERATED ALWAYS AS (zeroblob(1000000))",
        "DROP TABLE topics; CREATE VIRTUAL TABLE topics USING fts5(id, name, type)",
        "UPDATE schema SET schema_version = 99",
    ]
    try:
        database = sqlite3.connect(file)
        database.executescript(case.rng.choice(orders))
        database.commit()
        database.close()
    except sqlite3.Error:
        return


def _damage_mcap(case: Case, file: Path) -> None:
    """Change the length of a record, a field of its beginning, or the chunk that it holds."""
    rng = case.rng
    content = bytearray(file.read_bytes())
    places, at = [], 8
    while at + 9 <= len(content) - 8:
        places.append(at)
        at += 9 + struct.unpack_from("<Q", content, at + 1)[0]
    chunks = [place for place in places if content[place] == 6]
    if chunks and rng.random() < 0.4:
        at = rng.choice(chunks)
        how = rng.choice(["size", "bomb", "name", "length"])
        if how == "size":
            struct.pack_into("<Q", content, at + 25, rng.choice([0, 2**31, 2**40, 2**63 - 1, 2**64 - 1]))
        elif how == "bomb":
            content = content[:at] + mcap_bomb(rng.choice(["zstd", "lz4"])) + content[at:]
        elif how == "name":
            struct.pack_into("<I", content, at + 37, rng.choice([0, 2**31, 2**32 - 1]))
        else:
            struct.pack_into("<Q", content, at + 45, rng.choice([0, 1, 2**40, 2**64 - 1]))
    else:
        at = rng.choice(places) + rng.choice([0, 1, 1, 9, 11, 13, 17, 25, 33])
        value = rng.choice([0, 1, 255, 2**31, 2**40, 2**63 - 1, 2**64 - 1])
        if at + 8 <= len(content):
            struct.pack_into("<Q", content, at, value)
    file.write_bytes(content)


def mcap_bomb(compression: str) -> bytes:
    """A chunk of some kilobytes that unpacks to more than 100 MB."""
    packed = PACKED[compression]
    name = compression.encode()
    fields = struct.pack("<QQQII", 0, 2**62, 300_000_000, 0, len(name)) + name
    body = fields + struct.pack("<Q", len(packed)) + packed
    return struct.pack("<BQ", 6, len(body)) + body


def _damage_ros1(case: Case, file: Path) -> None:
    """Exchange a chunk for a small one that unpacks to 300 MB, or change a length."""
    rng = case.rng
    content = bytearray(file.read_bytes())
    place = content.find(b"compression=bz2")
    if place > 0 and rng.random() < 0.4:
        begins = content.find(b"BZh", place)
        content[begins - 4 : begins] = struct.pack("<I", len(BOMB))
        content[begins:begins] = BOMB
    else:
        marks = [
            at
            for at in range(13, len(content) - 4)
            if bytes(content[at : at + 3]) in (b"op=", b"siz", b"tim")
        ]
        at = rng.choice(marks or [13]) - 4
        struct.pack_into("<I", content, at, rng.choice([0, 1, 255, 2**24, 2**31, 2**32 - 1]))
    file.write_bytes(content)


ZEROS = bytes(10_000_000)
BOMB = 30 * bz2.compress(ZEROS)
PACKED = {
    "zstd": 30 * pa.Codec("zstd").compress(ZEROS, asbytes=True),
    "lz4": pa.Codec("lz4").compress(bytes(110_000_000), asbytes=True),  # one frame is all that is read
}
KINDS = [lerobot, lerobot, minari, minari, bag, bag]
