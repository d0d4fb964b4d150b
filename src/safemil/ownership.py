"""Whose a folder or a temporary file is: what may be replaced, and what killed processes have left behind."""

import contextlib
import os
import re
import secrets
import shutil
import socket
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from safemil.errors import InputError
from safemil.texts import LONGEST_NAME, PathLike, read_json

LOCK = ".lock"  # inside a folder that a process is writing (safemil.locks)
ASIDE = "before"  # inside a temporary folder: the folder that is being replaced
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


def temporary_name(path: Path) -> Path:
    """Make up a name beside a path that says whose it is, so that `clean` can tell."""
    name = f"{_start(path)}{HOST}-{os.getpid()}-{secrets.token_hex(4)}{path.suffix}"
    _own.add(name)
    return path.with_name(name)


def _start(path: Path) -> str:
    """Return how the names of temporary files of a path begin."""
    return f".{path.stem[:LONGEST_NAME]}.safemil-"


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
