"""Files and folders that are there whole or not at all."""

import contextlib
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from safemil.errors import InputError


@contextlib.contextmanager
def atomic_file(path: str | os.PathLike[str]) -> Iterator[Path]:
    """Write to the path this yields; it becomes `path` when the block ends well, and vanishes otherwise.

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
    """Fill the folder this yields; it becomes `path` when the block ends well, and vanishes otherwise.

    `mark` is a file that every such folder holds: one without it is somebody else's, and never overwritten.
    """
    path = Path(path)
    require_free(path, overwrite=overwrite)
    if path.is_dir() and any(path.iterdir()) and not (path / mark).is_file():
        raise InputError(f"{path} holds something else ({mark} is not in it), which is never overwritten.")
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = Path(tempfile.mkdtemp(dir=path.parent, prefix=f".{path.name}-"))
    try:
        yield temporary
        temporary.chmod(0o777 & ~_umask())
        if path.is_dir():
            shutil.rmtree(path)
        os.replace(temporary, path)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def require_free(path: str | os.PathLike[str], *, overwrite: bool = False) -> None:
    """Refuse a path where something would be lost."""
    path = Path(path)
    if path.is_dir() and not any(path.iterdir()):
        return
    if path.exists() and not overwrite:
        raise InputError(f"{path} exists already; give another path, or --overwrite to replace it.")


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
