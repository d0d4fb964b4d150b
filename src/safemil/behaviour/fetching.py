"""Download of the DSRL datasets from Hugging Face.

An interrupted download is resumed. The first download writes a JSON file beside the dataset with its size,
SHA-256 and address; later calls compare the dataset with it.
"""

import hashlib
import http.client
import json
import os
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from safemil import catalog
from safemil.errors import InputError
from safemil.files import atomic_file
from safemil.progress import bar

HOST = "https://huggingface.co"
COLLECTION = "datasets/YYY-45/DSRL/resolve/main"
FILES = {  # names as in DSRL
    "SafetyWalker2dVelocity-v1": "SafetyWalker2dVelocityGymnasium-v1-300-2729.hdf5",
    "SafetySwimmerVelocity-v1": "SafetySwimmerVelocityGymnasium-v1-200-1686.hdf5",
    "SafetyAntVelocity-v1": "SafetyAntVelocityGymnasium-v1-250-2249.hdf5",
    "SafetyPointCircle2-v0": "SafetyPointCircle2Gymnasium-v0-300-895.hdf5",
    "SafetyPointGoal1-v0": "SafetyPointGoal1Gymnasium-v0-100-2022.hdf5",
    "SafetyPointButton1-v0": "SafetyPointButton1Gymnasium-v0-200-2268.hdf5",
}
BLOCK = 1 << 20  # bytes
TRIES = 5  # requests in a row without a new byte, before giving up
TIMEOUT = 30.0  # seconds without a byte, before a request fails


def folder() -> Path:
    """Folder in which DSRL keeps its files: $DSRL_DATASET_DIR, else ~/.dsrl/datasets."""
    return Path(os.environ.get("DSRL_DATASET_DIR") or Path.home() / ".dsrl" / "datasets")


def fetch(task: str, out: Path | None = None, *, host: str | None = None, progress: bool = False) -> Path:
    """Download the DSRL file of a task, unless it exists, and return its path.

    `out` is the file to write; the default is DSRL's name in `folder()`. `host`, or else the environment
    variable HF_ENDPOINT, replaces Hugging Face.
    """
    catalog.task(task)
    path = out or folder() / FILES[task]
    host = host or os.environ.get("HF_ENDPOINT") or HOST
    address = f"{host.rstrip('/')}/{COLLECTION}/{FILES[task]}"
    if path.exists():
        _check(path, address)
        return path
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(path.name + ".part")
    with _explaining(task, address):
        _download(address, part, task, progress)
    _write_checksum(part, path, address)
    os.replace(part, path)
    return path


def _download(address: str, part: Path, task: str, progress: bool) -> None:
    """Request the missing bytes until the file is complete, or several requests in a row bring none."""
    idle, version = 0, ""
    while True:
        before = _size(part)
        try:
            complete, version = _request(address, part, version, task, progress)
        except (http.client.HTTPException, ConnectionError, TimeoutError):
            complete = False
        if complete:
            return
        idle = idle + 1 if _size(part) <= before else 0
        if idle >= TRIES:
            raise InputError(
                f"the connection to {address} breaks each time; the downloaded part is kept in {part}."
            )


def _request(address: str, part: Path, version: str, task: str, progress: bool) -> tuple[bool, str]:
    """Append the bytes of one request; return whether the file is complete, and its version (ETag)."""
    have = _size(part)
    headers = {"User-Agent": "safemil", "Accept-Encoding": "identity"}
    if have:
        headers |= {"Range": f"bytes={have}-"} | ({"If-Range": version} if version else {})
    request = urllib.request.Request(address, headers=headers)
    try:
        answer = urllib.request.urlopen(request, timeout=TIMEOUT)
    except urllib.error.HTTPError as error:
        if error.code != http.HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE:
            raise
        error.close()
        if _total(error.headers) == have:
            return True, version
        part.unlink()  # it is longer than the file, so it is of another one
        return False, ""
    with answer:
        resumed = answer.status == http.HTTPStatus.PARTIAL_CONTENT
        start = have if resumed else 0
        total = _total(answer.headers) if resumed else _length(answer.headers)
        with (
            open(part, "ab" if resumed else "wb") as file,
            bar(task, total or 0, start=start, show=progress) as shown,
        ):
            for block in iter(lambda: answer.read1(BLOCK), b""):
                file.write(block)
                shown.at(file.tell())
        size = _size(part)
        if total is not None and size > total:
            part.unlink()
            raise InputError(f"{address} sent {size} bytes, but said {total}; try again later.")
        return total is None or size == total, answer.headers.get("ETag") or ""


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def _length(headers: Any) -> int | None:
    return int(headers["Content-Length"]) if headers.get("Content-Length") else None


def _total(headers: Any) -> int | None:
    """Size of the whole file in an answer with a part of it: `Content-Range: bytes 5-9/10`."""
    total = str(headers.get("Content-Range", "")).rpartition("/")[2]
    return int(total) if total.isdigit() else None


@contextmanager
def _explaining(task: str, address: str) -> Iterator[None]:
    """Add to errors how to get data without internet."""
    instead = f"`safemil data make {task}` makes data of this task without internet"
    try:
        yield
    except urllib.error.HTTPError as error:
        error.close()
        what = (
            "there is no such file"
            if error.code == http.HTTPStatus.NOT_FOUND
            else f"{error.code} {error.reason}"
        )
        raise InputError(f"{address}: {what}; {instead}.") from error
    except urllib.error.URLError as error:
        raise InputError(f"can't reach {address} ({error.reason}); {instead}.") from error
    except InputError as error:
        raise InputError(f"{error} {instead[0].upper() + instead[1:]}.") from error


def _write_checksum(content: Path, path: Path, address: str) -> None:
    with atomic_file(_checksum_path(path)) as target:
        checksum = {"address": address, "bytes": content.stat().st_size, "sha256": _sha256(content)}
        target.write_text(json.dumps(checksum, indent=2) + "\n", encoding="utf-8")


def _checksum_path(path: Path) -> Path:
    return path.with_name(path.name + ".json")


def _check(path: Path, address: str) -> None:
    """Compare a file with its checksum, or write the checksum of a file that was downloaded otherwise."""
    if not _checksum_path(path).exists():
        _write_checksum(path, path, address)
        return
    checksum = json.loads(_checksum_path(path).read_text(encoding="utf-8"))
    if path.stat().st_size != checksum["bytes"] or _sha256(path) != checksum["sha256"]:
        raise InputError(
            f"{path} is not the file that was downloaded ({checksum['bytes']} bytes, SHA-256 "
            f"{checksum['sha256'][:16]}...); remove it and {_checksum_path(path).name} to download it again."
        )


def _sha256(path: Path) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
