"""Local engine: spawned worker processes, each pinned to a core, that run one cell after another.

Workers are spawned, since JAX deadlocks after a fork. A worker keeps its compiled programs while its cells
differ in the seed alone. Workers write their results themselves, so stopping this process loses only the
cells that are running; when this process dies, its workers end too.
"""

import contextlib
import multiprocessing
import os
import signal
import threading
import traceback
from collections.abc import Sequence
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

from safemil.bench.cell import one_thread, run_cell, write_result
from safemil.bench.claims import Claims
from safemil.bench.grid import Cell
from safemil.bench.live_status import LiveStatus
from safemil.errors import InputError

TRIES = 2


class Worker:
    """A process, the pipe to it, and the cell that it runs."""

    def __init__(self, number: int, core: int | None, results: Path, folder: Path):
        context = multiprocessing.get_context("spawn")
        self.number, self.core = number, core
        self.pipe, theirs = context.Pipe()
        self.process = context.Process(target=_work, args=(theirs, core, results, folder), daemon=True)
        self.process.start()
        theirs.close()
        self.cell: Cell | None = None
        self.group = ""

    def send(self, cell: Cell) -> None:
        self.cell, self.group = cell, cell.group
        self.pipe.send(cell.to_json())

    def outcome(self) -> tuple[str, Any]:
        """Receive the outcome of the cell; a closed pipe means that the process died."""
        try:
            kind, content = self.pipe.recv()
            return kind, content
        except (EOFError, OSError):
            self.process.join()
            return "crash", f"the worker died (exit code {self.process.exitcode})"

    def end(self) -> None:
        self.pipe.close()
        self.process.kill()
        self.process.join()


def run(
    cells: Sequence[Cell],
    results: Path,
    folder: Path,
    workers: int | None,
    status: LiveStatus,
    claims: Claims,
) -> None:
    """Run the cells that can be claimed and report progress to `status`."""
    cores = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []
    count = min(workers or len(cores) or os.cpu_count() or 1, len(cells))
    waiting, tries = list(cells), dict.fromkeys((cell.name for cell in cells), 0)
    crew: list[Worker] = []
    try:
        for number in range(count):
            core = cores[number % len(cores)] if cores else None
            crew.append(Worker(number, core, results, folder))
            _next(crew[-1], waiting, tries, status, claims)
        while busy := {worker.pipe: worker for worker in crew if worker.cell is not None}:
            for pipe in wait(list(busy), timeout=1.0):
                worker = busy[pipe]  # type: ignore[index]
                cell, (kind, content) = worker.cell, worker.outcome()
                assert cell is not None
                worker.cell = None
                if kind == "done":
                    claims.release(cell)
                    status.finished(cell, content)
                elif kind == "crash" and tries[cell.name] < TRIES:
                    status.retried(cell, content)
                    waiting.insert(0, cell)
                else:
                    claims.release(cell)
                    status.failed(cell, content)
                if not worker.process.is_alive():
                    crew.remove(worker)
                    worker.end()
                    worker = Worker(worker.number, worker.core, results, folder)
                    crew.append(worker)
                _next(worker, waiting, tries, status, claims)
            status.refresh()
    finally:
        for worker in crew:
            worker.end()


def _next(
    worker: Worker, waiting: list[Cell], tries: dict[str, int], status: LiveStatus, claims: Claims
) -> None:
    """Send a free worker a cell whose programs it has compiled, else the first one that can be claimed."""
    cell = None
    while cell is None and waiting:
        chosen = next((each for each in waiting if each.group == worker.group), waiting[0])
        waiting.remove(chosen)
        cell = chosen if claims.take(chosen) else None
    if cell is None:
        return
    tries[cell.name] += 1
    with contextlib.suppress(OSError):  # a worker that has died is noticed when its outcome is read
        worker.send(cell)
    status.started(cell, f"core {worker.core}")


def _work(pipe: Connection, core: int | None, results: Path, folder: Path) -> None:
    """Run cells until the pipe closes: the main function of a worker process."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent handles Ctrl-C and ends its workers
    if core is not None:
        os.sched_setaffinity(0, {core})
    one_thread()
    threading.Thread(target=_end_with_parent, daemon=True).start()
    group = ""
    while True:
        try:
            cell = Cell.from_json(pipe.recv())
        except EOFError:
            return
        if group != cell.group:
            import jax

            jax.clear_caches()  # type: ignore[no-untyped-call]
            group = cell.group
        pipe.send(_outcome(cell, results, folder))


def _outcome(cell: Cell, results: Path, folder: Path) -> tuple[str, Any]:
    try:
        result = run_cell(cell, folder)
        write_result(results, cell, result)
        return "done", result["seconds"]["all"]
    except InputError as error:  # it would fail again
        return "error", str(error)
    except Exception:
        return "crash", traceback.format_exc()


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)
