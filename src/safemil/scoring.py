"""Risk (the learned cost of each step) as a file to join with the log, and as a table."""

import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
from rich.table import Table

from safemil.data import Trajectories
from safemil.data.table import steps_as_logged
from safemil.errors import InputError
from safemil.files import atomic_file

Costs = Sequence[npt.NDArray[np.float32]]  # ĉ of each step, one array per episode
WRITERS = {".parquet": pyarrow.parquet.write_table, ".csv": pyarrow.csv.write_csv}
BARS = "▁▂▃▄▅▆▇█"


def check_suffix(path: Path) -> None:
    """Refuse a file name whose suffix is not one of the formats that are written."""
    if path.suffix not in WRITERS:
        raise InputError(
            f'risk is written as .parquet or .csv, got "{path.name}"; give it one of these endings.'
        )


def save_risk(path: str | os.PathLike[str], trajectories: Trajectories, costs: Costs) -> None:
    """Write the columns `episode`, `step` and `cost`, with episodes and steps named as in the log."""
    check_suffix(Path(path))
    table = pa.table(
        {
            "episode": np.repeat(trajectories.ids, trajectories.lengths),
            "step": steps_as_logged(trajectories),
            "cost": np.concatenate(costs),
        }
    )
    with atomic_file(path) as file:
        WRITERS[Path(path).suffix](table, file)


def rank(costs: Costs) -> npt.NDArray[np.int64]:
    """Sort the episode numbers by the mean cost of a step, the riskiest first.

    >>> rank([np.array([0.1, 0.1]), np.array([0.9])])
    array([1, 0])
    """
    return np.argsort([-episode.mean() for episode in costs], kind="stable")


def riskiest_table(trajectories: Trajectories, costs: Costs, top: int) -> Table:
    """Make a table of the riskiest episodes, with a sparkline of each."""
    table = Table(
        "episode", "steps", "mean cost", "steps above ½", "from the first step to the last", box=None
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
