"""Rows of a table sorted into episodes, whichever files and whichever order they came in."""

import warnings
from collections.abc import Iterator, Sequence
from pathlib import PurePosixPath
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from safemil.arrays import Bools, Ints
from safemil.data.columns import Plan
from safemil.data.interchange import Options
from safemil.data.steps import Steps, gap_limit, join_steps, read_steps, text_array
from safemil.data.trajectories import spelled
from safemil.errors import InputError, InputWarning

FAR = 10  # usual steps between the rows of two files, above which they belong to two episodes
SHOWN = 5  # doubled steps in a message
NAMELESS = "(no name)"  # stands in for the episode of rows that name none


class Rows(NamedTuple):
    """Rows of all parts, sorted: episodes by name, and their steps."""

    ids: npt.NDArray[Any]  # (episodes,)
    episodes: Ints  # (rows,) number of the episode
    steps: Steps  # (rows,)
    place: Ints | None  # (rows,) sorted place of each row of the table; None if they come sorted

    def where(self, row: int) -> str:
        """Episode and step of a sorted row, as named in the file."""
        step = spelled(self.steps.logged[row], self.steps.zone)
        return f"episode {self.ids[self.episodes[row]]}, step {step}"

    def places(self, start: int, count: int) -> Ints | slice:
        """Sorted places of consecutive rows of the table."""
        return slice(start, start + count) if self.place is None else self.place[start : start + count]

    def sort(self, values: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Bring one value per row of the table into the order of the sorted rows."""
        if self.place is None:
            return values
        out = np.empty_like(values)
        out[self.place] = values
        return out


def sorted_rows(
    tables: Sequence[pa.Table],
    paths: Sequence[str],
    chosen: Plan,
    order: Sequence[Any] | None,
    options: Options,
) -> Rows:
    """Sort the rows of all tables; `order` lists the episodes in another order than that of their names.

    Names of episodes that several files have are told apart, or joined, with a warning.
    """
    steps = join_steps([read_steps(_plain(table.column(chosen.step)), chosen.step) for table in tables])
    if chosen.episode is None:
        names = [np.array([_stem(path)]) for path in paths]  # (names,) of each part, with repeats
        codes = [np.zeros(table.num_rows, np.int64) for table in tables]  # (rows,)
    else:
        encoded = [_encoded(table.column(chosen.episode)) for table in tables]
        names = _alike([_names(each.dictionary, chosen.episode) for each in encoded])
        codes = [each.indices.to_numpy(zero_copy_only=False) for each in encoded]
        del encoded
    ids, episodes = _numbered(names, codes)
    shared = np.zeros(len(ids), bool)
    if len(tables) > 1:
        part = np.repeat(np.arange(len(tables)), [table.num_rows for table in tables])
        shared = _in_several(episodes, part, len(ids))
    if chosen.episode is None:
        _say(f'there is no column "{options.columns.episode}": each of {len(tables)} files is an episode')
    if shared.any():
        if _continued(episodes, part, steps, options, chosen.step):
            _say(f"{int(shared.sum())} episodes have rows in several files")
        else:
            labels, what = labels_of(paths, names)
            names = [
                np.array(
                    [f"{label}/{name}" if shared[np.searchsorted(ids, name)] else str(name) for name in each]
                )
                for label, each in zip(labels, names, strict=True)
            ]
            _say(f"{int(shared.sum())} names of episodes are in several files, told apart by the {what}")
            ids, episodes = _numbered(names, codes)
    if order is not None and sorted(order) == ids.tolist():
        rank = np.empty(len(ids), np.int64)
        rank[[ids.tolist().index(name) for name in order]] = np.arange(len(ids))
        ids, episodes = np.asarray(order), rank[episodes]
    return _sort(ids, episodes, steps)


def _say(text: str) -> None:
    warnings.warn(f"{text}.", InputWarning, stacklevel=6)


def check_doubles(rows: Rows, sound: Bools) -> Iterator[tuple[str, Bools]]:
    """Yield a message about steps that a sound episode has twice, and the rows concerned."""
    same = (np.diff(rows.episodes) == 0) & (rows.steps.order[1:] == rows.steps.order[:-1])
    if not sound.all():
        same &= sound[rows.episodes[1:]]
    if same.any():
        first = [
            rows.where(row).replace(", step ", " has step ") + " twice"
            for row in np.flatnonzero(same)[:SHOWN]
        ]
        more = f", and {int(same.sum()) - SHOWN} more" if same.sum() > SHOWN else ""
        yield (
            f"each step of an episode may come once, but {', '.join(first)}{more}; correct the log, or give "
            "the parts of the episode different names.",
            np.append(same, False),
        )


def without_keys(tables: Sequence[pa.Table], chosen: Plan) -> list[str]:
    """Say which rows have no episode or no step."""
    faults, row = [], 0
    for table in tables:
        for name, need in (
            (chosen.episode, "name the episode of every row"),
            (chosen.step, "every row needs one"),
        ):
            if name is not None and table.column(name).null_count:
                column = table.column(name)
                first = row + int(np.argmin(np.asarray(column.is_valid())))
                faults.append(f'"{name}" is empty in row {first}, in {column.null_count} rows; {need}.')
        row += table.num_rows
    return faults


def with_stand_ins(tables: Sequence[pa.Table], chosen: Plan) -> tuple[list[pa.Table], Bools]:
    """Give rows without an episode or a step one that stands in for it; says which rows."""
    filled, lacking = [], []
    for table in tables:
        empty = np.zeros(table.num_rows, bool)
        for name in (chosen.episode, chosen.step):
            if name is not None and table.column(name).null_count:
                column = _plain(table.column(name))
                empty |= np.asarray(column.is_null())
                if name == chosen.episode:
                    column = column.cast(pa.string()).fill_null(NAMELESS)
                else:
                    column = column.fill_null(pc.min_max(column)["max"])
                table = table.set_column(table.column_names.index(name), name, column)
        filled.append(table)
        lacking.append(empty)
    return filled, np.concatenate(lacking)


def _plain(column: pa.ChunkedArray) -> pa.ChunkedArray:
    return column.cast(column.type.value_type) if pa.types.is_dictionary(column.type) else column


def _names(found: pa.Array, name: str) -> npt.NDArray[Any]:
    """Different names of episodes in a column: whole numbers or text."""
    kind = found.type
    try:
        if pa.types.is_floating(kind) or pa.types.is_integer(kind):
            numbers: npt.NDArray[Any] = pc.cast(found, pa.int64()).to_numpy()
            return numbers
        if pa.types.is_string(kind) or pa.types.is_large_string(kind):
            return text_array(found)
    except pa.ArrowInvalid as error:
        raise InputError(f'"{name}" must hold whole numbers or text: {error}.') from error
    raise InputError(f'"{name}" must hold whole numbers or text, but holds {kind}.')


def _encoded(column: pa.ChunkedArray) -> pa.DictionaryArray:
    combined = column.combine_chunks()
    if isinstance(combined, pa.ChunkedArray):  # of no rows, or of one chunk
        combined = pa.concat_arrays(combined.chunks) if combined.num_chunks else pa.array([], column.type)
    return combined if pa.types.is_dictionary(column.type) else combined.dictionary_encode()


def _alike(names: list[npt.NDArray[Any]]) -> list[npt.NDArray[Any]]:
    """Names as text if those of any file are."""
    return (
        names if all(each.dtype.kind == "i" for each in names) else [each.astype(np.str_) for each in names]
    )


def _numbered(names: Sequence[npt.NDArray[Any]], codes: Sequence[Ints]) -> tuple[npt.NDArray[Any], Ints]:
    """Sorted names that rows have, and the number of each row's episode."""
    known, inverse = np.unique(np.concatenate(names), return_inverse=True)
    offsets = np.cumsum([0, *(len(each) for each in names[:-1])])
    found = [inverse[start:][each] for start, each in zip(offsets, codes, strict=True)]
    rows = np.concatenate(found) if len(found) > 1 else found[0]
    used = np.bincount(rows, minlength=len(known)) > 0
    return known[used], (np.cumsum(used) - 1)[rows] if not used.all() else rows


def _in_several(episodes: Ints, part: Ints, count: int) -> Bools:
    """Which names of episodes several parts have."""
    pairs = np.unique(np.stack([episodes, part]), axis=1)
    return np.bincount(pairs[0], minlength=count) > 1


def _continued(episodes: Ints, part: Ints, steps: Steps, options: Options, name: str) -> bool:
    """Whether the rows of one name in several files make one episode: no step twice, and no wide gap."""
    order = np.lexsort((_sortable(steps), episodes))
    episodes, part, sorted_steps = episodes[order], part[order], steps.order[order]
    inside, other = np.diff(episodes) == 0, np.diff(part) != 0
    if (inside & other & (sorted_steps[1:] == sorted_steps[:-1])).any():
        return False
    if not steps.measured:
        return True
    differences = steps.seconds(np.diff(sorted_steps))
    within = differences[inside & ~other]
    usual = float(np.median(within)) if within.size else 0.0
    limit = FAR * usual if options.max_gap is None else gap_limit(options.max_gap, steps, name)
    return not (differences[inside & other] > limit).any() if limit else True


def labels_of(paths: Sequence[str], names: Sequence[npt.NDArray[Any]]) -> tuple[list[str], str]:
    """What tells the episodes of files apart: their folders if those do, else the files."""
    folders = [str(PurePosixPath(path).parent) for path in paths]
    seen = [(folder, name) for folder, each in zip(folders, names, strict=True) for name in each.tolist()]
    if len(set(seen)) == len(seen):
        return folders, "folder"
    return [_stem(path) for path in paths], "file"


def _stem(path: str) -> str:
    """Path without its endings, such as .csv.gz."""
    pure = PurePosixPath(path)
    return str(pure.with_name(pure.name.split(".")[0] or pure.name))


def _sortable(steps: Steps) -> npt.NDArray[Any]:
    return steps.order.view(np.int64) if steps.timed else steps.order


def _sort(ids: npt.NDArray[Any], episodes: Ints, steps: Steps) -> Rows:
    keys = _sortable(steps)
    change = np.diff(episodes)
    if ((change > 0) | ((change == 0) & (keys[1:] >= keys[:-1]))).all():
        return Rows(ids, episodes, steps, None)
    order = np.lexsort((keys, episodes))
    place = np.empty_like(order)
    place[order] = np.arange(len(order))
    logged = steps.logged[order]
    taken = logged if steps.logged is steps.order else steps.order[order]
    return Rows(ids, episodes[order], Steps(taken, logged, steps.zone), place)
