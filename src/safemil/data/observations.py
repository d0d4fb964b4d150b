"""Observations of a table: the matrix of its steps, empty cells filled, and what is wrong with it."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from safemil.arrays import Bools, Floats, Ints
from safemil.data.episodes import Rows
from safemil.data.faults import Faults
from safemil.data.filling import MISSING, fill_columns, flagged
from safemil.data.interchange import Fill
from safemil.data.matrices import Entry, Seen, read_matrix
from safemil.data.parts import Loaded

MOST_NAMED = 12  # columns in a message


class Observations(NamedTuple):
    """Observations of steps and of ends of episodes."""

    values: Floats  # (steps, width)
    finals: Floats  # (episodes, width)
    entries: list[Entry]
    flags: list[int]  # entries with a further column that is 1 where they are empty
    empty: dict[str, float]  # share of empty cells by name

    def names(self) -> list[str]:
        return [each.name for each in self.entries] + [
            MISSING.format(self.entries[i].name) for i in self.flags
        ]


def read_observations(
    loaded: Sequence[Loaded],
    rows: Rows,
    entries: list[Entry],
    fills: Sequence[Fill],
    is_step: Bools,
    faults: Faults,
) -> Observations:
    """Read the observations of all rows; those of rows that are no step are final ones."""
    names = [each.name for each in entries]
    flags = flagged(names, fills)
    width, count = len(entries) + len(flags), int(is_step.sum())
    values, finals = np.empty((count, width), np.float32), np.zeros((len(rows.ids), width), np.float32)
    index = None if count == len(is_step) else np.cumsum(is_step) - 1

    def write(start: int, columns: slice, block: npt.NDArray[Any]) -> None:
        places = rows.places(start, len(block))
        if index is None:
            values[places, columns] = block
            return
        acting = is_step[places]
        values[index[places][acting], columns] = block[acting]
        finals[rows.episodes[places][~acting], columns] = block[~acting]

    seen = read_matrix(loaded, entries, np.float32, write)
    shares = _empty_shares(values, finals, names, seen, rows, is_step)
    lengths = np.bincount(rows.episodes[is_step], minlength=len(rows.ids))
    fill_columns(values, names, fills, lengths, finals)
    _check(values, finals, names, seen, shares, rows, is_step, faults)
    return Observations(values, finals, entries, flags, shares)


def _ends(values: Floats, finals: Floats, column: int, rows: Rows, is_step: Bools) -> list[Floats]:
    """Cells of a column: of the steps, and of the rows that are no step."""
    return [values[:, column], finals[rows.episodes[~is_step], column]]


def _empty_shares(
    values: Floats, finals: Floats, names: Sequence[str], seen: Seen, rows: Rows, is_step: Bools
) -> dict[str, float]:
    shares = dict.fromkeys(names, 0.0)
    for column in np.flatnonzero(seen.suspect).tolist():
        cells = _ends(values, finals, column, rows, is_step)
        shares[names[column]] = sum(int(np.isnan(each).sum()) for each in cells) / len(is_step)
    return shares


def _check(
    values: Floats,
    finals: Floats,
    names: Sequence[str],
    seen: Seen,
    shares: Mapping[str, float],
    rows: Rows,
    is_step: Bools,
    faults: Faults,
) -> None:
    """Note cells that are empty still, all columns in one message, and numbers that are not finite."""
    suspect = np.flatnonzero(seen.suspect).tolist()
    if not suspect:
        return
    places: tuple[Ints, Ints] = np.flatnonzero(is_step), np.flatnonzero(~is_step)
    found, concerned = [], np.zeros(len(is_step), bool)
    for column in suspect:
        cells = _ends(values, finals, column, rows, is_step)
        bad = np.concatenate([where[np.isnan(each)] for each, where in zip(cells, places, strict=True)])
        if bad.size:
            concerned[bad] = True
            what = "empty" if seen.empty[column] else "nan"
            found.append((names[column], what, int(bad.min()), shares[names[column]]))
    if found:
        named = ", ".join(
            f'"{name}" is {what} at {rows.where(row)} ({share:.2%} of its cells)'
            for name, what, row, share in found[:MOST_NAMED]
        )
        more = f" and {len(found) - MOST_NAMED} more columns" if len(found) > MOST_NAMED else ""
        mended = " ".join(f'`fill="{name}=previous"`' for name, *_ in found[:MOST_NAMED])
        faults.add(
            f"no row may lack an observation, but {named}{more}; fill them, with the value before "
            f"({mended}), with a number, as in gap=90, or with a column of its own, as in gap=flag.",
            concerned,
        )
    for column in suspect:
        for each, where in zip(_ends(values, finals, column, rows, is_step), places, strict=True):
            faults.add_infinite("observations", each, names[column], where)
