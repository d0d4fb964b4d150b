"""Reading of small text files in JSON and TOML, and names that may become part of a path."""

import json
import os
import stat
import tomllib
from pathlib import Path
from typing import Any

from safemil.errors import InputError, shortened

PathLike = str | os.PathLike[str]
LARGEST_TEXT = 1 << 28  # bytes of a config, a grid, metrics or results; more is not one of ours
LONGEST_NAME = 100  # characters of a name that becomes a file


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
            f"the name of a {what} becomes the name of a file: it may have letters, digits, -, _ and dots, "
            f"but no dot in front, got {shortened(name)}; give another name."
        )
    return name


def require_utf8(what: str, text: str) -> str:
    """Return a path or an argument; refuse bytes that are not UTF-8, which names of files may hold."""
    try:
        text.encode()
    except UnicodeEncodeError:
        raise InputError(
            f"{what} {shortened(text)} is not in UTF-8; rename the file, or choose a UTF-8 locale."
        ) from None
    return text


def read_text(path: PathLike) -> str:
    """Read a small text file in UTF-8; refuse whatever is none, such as a pipe that would never end."""
    path = Path(path)
    if path.exists() and not path.is_file():
        raise InputError(f"{path} is {file_type(path)}; need a file.")
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


def file_type(path: Path) -> str:
    """Return what an existing path is, other than a file, in words."""
    kinds = {stat.S_IFDIR: "a folder", stat.S_IFIFO: "a pipe", stat.S_IFSOCK: "a socket"}
    return kinds.get(stat.S_IFMT(path.stat().st_mode), "a device")
