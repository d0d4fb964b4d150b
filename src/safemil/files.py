"""Atomic writes: a file or folder appears complete, or not at all."""

import contextlib
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from safemil.errors import InputError


@contextlib.contextmanager
def atomic_file(path: str | os.PathLike[str]) -> Iterator[Path]:
    """Write to the path this yields; it becomes `path` if the block ends without an error, else is deleted.

    The temporary name keeps the suffix, since some writers choose a format by it.
    """
    path = Path(path)
    if path.is_dir():
        raise InputError(f"{path} is a folder, which is never overwritten by a file; give another name.")
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.stem}-", suffix=path.suffix)
    os.close(handle)
    temporary = Path(name)
    try:
        yield temporary
        with open(temporary, "rb+") as file:
            os.fsync(file.fileno())
        temporary.chmod(0o666 & ~_umask())  # mkstemp makes files that only their owner can read
        os.replace(temporary, path)
    except OSError as error:
        error.filename = os.fspath(path)  # a write to a full disk does not say which file it was
        raise
    finally:
        temporary.unlink(missing_ok=True)


@contextlib.contextmanager
def atomic_folder(path: str | os.PathLike[str], *, mark: str, overwrite: bool = False) -> Iterator[Path]:
    """Fill the folder this yields; it becomes `path` if the block ends without an error, else is deleted.

    `mark` names a file that every folder of this kind holds: a folder without it is never overwritten.
    """
    path = Path(path)
    require_free(path, overwrite=overwrite)
    if not is_free(path) and not (path / mark).is_file():
        raise InputError(f"{path} holds something else ({mark} is not in it), which is never overwritten.")
    target = path.resolve()
    target.parent.mkdir(parents=True, exist_ok=True)
    temporary = Path(tempfile.mkdtemp(dir=target.parent, prefix=f".{target.name}-"))
    try:
        yield temporary
        temporary.chmod(0o777 & ~_umask())
        _move(temporary, target, mark)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def is_free(path: Path) -> bool:
    """Whether nothing is at the path, or an empty folder."""
    return not path.exists() or (path.is_dir() and not any(path.iterdir()))


def require_free(path: str | os.PathLike[str], *, overwrite: bool = False) -> None:
    """Refuse a path where a file or folder would be lost."""
    if not overwrite and not is_free(Path(path)):
        raise InputError(f"{path} exists already; give another path, or `overwrite=True` to replace it.")


def _move(temporary: Path, path: Path, mark: str) -> None:
    """Move a folder to its place; a folder that is there is deleted only once the new one has replaced it."""
    if not path.exists():
        os.replace(temporary, path)
    elif is_free(path):  # it stays, since it may be a mount point; the marked file comes last
        for child in sorted(temporary.iterdir(), key=lambda child: child.name == mark):
            os.replace(child, path / child.name)
    else:
        aside = Path(tempfile.mkdtemp(dir=path.parent, prefix=f".{path.name}-")) / path.name
        os.replace(path, aside)
        try:
            os.replace(temporary, path)
        except OSError:
            os.replace(aside, path)
            raise
        shutil.rmtree(aside.parent)


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
