"""Stores in shards: episodes that stay in their files, of which steps are read as they are asked for.

```
dataset.json                what the store holds: sizes, names and bounds of columns, content hash, shards
shard-00000.safetensors     whole episodes: `rows` (steps, S + A), and arrays with an entry per episode
shard-00000.json            names of its episodes and steps, where they are text
```

Episodes have one order whatever the number of shards: that of the log, or by name if it was a table.
"""

import hashlib
import json
import math
import mmap
import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from safetensors import SafetensorError
from safetensors.numpy import save_file

from safemil.arrays import Bools, Floats, Ints
from safemil.data.interchange import Contents, Options
from safemil.data.trajectories import (
    CONTENT,
    HASHED_IF_ANY,
    NAMES,
    STEP_TYPES,
    Trajectories,
    array_header,
    check_bounds,
    column_labels,
    starts_of,
)
from safemil.errors import InputError
from safemil.files import atomic_file
from safemil.texts import read_json

VERSION = 2
TEXT = "text"  # kind of steps that are named by text
SIZES = ("episodes", "steps", "observation_size", "action_size")
BLOCK = 1 << 17  # steps of a block of whole episodes, if none is longer
RESIDENT = 1 << 30  # bytes of files that may lie in memory at once; more are given back to the system
PAGE = 4096
THREADS = 8  # that read steps at random places: a disk answers many at once
FEW = 2048  # steps that one thread reads
LONGEST_HEADER = 1 << 24
TYPES: dict[str, np.dtype[Any]] = {
    "F32": np.dtype("<f4"),
    "F64": np.dtype("<f8"),
    "I64": np.dtype("<i8"),
    "BOOL": np.dtype("?"),
}
PER_EPISODE = ("lengths", "first_steps", "has_final", "terminated", "final_observations")
PER_STEP = ("marks", "after_gap", "rewards", "costs", "step_values")


def name_of(number: int) -> str:
    """Name of a shard's file.

    >>> name_of(3)
    'shard-00003.safetensors'
    """
    return f"shard-{number:05}.safetensors"


class Shard:
    """Arrays of one file, mapped into memory; sizes and places are checked before anything is read."""

    def __init__(self, path: Path):
        self.path = path
        try:
            with open(path, "rb") as file:
                size = os.fstat(file.fileno()).st_size
                self._mapped = mmap.mmap(file.fileno(), size, access=mmap.ACCESS_READ)
        except (OSError, ValueError) as error:  # an empty file can't be mapped
            raise InputError(f"{path.name} is missing or damaged: {error}; convert the log again.") from None
        try:
            self.arrays = _mapped_arrays(self._mapped)
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise InputError(f"{path.name} is damaged: {error}; convert the log again.") from None
        lacking = [name for name in ("rows", *PER_EPISODE) if name not in self.arrays]
        if lacking:
            raise InputError(f"{path.name} has no {', '.join(lacking)}; convert the log again.")
        self._advise("MADV_RANDOM")

    @property
    def rows(self) -> Floats:
        return self.arrays["rows"]

    def release(self) -> None:
        """Let the system take back the memory of what was read."""
        self._advise("MADV_DONTNEED")

    def _advise(self, advice: str) -> None:
        if hasattr(mmap, advice):
            self._mapped.madvise(getattr(mmap, advice))

    def texts(self) -> dict[str, Any]:
        """Names of episodes and steps that are text."""
        path = self.path.with_suffix(".json")
        found = read_json(path) if path.exists() else {}
        if not isinstance(found, dict):
            raise InputError(f"{path.name} is damaged; convert the log again.")
        return found


def _mapped_arrays(mapped: mmap.mmap) -> dict[str, npt.NDArray[Any]]:
    """Views of the arrays of a safetensors file, whose places must fit their shapes and fill the file."""
    length = int.from_bytes(mapped[:8], "little")
    if len(mapped) < 8 or length > min(LONGEST_HEADER, len(mapped) - 8):
        raise ValueError("it is no safetensors file, or cut short")
    entries = json.loads(mapped[8 : 8 + length])
    entries.pop("__metadata__", None)
    start, end, arrays = 8 + length, 0, {}
    for name, entry in sorted(entries.items(), key=lambda item: item[1]["data_offsets"]):
        kind, shape = TYPES[entry["dtype"]], tuple(entry["shape"])
        first, last = entry["data_offsets"]
        if any(type(size) is not int or size < 0 for size in (*shape, first, last)) or not (
            first == end and last - first == kind.itemsize * math.prod(shape)  # Python's integers never wrap
        ):
            raise ValueError(f"the place of {name} does not fit its shape")
        count = math.prod(shape)
        arrays[name] = np.frombuffer(mapped, kind, count, start + first).reshape(shape)
        end = last
    if start + end != len(mapped):
        raise ValueError("it is cut short, or longer than its header says")
    return arrays


class Stored:
    """Episodes of a store in shards, read as they are asked for.

    It has the sizes, names and bounds of `Trajectories`, and their arrays with an entry for each episode.
    `gather` reads steps, `blocks` passes over all episodes, `take` reads some, `load` all of them.
    """

    def __init__(self, path: Path, described: dict[str, Any]):
        self.path, self.described = path, described
        shards = described.get("shards")
        if type(shards) is not int or shards < 1:
            raise InputError(f"the description names no number of shards: {shards!r}; convert the log again.")
        self.shards = [Shard(path / name_of(number)) for number in range(shards)]
        self.observation_size, self.action_size = described["observation_size"], described["action_size"]
        self.observation_names, self.action_names, self.action_categories = (
            None if (names := described.get(kind)) is None else (*names,) for kind in NAMES
        )
        self.step_zone = described.get("step_zone")
        noted = described.get("reading")
        self.reading = None if noted is None else Options.from_dict(noted)  # how the log was read
        self._check_sizes()
        lengths = self._joined("lengths")
        ids = self._ids()
        order = np.argsort(ids, kind="stable") if described.get("sorted") else np.arange(len(ids))
        self._places = starts_of(lengths)[order]  # row of each episode's first step in the shards
        self.lengths, self.ids = lengths[order], ids[order]
        self.first_steps, self.has_final, self.terminated, self.final_observations = (
            self._joined(name)[order] for name in PER_EPISODE[1:]
        )
        self.starts: Ints = starts_of(self.lengths)
        self._order = order
        self._firsts = np.cumsum([0, *(len(shard.rows) for shard in self.shards)])
        self.action_low, self.action_high = (
            np.asarray(described.get(name), np.float64) for name in ("action_low", "action_high")
        )
        if self.action_low.shape != (self.action_size,) or self.action_high.shape != (self.action_size,):
            raise InputError("the description has no bounds of the actions; convert the log again.")
        check_bounds(self.action_low, self.action_high)
        self._touched = 0
        self._threads = ThreadPoolExecutor(THREADS)

    def _check_sizes(self) -> None:
        width = self.observation_size + self.action_size
        for shard in self.shards:
            rows, lengths = shard.arrays["rows"], shard.arrays["lengths"]
            kinds = {"rows": "f", "final_observations": "f", "lengths": "i", "first_steps": "i"}
            kinds |= {"has_final": "b", "terminated": "b"}
            if any(shard.arrays[name].dtype.kind != kind for name, kind in kinds.items()):
                raise InputError(f"{shard.path.name} holds arrays of other types; convert the log again.")
            if (
                rows.ndim != 2
                or rows.shape[1] != width
                or lengths.ndim != 1
                or not len(lengths)
                or lengths.min() < 1
                or sum(lengths.tolist()) != len(rows)
                or shard.arrays["final_observations"].shape != (len(lengths), self.observation_size)
                or any(shard.arrays[name].shape != lengths.shape for name in PER_EPISODE[1:4])
                or any(len(shard.arrays[name]) != len(rows) for name in PER_STEP if name in shard.arrays)
            ):
                raise InputError(f"{shard.path.name} holds arrays that don't fit together; convert again.")
        if (self.steps, self.episodes) != (self.described["steps"], self.described["episodes"]):
            raise InputError(
                f"the shards hold {self.episodes} episodes of {self.steps} steps, but the description says "
                f"{self.described['episodes']} of {self.described['steps']}; convert the log again."
            )

    def _joined(self, name: str) -> npt.NDArray[Any]:
        return np.concatenate([shard.arrays[name] for shard in self.shards])

    def _ids(self) -> npt.NDArray[Any]:
        parts = []
        for shard in self.shards:
            ids = shard.arrays.get("ids", shard.texts().get("ids"))
            if ids is None or len(ids) != len(shard.arrays["lengths"]):
                raise InputError(f"{shard.path.name} does not name its episodes; convert the log again.")
            parts.append(np.asarray(ids))
        if len({each.dtype.kind for each in parts}) > 1:
            parts = [each.astype(np.str_) for each in parts]
        return np.concatenate(parts)

    def __len__(self) -> int:
        return self.episodes

    def __repr__(self) -> str:
        return f"Stored({self.episodes} episodes, {self.steps} steps in {len(self.shards)} shards)"

    @property
    def episodes(self) -> int:
        return sum(len(shard.arrays["lengths"]) for shard in self.shards)

    @property
    def steps(self) -> int:
        return sum(len(shard.rows) for shard in self.shards)

    @property
    def nbytes(self) -> int:
        """Bytes of all observations and actions."""
        return 4 * self.steps * (self.observation_size + self.action_size)

    @property
    def column_names(self) -> list[str]:
        return column_labels(
            self.observation_names, self.observation_size, self.action_names, self.action_size
        )

    def per_step(self, name: str) -> npt.NDArray[Any] | None:
        """Array with an entry for each step, such as `after_gap` or `rewards`; None if the store has none."""
        if not any(name in shard.arrays for shard in self.shards):
            return None
        kind = next(shard.arrays[name].dtype for shard in self.shards if name in shard.arrays)
        empty = (np.zeros(len(shard.rows), kind) for shard in self.shards)
        parts = [shard.arrays.get(name, none) for shard, none in zip(self.shards, empty, strict=True)]
        return np.concatenate(parts)[self._rows_in_shards(np.arange(self.steps))]

    def needed_per_step(self, name: str) -> npt.NDArray[Any]:
        """Array with an entry for each step, which the store must have."""
        found = self.per_step(name)
        if found is None:
            raise InputError(f"need rewards and costs for this, but the store has no {name}.")
        return found

    @property
    def after_gap(self) -> Bools:
        found = self.per_step("after_gap")
        return np.zeros(self.steps, bool) if found is None else found

    def gather(self, rows: Ints) -> Floats:
        """Read steps by row, in any order: observations and actions side by side."""
        rows = np.asarray(rows).reshape(-1)
        places = self._rows_in_shards(rows)
        found = np.empty((len(rows), self.observation_size + self.action_size), np.float32)
        parts = range(0, len(rows), max(FEW, -(-len(rows) // THREADS)))
        if len(parts) > 1:
            size = parts.step
            list(self._threads.map(lambda i: self._copy(places[i : i + size], found[i : i + size]), parts))
        else:
            self._copy(places, found)
        self._touched += PAGE * len(rows)
        if self._touched > RESIDENT:
            self.release()
        return found

    def _copy(self, places: Ints, found: Floats) -> None:
        shard = np.searchsorted(self._firsts, places, side="right") - 1
        for number in np.unique(shard):
            here = shard == number
            found[here] = self.shards[number].rows[places[here] - self._firsts[number]]

    def _rows_in_shards(self, rows: Ints) -> Ints:
        episode = np.searchsorted(self.starts, rows, side="right") - 1
        return self._places[episode] + rows - self.starts[episode]

    def release(self) -> None:
        """Let the system take back the memory of what was read."""
        self._touched = 0
        for shard in self.shards:
            shard.release()

    def blocks(self, rows: int = BLOCK) -> Iterator[Trajectories]:
        """Read all episodes in order, in blocks of whole ones: at most `rows` steps, or one episode."""
        ends, first = self.starts + self.lengths, 0
        while first < self.episodes:
            last = int(np.searchsorted(ends, self.starts[first] + rows, side="right"))
            last = max(last, first + 1)
            yield self._episodes(np.arange(first, last))
            first = last

    def take(self, episodes: npt.ArrayLike) -> Trajectories:
        """Read episodes by number, in the given order."""
        return self._episodes(np.asarray(episodes, np.int64))

    def _episodes(self, chosen: Ints, step_values: npt.NDArray[Any] | None = None) -> Trajectories:
        width = self.observation_size
        lengths = self.lengths[chosen]
        steps = int(lengths.sum())
        observations = np.empty((steps, width), np.float32)
        actions = np.empty((steps, self.action_size), np.float32)
        flags = {name: np.zeros(steps, bool) for name in HASHED_IF_ANY}
        for episode, begin, length in zip(chosen, starts_of(lengths), lengths, strict=True):
            number = int(np.searchsorted(self._firsts, self._places[episode], side="right")) - 1
            start = int(self._places[episode] - self._firsts[number])
            shard = self.shards[number]
            rows = shard.rows[start : start + length]
            observations[begin : begin + length], actions[begin : begin + length] = (
                rows[:, :width],
                rows[:, width:],
            )
            for name, values in flags.items():
                if name in shard.arrays:
                    values[begin : begin + length] = shard.arrays[name][start : start + length]
            self._touched += rows.nbytes
            if self._touched > RESIDENT // 4:
                self.release()
        return Trajectories(
            observations,
            actions,
            lengths,
            final_observations=self.final_observations[chosen],
            has_final=self.has_final[chosen],
            terminated=self.terminated[chosen],
            action_low=self.action_low,
            action_high=self.action_high,
            ids=self.ids[chosen],
            first_steps=self.first_steps[chosen],
            marks=flags["marks"],
            after_gap=flags["after_gap"],
            step_values=step_values,
            step_zone=None if step_values is None else self.step_zone,
            observation_names=self.observation_names,
            action_names=self.action_names,
            action_categories=self.action_categories,
            reading=self.reading,
            owned=True,
        )

    def load(self) -> Contents:
        """Read everything into memory."""
        held = self._episodes(np.arange(self.episodes), self._step_values())
        manifest = self.described["manifest"]
        return Contents(held, self.per_step("rewards"), self.per_step("costs"), manifest=manifest)

    def _step_values(self) -> npt.NDArray[Any] | None:
        noted = self.described.get("step_values")
        if noted is None:
            return None
        if noted not in (TEXT, *STEP_TYPES.values()):
            raise InputError(f"the description gives no known type of step: {noted!r}; convert again.")
        parts: list[npt.NDArray[Any]] = []
        for shard in self.shards:
            if noted == TEXT:
                parts.append(np.asarray(shard.texts().get("step_values"), np.str_))
            elif "step_values" in shard.arrays:
                parts.append(shard.arrays["step_values"].view(noted))
            else:  # they are only numbered
                lengths, firsts = shard.arrays["lengths"], shard.arrays["first_steps"]
                parts.append(np.arange(len(shard.rows)) + np.repeat(firsts - starts_of(lengths), lengths))
        return np.concatenate(parts)[self._rows_in_shards(np.arange(self.steps))]

    def content_hash(self) -> str:
        """Content hash as recorded, which `data convert` has computed and `data info` checks."""
        return str(self.described["hashes"]["content"])

    def measured_hash(self) -> str:
        """Content hash of the steps in the shards, the same as that of `load().trajectories`."""
        hashed, width = hashlib.sha256(), self.observation_size

        def matrix(name: str, columns: slice, size: int) -> None:
            hashed.update(array_header(name, np.dtype("<f4"), (self.steps, size)))
            for block in self.blocks():
                hashed.update(np.ascontiguousarray(getattr(block, name)).data)

        matrix("observations", slice(0, width), width)
        matrix("actions", slice(width, None), self.action_size)
        flags = {name: self.per_step(name) for name in HASHED_IF_ANY}
        others = {name: getattr(self, name) for name in CONTENT[2:]}
        others |= {name: each for name, each in flags.items() if each is not None and each.any()}
        for name, array in others.items():
            little = np.ascontiguousarray(array, array.dtype.newbyteorder("<"))
            hashed.update(array_header(name, little.dtype, little.shape))
            hashed.update(little.data)
        return hashed.hexdigest()


def write_shard(folder: Path, number: int, pieces: Sequence[Contents]) -> tuple[int, int]:
    """Write whole episodes as one shard, completely or not at all; return its episodes and steps."""
    held = [piece.trajectories for piece in pieces]
    arrays: dict[str, npt.NDArray[Any]] = {
        "rows": np.concatenate([np.hstack([each.observations, each.actions]) for each in held]),
        **{name: np.concatenate([getattr(each, name) for each in held]) for name in PER_EPISODE},
    }
    texts: dict[str, Any] = {}
    kinds = {each.ids.dtype.kind for each in held}
    if kinds == {"i"}:
        arrays["ids"] = np.concatenate([each.ids for each in held])
    else:
        texts["ids"] = [str(name) for each in held for name in each.ids.tolist()]
    for name in HASHED_IF_ANY:
        if any(getattr(each, name).any() for each in held):
            arrays[name] = np.concatenate([getattr(each, name) for each in held])
    for name in ("rewards", "costs"):
        found = [getattr(piece, name) for piece in pieces]
        if all(each is not None for each in found):
            arrays[name] = np.concatenate(found).astype(np.float32)
    steps = _steps_of(held)
    if steps is not None and steps.dtype.kind == "U":
        texts["step_values"] = steps.tolist()
    elif steps is not None:
        arrays["step_values"] = steps.view(np.int64) if steps.dtype.kind in "mM" else steps
    path = folder / name_of(number)
    if texts:
        with atomic_file(path.with_suffix(".json")) as file:
            file.write_text(json.dumps(texts, ensure_ascii=False), encoding="utf-8")
    with atomic_file(path) as file:
        try:
            save_file(arrays, file)
        except SafetensorError as error:  # safetensors reports errors of the disk as its own
            raise OSError(f"{path.name} can't be written: {error}") from error
    return len(arrays["lengths"]), len(arrays["rows"])


def _steps_of(held: Sequence[Trajectories]) -> npt.NDArray[Any] | None:
    """The log's own steps; None where steps are only numbered."""
    if all(each.step_values is None for each in held):
        return None
    return np.concatenate([each.logged_steps for each in held])


def step_kind(held: Trajectories) -> str | None:
    """Type of the log's own steps as a description names it; None where they are only numbered."""
    if held.step_values is None:
        return None
    return TEXT if held.step_values.dtype.kind == "U" else held.step_values.dtype.name
