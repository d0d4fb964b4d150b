"""Live table of a running benchmark: running, finished and failed cells, and the time left."""

import time
from pathlib import Path

from rich.console import Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from safemil.bench.grid import Cell
from safemil.files import atomic_file
from safemil.terminal import console

FAILED = "failed"
SHOWN = 12  # running cells in the table


class LiveStatus:
    """Progress of a benchmark, reported by an engine: a live table in a terminal, else a line per cell."""

    def __init__(self, total: int, done: int, results: Path):
        self.total, self.done, self.earlier = total, done, done
        self.results = results
        self.running: dict[str, tuple[Cell, str, float]] = {}
        self.failures: dict[str, str] = {}
        self.began = time.monotonic()
        self.console = console(stderr=True)
        self.live = Live(console=self.console, auto_refresh=False, transient=True)

    def __enter__(self) -> "LiveStatus":
        if self.console.is_terminal:
            self.live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self.console.is_terminal:
            self.live.stop()

    def started(self, cell: Cell, where: str) -> None:
        self.running[cell.name] = cell, where, time.monotonic()
        self.refresh()

    def finished(self, cell: Cell, seconds: float) -> None:
        self.running.pop(cell.name, None)
        self.done += 1
        (self.results / FAILED / f"{cell.name}.txt").unlink(missing_ok=True)
        self._print(f"{self.done}/{self.total} {_title(cell)}: {seconds:.1f} s; {self.time_left()}")

    def found(self, cell: Cell) -> None:
        """Count a cell that another process has finished."""
        self.done += 1
        self.earlier += 1
        self._print(f"{self.done}/{self.total} {_title(cell)}: done by another process")

    def retried(self, cell: Cell, reason: str) -> None:
        self.running.pop(cell.name, None)
        self._print(f"{_title(cell)} crashed and runs again: {_last_line(reason)}")

    def failed(self, cell: Cell, reason: str) -> None:
        self.running.pop(cell.name, None)
        self.failures[cell.name] = reason
        with atomic_file(self.results / FAILED / f"{cell.name}.txt") as file:
            file.write_text(reason + "\n", encoding="utf-8", errors="replace")
        self._print(f"{_title(cell)} failed: {_last_line(reason)}")

    def time_left(self) -> str:
        """Time left at the average speed so far."""
        new = self.done - self.earlier
        if not new:
            return "time left unknown"
        seconds = (time.monotonic() - self.began) / new * (self.total - self.done - len(self.failures))
        return f"{seconds / 60:.0f} min left" if seconds >= 90 else f"{seconds:.0f} s left"

    def refresh(self) -> None:
        """Redraw the table, if there is one."""
        if self.console.is_terminal:
            self.live.update(self._table(), refresh=True)

    def _table(self) -> Group:
        table = Table("running", "algorithm", "seed", "where", "seconds", box=None)
        for cell, where, since in list(self.running.values())[:SHOWN]:
            passed = f"{time.monotonic() - since:.0f}"
            table.add_row(cell.task, cell.algorithm, str(cell.seed), where, passed)
        failed = f", {len(self.failures)} failed" if self.failures else ""
        return Group(Text(f"{self.done} of {self.total} cells done{failed}; {self.time_left()}"), table)

    def _print(self, text: str) -> None:
        self.console.print(text, soft_wrap=True)
        self.refresh()


def _title(cell: Cell) -> str:
    return f"{cell.task} {cell.algorithm} seed {cell.seed}"


def _last_line(text: str) -> str:
    return text.strip().rsplit("\n", 1)[-1]
