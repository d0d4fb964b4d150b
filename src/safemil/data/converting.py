"""Converting logs of any size to a store in shards, a piece of whole episodes at a time.

A conversion that was stopped goes on where it stopped: until it is complete, the folder holds the shards that
are finished and `converting.json`.
"""

import json
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from safemil.data import csv, parquet, store
from safemil.data.episodes import labels_of
from safemil.data.formats import File, log_files, open_part, read, recognised
from safemil.data.interchange import Contents, Options, Paths
from safemil.data.parts import Loaded, Part
from safemil.data.shards import VERSION as SHARDED
from safemil.data.shards import Stored, step_kind, write_shard
from safemil.data.table import columns_of, from_parts
from safemil.data.trajectories import NAMES, Trajectories, digest
from safemil.errors import InputError
from safemil.files import atomic_file
from safemil.locks import Lock
from safemil.ownership import is_free
from safemil.progress import bar
from safemil.texts import read_json

PROGRESS = "converting.json"
ROWS = 1 << 18  # of a piece of a table, at least
LARGEST_SHARD = 1 << 28  # bytes, of which three times as much is in memory while it is written


class ScatteredError(InputError):
    """The rows of an episode are not together in a file."""


class Piece(NamedTuple):
    """Whole episodes of a log, and where the next ones begin."""

    contents: Contents
    next: tuple[int, int]  # number of the file, and row in it
    done: int  # bytes of all files so far


def convert(paths: Paths, out: Path, options: Options, *, shards: int, progress: bool = True) -> Stored:
    """Write a log as a store of `shards` files, more if one would exceed 256 MB; fewer for few episodes."""
    if shards < 1:
        raise InputError(f"a store has 1 shard or more, got {shards}.")
    files = log_files(paths)
    wanted = {
        "format": "safemil-converting",
        "sources": [[file.label, file.path.stat().st_size, file.path.stat().st_mtime_ns] for file in files],
        "options": json.loads(json.dumps(options.to_dict())),
        "shards": shards,
    }
    state = _begun(out, wanted)
    lock = Lock(out)
    try:
        _write_shards(files, out, options, shards, state, progress)
        found = _finish(out, state, is_sorted=_is_sorted(files))
    finally:
        lock.release()
    return found


def _begun(out: Path, wanted: dict[str, Any]) -> dict[str, Any]:
    """State of a conversion: a new one, or the same one that was stopped."""
    if is_free(out):
        out.mkdir(parents=True, exist_ok=True)
        return wanted | {"written": []}
    path = out / PROGRESS
    if not path.is_file():
        raise InputError(f"{out} exists already; give another folder, or `overwrite=True` to replace it.")
    found = read_json(path)
    if not isinstance(found, dict) or {name: found.get(name) for name in wanted} != wanted:
        raise InputError(
            f"{out} holds a conversion of other logs, or with other options, that was stopped; delete the "
            "folder, or give another one."
        )
    return found


def _save(out: Path, state: dict[str, Any]) -> None:
    with atomic_file(out / PROGRESS) as file:
        file.write_text(json.dumps(state) + "\n", encoding="utf-8")


def _write_shards(
    files: Sequence[File], out: Path, options: Options, shards: int, state: dict[str, Any], progress: bool
) -> None:
    total = sum(_size(file.path) for file in files)
    written: list[dict[str, Any]] = state["written"]
    start = tuple(written[-1]["next"]) if written else (0, 0)
    if start[0] >= len(files):
        return
    if "resolved" in state:
        options = Options.from_dict(state["resolved"])
    waiting: list[Contents] = []
    done = written[-1]["done"] if written else 0
    with bar("converting", total, start=done, show=progress, in_bytes=True) as shown:
        pieces = _pieces(files, options, start)
        for piece in pieces:
            _describe(state, piece.contents)
            waiting.append(piece.contents)
            size = sum(_bytes(each.trajectories) for each in waiting)
            due = piece.done >= total * (len(written) + 1) / shards or size >= LARGEST_SHARD
            if due or piece.next[0] >= len(files):
                episodes, steps = write_shard(out, len(written), waiting)
                written.append({"episodes": episodes, "steps": steps, "next": piece.next, "done": piece.done})
                _save(out, state)
                waiting = []
            shown.at(piece.done)


def _bytes(held: Trajectories) -> int:
    return held.observations.nbytes + held.actions.nbytes


def _size(path: Path) -> int:
    if path.is_dir():
        return sum(each.stat().st_size for each in path.rglob("*") if each.is_file())
    return path.stat().st_size


def _describe(state: dict[str, Any], contents: Contents) -> None:
    """Note columns and bounds of the first piece; refuse a later one with others."""
    held = contents.trajectories
    found: dict[str, Any] = {
        "observation_size": held.observation_size,
        "action_size": held.action_size,
        "action_low": held.action_low.tolist(),
        "action_high": held.action_high.tolist(),
        **{name: None if (names := getattr(held, name)) is None else list(names) for name in NAMES},
    }
    noted = state.setdefault("columns", found)
    for name, value in found.items():
        if noted[name] != value:
            raise InputError(
                f"all of a log needs the same columns, choices and bounds, but `{name}` is {noted[name]} in "
                f"its first part and {value} in the part with episode {held.ids[0]}."
            )
    kind, before = step_kind(held), state.setdefault("step_values", None)
    if kind is not None and before is None and (kind == "int64" or not state["written"]):
        state["step_values"], state["step_zone"] = kind, held.step_zone
    elif kind != before and not (kind is None and before == "int64"):
        raise InputError(
            f"steps are of one type in the first part of the log and of another in the part with episode "
            f"{held.ids[0]} ({before or 'whole numbers'} and {kind or 'whole numbers'}); correct the log."
        )
    if contents.resolved is not None:
        state.setdefault("resolved", contents.resolved.to_dict())
    state.setdefault("manifest", contents.manifest)


def _finish(out: Path, state: dict[str, Any], *, is_sorted: bool) -> Stored:
    """Describe the shards, once all are there."""
    written = state["written"]
    if not written:
        raise InputError("the log has no episodes.")
    described: dict[str, Any] = {
        "format": store.FORMAT,
        "version": SHARDED,
        "episodes": sum(each["episodes"] for each in written),
        "steps": sum(each["steps"] for each in written),
        **state["columns"],
        "step_values": state["step_values"],
        "step_zone": state.get("step_zone"),
        "shards": len(written),
        "sorted": is_sorted,
        "reading": state.get("resolved"),
        "hashes": {"content": "", "annotations": ""},
        "manifest": state["manifest"],
    }
    found = Stored(out, described)
    names, counts = np.unique(found.ids, return_counts=True)
    if (counts > 1).any():
        raise InputError(
            f"the rows of episode {names[counts > 1][0]} are not all together in the log; sort it by "
            "episode, or convert it without shards."
        )
    annotations = {name: each for name in ("rewards", "costs") if (each := found.per_step(name)) is not None}
    described["hashes"] = {"content": found.measured_hash(), "annotations": digest(annotations)}
    with atomic_file(out / store.DESCRIPTION) as file:
        file.write_text(json.dumps(described, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    with suppress(FileNotFoundError):
        (out / PROGRESS).unlink()
    return found


def _is_sorted(files: Sequence[File]) -> bool:
    """Whether episodes come sorted by name: those of tables do, but for one whose writer noted an order."""
    if not all(recognised(file.path) in (csv, parquet) for file in files):
        return False
    return len(files) > 1 or "episodes" not in open_part(files[0]).recorded


def _pieces(files: Sequence[File], options: Options, start: tuple[int, int]) -> Iterator[Piece]:
    if not all(recognised(file.path) in (csv, parquet) for file in files):
        yield from _whole(files, options, start[1])
        return
    labels = _told_apart(files, options)
    before = sum(_size(file.path) for file in files[: start[0]])
    keep_order = not _is_sorted(files)
    bounds: dict[str, Any] | None = None
    for number in range(start[0], len(files)):
        file, size = files[number], _size(files[number].path)
        part = open_part(file)
        recorded = {name: part.recorded.get(name) for name in ("action_low", "action_high")}
        if bounds is not None and recorded != bounds:
            raise InputError(f"{files[0].path} and {file.path} record different action bounds; give them.")
        bounds = recorded
        first = start[1] if number == start[0] else 0
        if len(files) > 1 and options.columns.episode not in (*part.columns, *part.partition):
            stem = file.label.rsplit("/", 1)[-1].split(".")[0]
            part = replace(part, partition={**part.partition, options.columns.episode: stem})
        for piece, row, share in tables_of(part, file, options, first):
            contents = _read_piece(piece, options, keep_order)
            options = contents.resolved or options
            if labels is not None:
                contents = _renamed(contents, labels[number])
            last = share >= 1
            position = (number + 1, 0) if last else (number, row)
            yield Piece(contents, position, before + int(size * min(share, 1.0)))
        before += size


def _whole(files: Sequence[File], options: Options, first: int) -> Iterator[Piece]:
    """Pieces of a log of another format, which is read as a whole."""
    total = sum(_size(file.path) for file in files)
    contents = read([file.path for file in files], options)
    held, most = (
        contents.trajectories,
        max(1, ROWS * len(contents.trajectories) // contents.trajectories.steps),
    )
    for begin in range(first, len(held), most):
        end = min(begin + most, len(held))
        position = (0, end) if end < len(held) else (len(files), 0)
        yield Piece(_taken(contents, np.arange(begin, end)), position, total * end // len(held))


def _taken(contents: Contents, episodes: npt.NDArray[np.int64]) -> Contents:
    """Some episodes of what a file holds, with their rewards and costs."""
    held = contents.trajectories
    chosen = np.concatenate([np.arange(held.starts[i], held.starts[i] + held.lengths[i]) for i in episodes])
    rewards, costs = (
        None if values is None else values[chosen] for values in (contents.rewards, contents.costs)
    )
    return replace(contents, trajectories=held.take(episodes), rewards=rewards, costs=costs, incidents=None)


def _renamed(contents: Contents, label: tuple[str, frozenset[str]]) -> Contents:
    """Put the file's label before names that other files have too."""
    name, shared = label
    ids = [f"{name}/{each}" if str(each) in shared else str(each) for each in contents.trajectories.ids]
    return replace(contents, trajectories=contents.trajectories.renamed(ids))


def _told_apart(files: Sequence[File], options: Options) -> list[tuple[str, frozenset[str]]] | None:
    """Label of each file, and the names of episodes that several files have; None if there are none."""
    if len(files) == 1:
        return None
    names = [_names(open_part(file), options) for file in files]
    every = np.concatenate(names)
    found, counts = np.unique(every, return_counts=True)
    shared = frozenset(found[counts > 1].tolist())
    if not shared:
        return None
    labels, _ = labels_of([file.label for file in files], names)
    return [(label, shared) for label in labels]


def _names(part: Part, options: Options) -> npt.NDArray[np.str_]:
    """Names of the episodes in a file, as text."""
    name = options.columns.episode
    if name not in part.columns:
        return np.array([part.partition.get(name, part.path)])
    found: set[str] = set()
    for batch in part.load([name], ()).batches([name]):
        found.update(str(each) for each in pc.unique(batch.column(0)).to_pylist())
    return np.array(sorted(found))


def tables_of(part: Part, file: File, options: Options, first: int = 0) -> Iterator[tuple[Part, int, float]]:
    """Cut a table from row `first` on into parts that hold whole episodes, if the rows of each are together.

    With each come the row after it and the share of the file up to there. A table without a column of
    episodes is not cut.
    """
    episode = options.columns.episode
    if episode not in part.columns:
        yield part, 0, 1.0
        return
    names, rows = columns_of(part, options), _row_count(file.path)
    waiting: list[pa.RecordBatch] = []
    count, row, passed, seen = 0, first, 0, set[Any]()
    for batch, share in _batches(part, file, names):
        fresh = batch.slice(max(first - passed, 0))
        passed += batch.num_rows
        if not fresh.num_rows:
            continue
        waiting.append(fresh)
        count += fresh.num_rows
        if count < ROWS:
            continue
        table = pa.Table.from_batches(waiting)
        end = _last_change(table.column(episode))
        if not end:
            continue
        row += end
        done = min(share if rows is None else row / rows, 0.999999)
        yield _cut(table.slice(0, end), part, episode, seen), row, done
        rest = table.slice(end).combine_chunks()
        waiting, count = rest.to_batches(), rest.num_rows
    if waiting:
        yield _cut(pa.Table.from_batches(waiting), part, episode, seen), row + count, 1.0


def _cut(table: pa.Table, part: Part, episode: str, seen: set[Any]) -> Part:
    """A part of a part; refuse an episode that has been in an earlier one."""
    ids = pc.unique(table.column(episode)).to_pylist()
    if again := [name for name in ids if name in seen]:
        raise ScatteredError(
            f"the rows of episode {again[0]} are not all together in {part.path}; sort the file by "
            "episode, or convert it without shards."
        )
    seen.update(ids)
    return replace(part, load=lambda names, _: Loaded(table.select(names)))


def _row_count(path: Path) -> int | None:
    return pq.read_metadata(path).num_rows if parquet.recognises(path) else None


def _batches(part: Part, file: File, names: list[str]) -> Iterator[tuple[pa.RecordBatch, float]]:
    """Batches of a table, and the share of the file up to each, where it is known."""
    if recognised(file.path) is csv:
        yield from csv.stream(file.path, names)
    else:
        for batch in part.load(names, ()).batches(names):
            yield batch, 0.0


def _last_change(column: pa.ChunkedArray) -> int:
    """Row at which the last episode of a table begins; 0 if there is one only."""
    codes = np.concatenate([np.asarray(each) for each in _codes(column)])
    changes = np.flatnonzero(codes[1:] != codes[:-1])
    return int(changes[-1]) + 1 if len(changes) else 0


def _codes(column: pa.ChunkedArray) -> list[Any]:
    encoded = column if pa.types.is_dictionary(column.type) else column.dictionary_encode()
    return [chunk.indices for chunk in encoded.unify_dictionaries().chunks]


def _read_piece(part: Part, options: Options, keep_order: bool) -> Contents:
    """Read a part of a table, its episodes in the order of the file if asked for."""
    contents = from_parts([part], options)
    name = options.columns.episode
    if not keep_order or name not in part.columns:
        return contents
    logged = part.load([name], ()).whole([name]).column(0)
    order = {str(each): i for i, each in enumerate(pc.unique(logged).to_pylist())}
    ids = contents.trajectories.ids.tolist()
    return _taken(contents, np.argsort([order[str(each)] for each in ids]))


def is_unfinished(path: Path) -> bool:
    """Whether a folder holds a conversion that was stopped."""
    return (path / PROGRESS).is_file() and not (path / store.DESCRIPTION).is_file()
