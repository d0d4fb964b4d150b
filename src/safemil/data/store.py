"""Stores: folders with the arrays as safetensors, and a JSON file with their sizes, hashes and origin.

Reading a store opens these two files only, and runs no code from them.
"""

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from safetensors import SafetensorError
from safetensors.numpy import load_file, save_file

from safemil.data import shards
from safemil.data.interchange import Contents, Options
from safemil.data.trajectories import CONTENT, HASHED_IF_ANY, NAMES, STEP_TYPES, Trajectories, digest
from safemil.errors import InputError

SUFFIXES: tuple[str, ...] = ()
ARRAYS, DESCRIPTION = "arrays.safetensors", "dataset.json"
FORMAT, VERSION = "safemil-dataset", 1
FIELDS = (*CONTENT, "first_steps")
SIZES = ("episodes", "steps", "observation_size", "action_size")


def recognises(path: Path) -> bool:
    return (path / DESCRIPTION).is_file()


def read(path: Path, options: Options) -> Contents:
    options.refuse_columns("a store")
    if options.action_bounds is not None:
        raise InputError("a store records its own action bounds; omit them.")
    described = _description(path)
    if described["version"] == shards.VERSION:
        return _checked(shards.Stored(path, described))
    try:
        if not (path / ARRAYS).is_file():  # opening a named pipe would wait for a writer
            raise FileNotFoundError("it is not a file")
        arrays = load_file(path / ARRAYS)
    except (SafetensorError, OSError, AttributeError) as error:  # NumPy has no attribute for 8-bit floats
        raise InputError(f"{ARRAYS} is missing or damaged: {error}") from error
    missing = [name for name in FIELDS if name not in arrays]
    if missing:
        raise InputError(f"{ARRAYS} has no {', '.join(missing)}; write the store again.")
    optional: dict[str, Any] = {name: arrays.get(name) for name in HASHED_IF_ANY}
    optional |= {name: described.get(name) for name in (*NAMES, "step_zone")}
    contents = Contents(
        Trajectories(
            **{name: arrays[name] for name in FIELDS},
            **optional,
            ids=arrays.get("ids", described.get("ids")),
            step_values=_step_values(arrays, described),
            owned=True,
        ),
        arrays.get("rewards"),
        arrays.get("costs"),
        manifest=described["manifest"],
    )
    if any(described.get(name) != found for name, found in _summary(contents).items()):
        raise InputError(
            f"the arrays are not those that {DESCRIPTION} describes: the store is damaged; write it again."
        )
    return contents


def stored(path: Path) -> shards.Stored | None:
    """Open a store in shards, whose episodes stay in their files; None for anything else."""
    if not recognises(path):
        return None
    described = _description(path)
    return shards.Stored(path, described) if described["version"] == shards.VERSION else None


def _checked(found: shards.Stored) -> Contents:
    contents = found.load()
    if contents.trajectories.content_hash() != found.content_hash():
        raise InputError(
            f"the arrays are not those that {DESCRIPTION} describes: the store is damaged; convert again."
        )
    return contents


def write(path: Path, contents: Contents) -> None:
    """Write arrays and description into an empty folder."""
    held = contents.trajectories
    arrays: dict[str, npt.NDArray[Any]] = {name: getattr(held, name) for name in FIELDS}
    if held.ids.dtype.kind == "i":
        arrays["ids"] = held.ids
    arrays |= {name: getattr(held, name) for name in HASHED_IF_ANY if getattr(held, name).any()}
    if held.step_values is not None and held.step_values.dtype.kind != "U":
        times = held.step_values.dtype.kind in "mM"
        arrays["step_values"] = held.step_values.view("int64") if times else held.step_values
    arrays |= _annotations(contents)
    try:
        save_file(arrays, path / ARRAYS)
    except SafetensorError as error:  # safetensors reports errors of the disk as its own
        raise OSError(f"{ARRAYS} can't be written: {error}") from error
    described = {"format": FORMAT, "version": VERSION, **_summary(contents), "manifest": contents.manifest}
    described |= {name: value for name in (*NAMES, "step_zone") if (value := getattr(held, name)) is not None}
    if held.step_values is not None:  # safetensors holds no text, no times and no durations
        kind = held.step_values.dtype
        described["step_values"] = kind.name if "step_values" in arrays else held.step_values.tolist()
    if "ids" not in arrays:
        described["ids"] = held.ids.tolist()  # safetensors holds no text
    text = json.dumps(described, indent=2, ensure_ascii=False) + "\n"
    (path / DESCRIPTION).write_text(text, encoding="utf-8")
    shutil.copymode(path / DESCRIPTION, path / ARRAYS)  # safetensors lets only the owner read its files


def _step_values(arrays: dict[str, npt.NDArray[Any]], described: dict[str, Any]) -> npt.ArrayLike | None:
    """The log's own steps: texts from the description, or an array whose type the description names."""
    noted: Any = described.get("step_values")
    if "step_values" not in arrays:
        return noted
    if noted not in STEP_TYPES.values():
        raise InputError(
            f"{DESCRIPTION} gives no type of step that is known: {noted!r}; write the store again."
        )
    steps: npt.NDArray[Any] = arrays["step_values"].view(noted)
    return steps


def manifest(path: Path) -> dict[str, Any]:
    """Origin of the episodes, as given to `write`."""
    found: dict[str, Any] = _description(path)["manifest"]
    return found


def _description(path: Path) -> dict[str, Any]:
    try:
        described = json.loads((path / DESCRIPTION).read_text(encoding="utf-8"))
    except (ValueError, OSError, RecursionError) as error:
        raise InputError(f"{DESCRIPTION} can't be read: {error}") from error
    if (
        not isinstance(described, dict)
        or described.get("format") != FORMAT
        or not isinstance(described.get("manifest"), dict)
    ):
        raise InputError(f"{DESCRIPTION} does not describe a safemil dataset.")
    if described.get("version") not in (VERSION, shards.VERSION):
        raise InputError(
            f"the store has version {described.get('version')!r}, but this safemil reads version {VERSION} "
            f"and {shards.VERSION}; use another version of safemil."
        )
    for name in SIZES:
        size = described.get(name)
        if type(size) is not int or size < 1:
            raise InputError(
                f"{name} in {DESCRIPTION} must be a whole number of at least 1, got {size!r}: the store is "
                "damaged; write it again."
            )
    hashes = described.get("hashes")
    if described["version"] == shards.VERSION and (
        not isinstance(hashes, dict) or not isinstance(hashes.get("content"), str)
    ):
        raise InputError(f"{DESCRIPTION} has no content hash: the store is damaged; convert the log again.")
    return described


def _summary(contents: Contents) -> dict[str, Any]:
    """Sizes and hashes of the arrays, which a reader compares with those in the description."""
    held, annotations = contents.trajectories, _annotations(contents)
    return {
        **{name: getattr(held, name) for name in SIZES},
        "annotated": sorted(annotations),
        "hashes": {"content": held.content_hash(), "annotations": digest(annotations)},
    }


def _annotations(contents: Contents) -> dict[str, npt.NDArray[Any]]:
    pairs = (("rewards", contents.rewards), ("costs", contents.costs))
    return {name: values.astype(np.float32) for name, values in pairs if values is not None}
