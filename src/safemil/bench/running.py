"""Run what is missing of a grid."""

import importlib
import json
from pathlib import Path

from safemil.bench.board import Board
from safemil.bench.cell import result_file
from safemil.bench.grid import Grid
from safemil.bench.sources import prepare
from safemil.errors import unknown
from safemil.files import atomic_file
from safemil.tasks.worlds import cores

ENGINES = {"local": "safemil.bench.local", "ray": "safemil.bench.on_ray"}
GRID = "grid.toml"


def run_grid(
    grid: Grid, text: str, results: Path, *, engine: str = "local", workers: int | None = None
) -> dict[str, str]:
    """Run every cell that has no result yet; returns why those failed that did."""
    if engine not in ENGINES:
        raise unknown("engine", engine, ENGINES)
    with atomic_file(results / GRID) as file:
        file.write_text(text)
    cells = grid.cells()
    missing = [cell for cell in cells if not _is_done(result_file(results, cell))]
    folder = Path(grid.folder)
    for source in sorted({cell.source for cell in missing}):
        prepare(source, folder)
    with Board(len(cells), len(cells) - len(missing), workers or cores(), results) as board:
        if missing:
            importlib.import_module(ENGINES[engine]).run(missing, results, folder, workers, board)
        return board.failures


def _is_done(path: Path) -> bool:
    try:
        return "returns" in json.loads(path.read_text())
    except (OSError, ValueError):
        return False
