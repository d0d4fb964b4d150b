"""Checks content from outside (TOML, JSON) against types, and names the place of whatever does not fit.

A type is a plain annotation: `int`, `float` (finite), `str`, `bool`, `None`, a `Literal`, a union, `list`,
`tuple`, `dict`, a dataclass or a `NamedTuple` of further types; `Annotated[int, Range(1)]` adds limits.
"""

import dataclasses
import math
import types
import typing
from collections.abc import Iterable, Mapping
from typing import Annotated, Any, Literal, NamedTuple

from safemil.errors import InputError, shortened, unknown

NUMBERS = {int: "a whole number", float: "a number"}
WORDS = {bool: "true or false", str: "a text", types.NoneType: "none", list: "a list", dict: "a table"}
LARGEST = 2**53  # up to here a float holds every whole number


class Range(NamedTuple):
    """Limits of a number, both included."""

    low: float = -math.inf
    high: float = math.inf


Count = Annotated[int, Range(1)]
Natural = Annotated[int, Range(0)]
Share = Annotated[float, Range(0, 1)]


class Misfit(Exception):
    """A value is not of the type that was tried."""


def fit(place: str, value: object, hint: Any, *, extra: bool = False) -> Any:
    """Return the value as the type, or raise an error that names the place, what fits and what came.

    Entries that a dataclass does not have are refused, or with `extra` left out.

    >>> fit("seeds", 3.0, Count)
    3
    >>> fit("studies.a.seeds", "three", Count)
    Traceback (most recent call last):
    safemil.errors.InputError: studies.a.seeds must be a whole number of at least 1, got 'three'.
    """
    for option in _options(hint):
        try:
            return _as(place, value, option, extra)
        except Misfit:
            continue
    expected = " or ".join(word for option in _options(hint) for word in _spelled(option))
    raise InputError(f"{place} must be {expected}, got {shortened(value)}.")


def _options(hint: Any) -> tuple[Any, ...]:
    return typing.get_args(hint) if typing.get_origin(hint) in (typing.Union, types.UnionType) else (hint,)


def _as(place: str, value: object, hint: Any, extra: bool) -> Any:
    """Convert to one type that is no union; raise Misfit if the value is of another kind."""
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if hint is Any:
        return value
    if origin is Annotated:
        return _within(_as(place, value, arguments[0], extra), *arguments[1:])
    if origin is Literal:
        return _one_of(value, arguments)
    if hint is types.NoneType:
        return _one_of(value, (None,))
    if hint in NUMBERS:
        return _number(value, hint)
    if dataclasses.is_dataclass(hint):
        return _record(place, value, hint, extra)
    if hasattr(hint, "_fields"):
        return _named_tuple(place, value, hint, extra)
    kind = origin or hint
    if not isinstance(value, list | tuple if kind in (list, tuple) else kind):
        raise Misfit
    if kind is dict and arguments:
        return {
            _key(place, name): fit(f"{place}.{_key(place, name)[:60]}", each, arguments[1], extra=extra)
            for name, each in typing.cast("dict[object, object]", value).items()
        }
    if kind in (list, tuple) and arguments:
        items = typing.cast("list[object]", value)
        return kind(fit(f"{place}[{i}]", each, arguments[0], extra=extra) for i, each in enumerate(items))
    return value


def _one_of(value: object, choices: Iterable[object]) -> object:
    if any(type(value) is type(each) and value == each for each in choices):
        return value
    raise Misfit


def _number(value: object, hint: type) -> int | float:
    if hint is int and isinstance(value, float) and value.is_integer():  # 1e6 is how people write a million
        value = int(value) if abs(value) <= LARGEST else None
    if hint is float and type(value) is int and abs(value) <= LARGEST:
        value = float(value)
    if type(value) is not hint or (isinstance(value, float) and not math.isfinite(value)):
        raise Misfit
    return typing.cast(float, value)


def _within(value: Any, limits: Range) -> Any:
    if not limits.low <= value <= limits.high:
        raise Misfit
    return value


def _key(place: str, name: object) -> str:
    if not isinstance(name, str):
        raise InputError(f"the names in {place} must be texts, got {shortened(name)}.")
    return name


def _record(place: str, value: object, hint: Any, extra: bool) -> Any:
    if not isinstance(value, Mapping):
        raise Misfit
    hints = typing.get_type_hints(hint, include_extras=True)
    fields = {field.name: field for field in dataclasses.fields(hint)}
    within = f"{place}." if place else ""
    for name in value:
        if name not in fields and not extra:
            raise unknown(f"entry of {place}" if place else "entry", str(name)[:60], fields)
    missing = [name for name, field in fields.items() if _is_required(field) and name not in value]
    if missing:
        raise InputError(f"{within}{missing[0]} is missing.")
    given = {name: each for name, each in value.items() if name in fields}
    return hint(
        **{name: fit(f"{within}{name}", each, hints[name], extra=extra) for name, each in given.items()}
    )


def _is_required(field: "dataclasses.Field[Any]") -> bool:
    return field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING


def _named_tuple(place: str, value: object, hint: Any, extra: bool) -> Any:
    if not isinstance(value, list | tuple) or len(value) != len(hint._fields):
        raise Misfit
    hints = typing.get_type_hints(hint, include_extras=True)
    return hint(
        *(
            fit(f"{place}.{name}", each, hints[name], extra=extra)
            for name, each in zip(hint._fields, value, strict=True)
        )
    )


def _spelled(hint: Any) -> list[str]:
    """Say in words what a type holds."""
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin is Annotated:
        return [f"{each}{_limits(arguments[1])}" for each in _spelled(arguments[0])]
    if origin is Literal:
        return [f'"{choice}"' for choice in arguments]
    if origin is tuple and arguments[0] is int:
        return ["a list such as [256, 256]"]
    if dataclasses.is_dataclass(hint):
        return ["a table"]
    if hasattr(hint, "_fields"):
        return [f"a list of {len(hint._fields)} ({', '.join(hint._fields)})"]
    kind = origin or hint
    return [NUMBERS.get(kind) or WORDS[list if kind is tuple else kind]]


def _limits(limits: Range) -> str:
    if limits.high == math.inf:
        return f" of at least {limits.low:g}"
    return f" in [{limits.low:g}, {limits.high:g}]"
