"""Atomic writes (a file or folder appears complete, or not at all), and reading of small text files."""

import contextlib
import errno
import glob
import json
import math
import os
import re
import secrets
import shutil
import socket
import stat
import tomllib
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from safemil.errors import InputError, shortened

PathLike = str | os.PathLike[str]
LOCK = ".lock"  # inside a folder that a process is writing (safemil.locks)
ASIDE = "before"  # inside a temporary folder: the folder that is being replaced
LARGEST_TEXT = 1 << 28  # bytes of a config, a grid, metrics or results; more is not one of ours
MOST_FOUND = 1_000_000  # files and folders below a folder that is searched for logs
LONGEST_NAME = 100  # characters of a name that becomes a file
HOST = f"{zlib.crc32(socket.gethostname().encode()):08x}"
OWNER = re.compile(r"(?P<host>[0-9a-f]{8})-(?P<process>\d{1,9})-[0-9a-f]{8}(\.|$)")
_own: set[str] = set()  # names of temporary files and folders that this process has made


class Kind(NamedTuple):
    """A kind of folder that this package writes: only such a folder is ever overwritten."""

    mark: str  # file that is written last
    is_ours: Callable[[Path], bool]  # judges by the content of the mark


def marked(mark: str, format: str) -> Kind:
    """Make the kind of folder that holds a JSON file whose entry `format` is this one."""

    def is_ours(folder: Path) -> bool:
        try:
            content = read_json(folder / mark)
        except (InputError, OSError):
            return False
        return isinstance(content, dict) and content.get("format") == format

    return Kind(mark, is_ours)


@contextlib.contextmanager
def atomic_file(path: PathLike) -> Iterator[Path]:
    """Write to the path this yields; it becomes `path` if the block ends without an error, else is deleted.

    The temporary name keeps the suffix, since some writers choose a format by it.
    """
    path = Path(path)
    if path.exists() and not path.is_file():
        raise InputError(f"{path} is {_what(path)}, which is never overwritten by a file; give another name.")
    with naming(path), _temporary(path) as temporary:
        temporary.touch()
        yield temporary
        sync(temporary)
        os.replace(temporary, path)


@contextlib.contextmanager
def atomic_folder(path: PathLike, kind: Kind, *, overwrite: bool = False) -> Iterator[Path]:
    """Fill the folder this yields; it becomes `path` if the block ends without an error, else is deleted.

    A folder that is there already is moved aside, and deleted once the new one is in its place.
    """
    path = Path(path)
    with naming(path), _temporary(path.resolve()) as temporary:
        require_free(path, overwrite=overwrite)
        if not is_free(path) and not kind.is_ours(path):
            raise InputError(
                f"{path} holds something else (no {kind.mark} of ours is in it), which is never overwritten; "
                "give another path."
            )
        temporary.mkdir()
        yield temporary
        for each in temporary.rglob("*"):
            if each.is_file():
                sync(each)
        _move(temporary, path.resolve(), kind.mark)


@contextlib.contextmanager
def atomic_files(path: PathLike) -> Iterator[Path]:
    """Write `path` and what belongs beside it into the folder this yields; all of it appears, or nothing."""
    path = Path(path)
    folder = path.parent
    with naming(path), _temporary(path) as temporary:
        new, before = temporary / "new", temporary / "before"
        for each in (new, before):
            each.mkdir(parents=True)
        yield new
        made = [each.relative_to(new) for each in sorted(new.rglob("*")) if each.is_file()]
        for each in made:
            sync(new / each)
            (folder / each).parent.mkdir(parents=True, exist_ok=True)
        moved: list[Path] = []
        try:
            for number, each in enumerate(made):
                moved.append(each)
                if (folder / each).exists():
                    os.replace(folder / each, before / str(number))
                os.replace(new / each, folder / each)
        except BaseException:
            for number, each in enumerate(moved):
                if (before / str(number)).exists():
                    os.replace(before / str(number), folder / each)
                elif not (new / each).exists():
                    (folder / each).unlink(missing_ok=True)
            raise


def move_aside(path: Path) -> Path:
    """Move a folder out of its place, for `bring_back` or deletion; return where it is kept."""
    holder = _beside(path.resolve())
    holder.mkdir()
    try:
        os.replace(path.resolve(), holder / ASIDE)
    except OSError:
        holder.rmdir()
        raise
    return holder


def bring_back(holder: Path, path: Path) -> None:
    """Put a folder that was moved aside into its place again, instead of what is there."""
    if path.exists():
        shutil.rmtree(path.resolve())
    os.replace(holder / ASIDE, path.resolve())
    holder.rmdir()


def sync(path: Path) -> None:
    """Wait until the content of a file is on the disk."""
    with open(path, "rb+") as file:
        os.fsync(file.fileno())


def is_free(path: Path) -> bool:
    """Whether nothing is at the path, or a folder that is empty but for a lock."""
    return not os.path.lexists(path) or (path.is_dir() and all(each.name == LOCK for each in path.iterdir()))


def require_free(path: PathLike, *, overwrite: bool = False) -> None:
    """Refuse a path where a file or folder would be lost."""
    if not overwrite and not is_free(Path(path)):
        raise InputError(f"{path} exists already; give another path, or `overwrite=True` to replace it.")


def clean(path: Path) -> None:
    """Remove what killed processes have left beside a path, and bring back what they had moved aside."""
    start = _start(path)
    for left in path.parent.glob(re.sub(r"([*?[])", r"[\1]", start) + "*"):
        found = OWNER.match(left.name.removeprefix(start))
        if (
            found
            and found["host"] == HOST
            and left.name not in _own
            and not _is_another(int(found["process"]))
        ):
            with contextlib.suppress(OSError):
                if (left / ASIDE).exists() and is_free(path):
                    os.replace(left / ASIDE, path)
                shutil.rmtree(left) if left.is_dir() else left.unlink()


def plain_name(what: str, name: object) -> str:
    """Return a name that can become part of a file's name, or refuse it: it must not lead anywhere else.

    >>> plain_name("study", "bag-size")
    'bag-size'
    """
    if (
        not isinstance(name, str)
        or not name
        or len(name) > LONGEST_NAME
        or name[0] == "."
        or not all(each.isalnum() or each in "-_." for each in name)
    ):
        raise InputError(
            f"the name of a {what} becomes the name of a file: it may hold letters, digits, -, _ and, not in "
            f"front, dots, got {shortened(name)}; give another name."
        )
    return name


def require_few(path: Path) -> None:
    """Refuse a folder or a pattern below which there is too much to look at, such as a whole disk."""
    fixed = next((i for i, part in enumerate(path.parts) if glob.has_magic(part)), len(path.parts))
    top, pattern = Path(*path.parts[:fixed]), path.parts[fixed:]
    depth = math.inf if "**" in pattern or not pattern else len(pattern)
    found = 0
    for folder, folders, files in os.walk(top, followlinks=bool(pattern)):
        found += len(folders) + len(files)
        if found > MOST_FOUND:
            raise InputError(
                f"{path} would be searched for in more than {MOST_FOUND:,} files and folders below {top}; "
                "name a smaller folder or a narrower pattern."
            )
        if len(Path(folder).relative_to(top).parts) + 1 >= depth:
            folders.clear()


def read_text(path: PathLike) -> str:
    """Read a small text file in UTF-8; refuse whatever is none, such as a pipe that would never end."""
    path = Path(path)
    if path.exists() and not path.is_file():
        raise InputError(f"{path} is {_what(path)}; need a file.")
    if path.exists() and path.stat().st_size > LARGEST_TEXT:
        raise InputError(f"{path} has {path.stat().st_size:,} bytes, at most {LARGEST_TEXT:,} are read.")
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise InputError(f"{path} is damaged ({error}); restore the file.") from None


def read_json(path: PathLike) -> Any:
    """Read a JSON file."""
    text = read_text(path)
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InputError(f"{path} is damaged ({error}); restore the file.") from None


def read_toml(path: PathLike) -> dict[str, Any]:
    """Read a TOML file."""
    text = read_text(path)
    try:
        return tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        raise InputError(f"{path} is not a TOML file ({error}).") from None


def _move(temporary: Path, path: Path, mark: str) -> None:
    """Move a folder to its place; a folder that is there is deleted only once the new one has replaced it."""
    if not path.exists():
        try:
            os.replace(temporary, path)
        except OSError as error:
            if error.errno in (errno.ENOTEMPTY, errno.EEXIST):
                raise InputError(f"another process has just made {path}; give another path.") from None
            raise
    elif is_free(path):
        _move_children(temporary, path, mark)
    else:
        _exchange(temporary, path)


def _exchange(temporary: Path, path: Path) -> None:
    """Replace a folder; whatever happens, the old one or the new one is in its place afterwards."""
    holder = move_aside(path)
    try:
        os.replace(temporary, path)
    except BaseException:
        bring_back(holder, path)
        raise
    shutil.rmtree(holder, ignore_errors=True)


def _move_children(temporary: Path, path: Path, mark: str) -> None:
    """Fill an empty folder, which stays since it may be a mount point; the marked file comes last."""
    moved: list[Path] = []
    try:
        for child in sorted(temporary.iterdir(), key=lambda child: child.name == mark):
            os.replace(child, path / child.name)
            moved.append(path / child.name)
    except OSError:
        for each in moved:
            shutil.rmtree(each) if each.is_dir() else each.unlink()
        raise


@contextlib.contextmanager
def _temporary(path: Path) -> Iterator[Path]:
    """Yield a name beside a path for a file or folder, which is deleted at the end if it is still there."""
    path.parent.mkdir(parents=True, exist_ok=True)
    clean(path)
    made = _beside(path)
    try:
        yield made
    finally:
        shutil.rmtree(made, ignore_errors=True) if made.is_dir() else made.unlink(missing_ok=True)


def _beside(path: Path) -> Path:
    """Make up a name beside a path that says whose it is, so that `clean` can tell."""
    name = f"{_start(path)}{HOST}-{os.getpid()}-{secrets.token_hex(4)}{path.suffix}"
    _own.add(name)
    return path.with_name(name)


def _start(path: Path) -> str:
    """Return how the names of temporary files of a path begin."""
    return f".{path.stem[:LONGEST_NAME]}.safemil-"


@contextlib.contextmanager
def naming(path: Path) -> Iterator[None]:
    """Let errors of the file system name the user's path, and not a temporary one."""
    try:
        yield
    except OSError as error:
        error.filename = os.fspath(path)  # a write to a full disk does not say which file it was
        raise


def _what(path: Path) -> str:
    kinds = {stat.S_IFDIR: "a folder", stat.S_IFIFO: "a pipe", stat.S_IFSOCK: "a socket"}
    return kinds.get(stat.S_IFMT(path.stat().st_mode), "a device")


def _is_another(process: int) -> bool:
    """Whether another process of this number is running."""
    if process == os.getpid():
        return False
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except OSError:  # it is another user's
        return True
    return True
