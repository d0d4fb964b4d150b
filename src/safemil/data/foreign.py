"""Functions that the readers of other projects' formats share."""

import json
from collections.abc import Callable, Container, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from safemil.data.interchange import Columns, Contents, Options
from safemil.data.searching import require_few
from safemil.errors import InputError

KINDS: dict[type, str] = {dict: "an object", int: "a whole number", list: "a list", str: "a text"}


@contextmanager
def damage_reported(what: str) -> Iterator[None]:
    """Turn whatever a library raises about a damaged file into an InputError that says what is damaged."""
    try:
        yield
    except InputError:
        raise
    except Exception as error:  # parsers of other projects raise anything, from KeyError to AssertionError
        reason = (str(error).splitlines() or [type(error).__name__])[0][:300]
        raise InputError(f"{what} is damaged or cut short: {reason}") from error


def require_plain_files(folder: Path) -> None:
    """Refuse a dataset with a pipe, a device or a link to nowhere in it, on which a reader could wait."""
    require_few(folder)
    for each in folder.rglob("*"):
        if not each.is_file() and not each.is_dir():
            raise InputError(f"{each.relative_to(folder)} is no file; restore it.")


def json_object(text: str | bytes, what: str) -> dict[str, Any]:
    """Parse JSON whose top level is an object; `what` names it in errors."""
    with damage_reported(what):
        found = json.loads(text)
    if not isinstance(found, dict):
        raise InputError(f"{what} must hold a JSON object, but holds {type(found).__name__}.")
    return found


def entry(described: dict[str, Any], name: str, kind: type, what: str) -> Any:
    """Return an entry of a JSON object, which must be there and of a kind; a number must not be negative."""
    found = described.get(name)
    if type(found) is not kind or (isinstance(found, int) and found < 0):
        raise InputError(f'"{name}" in {what} must be {KINDS[kind]}, but is {str(found)[:80]!r}.')
    return found


def with_defaults(given: Columns, defaults: Columns) -> Columns:
    """Replace the column names that the caller left as they are by those of a format."""
    plain = Columns()
    return replace(
        defaults,
        **{
            name: getattr(given, name)
            for name in Columns.__dataclass_fields__
            if getattr(given, name) != getattr(plain, name)
        },
    )


def refuse_writing(format: str) -> Callable[[Path, Contents], None]:
    """Make the `write` of a format that is only read."""

    def write(path: Path, contents: Contents) -> None:
        raise InputError(f"{format} can be read but not written; choose another format, such as parquet.")

    return write


def incident_column(options: Options, known: Container[str]) -> str | None:
    """Column that `incident` names, without the value that it may ask for."""
    spec = options.incident
    return spec if spec is None or spec in known else spec.partition("=")[0].strip()


def with_own_names(
    contents: Contents, columns: Columns, observation: Iterable[str], action: Iterable[str]
) -> Contents:
    """Resolve the options to the names that a format gives to the columns of observations and actions."""
    if contents.resolved is None:
        return contents
    names = replace(columns, observation=tuple(observation), action=tuple(action))
    resolved = replace(contents.resolved, columns=names)
    return replace(contents, trajectories=contents.trajectories.read_with(resolved), resolved=resolved)
