"""Reading and writing episodes. `Format` says what a format is, `FORMATS` lists the built-in ones.

Installed packages add formats through the entry-point group `safemil.formats`. They are loaded only for a
file that no built-in format recognises (or only CSV, under another suffix), and for a suffix or a name that
no built-in format has.
"""

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any, Protocol

from safemil import plugins
from safemil.data import csv, hdf5, parquet, store
from safemil.data.interchange import Bounds, Columns, Contents, Options
from safemil.data.trajectories import Annotations, Trajectories
from safemil.errors import InputError, unknown
from safemil.files import atomic_file, atomic_folder, marked, require_free

PathLike = str | os.PathLike[str]


class Format(Protocol):
    """A file format: a module, or any object, with these attributes."""

    SUFFIXES: tuple[str, ...]  # lower case, with the dot; empty for a format that writes folders

    def recognises(self, path: Path) -> bool:
        """Whether the content of a file or folder is of this format, whatever its name."""

    def read(self, path: Path, options: Options) -> Contents:
        """Read everything, actions scaled to [-1, 1]; raise an InputError that names a faulty row."""

    def write(self, path: Path, contents: Contents) -> None:
        """Write to an empty file, or to an empty folder if there are no suffixes."""


GROUP = "safemil.formats"
FORMATS: dict[str, Format] = {  # in the order in which they are tried
    "parquet": parquet,
    "hdf5": hdf5,
    "store": store,
    "csv": csv,  # last, since almost any text could be CSV
}
NAMES = Columns()
STORE = marked(store.DESCRIPTION, store.FORMAT)


def load(
    path: PathLike,
    *,
    columns: Columns = NAMES,
    action_bounds: Bounds | None = None,
) -> Trajectories:
    """Read the episodes of a file or a store of any format, without rewards and costs.

    `columns` are the names of the columns of a table. `action_bounds` are the lowest and the highest action,
    one number each or one per column; the default is the bounds in the file, else -1 and 1.
    """
    return read(path, Options(columns, action_bounds)).trajectories


def load_annotated(
    path: PathLike,
    *,
    columns: Columns = NAMES,
    action_bounds: Bounds | None = None,
) -> tuple[Trajectories, Annotations]:
    """Read episodes as `load` does, and their rewards and costs, which the file must hold."""
    contents = read(path, Options(columns, action_bounds))
    with _naming(path):
        return contents.trajectories, contents.annotations()


def read(path: PathLike, options: Options) -> Contents:
    """Read everything in a file."""
    path = Path(path)
    format = _recognised(path)
    with _naming(path):
        return format.read(path, options)


def save(
    path: PathLike,
    trajectories: Trajectories,
    annotations: Annotations | None = None,
    *,
    format: str | None = None,
    overwrite: bool = False,
    manifest: Mapping[str, Any] | None = None,
) -> None:
    """Write episodes, completely or not at all. The suffix chooses the format; the default is a store.

    `manifest` describes the origin of the episodes: anything that JSON can hold. Only a store keeps it.
    """
    name = format or format_for(path)
    if manifest and name != "store":
        raise InputError(f"only a store keeps a manifest; {path} would be {name}.")
    write(path, _contents(trajectories, annotations, manifest), name, overwrite=overwrite)


def write(path: PathLike, contents: Contents, format: str, *, overwrite: bool = False) -> None:
    """Write everything that was read from a file to another one."""
    path, chosen = Path(path), find(format)
    with _naming(path), _writable(path, chosen, overwrite) as target:
        chosen.write(target, contents)


def read_manifest(path: PathLike) -> dict[str, Any]:
    """Origin of the episodes of a store, as given to `save`."""
    with _naming(path):
        return store.manifest(Path(path))


def find(name: str) -> Format:
    """Return a format by its name."""
    if name in FORMATS:
        return FORMATS[name]
    entries = plugins.installed(GROUP, FORMATS)
    if name not in entries:
        raise unknown("format", name, [*FORMATS, *entries])
    return _loaded(entries[name])


def format_for(path: PathLike) -> str:
    """Name of the format that a path's suffix chooses."""
    suffix = Path(path).suffix.lower()
    for name, format in FORMATS.items():
        if suffix in format.SUFFIXES:
            return name
    found, errors = _first_installed(lambda format: suffix in format.SUFFIXES) if suffix else (None, [])
    if found is None and errors:
        raise InputError(f'it is not known which format writes "{suffix}": {" ".join(errors)}')
    return found or "store"


def _contents(
    trajectories: Trajectories, annotations: Annotations | None, manifest: Mapping[str, Any] | None
) -> Contents:
    if annotations is None:
        return Contents(trajectories, manifest=dict(manifest or {}))
    if len(annotations) != trajectories.steps:
        raise InputError(f"there are {trajectories.steps} steps, but {len(annotations)} are annotated.")
    return Contents(trajectories, annotations.rewards, annotations.costs, manifest=dict(manifest or {}))


def _recognised(path: Path) -> Format:
    if not path.exists():
        raise InputError(f"there is no file or folder {path}.")
    if not path.is_file() and not path.is_dir():
        raise InputError(f"{path} is a pipe or a device; need a file or a folder, which can be read twice.")
    builtin = next((format for format in FORMATS.values() if format.recognises(path)), None)
    suffix = path.suffix.lower()
    # Almost any text looks like CSV, so a package's format comes before it if the file has its suffix.
    if builtin is not None and (builtin is not csv or suffix in csv.SUFFIXES):
        return builtin
    name, errors = _first_installed(
        lambda format: format.recognises(path) and (builtin is None or suffix in format.SUFFIXES)
    )
    if name is not None:
        return find(name)
    if builtin is not None:
        return builtin
    if path.is_dir():
        stores = [each.parent.name for each in sorted(path.glob(f"*/{store.DESCRIPTION}"))]
        hint = (
            f"give one of the stores in it ({', '.join(stores)})"
            if stores
            else f"it has no {store.DESCRIPTION}"
        )
        problem = f"is a folder, but not a store; {hint}."
    elif not path.stat().st_size:
        problem = "is empty."
    else:
        names = [*FORMATS, *plugins.installed(GROUP, FORMATS)]
        problem = f"is of none of the formats that can be read: {', '.join(names)}."
    raise InputError(" ".join([f"{path} {problem}", *errors]))


def _first_installed(accepts: Callable[[Format], bool]) -> tuple[str | None, list[str]]:
    """Name of the first format of an installed package that a test accepts, and errors of those before it."""
    errors: list[str] = []
    for name, entry in plugins.installed(GROUP, FORMATS).items():
        try:
            format = _loaded(entry)
            with plugins.named_in_errors("format", entry):
                if accepts(format):
                    return name, errors
        except InputError as error:
            errors.append(str(error))
    return None, errors


def _loaded(entry: EntryPoint) -> Format:
    with plugins.named_in_errors("format", entry):
        format: Format = entry.load()
        for attribute in ("SUFFIXES", "recognises", "read", "write"):
            getattr(format, attribute)
    return format


@contextmanager
def _writable(path: Path, format: Format, overwrite: bool) -> Iterator[Path]:
    require_free(path, overwrite=overwrite)
    folder = atomic_folder(path, STORE, overwrite=overwrite)
    with atomic_file(path) if format.SUFFIXES else folder as target:
        yield target


@contextmanager
def _naming(path: PathLike) -> Iterator[None]:
    """Put the path in front of error messages."""
    try:
        yield
    except InputError as error:
        text = str(error)
        raise InputError(text if text.startswith(str(path)) else f"{path}: {text}") from error
