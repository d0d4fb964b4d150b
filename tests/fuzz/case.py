"""A case of the fuzzing: what it draws from, and what counts as a clean outcome."""

import contextlib
import io
import math
import random
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

import hostile
import numpy as np

from safemil.cli import main
from safemil.data import Trajectories, formats
from safemil.data.describing import describe
from safemil.data.interchange import Contents, Options
from safemil.errors import InputError

WRITTEN = {"parquet": ".parquet", "csv": ".csv", "hdf5": ".hdf5", "store": ""}


class WrongSuccess(Exception):
    """Input was accepted, and the result is not what it says."""


@dataclass
class Case:
    """One case; everything in it follows from the seed of the campaign and its number."""

    seed: int
    number: int
    materials: Path  # valid inputs, never changed
    folder: Path  # empty, for this case alone
    memory: int = 0  # kB that this process took before the part of the case that counts

    def prepared(self) -> None:
        """Say that the input is made: the memory that is taken from now on counts."""
        Path("/proc/self/clear_refs").write_text("5")
        self.memory = peak_memory()

    @cached_property
    def rng(self) -> random.Random:
        return random.Random(f"{self.seed}/{self.number}")

    @cached_property
    def values(self) -> list[Any]:
        return _values(self.seed, self.number // hostile.BLOCK)


def peak_memory() -> int:
    """Largest memory of this process since it was last prepared, in kB."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM"))


@lru_cache(maxsize=2)
def _values(seed: int, block: int) -> list[Any]:
    return hostile.drawn_values(seed * 1_000_003 + block)


def require(holds: object, claim: str) -> None:
    if not holds:
        raise WrongSuccess(claim)


def examine(case: Case, path: Path, options: Options | None = None) -> Contents:
    """Read a file; if it is accepted, check the episodes, describe them, and write and read them again."""
    contents = formats.read(path, options or Options())
    check_sane(contents.trajectories)
    annotations = None
    if contents.rewards is not None and contents.costs is not None:
        with contextlib.suppress(InputError):
            annotations = contents.annotations()
    described = describe(contents.trajectories, annotations)
    require(math.isfinite(described.lengths.mean), "the description holds a number that is not finite")
    check_round_trip(case, contents)
    return contents


def check_sane(held: Trajectories) -> None:
    """Check what every algorithm relies on."""
    lengths = held.lengths.tolist()
    require(min(lengths) >= 1 and sum(lengths) == held.steps, f"lengths {lengths[:5]} of {held.steps} steps")
    for name in ("observations", "actions", "final_observations", "action_low", "action_high"):
        require(np.isfinite(getattr(held, name)).all(), f"{name} are not finite")
    require((np.abs(held.actions) <= 1).all(), "actions lie outside of [-1, 1]")
    require((held.action_low < held.action_high).all(), "action bounds are not in order")
    for first, length in zip(held.first_steps.tolist(), lengths, strict=True):
        require(first + length <= 2**63 - 1, f"step numbers from {first} on don't fit int64")
    for name in map(str, held.ids.tolist()):
        require(_is_text(name), f"the episode name {name!r} can't be written as UTF-8")


def _is_text(name: str) -> bool:
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


def check_round_trip(case: Case, contents: Contents) -> None:
    """Write in another format and read again: refused in writing, or the same episodes."""
    held = contents.trajectories
    format = case.rng.choice([*WRITTEN])
    target = case.folder / f"written{WRITTEN[format]}"
    try:
        formats.write(target, contents, format)
    except InputError:
        require(not target.exists(), "a refused file was written all the same")
        return
    if format == "csv":  # has no place for the order of the episodes, which are sorted by name
        held = held.take(np.argsort(held.ids, kind="stable"))
    bounds = (held.action_low, held.action_high) if format == "csv" else None
    try:
        again = formats.read(target, Options(action_bounds=bounds)).trajectories
    except InputError as error:
        raise WrongSuccess(f"what was written as {format} can't be read: {error}") from error
    require(again.content_hash() == held.content_hash(), f"{format} holds other episodes than were written")
    require(again.ids.tolist() == held.ids.tolist(), f"{format} holds other names than were written")
    if format != "hdf5" or (held.first_steps == again.first_steps).all():
        require((held.first_steps == again.first_steps).all(), f"{format} holds other step numbers")


def command(case: Case, *arguments: object) -> int:
    """Run a command in this process, as in a terminal of some encoding; return its exit code."""
    encoding = case.rng.choice(["utf-8", "utf-8", "ascii", "latin-1"])
    out = io.TextIOWrapper(io.BytesIO(), encoding=encoding, write_through=True)
    err = io.TextIOWrapper(io.BytesIO(), encoding=encoding, errors="backslashreplace", write_through=True)
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            code = main([str(each) for each in arguments])
        except SystemExit as end:
            code = end.code if isinstance(end.code, int) else 1
    printed = out.buffer.getvalue() + err.buffer.getvalue()
    require(code in (0, 1, 2), f"exit code {code}")
    require(b"Traceback (most recent" not in printed, "a traceback was printed")
    require(b"\x1b" not in printed, "an escape sequence of the input reached the terminal")
    require(code == 0 or printed.strip(), f"exit code {code} without a message")
    return code
