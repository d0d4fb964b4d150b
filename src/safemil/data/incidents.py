"""Incidents from a column or from a list of episodes, and the two piles that they make."""

from collections.abc import Iterable
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from safemil.arrays import Bools
from safemil.data.interchange import Contents, Options, listed
from safemil.data.trajectories import Trajectories
from safemil.errors import InputError, unknown

FALSE_TEXTS = ("", "0", "f", "false", "n", "no", "none")  # of any case; other texts are true
MOST_VALUES = 8  # shown in an error


class Piles(NamedTuple):
    """Episodes with an incident, and all others."""

    nonpreferred: Trajectories
    unlabeled: Trajectories


def is_incident(column: pa.ChunkedArray, value: str | None) -> Bools:
    """Whether each row of an incident column is true, or equal to a value; an empty cell is not."""
    texts = _texts(column)
    if value is not None:
        found = pc.equal(texts, value)
    elif pa.types.is_string(column.type) or pa.types.is_large_string(column.type):
        found = pc.invert(pc.is_in(pc.utf8_lower(pc.utf8_trim_whitespace(texts)), pa.array(FALSE_TEXTS)))
    else:
        found = pc.invert(pc.is_in(texts, pa.array(["0", "-0", "0.0", "false", "nan"])))
    marked: Bools = pc.and_(found, column.is_valid()).fill_null(False).to_numpy()
    return marked


def values_seen(column: pa.ChunkedArray) -> str:
    """Values of an incident column with their numbers of rows, the most frequent first."""
    counted = sorted(pc.value_counts(_texts(column)).to_pylist(), key=lambda each: -each["counts"])
    return listed((f'"{each["values"]}" in {each["counts"]} rows' for each in counted), MOST_VALUES)


def _texts(column: pa.ChunkedArray) -> pa.ChunkedArray:
    return pc.cast(column, pa.string()).fill_null("")


def piles_of(contents: Contents, options: Options) -> Piles:
    """Sort episodes into incidents and others, by the column or the list in the options.

    An episode whose rows are all true is an incident. One with some true rows is one too, and these rows are
    its marks.
    """
    parts = split_contents(contents, options)
    return Piles(parts["nonpreferred"].trajectories, parts["unlabeled"].trajectories)


def split_contents(contents: Contents, options: Options) -> dict[str, Contents]:
    """Split everything in a log as `piles_of` does."""
    held = contents.trajectories
    chosen = np.zeros(len(held), bool)
    if options.incident_episodes is not None:
        chosen |= _named(held, options.incident_episodes)
    if contents.incidents is not None:
        rows = contents.incidents
        some, every = (each.reduceat(rows, held.starts) for each in (np.logical_or, np.logical_and))
        chosen |= some
        held = held.marked(held.marks | (rows & np.repeat(~every, held.lengths)))
    elif options.incident_episodes is None:
        raise InputError(
            "need to know which episodes are incidents; give `incident=...` or `incident_episodes=...`."
        )
    for flags, what in ((chosen, "an incident"), (~chosen, "without an incident")):
        if not flags.any():
            raise InputError(
                f"no episode is {what}, of {len(held)}; {_seen(contents, options)}choose another column, or "
                "one of its values, as in column=value."
            )
    return {
        pile: _part(contents, held, flags)
        for pile, flags in (("nonpreferred", chosen), ("unlabeled", ~chosen))
    }


def _part(contents: Contents, held: Trajectories, chosen: Bools) -> Contents:
    steps = np.repeat(chosen, held.lengths)
    values = {name: getattr(contents, name) for name in ("rewards", "costs", "incidents")}
    taken: dict[str, Any] = {name: None if each is None else each[steps] for name, each in values.items()}
    return replace(contents, trajectories=held.take(np.flatnonzero(chosen)), **taken)


def _seen(contents: Contents, options: Options) -> str:
    if contents.incidents is None:
        return ""
    return f'"{options.incident}" holds {contents.incident_values}; '


def _named(held: Trajectories, names: Iterable[str]) -> Bools:
    known = {str(name): number for number, name in enumerate(held.ids.tolist())}
    chosen = np.zeros(len(held), bool)
    for name in names:
        if str(name) not in known:
            raise unknown("episode", str(name), known)
        chosen[known[str(name)]] = True
    return chosen
