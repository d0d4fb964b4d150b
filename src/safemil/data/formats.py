"""Reading and writing episodes. A format is a module: its file, its test, and one line in `FORMATS`."""

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

from safemil.data import csv, hdf5, parquet, store
from safemil.data.interchange import Bounds, Columns, Contents, Options
from safemil.data.trajectories import Annotations, Trajectories
from safemil.errors import InputError, unknown
from safemil.files import atomic_file, atomic_folder, require_free

PathLike = str | os.PathLike[str]


class Format(Protocol):
    """What a module offers to be a format."""

    SUFFIXES: tuple[str, ...]  # none: a folder

    def recognises(self, path: Path) -> bool:
        """Whether the content, not the name, is of this format."""

    def read(self, path: Path, options: Options) -> Contents: ...

    def write(self, path: Path, contents: Contents) -> None:
        """Write into an empty file, or for a format without suffixes an empty folder."""


FORMATS: dict[str, Format] = {  # in the order they are tried
    "parquet": parquet,
    "hdf5": hdf5,
    "store": store,
    "csv": csv,  # last: any text may be one
}
TABLES = ("parquet", "csv")
NAMES = Columns()


def load(
    path: PathLike,
    *,
    columns: Columns = NAMES,
    action_bounds: Bounds | None = None,
) -> Trajectories:
    """Episodes of a file or a store, whatever its format; rewards and costs stay behind.

    `columns` says what the columns of a table are called. `action_bounds` are the least and the greatest
    action, one number each or one per column: those in the file if left out, else -1 and 1.
    """
    return read(path, Options(columns, action_bounds)).trajectories


def load_annotated(
    path: PathLike,
    *,
    columns: Columns = NAMES,
    action_bounds: Bounds | None = None,
) -> tuple[Trajectories, Annotations]:
    """As `load`, with the rewards and costs that the file must hold."""
    contents = read(path, Options(columns, action_bounds))
    with _naming(path):
        return contents.trajectories, contents.annotations()


def read(path: PathLike, options: Options) -> Contents:
    """All that a file holds."""
    path = Path(path)
    name = _format_of(path)
    with _naming(path):
        if name not in TABLES and options.columns != NAMES:
            raise InputError(f"column names are for tables ({', '.join(TABLES)}); this is {name}.")
        return FORMATS[name].read(path, options)


def save(
    path: PathLike,
    trajectories: Trajectories,
    annotations: Annotations | None = None,
    *,
    format: str | None = None,
    overwrite: bool = False,
    manifest: Mapping[str, Any] | None = None,
) -> None:
    """Write episodes, whole or not at all; the suffix chooses the format, no known suffix means a store.

    `manifest` is kept by a store alone: whatever JSON can hold about where the episodes come from.
    """
    name = format or format_for(path)
    if manifest and name != "store":
        raise InputError(f"only a store keeps a manifest; {path} would be {name}.")
    write(path, _contents(trajectories, annotations, manifest), name, overwrite=overwrite)


def write(path: PathLike, contents: Contents, format: str, *, overwrite: bool = False) -> None:
    """Write all that a file held into another."""
    path = Path(path)
    if format not in FORMATS:
        raise unknown("format", format, FORMATS)
    with _naming(path), _writable(path, FORMATS[format], overwrite) as target:
        FORMATS[format].write(target, contents)


def read_manifest(path: PathLike) -> dict[str, Any]:
    """What the writer of a store said about where it comes from."""
    with _naming(path):
        return store.manifest(Path(path))


def _contents(
    trajectories: Trajectories, annotations: Annotations | None, manifest: Mapping[str, Any] | None
) -> Contents:
    if annotations is None:
        return Contents(trajectories, manifest=dict(manifest or {}))
    if len(annotations) != trajectories.steps:
        raise InputError(f"there are {trajectories.steps} steps, but {len(annotations)} are annotated.")
    return Contents(trajectories, annotations.rewards, annotations.costs, manifest=dict(manifest or {}))


def _format_of(path: Path) -> str:
    if not path.exists():
        raise InputError(f"there is no file or folder {path}.")
    for name, format in FORMATS.items():
        if format.recognises(path):
            return name
    if path.is_dir():
        stores = [each.parent.name for each in sorted(path.glob(f"*/{store.DESCRIPTION}"))]
        hint = (
            f"give one of the stores in it ({', '.join(stores)})"
            if stores
            else f"it has no {store.DESCRIPTION}"
        )
        raise InputError(f"{path} is a folder, but not a store; {hint}.")
    if not path.stat().st_size:
        raise InputError(f"{path} is empty.")
    raise InputError(f"{path} is of none of the formats that can be read: {', '.join(FORMATS)}.")


def format_for(path: PathLike) -> str:
    """The format that a path's suffix asks for."""
    suffix = Path(path).suffix.lower()
    return next((name for name, format in FORMATS.items() if suffix in format.SUFFIXES), "store")


@contextmanager
def _writable(path: Path, format: Format, overwrite: bool) -> Iterator[Path]:
    require_free(path, overwrite=overwrite)
    folder = atomic_folder(path, mark=store.DESCRIPTION, overwrite=overwrite)
    with atomic_file(path) if format.SUFFIXES else folder as target:
        yield target


@contextmanager
def _naming(path: PathLike) -> Iterator[None]:
    """Say in an error which file it is about."""
    try:
        yield
    except InputError as error:
        text = str(error)
        raise InputError(text if text.startswith(str(path)) else f"{path}: {text}") from error
