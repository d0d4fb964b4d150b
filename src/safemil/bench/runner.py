"""Runs the unfinished cells of a grid."""

import importlib
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from safemil.bench.cell import is_done, result_file
from safemil.bench.claims import Claims
from safemil.bench.datasets import prepare
from safemil.bench.grid import RANDOM, Cell, Grid
from safemil.bench.live_status import LiveStatus
from safemil.errors import InputError, unknown
from safemil.files import atomic_file

ENGINES = {"local": "safemil.bench.local", "ray": "safemil.bench.on_ray"}
GRID = "grid.toml"
POLL = 1.0  # seconds between two looks at cells that another process has claimed


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
    missing = [cell for cell in cells if not is_done(result_file(results, cell))]
    folder = Path(grid.folder)
    without = _sources_without_data(missing, folder)
    with LiveStatus(len(cells), len(cells) - len(missing), results) as status:
        for cell in missing:
            if _needs(cell) in without:
                status.failed(cell, without[cell.source])
        missing = [cell for cell in missing if _needs(cell) not in without]
        if missing:
            run = importlib.import_module(ENGINES[engine]).run
            _run_claimed(
                partial(run, results=results, folder=folder, workers=workers), missing, results, status
            )
        return status.failures


def _run_claimed(run: Callable[..., None], cells: list[Cell], results: Path, status: LiveStatus) -> None:
    """Run the cells that no other process has claimed, and those that such a process leaves undone."""
    claims = Claims(results)
    try:
        while cells:
            run(cells, status=status, claims=claims)
            cells = []
            while claims.elsewhere and not cells:
                waiting, claims.elsewhere = claims.elsewhere, []
                done = [cell for cell in waiting if is_done(result_file(results, cell))]
                for cell in done:
                    status.found(cell)
                cells = [cell for cell in waiting if cell not in done and claims.take(cell)]
                if claims.elsewhere and not cells:
                    time.sleep(POLL)
    finally:
        claims.release_all()


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
