"""Download of the DSRL datasets from Hugging Face.

An interrupted download is resumed if the host promises by its ETag that the file is still the same. The first
download writes a JSON file beside the dataset with its size, SHA-256 and address; later calls compare the
dataset with it.
"""

import hashlib
import http.client
import json
import os
import re
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import h5py

from safemil import catalog
from safemil.checks import Natural, fit
from safemil.errors import InputError, shortened
from safemil.files import atomic_file, naming, sync
from safemil.progress import bar
from safemil.texts import read_json, read_text

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
DIGITS = re.compile("[0-9]{1,15}")
RANGE = re.compile(r"bytes (?:(?P<first>[0-9]{1,15})-[0-9]{1,15}|\*)/(?P<total>[0-9]{1,15})")
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
    if not host.startswith(("https://", "http://")):
        raise InputError(f'HF_ENDPOINT must be an address such as "{HOST}", got {shortened(host)}.')
    address = f"{host.rstrip('/')}/{COLLECTION}/{FILES[task]}"
    if path.exists():
        _check(path, address)
        return path
    part = path.with_name(path.name + ".part")
    with naming(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        with _explaining(task, address):
            _download(address, part, task, progress)
            _check_hdf5(part, address)
        sync(part)
        _write_checksum(part, path, address)
        os.replace(part, path)
        _version_path(part).unlink(missing_ok=True)
    return path


def _download(address: str, part: Path, task: str, progress: bool) -> None:
    """Request the missing bytes until the file is complete, or several requests in a row bring none."""
    idle = 0
    while True:
        before = _size(part)
        try:
            if _request(address, part, task, progress):
                return
        except http.client.InvalidURL:
            raise
        except (http.client.HTTPException, ConnectionError, TimeoutError):
            pass
        idle = idle + 1 if _size(part) <= before else 0
        if idle >= TRIES:
            raise InputError(
                f"the connection to {address} breaks each time; the downloaded part is kept in {part}."
            )


def _request(address: str, part: Path, task: str, progress: bool) -> bool:
    """Append the bytes of one request; return whether the file is complete."""
    version = _version(part)
    have = _size(part) if version else 0  # without a version, what comes next may be of another file
    headers = {"User-Agent": "safemil", "Accept-Encoding": "identity"}
    if have:
        headers |= {"Range": f"bytes={have}-", "If-Range": version}
    try:
        answer = urllib.request.urlopen(urllib.request.Request(address, headers=headers), timeout=TIMEOUT)
    except urllib.error.HTTPError as error:
        if error.code != http.HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE:
            raise
        error.close()
        if _range(error.headers)[1] == have and error.headers.get("ETag", version) == version:
            return True
        part.unlink(missing_ok=True)  # it is not of this file
        return False
    with answer:
        resumed = answer.status == http.HTTPStatus.PARTIAL_CONTENT
        start, total = _range(answer.headers) if resumed else (0, _length(answer.headers))
        if total is None or start != (have if resumed else 0):
            raise InputError(f"{address} does not say which bytes it sends; try again later.")
        _note_version(part, answer.headers.get("ETag") or "")
        with (
            open(part, "ab" if resumed else "wb") as file,
            bar(task, total, start=start, show=progress) as shown,
        ):
            while file.tell() <= total and (block := answer.read1(BLOCK)):
                file.write(block)
                shown.at(file.tell())
    if _size(part) > total:
        part.unlink()
        raise InputError(f"{address} sent more than the {total} bytes that it announced; try again later.")
    return _size(part) == total


def _version_path(part: Path) -> Path:
    return part.with_name(part.name + ".etag")


def _version(part: Path) -> str:
    """ETag of the file that a part is of; empty if it is not known."""
    try:
        return read_text(_version_path(part)).strip()
    except (OSError, InputError):
        return ""


def _note_version(part: Path, version: str) -> None:
    """Keep a strong ETag beside the part; a weak one does not promise the same bytes."""
    strong = version.startswith('"') and version.isprintable() and version.isascii()
    with atomic_file(_version_path(part)) as file:
        file.write_text(version if strong else "", encoding="utf-8")


def _check_hdf5(path: Path, address: str) -> None:
    """Refuse a file that is not a whole HDF5 file, such as a page that asks to log in."""
    try:
        h5py.File(path, "r").close()
    except OSError as error:
        path.unlink(missing_ok=True)
        raise InputError(f"{address} sent something that is not a whole HDF5 file ({error}).") from None


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def _length(headers: Any) -> int | None:
    length = str(headers.get("Content-Length", ""))
    return int(length) if DIGITS.fullmatch(length) else None


def _range(headers: Any) -> tuple[int | None, int | None]:
    """First byte and size of the whole file in an answer with a part of it: `Content-Range: bytes 5-9/10`."""
    found = RANGE.fullmatch(str(headers.get("Content-Range", "")))
    if found is None:
        return None, None
    return int(found["first"]) if found["first"] else None, int(found["total"])


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
    except (ValueError, http.client.InvalidURL) as error:
        raise InputError(
            f"{address}, or an address that it redirects to, is malformed ({error}); {instead}."
        ) from error


@dataclass(frozen=True)
class Checksum:
    """What is known of a file, in a JSON file beside it."""

    address: str
    bytes: Natural
    sha256: str


def _write_checksum(content: Path, path: Path, address: str) -> None:
    with atomic_file(_checksum_path(path)) as target:
        checksum = {"address": address, "bytes": content.stat().st_size, "sha256": _sha256(content)}
        target.write_text(json.dumps(checksum, indent=2) + "\n", encoding="utf-8")


def _checksum_path(path: Path) -> Path:
    return path.with_name(path.name + ".json")


def _check(path: Path, address: str) -> None:
    """Compare a file with its checksum, or write the checksum of a file that was downloaded otherwise."""
    noted = _checksum_path(path)
    if not path.is_file() or not h5py.is_hdf5(path):
        raise InputError(f"{path} is not an HDF5 file; remove it to download it.")
    if not noted.exists():
        _write_checksum(path, path, address)
        return
    try:
        checksum: Checksum = fit("", read_json(noted), Checksum)
    except InputError as error:
        raise InputError(f"{noted} is damaged ({error}); remove it to have it written again.") from None
    if path.stat().st_size != checksum.bytes or _sha256(path) != checksum.sha256:
        raise InputError(
            f"{path} is not the file that was downloaded ({checksum.bytes} bytes, SHA-256 "
            f"{checksum.sha256[:16]}...); remove it and {noted.name} to download it again."
        )


def _sha256(path: Path) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
