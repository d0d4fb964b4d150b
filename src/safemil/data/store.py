"""Our own store: a folder with the arrays as they are (safetensors) and a JSON file that says what they are.

Loading it executes nothing and opens these two files only.
"""

import json
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from safetensors import SafetensorError
from safetensors.numpy import load_file, save_file

from safemil.data.interchange import Contents, Options
from safemil.data.trajectories import CONTENT, Trajectories, digest
from safemil.errors import InputError

SUFFIXES: tuple[str, ...] = ()
ARRAYS, DESCRIPTION = "arrays.safetensors", "dataset.json"
FORMAT, VERSION = "safemil-dataset", 1
FIELDS = (*CONTENT, "first_steps")


def recognises(path: Path) -> bool:
    return (path / DESCRIPTION).is_file()


def read(path: Path, options: Options) -> Contents:
    if options.action_bounds is not None:
        raise InputError("a store records its own action bounds; leave them out.")
    noted = _description(path)
    try:
        arrays = load_file(path / ARRAYS)
    except (SafetensorError, OSError) as error:
        raise InputError(f"{ARRAYS} is missing or damaged: {error}") from error
    missing = [name for name in FIELDS if name not in arrays]
    if missing:
        raise InputError(f"{ARRAYS} has no {', '.join(missing)}; write the store anew.")
    ids = arrays.get("ids", noted.get("ids"))
    contents = Contents(
        Trajectories(**{name: arrays[name] for name in FIELDS}, ids=ids),
        arrays.get("rewards"),
        arrays.get("costs"),
        manifest=noted["manifest"],
    )
    if _hashes(contents) != noted.get("hashes"):
        raise InputError(
            f"the arrays are not those that {DESCRIPTION} describes: the store is damaged; write it anew."
        )
    return contents


def write(path: Path, contents: Contents) -> None:
    """Fill an empty folder."""
    held = contents.trajectories
    arrays: dict[str, npt.NDArray[Any]] = {name: getattr(held, name) for name in FIELDS}
    if held.ids.dtype.kind == "i":
        arrays["ids"] = held.ids
    arrays |= _annotations(contents)
    try:
        save_file(arrays, path / ARRAYS)
    except SafetensorError as error:  # its only error, here always the disk's
        raise OSError(f"{ARRAYS} can't be written: {error}") from error
    noted = {
        "format": FORMAT,
        "version": VERSION,
        "episodes": held.episodes,
        "steps": held.steps,
        "observation_size": held.observation_size,
        "action_size": held.action_size,
        "annotated": sorted(_annotations(contents)),
        "hashes": _hashes(contents),
        "manifest": contents.manifest,
    }
    if "ids" not in arrays:
        noted["ids"] = held.ids.tolist()  # safetensors holds no text
    (path / DESCRIPTION).write_text(json.dumps(noted, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def manifest(path: Path) -> dict[str, Any]:
    """What the writer of a store said about where it comes from."""
    found: dict[str, Any] = _description(path)["manifest"]
    return found


def _description(path: Path) -> dict[str, Any]:
    try:
        noted = json.loads((path / DESCRIPTION).read_text(encoding="utf-8"))
    except (ValueError, OSError) as error:
        raise InputError(f"{DESCRIPTION} can't be read: {error}") from error
    if (
        not isinstance(noted, dict)
        or noted.get("format") != FORMAT
        or not isinstance(noted.get("manifest"), dict)
    ):
        raise InputError(f"{DESCRIPTION} does not describe a safemil dataset.")
    if noted.get("version") != VERSION:
        raise InputError(
            f"the store has version {noted.get('version')!r}, this safemil reads {VERSION}; use a newer one."
        )
    return noted


def _hashes(contents: Contents) -> dict[str, str]:
    return {"content": contents.trajectories.content_hash(), "annotations": digest(_annotations(contents))}


def _annotations(contents: Contents) -> dict[str, npt.NDArray[Any]]:
    pairs = (("rewards", contents.rewards), ("costs", contents.costs))
    return {name: values.astype(np.float32) for name, values in pairs if values is not None}
