"""HDF5 in the layout of DSRL and D4RL: flat arrays, a row per step; `terminals` and `timeouts` end episodes.

A group `safemil` holds what that layout has no place for: names of episodes, numbers of first steps, which
final observations are known, and action bounds. Other readers ignore it.
"""

import math
from io import BytesIO
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import numpy.typing as npt

from safemil.arrays import Bools, Floats, Ints
from safemil.data.hdf5_arrays import own_array
from safemil.data.interchange import (
    Contents,
    Options,
    begins_with,
    check_declared_size,
    in_unit_box,
    listed,
    written_actions,
)
from safemil.data.trajectories import Trajectories, check_name_length
from safemil.errors import InputError

SUFFIXES: tuple[str, ...] = (".hdf5", ".h5")
MAGIC = b"\x89HDF\r\n\x1a\n"
NEEDED = ("observations", "actions")
DIMENSIONS = {  # of each array, whose rows are steps
    "observations": 2,
    "actions": 2,
    "next_observations": 2,
    "terminals": 1,
    "timeouts": 1,
    "rewards": 1,
    "costs": 1,
}
GROUP = "safemil"
NAMES_AT_ONCE = 100
BLOCK = 4 << 20  # bytes of a matrix that are read at once
EXTRAS = ("ids", "first_steps", "has_final", "action_low", "action_high")


def recognises(path: Path) -> bool:
    return begins_with(path, MAGIC)


def read(path: Path, options: Options) -> Contents:
    options.refuse_columns("HDF5")
    try:
        with h5py.File(path, "r") as file:
            datasets = _checked_datasets(file)
            extras = _checked_extras(file, datasets)
            declared = sum(map(_declared_size, (*datasets.values(), *extras.values())))
            check_declared_size(path, declared, rows=len(datasets["actions"]))
            return _read(datasets, extras, options)
    except InputError:
        raise
    except (OSError, RuntimeError, LookupError, TypeError, ValueError) as error:  # h5py raises any of these
        raise InputError(f"the HDF5 file is damaged or cut short: {error}") from error


def _read(datasets: dict[str, h5py.Dataset], declared: dict[str, h5py.Dataset], options: Options) -> Contents:
    extras = {name: _names(each) if name == "ids" else each[()] for name, each in declared.items()}
    arrays = {name: each[()].reshape(-1) for name, each in datasets.items() if DIMENSIONS[name] == 1}
    arrays["actions"] = datasets["actions"][()]
    steps, width = arrays["actions"].shape
    flags = {name: arrays.get(name, np.zeros(steps)) != 0 for name in ("terminals", "timeouts")}
    ends = _ends(flags["terminals"] | flags["timeouts"])
    bounds = (extras["action_low"], extras["action_high"]) if extras else None
    names = [f"actions[{i}]" for i in range(width)]
    scaled, low, high = in_unit_box(arrays["actions"], options.action_bounds, bounds, names)
    following = datasets.get("next_observations")
    return Contents(
        Trajectories(
            observations=_in_float32(datasets["observations"]),
            actions=scaled,
            lengths=np.diff(ends, prepend=-1),
            final_observations=None if following is None else _in_float32(following, ends),
            has_final=extras.get("has_final"),
            terminated=flags["terminals"][ends],
            action_low=low,
            action_high=high,
            ids=extras.get("ids"),
            first_steps=extras.get("first_steps"),
            owned=True,
        ),
        rewards=arrays.get("rewards"),
        costs=arrays.get("costs"),
    )


def _in_float32(dataset: h5py.Dataset, rows: Ints | None = None) -> Floats:
    """All or some rows of a matrix, which is read in blocks and never held as a whole in its own type."""
    taken = np.empty((dataset.shape[0] if rows is None else len(rows), dataset.shape[1]), np.float32)
    size = max(1, BLOCK // max(1, dataset.dtype.itemsize * dataset.shape[1]))
    if dataset.chunks:  # a chunk is unpacked as a whole, and should be so once
        size = -(-size // dataset.chunks[0]) * dataset.chunks[0]
    with np.errstate(over="ignore"):  # what float32 can't hold becomes inf, which is refused later
        for start in range(0, dataset.shape[0], size):
            if rows is None:
                taken[start : start + size] = dataset[start : start + size]
                continue
            first, last = np.searchsorted(rows, (start, start + size))
            if last > first:
                taken[first:last] = dataset[start : start + size][rows[first:last] - start]
    return taken


def write(path: Path, contents: Contents) -> None:
    held = contents.trajectories
    ends = held.starts + held.lengths - 1
    terminals, timeouts = np.zeros(held.steps, bool), np.zeros(held.steps, bool)
    terminals[ends], timeouts[ends] = held.terminated, ~held.terminated
    arrays = {
        "observations": held.observations,
        "actions": written_actions(held),
        "terminals": terminals,
        "timeouts": timeouts,
        "rewards": contents.rewards,
        "costs": contents.costs,
        "next_observations": _next_observations(held) if held.has_final.any() else None,
    }
    buffer = BytesIO()  # on a full disk h5py can neither raise a single error nor close the file
    with h5py.File(buffer, "w") as file:
        for name, values in arrays.items():
            if values is not None:
                file.create_dataset(name, data=values, compression="gzip", compression_opts=1, shuffle=True)
        extras = file.create_group(GROUP)
        for name in EXTRAS:
            values = getattr(held, name)
            extras[name] = values.astype(object) if values.dtype.kind == "U" else values
    path.write_bytes(buffer.getbuffer())


def _ends(flags: Bools) -> Ints:
    """Last row of each episode; a last episode that no flag ends is kept."""
    ends = np.flatnonzero(flags)
    return ends if ends.size and ends[-1] == len(flags) - 1 else np.append(ends, len(flags) - 1)


def _next_observations(held: Trajectories) -> Floats:
    """Observation after each row, NaN where it is unknown."""
    following = np.roll(held.observations, -1, axis=0)
    following[held.starts + held.lengths - 1] = np.where(
        held.has_final[:, None], held.final_observations, np.nan
    )
    return following


def _checked_datasets(file: h5py.File) -> dict[str, h5py.Dataset]:
    """Find the arrays, and compare their declared types and shapes before anything is read."""
    found = {name: _dataset(file, name) for name in DIMENSIONS if name in NEEDED or name in file}
    if "terminals" not in found and "timeouts" not in found:
        raise InputError(f'need "terminals" or "timeouts" to tell episodes apart; there are: {listed(file)}.')
    rows: int | None = None
    for name, each in found.items():
        _check_declared(name, each, rows)
        rows = each.shape[0]
    if not rows:
        raise InputError('"observations" has no rows; need at least one step.')
    width = found["observations"].shape[1]
    if "next_observations" in found and found["next_observations"].shape[1] != width:
        wrong = found["next_observations"].shape[1]
        raise InputError(f'"next_observations" is {wrong} wide, the other observations {width}.')
    return found


def _check_declared(name: str, dataset: h5py.Dataset, rows: int | None) -> None:
    shape: tuple[int, ...] = dataset.shape or ()
    dimensions = DIMENSIONS[name]
    if dataset.dtype.kind not in "fiub":
        raise InputError(f'"{name}" must hold numbers, but holds {dataset.dtype}.')
    column = dimensions == 1 and len(shape) == 2 and shape[1] == 1  # flags may be a column
    if (len(shape) != dimensions and not column) or (rows is not None and shape[0] != rows):
        wanted = "any number of" if rows is None else rows
        raise InputError(f'"{name}" must have {wanted} rows and {dimensions} dimensions, not shape {shape}.')


def _checked_extras(file: h5py.File, datasets: dict[str, h5py.Dataset]) -> dict[str, h5py.Dataset]:
    """Find what `write` added, if anything, and check its declared shapes."""
    if GROUP not in file or not isinstance(file.get(GROUP, getlink=True), h5py.HardLink):
        return {}
    if not isinstance(file[GROUP], h5py.Group):
        raise InputError(f'"{GROUP}" must be a group, as `save` writes it; write the file again.')
    found = {name: _dataset(file[GROUP], name) for name in EXTRAS}
    steps, width = datasets["actions"].shape
    episodes: tuple[int, ...] = found["ids"].shape or ()
    for name, each in found.items():
        wanted = (width,) if name.startswith("action_") else episodes
        if each.shape != wanted or len(wanted) != 1 or wanted[0] > max(steps, width):
            raise InputError(
                f'"{GROUP}/{name}" has shape {each.shape}, which does not fit {steps} steps and '
                f"{width} action columns; write the file again."
            )
    return found


def _dataset(group: h5py.Group, name: str) -> h5py.Dataset:
    """Find an array that the layout of DSRL needs, in the file itself."""
    if name not in group:
        raise InputError(
            f'there is no "{name}"; a file in the layout of DSRL needs it (here: {listed(group)}).'
        )
    return own_array(group, name)


def _declared_size(dataset: h5py.Dataset) -> int:
    """Bytes in memory, or those of a chunk if it is larger: HDF5 reads whole chunks."""
    size = max(dataset.size or 0, math.prod(dataset.chunks or ()))
    return size * max(dataset.dtype.itemsize, 8)


def _names(dataset: h5py.Dataset) -> npt.NDArray[Any]:
    """Names of episodes; texts are read a few at a time, since their declared size says nothing."""
    if dataset.dtype.kind in "iu":
        numbers: npt.NDArray[Any] = dataset[()]
        return numbers
    if not h5py.check_string_dtype(dataset.dtype):
        raise InputError(f'"{GROUP}/ids" must hold whole numbers or text, but holds {dataset.dtype}.')
    names: list[str] = []
    for first in range(0, len(dataset), NAMES_AT_ONCE):
        names += dataset.asstr()[first : first + NAMES_AT_ONCE].tolist()
        check_name_length(max(map(len, names[first:])))
    return np.asarray(names)
