"""LeRobot datasets, versions 2.0, 2.1 and 3.0: a folder of Parquet files that files in `meta` describe.

LeRobot itself is not needed. A feature that is a vector becomes one column per entry, named as in
`meta/info.json`. Features that are pictures are passed over.
"""

import re
import shlex
import warnings
from collections.abc import Iterable, Mapping
from dataclasses import replace
from math import prod
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.parquet as pq
from pyarrow.fs import LocalFileSystem

from safemil.data.features import (
    WIDEST,
    Column,
    columns_of,
    lists,
    matching,
    named_field,
    numbered,
    places,
)
from safemil.data.foreign import (
    damage_reported,
    entry,
    incident_column,
    json_object,
    refuse_writing,
    require_plain_files,
    with_defaults,
    with_own_names,
)
from safemil.data.interchange import Columns, Contents, Options, check_declared_size, listed
from safemil.data.parquet import declared_size
from safemil.data.table import from_table
from safemil.errors import InputError, InputWarning

SUFFIXES: tuple[str, ...] = ()
INFO = Path("meta", "info.json")
VERSIONS = ("v2.0", "v2.1", "v3.0")
NUMERIC = re.compile(r"float(16|32|64)|u?int(8|16|32|64)|bool")
EPISODE, SUCCESS = "episode_index", "next.success"
TASK = "task"  # column of texts that is made here
LEROBOT = Columns(EPISODE, "frame_index", "observation.state", "action", "next.reward")

BLOCKS = ("observation", "action")
NUMBER = {"shape": [1]}
Features = Mapping[str, dict[str, Any]]

write = refuse_writing("a LeRobot dataset")


class Episode(NamedTuple):
    """Row of `meta/episodes`: where an episode is, and how long."""

    number: int
    length: int
    tasks: list[str]
    file: str  # relative to the folder of the dataset


def recognises(path: Path) -> bool:
    return (path / INFO).is_file()


def read(path: Path, options: Options) -> Contents:
    require_plain_files(path)
    info = _info(path)
    features = _features(info)
    given = with_defaults(options.columns, LEROBOT)
    blocks = {kind: matching(kind, getattr(given, kind), _columns(kind, features)) for kind in BLOCKS}
    incident = incident_column(options, features)
    singles = {getattr(given, name) for name in Columns.__dataclass_fields__ if name not in BLOCKS}
    wanted = {column.feature for block in blocks.values() for column in block.values()}
    wanted |= {EPISODE, *(name for name in (*singles, incident) if name in features)}
    episodes = _episodes(path, info)
    table = _table(path, {name: features.get(name, NUMBER) for name in wanted}, episodes)
    _check_lengths(table, episodes)
    _mention_pictures(features)
    arrays = {name: table[name] for name in [EPISODE, *singles, incident] if name in table.column_names}
    if incident == TASK:
        arrays[TASK] = _tasks(table, episodes)
    elif incident == SUCCESS == options.incident and SUCCESS in arrays:
        arrays[SUCCESS] = _failed(table)
    fields = {name: pa.field(name, array.type) for name, array in arrays.items()}
    for kind, block in blocks.items():
        fields[kind], arrays[kind] = _block(table, kind, block, features)
    rows = pa.table([*arrays.values()], schema=pa.schema(fields.values()))
    columns = replace(given, observation=("observation",), action=("action",))
    contents = from_table(rows, replace(options, columns=columns))
    contents = replace(contents, manifest={"lerobot": _origin(info, episodes)})
    return with_own_names(contents, given, **blocks)


def edit_command(path: Path, episodes: Iterable[int]) -> str:
    """Command of LeRobot's own tool that copies a dataset without some of its episodes.

    >>> edit_command(Path("arm"), [7, 2]).partition(" --operation.type ")[2]
    "delete_episodes --operation.episode_indices '[2, 7]'"
    """
    name = path.resolve().name
    parts = {
        "repo_id": name,
        "root": str(path),
        "new_repo_id": f"{name}_kept",
        "operation.type": "delete_episodes",
        "operation.episode_indices": str(sorted(int(number) for number in episodes)),
    }
    flags = [part for flag, value in parts.items() for part in (f"--{flag}", value)]
    return shlex.join(["lerobot-edit-dataset", *flags])


def _info(path: Path) -> dict[str, Any]:
    with damage_reported(str(INFO)):
        text = (path / INFO).read_bytes()
    info = json_object(text, str(INFO))
    if info.get("codebase_version") not in VERSIONS:
        raise InputError(
            f"the dataset has LeRobot's version {str(info.get('codebase_version'))[:20]!r}, but versions "
            f"{', '.join(VERSIONS)} can be read; convert it with LeRobot's own tool."
        )
    return info


def _features(info: dict[str, Any]) -> dict[str, dict[str, Any]]:
    features = entry(info, "features", dict, str(INFO))
    for name, feature in features.items():
        what = f'feature "{name}" in {INFO}'
        if not isinstance(feature, dict):
            raise InputError(f"{what} must be an object, but is {str(feature)[:80]!r}.")
        entry(feature, "dtype", str, what)
        shape = entry(feature, "shape", list, what)
        if not all(type(size) is int and size > 0 for size in shape):
            raise InputError(f'"shape" in {what} must be a list of positive sizes, but is {str(shape)[:80]}.')
    return features


def _is_vector(feature: Mapping[str, Any]) -> bool:
    shape = feature["shape"]
    return bool(NUMERIC.fullmatch(feature["dtype"])) and len(shape) < 2 and prod(shape) <= WIDEST


def _entry_names(feature: str, described: Mapping[str, Any]) -> list[str]:
    """Names of the entries as in `names`, a list or an object with one list; else numbers."""
    width, names = prod(described["shape"]), described.get("names")
    if isinstance(names, dict) and len(names) == 1:
        (names,) = names.values()
    if (
        isinstance(names, list)
        and len(names) == width
        and all(isinstance(name, str) and not re.search(r"[,*]|^\s*$", name) for name in names)
        and len(set(names)) == width
    ):
        return names
    return numbered(feature, width)


def _columns(kind: str, features: Features) -> dict[str, Column]:
    """Name the entries that an action or an observation may have."""
    return columns_of(
        {
            name: _entry_names(name, feature)
            for name, feature in features.items()
            if _is_vector(feature) and name.startswith("action") == (kind == "action")
        }
    )


def _mention_pictures(features: Features) -> None:
    pictures = [name for name, feature in features.items() if feature["dtype"] in ("video", "image")]
    if pictures:
        warnings.warn(
            f"passed over {listed(pictures)}: pictures are not read, only numbers.",
            InputWarning,
            stacklevel=2,
        )


def _episodes(path: Path, info: dict[str, Any]) -> list[Episode]:
    episodes = _from_parquet(path, info) if info["codebase_version"] == "v3.0" else _from_lines(path, info)
    totals = {"total_episodes": len(episodes), "total_frames": sum(each.length for each in episodes)}
    for name, found in totals.items():
        declared = entry(info, name, int, str(INFO))
        if declared != found:
            raise InputError(
                f"{INFO} says {declared} for {name}, but the list of episodes {found}: the dataset is "
                "damaged, or was not closed after recording."
            )
    if not episodes:
        raise InputError("the dataset has no episodes; need at least one.")
    return sorted(episodes)


def _from_lines(path: Path, info: dict[str, Any]) -> list[Episode]:
    """List the episodes of versions 2.0 and 2.1, a file each."""
    name = "meta/episodes.jsonl"
    with damage_reported(name):
        lines = (path / name).read_bytes().splitlines()
    size = max(1, entry(info, "chunks_size", int, str(INFO)))
    found = []
    for number, line in enumerate(lines, 1):
        if line.strip():
            where = f"line {number} of {name}"
            row = json_object(line, where)
            index = entry(row, EPISODE, int, where)
            file = _data_file(info, episode_index=index, episode_chunk=index // size)
            found.append(Episode(index, entry(row, "length", int, where), _texts(row.get("tasks")), file))
    return found


def _from_parquet(path: Path, info: dict[str, Any]) -> list[Episode]:
    """List the episodes of version 3.0, many to a file."""
    places = ["data/chunk_index", "data/file_index"]
    found = []
    for file in sorted((path / "meta" / "episodes").glob("*/*.parquet")):
        what = f"meta/episodes/{file.parent.name}/{file.name}"
        with damage_reported(what):
            rows = pq.ParquetFile(file).read([EPISODE, "length", "tasks", *places]).to_pylist()
        for row in rows:
            chunk, number = (entry(row, name, int, what) for name in places)
            data = _data_file(info, chunk_index=chunk, file_index=number)
            index, length = (entry(row, name, int, what) for name in (EPISODE, "length"))
            found.append(Episode(index, length, _texts(row.get("tasks")), data))
    return found


def _texts(tasks: object) -> list[str]:
    return [task for task in tasks if isinstance(task, str)] if isinstance(tasks, list) else []


def _data_file(info: dict[str, Any], **numbers: int) -> str:
    """Fill the numbers into `data_path`; a path that leaves the folder is refused."""
    template = entry(info, "data_path", str, str(INFO))

    def fill(field: re.Match[str]) -> str:
        return str(numbers[field[1]]).zfill(int(field[2] or 0)) if field[1] in numbers else field[0]

    filled = re.sub(r"\{(\w+)(?::0(\d)d)?\}", fill, template)
    path = PurePosixPath(filled)
    if re.search(r"[{}\\:\0]", filled) or path.is_absolute() or ".." in path.parts:
        raise InputError(
            f'"data_path" in {INFO} must be a path within the dataset with the fields '
            f"{' and '.join(numbers)}, but is {template[:200]!r}."
        )
    return filled


def _table(path: Path, features: Features, episodes: list[Episode]) -> pa.Table:
    """Read features from the files of the episodes; the declared number of rows is compared first."""
    files = dict.fromkeys(each.file for each in episodes)
    missing = [file for file in files if not (path / file).is_file()]
    if missing:
        raise InputError(
            f"{len(missing)} of {len(files)} data files are missing, the first is {missing[0]}; "
            "download the whole dataset."
        )
    with damage_reported("a data file"):
        parts = ds.dataset(
            [str(path / file) for file in files], format="parquet", filesystem=LocalFileSystem()
        )
        declared = sum(declared_size(fragment.metadata) for fragment in parts.get_fragments())
        rows, frames = parts.count_rows(), sum(each.length for each in episodes)
        check_declared_size(path, declared, rows=rows)
        names = {*parts.schema.names}
    if rows != frames:
        raise InputError(f"the list of episodes declares {frames} frames, but the data files hold {rows}.")
    absent = sorted({*features} - names)
    if absent:
        raise InputError(f'{INFO} lists "{absent[0]}", but the data files have no such column.')
    with damage_reported("a data file"):
        table = parts.to_table(columns=sorted(features))
    for name, feature in features.items():
        _check_width(name, table[name], prod(feature["shape"]))
    return table


def _check_width(name: str, values: pa.ChunkedArray, width: int) -> None:
    found = pc.unique(pc.list_value_length(values)).to_pylist() if _is_list(values.type) else [1]
    wrong = {*found} - {width, None}
    if wrong:
        what = f"has {width} entries according to {INFO}, but {min(wrong)} in the data files"
        raise InputError(f'"{name}" {what}.')


def _block(
    table: pa.Table, kind: str, block: Mapping[str, Column], features: Features
) -> tuple[pa.Field, pa.ChunkedArray]:
    """Make a column of lists from entries of features, a whole feature without a copy."""
    placed = places(block)
    first = next(iter(placed))
    values = table[first]
    whole = [Column(first, entry) for entry in range(prod(features[first]["shape"]))]
    if [*block.values()] != whole or not _is_list(values.type):
        parts = {name: _matrix(table[name], name) for name in placed}
        joined = np.empty((table.num_rows, len(block)), np.result_type(*parts.values()))
        for name, (columns, entries) in placed.items():
            joined[:, columns] = parts[name][:, entries]
        values = pa.chunked_array([lists(joined)])
    return named_field(kind, values, block), values


def _matrix(values: pa.ChunkedArray, name: str) -> npt.NDArray[Any]:
    """Numbers of a feature, (frames, entries)."""
    flat = pc.list_flatten(values) if _is_list(values.type) else values
    if pa.types.is_temporal(flat.type):
        raise InputError(f'"{name}" holds times ({flat.type}), but its entries must be numbers.')
    if flat.null_count or values.null_count:
        raise InputError(f'"{name}" has empty entries; every number is needed.')
    return flat.to_numpy().reshape(len(values), -1)


def _is_list(kind: pa.DataType) -> bool:
    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind))


def _check_lengths(table: pa.Table, episodes: list[Episode]) -> None:
    found = {row["values"]: row["counts"] for row in pc.value_counts(table[EPISODE]).to_pylist()}
    for each in episodes:
        if found.get(each.number, 0) != each.length:
            raise InputError(
                f"episode {each.number} has {each.length} frames according to the list of episodes, but "
                f"{found.get(each.number, 0)} in the data files."
            )


def _tasks(table: pa.Table, episodes: list[Episode]) -> pa.ChunkedArray:
    """Task of each frame's episode, in words."""
    texts = pa.array(["; ".join(each.tasks) for each in episodes])
    numbers = pa.array([each.number for each in episodes])
    return pc.take(texts, pc.index_in(table[EPISODE], numbers))


def _failed(table: pa.Table) -> pa.Array:
    """Whether the frame's episode does not end in success: true in all of its frames, or in none."""
    numbers, success = (np.asarray(table[name]) for name in (EPISODE, SUCCESS))
    last = np.append(np.diff(numbers) != 0, True)
    return pa.array(np.isin(numbers, numbers[last & ~success.astype(bool)]))


def _origin(info: dict[str, Any], episodes: list[Episode]) -> dict[str, Any]:
    described = {name: info.get(name) for name in ("codebase_version", "robot_type", "fps")}
    return described | {"tasks": [each.tasks for each in episodes]}
