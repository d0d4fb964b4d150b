"""Atomic writes: a file or folder appears complete, or not at all."""

import contextlib
import errno
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

from safemil.errors import InputError
from safemil.ownership import ASIDE, Kind, clean, is_free, require_free, temporary_name
from safemil.texts import PathLike, file_type


@contextlib.contextmanager
def atomic_file(path: PathLike) -> Iterator[Path]:
    """Write to the path this yields; it becomes `path` if the block ends without an error, else is deleted.

    The temporary name keeps the suffix, since some writers choose a format by it.
    """
    path = Path(path)
    if path.exists() and not path.is_file():
        raise InputError(f"{path} is {file_type(path)}, which no file ever replaces; give another name.")
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
    holder = temporary_name(path.resolve())
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
    made = temporary_name(path)
    try:
        yield made
    finally:
        shutil.rmtree(made, ignore_errors=True) if made.is_dir() else made.unlink(missing_ok=True)


@contextlib.contextmanager
def naming(path: Path) -> Iterator[None]:
    """Let errors of the file system name the user's path, and not a temporary one."""
    try:
        yield
    except OSError as error:
        error.filename = os.fspath(path)  # a write to a full disk does not say which file it was
        raise
