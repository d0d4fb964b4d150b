"""The local engine: spawned workers, each pinned to a core, that take one cell after the other.

Workers are spawned, since JAX and fork deadlock. A worker keeps its compiled programs as long as its next
cell differs in the seed alone. It writes its results itself, so whatever ends this process loses at most the
cells under way; if this process dies, its workers end too.
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
from safemil.bench.grid import Cell
from safemil.bench.live_status import Board
from safemil.errors import InputError

TRIES = 2


class Worker:
    """One process, the pipe to it, and the cell it works on."""

    def __init__(self, number: int, core: int | None, results: Path, folder: Path):
        context = multiprocessing.get_context("spawn")
        self.number, self.core = number, core
        self.pipe, theirs = context.Pipe()
        self.process = context.Process(target=_work, args=(theirs, core, results, folder), daemon=True)
        self.process.start()
        theirs.close()
        self.cell: Cell | None = None
        self.group = ""

    def give(self, cell: Cell) -> None:
        self.cell, self.group = cell, cell.group
        self.pipe.send(cell.to_json())

    def answer(self) -> tuple[str, Any]:
        """What became of the cell; a pipe that closes means that the process died."""
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


def run(cells: Sequence[Cell], results: Path, folder: Path, workers: int | None, board: Board) -> None:
    """Run the cells; `board` is told what happens."""
    cores = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []
    count = min(workers or len(cores) or os.cpu_count() or 1, len(cells))
    waiting, tries = list(cells), dict.fromkeys((cell.name for cell in cells), 0)
    crew: list[Worker] = []
    try:
        for number in range(count):
            core = cores[number % len(cores)] if cores else None
            crew.append(Worker(number, core, results, folder))
            _next(crew[-1], waiting, tries, board)
        while busy := {worker.pipe: worker for worker in crew if worker.cell is not None}:
            for pipe in wait(list(busy), timeout=1.0):
                worker = busy[pipe]  # type: ignore[index]
                cell, (kind, content) = worker.cell, worker.answer()
                assert cell is not None
                worker.cell = None
                if kind == "done":
                    board.finished(cell, content)
                elif kind == "crash" and tries[cell.name] < TRIES:
                    board.retried(cell, content)
                    waiting.insert(0, cell)
                else:
                    board.failed(cell, content)
                if not worker.process.is_alive():
                    crew.remove(worker)
                    worker.end()
                    worker = Worker(worker.number, worker.core, results, folder)
                    crew.append(worker)
                _next(worker, waiting, tries, board)
            board.tick()
    finally:
        for worker in crew:
            worker.end()


def _next(worker: Worker, waiting: list[Cell], tries: dict[str, int], board: Board) -> None:
    """Give a free worker a cell whose programs it has compiled, else the first of those that wait."""
    if not waiting:
        return
    cell = next((each for each in waiting if each.group == worker.group), waiting[0])
    waiting.remove(cell)
    tries[cell.name] += 1
    with contextlib.suppress(OSError):  # a worker that died meanwhile is noticed when it should answer
        worker.give(cell)
    board.started(cell, f"core {worker.core}")


def _work(pipe: Connection, core: int | None, results: Path, folder: Path) -> None:
    """The life of a worker."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the parent, which ends us
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
    except InputError as error:  # would fail again
        return "error", str(error)
    except Exception:
        return "crash", traceback.format_exc()


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)
