"""HDF5 as DSRL and D4RL have it: flat arrays, a row per step, cut where `terminals` or `timeouts` are set.

What these have no place for (episode names, step numbers, which final observations are known, action
bounds) goes into a group `safemil`, which other readers pass over.
"""

# h5py has no types and exports what mypy takes for private names.

from io import BytesIO
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import numpy.typing as npt

from safemil.data.interchange import Contents, Options, in_unit_box, listed, written_actions
from safemil.data.trajectories import Trajectories
from safemil.errors import InputError
from safemil.typing import Bools, Floats, Ints

SUFFIXES: tuple[str, ...] = (".hdf5", ".h5")
MAGIC = b"\x89HDF\r\n\x1a\n"
OURS = "safemil"
NOTED = ("ids", "first_steps", "has_final", "action_low", "action_high")


def recognises(path: Path) -> bool:
    if not path.is_file():
        return False
    with open(path, "rb") as file:
        return file.read(len(MAGIC)) == MAGIC


def read(path: Path, options: Options) -> Contents:
    try:
        with h5py.File(path, "r") as file:
            return _read(file, options)
    except (OSError, RuntimeError, KeyError) as error:  # h5py's three ways of saying so
        raise InputError(f"the HDF5 file is damaged or cut short: {error}") from error


def _read(file: h5py.File, options: Options) -> Contents:
    observations = _array(file, "observations", 2)
    actions = _array(file, "actions", 2, len(observations))
    if not len(observations):
        raise InputError('"observations" has no rows; need at least one step.')
    terminals, ends = _ends(file, len(observations))
    lengths = np.diff(ends, prepend=-1)
    noted = _noted(file)
    bounds = (noted["action_low"], noted["action_high"]) if noted else None
    names = [f"actions[{i}]" for i in range(actions.shape[1])]
    scaled, low, high = in_unit_box(actions, options.action_bounds, bounds, names)
    rewards, costs = (_optional(file, name, len(observations)) for name in ("rewards", "costs"))
    return Contents(
        Trajectories(
            observations=observations,
            actions=scaled,
            lengths=lengths,
            final_observations=_finals(file, ends, len(observations)),
            has_final=noted.get("has_final"),
            terminated=terminals[ends],
            action_low=low,
            action_high=high,
            ids=noted.get("ids"),
            first_steps=noted.get("first_steps"),
        ),
        rewards,
        costs,
    )


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
    buffer = BytesIO()  # h5py itself can neither report a full disk in one error nor close the file after it
    with h5py.File(buffer, "w") as file:
        for name, values in arrays.items():
            if values is not None:
                file.create_dataset(name, data=values, compression="gzip", compression_opts=1, shuffle=True)
        ours = file.create_group(OURS)
        for name in NOTED:
            values = getattr(held, name)
            ours[name] = values.astype(object) if values.dtype.kind == "U" else values
    path.write_bytes(buffer.getbuffer())


def _ends(file: h5py.File, steps: int) -> tuple[Bools, Ints]:
    """Where the task ended itself, and the last row of each episode; a last unfinished one is kept."""
    flags = {name: _optional(file, name, steps) for name in ("terminals", "timeouts")}
    terminals, timeouts = (np.zeros(steps, bool) if each is None else each != 0 for each in flags.values())
    if all(each is None for each in flags.values()):
        raise InputError(f'need "terminals" or "timeouts" to tell episodes apart; there are: {listed(file)}.')
    ends = np.flatnonzero(terminals | timeouts)
    return terminals, ends if ends.size and ends[-1] == steps - 1 else np.append(ends, steps - 1)


def _finals(file: h5py.File, ends: Ints, steps: int) -> npt.NDArray[Any] | None:
    if "next_observations" not in file:
        return None
    return _array(file, "next_observations", 2, steps)[ends]


def _next_observations(held: Trajectories) -> Floats:
    """Each row's successor; NaN where it isn't known."""
    following = np.roll(held.observations, -1, axis=0)
    following[held.starts + held.lengths - 1] = np.where(
        held.has_final[:, None], held.final_observations, np.nan
    )
    return following


def _optional(file: h5py.File, name: str, steps: int) -> npt.NDArray[Any] | None:
    return _array(file, name, 1, steps) if name in file else None


def _array(group: h5py.Group, name: str, dimensions: int, rows: int | None = None) -> npt.NDArray[Any]:
    values: npt.NDArray[Any] = _dataset(group, name)[()]
    if values.dtype.kind not in "fiub":
        raise InputError(f'"{name}" must hold numbers, but holds {values.dtype}.')
    if dimensions == 1 and values.ndim == 2 and values.shape[1] == 1:
        values = values[:, 0]
    if values.ndim != dimensions or (rows is not None and len(values) != rows):
        wanted = "any number of" if rows is None else rows
        raise InputError(
            f'"{name}" must have {wanted} rows and {dimensions} dimensions, not shape {values.shape}.'
        )
    return values


def _dataset(group: h5py.Group, name: str) -> h5py.Dataset:
    """An array in this very file: links and outside storage could make us read another."""
    if name not in group:
        raise InputError(
            f'there is no "{name}"; a flat file in the manner of DSRL needs it (here: {listed(group)}).'
        )
    found = group[name] if isinstance(group.get(name, getlink=True), h5py.HardLink) else None
    if not isinstance(found, h5py.Dataset) or found.external or found.is_virtual:
        raise InputError(f'"{name}" must be an array in the file itself, not a group or a link to elsewhere.')
    return found


def _noted(file: h5py.File) -> dict[str, npt.NDArray[Any]]:
    """What our writer added."""
    if not isinstance(file.get(OURS, getlink=True) if OURS in file else None, h5py.HardLink):
        return {}
    found = {name: _dataset(file[OURS], name) for name in NOTED}
    return {name: each.asstr()[()] if each.dtype.kind == "O" else each[()] for name, each in found.items()}
