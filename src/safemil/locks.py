"""Locks of folders: one process writes a run at a time."""

import contextlib
import json
import os
import socket
from pathlib import Path

from safemil.errors import InputError
from safemil.ownership import LOCK

try:
    import fcntl
except ImportError:  # Windows, where two writers of one folder are not noticed
    fcntl = None  # type: ignore[assignment]


class Lock:
    """Lock of a folder, held by this process. The system releases it if the process dies, however it does.

    The file `.lock` in the folder names the process and the host that hold it.
    """

    def __init__(self, folder: Path):
        self.folder = folder  # may be moved meanwhile: set its new place
        self._handle = _acquired(folder, folder / LOCK)
        os.truncate(self._handle, 0)
        owner = {"process": os.getpid(), "host": socket.gethostname()}
        os.write(self._handle, json.dumps(owner).encode())

    def release(self) -> None:
        """Give the lock back and remove its file."""
        if self._handle < 0:
            return
        if _is_of(self._handle, self.folder / LOCK):
            (self.folder / LOCK).unlink()
        os.close(self._handle)
        self._handle = -1


def _acquired(folder: Path, path: Path) -> int:
    """Open the file of a lock and lock it; refuse if another process holds it."""
    while True:
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        try:
            if fcntl is not None:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(handle)
            raise InputError(
                f"{folder} is being written by {_owner(path)}; wait until it ends, or give another folder."
            ) from None
        except OSError:  # a file system without locks
            pass
        if _is_of(handle, path):
            return handle
        os.close(handle)  # another process has just ended and removed the file


def _is_of(handle: int, path: Path) -> bool:
    """Whether an open file is still the one at a path."""
    with contextlib.suppress(OSError):
        return os.path.samestat(os.fstat(handle), path.stat())
    return False


def _owner(path: Path) -> str:
    try:
        content = json.loads(path.read_text())
        return f"process {int(content['process'])} on {str(content['host'])[:80]}"
    except (OSError, ValueError, KeyError, TypeError):
        return "another process"


class Claim:
    """Claim on a file that this process is going to write; the system releases it when the process ends."""

    def __init__(self, handle: int, path: Path):
        self._handle, self._path = handle, path

    @staticmethod
    def on(path: Path) -> "Claim | None":
        """Claim a file, or return None if another process has claimed it."""
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            beside = path.with_name(f".{path.name}.claim")
            return Claim(_acquired(path.parent, beside), beside)
        except InputError:
            return None

    def release(self) -> None:
        if _is_of(self._handle, self._path):
            self._path.unlink()
        os.close(self._handle)
