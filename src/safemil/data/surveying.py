"""Ranges of the columns of a table in which no episode can be read."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from safemil.data.columns import plan
from safemil.data.interchange import Options, RawColumn
from safemil.data.matrices import entries_of, read_matrix, uneven_lists
from safemil.data.parts import Part, is_number
from safemil.errors import InputError


def survey(parts: Sequence[Part], options: Options) -> list[RawColumn]:
    """Range, share of empty cells and share of repeated ones of each column of numbers, as far as possible.

    Columns that no part lacks are described: those asked for, or else all.
    """
    shared = [name for name in parts[0].columns if all([*part.columns].count(name) == 1 for part in parts)]
    chosen = plan(shared, options, many=len(parts) > 1)[0]
    asked = [name for name in (*chosen.observation, *chosen.action) if name in shared]
    try:
        return _survey(parts, asked or shared)
    except InputError:  # a file that can't be read at all
        return []


def _survey(parts: Sequence[Part], names: Sequence[str]) -> list[RawColumn]:
    loaded = [part.load([*names], ()) for part in parts]
    numbers = [name for name in names if all(is_number(each.schema.field(name).type) for each in loaded)]
    entries = entries_of(loaded, [name for name in numbers if name not in uneven_lists(loaded, numbers)])
    low, high = np.full(len(entries), np.nan), np.full(len(entries), np.nan)
    empty, repeated, rows = np.zeros(len(entries)), np.zeros(len(entries)), np.zeros(len(entries))

    def write(start: int, columns: slice, block: npt.NDArray[Any]) -> None:
        low[columns] = np.fmin(low[columns], np.fmin.reduce(block, axis=0))
        high[columns] = np.fmax(high[columns], np.fmax.reduce(block, axis=0))
        empty[columns] += np.isnan(block).sum(axis=0)
        repeated[columns] += (block[1:] == block[:-1]).sum(axis=0)
        rows[columns] += len(block)

    read_matrix(loaded, entries, np.float64, write)
    shares = np.stack([empty, repeated]) / np.maximum(rows, 1)
    values = np.concatenate([[low, high], shares]).T.tolist()
    return [RawColumn(each.name, *found) for each, found in zip(entries, values, strict=True)]
