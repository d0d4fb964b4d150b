"""Risk (the learned cost of each step) as a file to join with the log, and as a table."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.parquet
from rich.table import Table

from safemil.data import Trajectories
from safemil.data.interchange import Columns, Contents
from safemil.data.table_writing import steps_as_logged
from safemil.errors import InputError
from safemil.files import atomic_file
from safemil.schema import FAR, UNTRUSTED, Novelty

Costs = Sequence[npt.NDArray[np.float32]]  # ĉ of each step, one array per episode
WRITERS = {".parquet": pyarrow.parquet.write_table, ".csv": pyarrow.csv.write_csv}
BARS = "▁▂▃▄▅▆▇█"


def check_suffix(path: Path) -> None:
    """Refuse a file name whose suffix is not one of the formats that are written."""
    if path.suffix not in WRITERS:
        raise InputError(
            f'risk is written as .parquet or .csv, got "{path.name}"; give it one of these endings.'
        )


def save_risk(
    path: str | os.PathLike[str],
    contents: Contents,
    costs: Costs,
    novelty: Costs,
    log: pa.Table | None = None,
    *,
    append: bool = False,
    spread: Costs | None = None,
    ahead: Costs | None = None,
) -> None:
    """Write `risk` and `novelty` of each step beside its episode and step, as the log has them.

    `spread`, the standard deviation of the risk over seeds, becomes the column `risk_spread`; `ahead`,
    the risk of what follows, becomes `risk_ahead`.

    `log` are these columns of a table, under their own names. With `append` it holds all columns, and every
    row is written: risk is empty where a row is no step.
    """
    check_suffix(Path(path))
    table = risk_table(contents, costs, novelty, log, append=append, spread=spread, ahead=ahead)
    with atomic_file(path) as file:
        try:
            WRITERS[Path(path).suffix](table, file)
        except pa.ArrowInvalid as error:
            raise InputError(
                f"{Path(path).name} has no place for the log's columns: {error}; write .parquet."
            ) from None


def risk_table(
    contents: Contents,
    costs: Costs,
    novelty: Costs,
    log: pa.Table | None = None,
    *,
    append: bool = False,
    spread: Costs | None = None,
    ahead: Costs | None = None,
) -> pa.Table:
    """Make the table that `save_risk` writes."""
    found = {"risk": np.concatenate(costs), "novelty": np.concatenate(novelty)}
    if spread is not None:
        found["risk_spread"] = np.concatenate(spread)
    if ahead is not None:
        found["risk_ahead"] = np.concatenate(ahead)
    if log is None or contents.step_rows is None:
        return _with_columns(_keys(contents), found)
    if append:
        return _appended(_told_apart(log, contents, contents.row_episodes), contents.step_rows, found)
    order = np.argsort(contents.step_rows)  # rows in the order of the log
    episodes = contents.trajectories.episode_of_step
    keys = _told_apart(log.take(contents.step_rows), contents, episodes)
    return _with_columns(keys, found).take(order)


def key_columns(contents: Contents) -> list[str]:
    """Names of the columns of episodes and steps."""
    columns = contents.resolved.columns if contents.resolved else Columns()
    return [columns.episode, columns.step]


def _keys(contents: Contents) -> pa.Table:
    held = contents.trajectories
    values = np.repeat(held.ids, held.lengths), steps_as_logged(held)
    return pa.table(dict(zip(key_columns(contents), values, strict=True)))


def _told_apart(keys: pa.Table, contents: Contents, episodes: npt.NDArray[np.int64] | None) -> pa.Table:
    """Name episodes as the reader does, where the log has no such column or files share their names.

    `episodes` has the number of the episode of each row.
    """
    name = key_columns(contents)[0]
    names = contents.trajectories.ids[episodes]
    if name not in keys.column_names:
        return keys.add_column(0, name, pa.array(names))
    logged = pc.cast(keys.column(name), pa.string()).to_numpy()
    place = keys.column_names.index(name)
    return keys if (logged == names.astype(str)).all() else keys.set_column(place, name, pa.array(names))


def _appended(log: pa.Table, rows: npt.NDArray[np.int64], found: dict[str, Any]) -> pa.Table:
    spread = {}
    for name, values in found.items():
        wide, empty = np.zeros(log.num_rows, values.dtype), np.ones(log.num_rows, bool)
        wide[rows], empty[rows] = values, False
        spread[name] = pa.array(wide, mask=empty)
    return _with_columns(log, spread)


def _with_columns(table: pa.Table, columns: dict[str, Any]) -> pa.Table:
    for name, values in columns.items():
        if name in table.column_names:
            raise InputError(f'the log has a column "{name}" already; rename it to get another beside it.')
        table = table.append_column(name, pa.array(values))
    return table


def novelty_line(novelty: Novelty) -> str:
    """Sentence on the episodes whose cost should not be trusted."""
    untrusted = novelty.untrusted()
    return (
        f"In {untrusted.sum()} of {len(untrusted)} episodes the risk should not be trusted: more than "
        f"{UNTRUSTED:.0%} of their steps lie over {FAR:g} standard deviation beyond the range that a column "
        "had in training."
    )


def rank(costs: Costs) -> npt.NDArray[np.int64]:
    """Sort the episode numbers by the mean cost of a step, the riskiest first.

    >>> rank([np.array([0.1, 0.1]), np.array([0.9])])
    array([1, 0])
    """
    return np.argsort([-episode.mean() for episode in costs], kind="stable")


def riskiest_table(trajectories: Trajectories, costs: Costs, top: int) -> Table:
    """Make a table of the riskiest episodes, with a sparkline of each."""
    table = Table(
        "episode", "steps", "mean risk", "steps above ½", "from the first step to the last", box=None
    )
    for number in rank(costs)[:top]:
        episode = costs[number]
        above = f"{(episode > 0.5).mean():.0%}"
        table.add_row(
            str(trajectories.ids[number]),
            str(len(episode)),
            f"{episode.mean():.3f}",
            above,
            sparkline(episode),
        )
    return table


def sparkline(values: npt.NDArray[np.float32], width: int = 30) -> str:
    """Draw values in (0, 1) as a row of bars, the maximum of each window.

    >>> sparkline(np.array([0.0, 0.5, 1.0]))
    '▁▅█'
    """
    windows = np.array_split(values, min(width, len(values)))
    return "".join(BARS[min(int(window.max() * len(BARS)), len(BARS) - 1)] for window in windows)
