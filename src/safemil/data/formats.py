"""Reading and writing episodes. `Format` says what a format is, `FORMATS` lists the built-in ones.

Installed packages add formats through the entry-point group `safemil.formats`. They are loaded only for a
file that no built-in format recognises (or only CSV, under another suffix), and for a suffix or a name that
no built-in format has.
"""

import glob
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any, NamedTuple, Protocol, TypedDict, Unpack, overload
from urllib.parse import unquote

import pyarrow as pa

from safemil import plugins
from safemil.data import csv, hdf5, lerobot, minari, parquet, rosbag, store
from safemil.data.columns import natural
from safemil.data.incidents import Piles, piles_of, split_contents
from safemil.data.interchange import (
    ActionKind,
    Bounds,
    Columns,
    Contents,
    Fill,
    Options,
    PathLike,
    Paths,
    join_contents,
    listed,
)
from safemil.data.parts import Loaded, Part, with_partition
from safemil.data.searching import require_few
from safemil.data.table import from_parts
from safemil.data.trajectories import Annotations, Trajectories
from safemil.errors import InputError, unknown
from safemil.files import atomic_file, atomic_folder
from safemil.ownership import marked, require_free
from safemil.texts import require_utf8


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
    "lerobot": lerobot,
    "minari": minari,
    "ros": rosbag,
    "csv": csv,  # last, since almost any text could be CSV
}
STORE = marked(store.DESCRIPTION, store.FORMAT)


class Reading(TypedDict, total=False):
    """Arguments of `load` that say how files are read."""

    columns: Columns
    action_bounds: Bounds | None
    fill: Iterable[str]
    max_gap: float | str | None
    action_kind: ActionKind | None


@overload
def load(paths: Paths, **reading: Unpack[Reading]) -> Trajectories: ...


@overload
def load(
    paths: Paths,
    *,
    incident: str,
    incident_episodes: Iterable[object] | None = None,
    **reading: Unpack[Reading],
) -> Piles: ...


@overload
def load(paths: Paths, *, incident_episodes: Iterable[object], **reading: Unpack[Reading]) -> Piles: ...


def load(
    paths: Paths,
    *,
    incident: str | None = None,
    incident_episodes: Iterable[object] | None = None,
    **reading: Unpack[Reading],
) -> Trajectories | Piles:
    """Read the episodes of files or a store of any format, without rewards and costs.

    `paths` is a file, a folder of files, a pattern such as "logs/*.csv", or several of them. With `incident`,
    a column that is true at incidents (or "column=value"), or with `incident_episodes`, names of episodes,
    the result is both piles: `nonpreferred` and `unlabeled`.

    How files are read:

    - `columns`: names of the columns of a table, as `Columns`
    - `action_bounds`: the lowest and the highest action, one number each or one per column; the default is
      the bounds in the file, else -1 and 1
    - `fill`: rules for empty cells, such as "gap_*=90", "speed=previous" or "gap_*=flag"
    - `max_gap`: no segment crosses a longer step: a number in the units of the step column, or "1s"
    - `action_kind`: "discrete" if whole numbers are choices, as texts are
    """
    options = _options(reading, incident, incident_episodes)
    contents = read(paths, options)
    if not options.tells_incidents:
        return contents.trajectories
    with _naming(paths):
        return piles_of(contents, options)


def load_annotated(paths: Paths, **reading: Unpack[Reading]) -> tuple[Trajectories, Annotations]:
    """Read episodes as `load` does, and their rewards and costs, which the file must hold."""
    contents = read(paths, _options(reading))
    with _naming(paths):
        return contents.trajectories, contents.annotations()


def read(paths: Paths, options: Options) -> Contents:
    """Read everything in a file, or in all files of a log; say what a user should know of its names."""
    with _naming(paths):
        found = log_files(paths)
        if len(found) == 1 and found[0].path == Path(found[0].given):
            contents = recognised(found[0].path).read(found[0].path, options)
        else:
            contents = _read_all(found, options)
    return contents


def read_like(paths: Paths, options: Options) -> Contents:
    """Read other files in the way that `options` tell; formats without columns need no such rules."""
    with _naming(paths):
        plain = all(describes_itself(file.path, options) for file in log_files(paths))
    return read(paths, Options() if plain else options)


def describes_itself(path: Path, options: Options) -> bool:
    """Whether a file is read without options: one without columns, or one of ours with its own columns."""
    format, wanted = recognised(path), options.columns.observation
    if format is not parquet or not isinstance(wanted, tuple):
        return format in (store, hdf5)
    part = parquet.part(path)
    return bool(part.recorded) and not {*wanted} <= {*part.columns}


def read_piles(paths: Mapping[str, Paths], options: Options) -> dict[str, Contents]:
    """Read piles by name; one log gives two, by its incidents, if the options tell them."""
    if not options.tells_incidents:
        return {name: read(where, options) for name, where in paths.items()}
    logs = paths["unlabeled"]
    contents = read(logs, options)
    with _naming(logs):
        piles = split_contents(contents, options)
    others = {name: where for name, where in paths.items() if name not in piles}
    return piles | {name: read(where, options.without_incidents()) for name, where in others.items()}


def read_columns(paths: Paths, names: Sequence[str] | None) -> pa.Table | None:
    """Read columns of tables as they are, or all of them; None if the files are no tables.

    Columns that a file lacks are left out. Rows are in the order of `Contents.step_rows`. Times in a CSV
    file are text, as they stand there.
    """
    files = log_files(paths)
    if not all(recognised(file.path) in (csv, parquet) for file in files):
        return None
    tables = []
    for file, part in zip(files, map(open_part, files), strict=True):
        wanted = [*(part.columns if names is None else names)]
        held = [name for name in wanted if name in part.columns]
        for name in held:
            if [*part.columns].count(name) > 1:
                raise InputError(f'{part.path} has several columns called "{name}"; rename all but one.')
        table = part.load(held, ()).whole(held).select(held)
        times = [field.name for field in table.schema if pa.types.is_temporal(field.type)]
        if times and not parquet.recognises(file.path):
            texts = csv.as_text(file.path, times)
            for name in times:
                table = table.set_column(held.index(name), name, texts.column(name))
        tables.append(with_partition(table, part, wanted))
    try:
        return pa.concat_tables(tables, promote_options="permissive")
    except pa.ArrowException as error:
        raise InputError(f"the files hold columns of one name and different kinds: {error}.") from error


def _options(
    reading: Reading, incident: str | None = None, episodes: Iterable[object] | None = None
) -> Options:
    return Options(
        columns=reading.get("columns", Columns()),
        action_bounds=reading.get("action_bounds"),
        incident=incident,
        incident_episodes=None if episodes is None else tuple(str(name) for name in episodes),
        fills=tuple(Fill.parse(each) for each in reading.get("fill", ())),
        max_gap=reading.get("max_gap"),
        action_kind=reading.get("action_kind"),
    )


class File(NamedTuple):
    """File of a log."""

    path: Path
    given: str  # the argument that it comes from
    label: str  # path within the log, with / between folders


def log_files(paths: Paths) -> list[File]:
    """Expand folders and patterns; each file once, sorted by its place in the log."""
    given = [located(each) for each in ([paths] if isinstance(paths, str | os.PathLike) else paths)]
    found = {path.resolve(): (path, os.fspath(each)) for each in given for path in _expanded(each)}
    if not found:
        raise InputError("need at least one file, folder or pattern.")
    for where in found:
        require_utf8("the path", str(where))
    top = os.path.commonpath([path.parent for path in found])
    return sorted(
        (File(path, each, where.relative_to(top).as_posix()) for where, (path, each) in found.items()),
        key=lambda file: natural(file.label),
    )


def _expanded(path: Path) -> list[Path]:
    """Files that a path stands for: itself, those in a folder that no format reads, or all that match."""
    if not path.exists() and glob.has_magic(str(path)):
        require_few(path)
        matched = [Path(each) for each in glob.glob(str(path), recursive=True)]
        if not matched:
            raise InputError(f"no file or folder matches {path}.")
        return [file for each in matched for file in _expanded(each)]
    if not path.is_dir() or any(format.recognises(path) for format in FORMATS.values()):
        return [path]
    require_few(path)
    inside = (each for each in path.rglob("*") if _is_table(each, path))
    return [*inside] or [path]


def _is_table(path: Path, folder: Path) -> bool:
    """Whether a file of a folder is a table by its name; hidden ones and those with _ are notes of tools."""
    parts = path.relative_to(folder).parts
    hidden = any(part.startswith((".", "_")) for part in parts)
    return not hidden and path.name.lower().endswith((*csv.SUFFIXES, *parquet.SUFFIXES)) and path.is_file()


def _read_all(files: Sequence[File], options: Options) -> Contents:
    """Read several files as one log: tables as one table, other formats one after the other."""
    formats = [recognised(file.path) for file in files]
    if all(format in (csv, parquet) for format in formats):
        return from_parts([open_part(file) for file in files], options)
    contents = []
    for file, format in zip(files, formats, strict=True):
        with _naming(file.path):
            contents.append(format.read(file.path, options))
    return join_contents(contents, [file.label for file in files])


def open_part(file: File) -> Part:
    with _naming(file.path):
        opened = (parquet if parquet.recognises(file.path) else csv).part(file.path)

    def load(names: list[str], narrow: Sequence[str]) -> Loaded:
        with _naming(file.path):
            return opened.load(names, narrow)

    folders = [part.split("=", 1) for part in file.path.parent.parts if "=" in part]
    partition = {name: unquote(value) for name, value in folders}
    return replace(opened, load=load, path=file.label, partition=partition)


def located(path: PathLike) -> Path:
    """Path of a file or folder; a Minari dataset may be given by its id, if nothing else has this name."""
    return Path(path) if Path(path).exists() else minari.folder(os.fspath(path)) or Path(path)


def located_all(paths: Paths) -> Paths:
    """Paths as `located` finds them; a path that a run notes must not depend on Minari's folder."""
    return located(paths) if isinstance(paths, str | os.PathLike) else [located(path) for path in paths]


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
    path, chosen = Path(require_utf8("the path", os.fspath(path))), find(format)
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
    suffix, whole = Path(path).suffix.lower(), Path(path).name.lower()
    for name, format in FORMATS.items():
        if format.SUFFIXES and whole.endswith(format.SUFFIXES):
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


def recognised(path: Path) -> Format:
    if not path.exists():
        raise InputError(f"there is no file or folder {path}.")
    if not path.is_file() and not path.is_dir():
        raise InputError(f"{path} is a pipe or a device; need a file or a folder, which can be read twice.")
    builtin = next((format for format in FORMATS.values() if format.recognises(path)), None)
    suffix = path.suffix.lower()
    # Almost any text looks like CSV, so a package's format comes before it if the file has its suffix.
    if builtin is not None and (builtin is not csv or path.name.lower().endswith(csv.SUFFIXES)):
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
def _naming(paths: Paths) -> Iterator[None]:
    """Put the path in front of error messages."""
    path = paths if isinstance(paths, str | os.PathLike) else listed([str(each) for each in paths], 3)
    try:
        yield
    except InputError as error:
        if not str(error).startswith(str(path)):
            error.args = (f"{path}: {error}",)
        raise
