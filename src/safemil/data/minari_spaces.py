"""Spaces of Minari datasets, taken apart into arrays of numbers."""

from collections.abc import Callable, Iterator
from math import prod
from typing import Any, NamedTuple

import numpy as np

from safemil.data.features import WIDEST
from safemil.data.foreign import damage_reported, entry
from safemil.errors import InputError

DEEPEST = 8  # spaces within spaces
PICTURE = 32  # rows and columns that a Box of bytes has at least if it is a picture

Keys = tuple[str | int, ...]  # of an array within an episode; numbers are places in a tuple


class Leaf(NamedTuple):
    """Part of a space that is one array."""

    keys: Keys
    width: int | None  # None for what is not read: pictures and texts
    low: Any = None  # (width,)
    high: Any = None
    choice: bool = False  # one of a few whole numbers


def name_of(keys: Keys) -> str:
    """Name of an array: "observation" and "action", or keys within them, joined by dots."""
    whole = {"observations": "observation", "actions": "action", "infos": "infos"}[str(keys[0])]
    return ".".join([*([whole] if len(keys) == 1 or whole == "infos" else []), *map(str, keys[1:])])


def leaves_of(space: object, keys: Keys) -> Iterator[Leaf]:
    """Parts of a space that are arrays."""
    what = f"the space of {name_of(keys)}"
    if not isinstance(space, dict) or len(keys) > DEEPEST:
        raise InputError(f"{what} can't be read: {str(space)[:80]}")
    kind = entry(space, "type", str, what)
    if kind in ("Dict", "Tuple"):
        parts = entry(space, "subspaces", dict if kind == "Dict" else list, what)
        for key, part in parts.items() if kind == "Dict" else enumerate(parts):
            yield from leaves_of(part, (*keys, key))
    elif kind in SPACES:
        with damage_reported(what):
            leaf = SPACES[kind](space, keys)
        if (leaf.width or 0) > WIDEST:
            raise InputError(f"{what} has {leaf.width} entries; at most {WIDEST} can be read.")
        yield leaf
    else:
        raise InputError(
            f"{what} is a {kind[:40]}, which can't be read (only {', '.join(SPACES)}, Dict, Tuple)."
        )


def _box(space: dict[str, Any], keys: Keys) -> Leaf:
    shape = [int(size) for size in space["shape"]]
    if space["dtype"] == "uint8" and len(shape) in (2, 3) and min(shape[:2]) >= PICTURE:
        return Leaf(keys, None)
    return _bounded(keys, prod(shape), space["low"], space["high"])


def _discrete(space: dict[str, Any], keys: Keys) -> Leaf:
    start = int(space.get("start", 0))
    return _bounded(keys, 1, start, start + int(space["n"]) - 1)._replace(choice=True)


def _multi_discrete(space: dict[str, Any], keys: Keys) -> Leaf:
    sizes = np.asarray(space["nvec"], np.float64)
    start = np.asarray(space.get("start", 0), np.float64)
    return _bounded(keys, sizes.size, start + 0 * sizes, start + sizes - 1)


def _multi_binary(space: dict[str, Any], keys: Keys) -> Leaf:
    size = int(np.prod(np.asarray(space["n"], np.float64)))
    return _bounded(keys, size, [0] * min(size, WIDEST), [1] * min(size, WIDEST))


def _bounded(keys: Keys, width: int, low: Any, high: Any) -> Leaf:
    bounds = [np.asarray(bound, np.float64).ravel() for bound in (low, high)]
    if width < 0 or (any(bound.size != width for bound in bounds) and width <= WIDEST):
        raise InputError(
            f"the space of {name_of(keys)} has {width} entries, but bounds for {bounds[0].size}."
        )
    return Leaf(keys, width, bounds[0], bounds[1])


def _text(space: dict[str, Any], keys: Keys) -> Leaf:
    return Leaf(keys, None)


SPACES: dict[str, Callable[[dict[str, Any], Keys], Leaf]] = {
    "Box": _box,
    "Discrete": _discrete,
    "MultiDiscrete": _multi_discrete,
    "MultiBinary": _multi_binary,
    "Text": _text,
}
