"""The Ray engine: the same cells as Ray tasks, on this machine or on a cluster (`RAY_ADDRESS`).

A cell's result comes back to the driver, which writes it, so workers need not share its disk; a task whose
worker dies, or that raises, is run again by Ray, once.
"""

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from safemil.bench.cell import one_thread, run_cell, write_result
from safemil.bench.grid import Cell
from safemil.bench.live_status import Board
from safemil.errors import InputError

RETRIES = 1


def ray_cell(content: dict[str, Any], folder: str) -> str:
    """A cell in a Ray worker."""
    one_thread()
    return json.dumps(run_cell(Cell.from_json(content), Path(folder)))


def run(cells: Sequence[Cell], results: Path, folder: Path, workers: int | None, board: Board) -> None:
    """Run the cells; `board` is told what happens."""
    try:
        import ray
    except ModuleNotFoundError:
        raise InputError(
            "the Ray engine needs Ray: pip install 'safemil[ray]', or use --engine local."
        ) from None

    mine = None if os.environ.get("RAY_ADDRESS") else workers  # a cluster has the workers it has
    ray.init(num_cpus=mine, include_dashboard=False, log_to_driver=False, logging_level="ERROR")
    try:
        task = ray.remote(num_cpus=1, max_retries=RETRIES, retry_exceptions=True)(ray_cell)
        pending = {task.remote(cell.to_json(), str(folder.resolve())): cell for cell in cells}
        for cell in pending.values():
            board.started(cell, "given to Ray")
        while pending:
            done, _ = ray.wait(list(pending), timeout=1.0)
            for each in done:
                _keep(ray, each, pending.pop(each), results, board)
            board.tick()
    finally:
        ray.shutdown()


def _keep(ray: Any, reference: Any, cell: Cell, results: Path, board: Board) -> None:
    try:
        result = json.loads(ray.get(reference))
    except ray.exceptions.RayError as error:
        board.failed(cell, str(error))
        return
    write_result(results, cell, result)
    board.finished(cell, result["seconds"]["all"])
