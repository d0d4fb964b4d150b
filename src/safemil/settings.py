"""Settings: a frozen dataclass, filled from Python, the command line or a TOML file.

A value comes from a preset, then from a TOML file, then from an assignment `name=value`; each is checked
against the type of its field. The comment beside a field is its description.
"""

import ast
import dataclasses
import inspect
import io
import math
import textwrap
import tokenize
import tomllib
import types
import typing
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, TypeVar

from safemil.checks import Range, fit
from safemil.errors import InputError, shortened, unknown

C = TypeVar("C")
Width = Annotated[int, Range(1, 2**16)]  # of a hidden layer
MOST_UPDATES = 2**31 - 1
MOST_DRAWN = 1_000_000  # steps, segments or pairs of an update: more would not fit into memory


def resolve(base: C, *changes: Mapping[str, object]) -> C:
    """Return `base` with each of `changes` applied in turn."""
    merged = {field.name: getattr(base, field.name) for field in dataclasses.fields(base)}  # type: ignore[arg-type]
    for change in changes:
        merged |= change
    return type(base)(**_checked(type(base), merged))


def complete(kind: type[C], values: Mapping[str, object]) -> C:
    """Make settings of which every one is given; none is filled in from a default."""
    missing = [field.name for field in dataclasses.fields(kind) if field.name not in values]  # type: ignore[arg-type]
    if missing:
        raise InputError(f"need every setting, but there is no {', '.join(missing)}.")
    return kind(**_checked(kind, values))


def meanings(kind: type[Any]) -> dict[str, str]:
    """Read the comment beside each field of a dataclass: its own fields first, then those of its bases."""
    found: dict[str, str] = {}
    for each in kind.__mro__:
        if dataclasses.is_dataclass(each):
            found = {**found, **{name: text for name, text in _comments(each).items() if name not in found}}
    return found


def parse_assignments(assignments: Sequence[str]) -> dict[str, object]:
    """Parse assignments into a dict; a value that is not TOML is taken as text.

    >>> parse_assignments(["beta=0.5", "length=full"])
    {'beta': 0.5, 'length': 'full'}
    """
    parsed: dict[str, object] = {}
    for assignment in assignments:
        name, equals, text = assignment.partition("=")
        if not equals or not name:
            raise InputError(f'a setting is written name=value, got "{assignment}"; for example beta=0.5')
        parsed[name.strip()] = _parse_value(text.strip())
    return parsed


def to_toml(settings: Mapping[str, object]) -> str:
    """Write flat settings as TOML; None becomes "none", since TOML has no null."""
    return "".join(f"{name} = {_toml_value(value)}\n" for name, value in settings.items())


def spell(value: object) -> str:
    """Write a value as it stands in an assignment.

    >>> spell(None), spell((256, 256)), spell("full")
    ('none', '[256, 256]', 'full')
    """
    return value if isinstance(value, str) else _toml_value(value).strip('"')


def require_positive(config: object, *names: str) -> None:
    """Refuse settings that are not above zero, or too large for any memory; None means the setting is off."""
    for name in names:
        value = getattr(config, name)
        if isinstance(value, int | float) and not value > 0:
            raise InputError(f"{name} must be above 0, got {value}.")
        most = MOST_UPDATES if "updates" in name else MOST_DRAWN
        if isinstance(value, int) and value > most:
            raise InputError(f"{name} must be {most:,} or less, got {shortened(value)}.")


def require_within(config: object, name: str, low: float, high: float) -> None:
    """Refuse a setting outside [low, high]; None means the setting is off."""
    value = getattr(config, name)
    if value is not None and not low <= value <= high:
        raise InputError(f"{name} must lie in [{low:g}, {high:g}], got {value}.")


def _checked(kind: type[Any], values: Mapping[str, object]) -> dict[str, object]:
    hints = typing.get_type_hints(kind)
    for name in values:
        if name not in hints:
            raise unknown("setting", name, hints)
    return {name: _fit(name, value, hints[name]) for name, value in values.items()}


def _comments(kind: type[Any]) -> dict[str, str]:
    """Read the comments beside the fields that a class itself declares."""
    try:
        source = textwrap.dedent(inspect.getsource(kind))
    except (OSError, TypeError):  # made without a source file
        return dict.fromkeys(inspect.get_annotations(kind), "")
    tokens = tokenize.generate_tokens(io.StringIO(source).readline)
    comments = {each.start[0]: each.string.lstrip("# ") for each in tokens if each.type == tokenize.COMMENT}
    definition = ast.parse(source).body[0]
    assert isinstance(definition, ast.ClassDef)
    return {
        each.target.id: " ".join(
            text for line, text in comments.items() if each.lineno <= line <= (each.end_lineno or 0)
        )
        for each in definition.body
        if isinstance(each, ast.AnnAssign) and isinstance(each.target, ast.Name)
    }


def _parse_value(text: str) -> object:
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except (ValueError, RecursionError):
        return text


def _fit(name: str, value: object, hint: Any) -> object:
    """Convert `value` to the type `hint`, or raise an error that says which values are possible."""
    if hint == tuple[int, ...]:
        hint = tuple[Width, ...]
    if value == "none" and types.NoneType in typing.get_args(hint):  # TOML has no null
        return None
    if value == math.inf and float in (hint, *typing.get_args(hint)):
        raise InputError(f"{name} must be finite, got {value}; a large number has the same effect.")
    return fit(name, value, hint)


def _toml_value(value: object) -> str:
    if value is None:
        return '"none"'
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(_toml_value(item) for item in value) + "]"
    if isinstance(value, int | float):
        return repr(value)
    escaped = "".join(c if c.isprintable() and c not in '"\\' else f"\\U{ord(c):08X}" for c in str(value))
    return f'"{escaped}"'
