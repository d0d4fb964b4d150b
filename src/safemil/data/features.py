"""Features: named vectors of numbers, whose entries are the columns of an observation or an action."""

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy.typing as npt
import pyarrow as pa

from safemil.arrays import Bools
from safemil.data.matrices import ENTRY_NAMES
from safemil.errors import unknown

WIDEST = 1 << 16  # entries of a feature; wider ones are pictures, depth maps and the like


class Column(NamedTuple):
    """Entry of a feature."""

    feature: str
    position: int


def numbered(feature: str, width: int) -> list[str]:
    """Names of the entries of a feature that has no names for them.

    >>> numbered("goal", 2), numbered("speed", 1)
    (['goal[0]', 'goal[1]'], ['speed'])
    """
    return [feature] if width == 1 else [f"{feature}[{position}]" for position in range(width)]


def columns_of(features: Mapping[str, Sequence[str]]) -> dict[str, Column]:
    """Name the entries of all features; a name that several have is preceded by the feature's.

    >>> columns_of({"state": ["x", "y"], "goal": ["y"]})["goal.y"]
    Column(feature='goal', position=0)
    """
    found: dict[str, list[Column]] = {}
    for feature, names in features.items():
        for position, name in enumerate(names):
            found.setdefault(name, []).append(Column(feature, position))
    return {
        name if len(columns) == 1 else f"{column.feature}.{name}": column
        for name, columns in found.items()
        for column in columns
    }


def matching(kind: str, spec: str | Sequence[str], known: Mapping[str, Column]) -> dict[str, Column]:
    """Columns that "feature", "prefix*" or "column" stand for, several separated by commas.

    >>> known = columns_of({"state": ["x", "y"], "goal": ["gx"]})
    >>> [*matching("observation", "goal, x", known)]
    ['gx', 'x']
    """
    found: dict[str, Column] = {}
    for part in spec.split(",") if isinstance(spec, str) else spec:
        chosen = _chosen(part.strip(), known)
        if not chosen:
            features = {column.feature for column in known.values()}
            raise unknown(f"feature of numbers for the {kind}", part.strip(), features)
        found |= chosen
    return found


def _chosen(part: str, known: Mapping[str, Column]) -> dict[str, Column]:
    if part in known:
        return {part: known[part]}
    prefix = part[:-1] if part.endswith("*") else None
    return {
        name: column
        for name, column in known.items()
        if part == column.feature
        or (prefix is not None and (name.startswith(prefix) or column.feature.startswith(prefix)))
    }


def places(block: Mapping[str, Column]) -> dict[str, tuple[list[int], list[int]]]:
    """Where the entries of each feature go: columns of the block, and entries of the feature.

    >>> places({"x": Column("state", 0), "gx": Column("goal", 0), "y": Column("state", 1)})
    {'state': ([0, 2], [0, 1]), 'goal': ([1], [0])}
    """
    found: dict[str, tuple[list[int], list[int]]] = {}
    for number, column in enumerate(block.values()):
        columns, entries = found.setdefault(column.feature, ([], []))
        columns.append(number)
        entries.append(column.position)
    return found


def lists(matrix: npt.NDArray[Any], empty: Bools | None = None) -> pa.Array:
    """Column of lists with the rows of a matrix; some may be empty."""
    mask = None if empty is None else pa.array(empty)
    return pa.FixedSizeListArray.from_arrays(matrix.reshape(-1), matrix.shape[1], mask=mask)


def named_field(kind: str, values: pa.Array, names: Iterable[str]) -> pa.Field:
    """Field of a column of lists that holds the names of their entries."""
    return pa.field(kind, values.type, metadata={ENTRY_NAMES: json.dumps([*names])})
