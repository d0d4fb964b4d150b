"""Runs the unfinished cells of a grid."""

import importlib
from collections.abc import Sequence
from pathlib import Path

from safemil.bench.cell import read_result, result_file
from safemil.bench.datasets import prepare
from safemil.bench.grid import RANDOM, Cell, Grid
from safemil.bench.live_status import LiveStatus
from safemil.errors import InputError, unknown
from safemil.files import atomic_file

ENGINES = {"local": "safemil.bench.local", "ray": "safemil.bench.on_ray"}
GRID = "grid.toml"


def run_grid(
    grid: Grid,
    text: str,
    results: Path,
    *,
    engine: str = "local",
    workers: int | None = None,
    **parts: Sequence[str],
) -> dict[str, str]:
    """Run every cell that has no result yet; `parts` restricts them as in `Grid.cells`.

    Returns the reason of each failure by the name of the cell.
    """
    if engine not in ENGINES:
        raise unknown("engine", engine, ENGINES)
    cells = grid.cells(**parts)
    if not cells:
        raise InputError(
            "no cell of the grid matches these studies, tasks and algorithms; leave some of them out."
        )
    with atomic_file(results / GRID) as file:
        file.write_text(text, encoding="utf-8")
    missing = [cell for cell in cells if not _is_done(result_file(results, cell))]
    folder = Path(grid.folder)
    without = _sources_without_data(missing, folder)
    with LiveStatus(len(cells), len(cells) - len(missing), results) as status:
        for cell in missing:
            if _needs(cell) in without:
                status.failed(cell, without[cell.source])
        missing = [cell for cell in missing if _needs(cell) not in without]
        if missing:
            importlib.import_module(ENGINES[engine]).run(missing, results, folder, workers, status)
        return status.failures


def _sources_without_data(cells: list[Cell], folder: Path) -> dict[str, str]:
    """Make missing data; return the sources that have none, with the reason, so that other cells can run."""
    reasons = {}
    for source in sorted({source for cell in cells if (source := _needs(cell))}):
        try:
            prepare(source, folder)
        except InputError as error:
            reasons[source] = str(error)
    return reasons


def _needs(cell: Cell) -> str | None:
    return None if cell.algorithm == RANDOM else cell.source


def _is_done(path: Path) -> bool:
    try:
        return read_result(path) is not None
    except InputError:
        return False
