"""Run what is missing of a grid."""

import importlib
import json
from collections.abc import Sequence
from pathlib import Path

from safemil.bench.cell import result_file
from safemil.bench.datasets import prepare
from safemil.bench.grid import RANDOM, Cell, Grid
from safemil.bench.live_status import Board
from safemil.errors import InputError, unknown
from safemil.files import atomic_file
from safemil.worlds import cores

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
    """Run every cell that has no result yet, or those of some `parts` (see `Grid.cells`).

    Returns why those failed that did.
    """
    if engine not in ENGINES:
        raise unknown("engine", engine, ENGINES)
    cells = grid.cells(**parts)
    if not cells:
        raise InputError(
            "no cell of the grid is of a study, a task and an algorithm that were named; name fewer of them."
        )
    with atomic_file(results / GRID) as file:
        file.write_text(text)
    missing = [cell for cell in cells if not _is_done(result_file(results, cell))]
    folder = Path(grid.folder)
    without = _sources_without_data(missing, folder)
    with Board(len(cells), len(cells) - len(missing), workers or cores(), results) as board:
        for cell in missing:
            if _needs(cell) in without:
                board.failed(cell, without[cell.source])
        missing = [cell for cell in missing if _needs(cell) not in without]
        if missing:
            importlib.import_module(ENGINES[engine]).run(missing, results, folder, workers, board)
        return board.failures


def _sources_without_data(cells: list[Cell], folder: Path) -> dict[str, str]:
    """Make what data are missing; those that can't be had, with the reason, need not stop the others."""
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
        return "returns" in json.loads(path.read_text())
    except (OSError, ValueError):
        return False
