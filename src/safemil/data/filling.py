"""Rules for empty cells, in a table and in a single observation. An empty cell is NaN."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from safemil.arrays import Ints
from safemil.data.columns import matching
from safemil.data.interchange import Fill
from safemil.errors import InputError

Numbers = npt.NDArray[Any]
MISSING = "{} is missing"  # name of the column that the rule "flag" adds


def flagged(names: Sequence[str], fills: Sequence[Fill]) -> list[int]:
    """Numbers of the columns that get a column of their own for empty cells."""
    return [i for i, name in enumerate(names) if any(fill.value == "flag" for fill in rules(name, fills))]


def rules(name: str, fills: Sequence[Fill]) -> list[Fill]:
    """Rules of a column, in the order in which they were given."""
    return [fill for fill in fills if matching(fill.pattern, [name])]


def fill_columns(
    values: Numbers, names: Sequence[str], fills: Sequence[Fill], lengths: Ints, finals: Numbers
) -> None:
    """Fill the empty cells of sorted rows in place, and write the columns of flags after the named ones.

    `finals` are final observations, one per episode, which come after its last row.
    """
    extra = {column: len(names) + i for i, column in enumerate(flagged(names, fills))}
    for column, name in enumerate(names):
        chosen = rules(name, fills)
        if not chosen:
            continue
        empty, ends_empty = np.isnan(values[:, column]), np.isnan(finals[:, column])
        if column in extra:
            values[:, extra[column]], finals[:, extra[column]] = empty, ends_empty
        for fill in chosen:
            if fill.value == "previous" and (empty.any() or ends_empty.any()):
                values[:, column], finals[:, column] = _previous(
                    values[:, column], lengths, finals[:, column]
                )
            elif fill.value not in ("previous", "flag"):
                for cells in (values[:, column], finals[:, column]):
                    np.copyto(cells, values.dtype.type(fill.value), where=np.isnan(cells))
        if column in extra:
            for cells in (values[:, column], finals[:, column]):
                np.copyto(cells, 0.0, where=np.isnan(cells))


def _previous(values: Numbers, lengths: Ints, finals: Numbers) -> tuple[Numbers, Numbers]:
    """Carry the last value of the episode on; before its first value, carry that one back."""
    rows = np.arange(len(values))
    starts = np.cumsum(lengths) - lengths
    known = np.isfinite(values)
    last = np.maximum.accumulate(np.where(known, rows, -1))
    first = np.minimum.accumulate(np.where(known, rows, len(values))[::-1])[::-1]
    start, end = np.repeat(starts, lengths), np.repeat(starts + lengths, lengths)
    source = np.where(last >= start, last, np.where(first < end, first, rows))
    filled = np.where(np.isnan(values), values[source], values)
    return filled, np.where(np.isnan(finals), filled[starts + lengths - 1], finals)


def fill_rows(values: Numbers, names: Sequence[str], fills: Sequence[Fill]) -> Numbers:
    """Fill single rows (rows, columns) with the rules of the log that a run was trained on; add the flags.

    `names` are those of the columns in the log, without flags. "previous" needs the row before,
    which a single row has not.

    >>> rules = [Fill("gap", 90.0), Fill("gap", "flag")]
    >>> fill_rows(np.array([[9.5, np.nan]], np.float32), ["speed", "gap"], rules)
    array([[ 9.5, 90. ,  1. ]], dtype=float32)
    """
    wide = np.concatenate([values, np.zeros((len(values), len(flagged(names, fills))), np.float32)], axis=1)
    fill_columns(wide, names, fills, np.ones(len(values), np.int64), np.zeros_like(wide))
    empty = [name for name, gaps in zip(names, np.isnan(wide).any(axis=0), strict=False) if gaps]
    for name in empty[:1]:
        rule = (
            "and its rule, previous, needs an earlier row" if rules(name, fills) else "and no rule fills it"
        )
        raise InputError(f'the observation has no value for "{name}", {rule}; give a number.')
    return wide
