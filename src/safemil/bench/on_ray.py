"""Ray engine: runs cells as Ray tasks, on this machine or on a cluster (`RAY_ADDRESS`).

The driver receives and writes all results, so workers need not share its disk. Ray repeats a task once if its
worker dies or it raises an exception.
"""

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from safemil.bench.cell import one_thread, run_cell, write_result
from safemil.bench.claims import Claims
from safemil.bench.grid import Cell
from safemil.bench.live_status import LiveStatus
from safemil.extras import require_extra

RETRIES = 1
AHEAD = 2  # cells per core that are submitted at a time; a second benchmark takes others


def ray_cell(content: dict[str, Any], folder: str) -> str:
    """Run a cell in a Ray worker; return its result as JSON."""
    one_thread()
    return json.dumps(run_cell(Cell.from_json(content), Path(folder)))


def run(
    cells: Sequence[Cell],
    results: Path,
    folder: Path,
    workers: int | None,
    status: LiveStatus,
    claims: Claims,
) -> None:
    """Run the cells that can be claimed, a few per core at a time, and report progress to `status`."""
    require_extra("ray", "the Ray engine")
    import ray

    mine = None if os.environ.get("RAY_ADDRESS") else workers  # a cluster decides its own number of workers
    ray.init(num_cpus=mine, include_dashboard=False, log_to_driver=False, logging_level="ERROR")
    try:
        task = ray.remote(num_cpus=1, max_retries=RETRIES, retry_exceptions=True)(ray_cell)
        most = AHEAD * max(1, int(ray.cluster_resources().get("CPU", 1)))
        waiting, pending = list(cells), dict[Any, Cell]()
        while waiting or pending:
            while waiting and len(pending) < most:
                cell = waiting.pop(0)
                if claims.take(cell):
                    pending[task.remote(cell.to_json(), str(folder.resolve()))] = cell
                    status.started(cell, "submitted to Ray")
            if not pending:
                break
            done, _ = ray.wait(list(pending), timeout=1.0)
            for each in done:
                cell = pending.pop(each)
                _collect(ray, each, cell, results, status)
                claims.release(cell)
            status.refresh()
    finally:
        ray.shutdown()


def _collect(ray: Any, reference: Any, cell: Cell, results: Path, status: LiveStatus) -> None:
    try:
        result = json.loads(ray.get(reference))
    except ray.exceptions.RayError as error:
        status.failed(cell, str(error))
        return
    write_result(results, cell, result)
    status.finished(cell, result["seconds"]["all"])
