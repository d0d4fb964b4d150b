"""The live table: what runs, what is done, what failed, and the time left."""

import time
from pathlib import Path

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from safemil.bench.grid import Cell

FAILED = "failed"
SHOWN = 12  # running cells


class Board:
    """Told by an engine what happens; draws it where somebody watches, else prints a line per cell."""

    def __init__(self, total: int, done: int, workers: int, results: Path):
        self.total, self.done, self.earlier, self.workers = total, done, done, max(workers, 1)
        self.results = results
        self.running: dict[str, tuple[Cell, str, float]] = {}
        self.failures: dict[str, str] = {}
        self.began = time.monotonic()
        self.console = Console(stderr=True)
        self.live = Live(console=self.console, auto_refresh=False, transient=True)

    def __enter__(self) -> "Board":
        if self.console.is_terminal:
            self.live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self.console.is_terminal:
            self.live.stop()

    def started(self, cell: Cell, where: str) -> None:
        self.running[cell.name] = cell, where, time.monotonic()
        self.tick()

    def finished(self, cell: Cell, seconds: float) -> None:
        self.running.pop(cell.name, None)
        self.done += 1
        (self.results / FAILED / f"{cell.name}.txt").unlink(missing_ok=True)
        self._say(f"{self.done}/{self.total} {_title(cell)}: {seconds:.1f} s; {self.left()}")

    def retried(self, cell: Cell, why: str) -> None:
        self.running.pop(cell.name, None)
        self._say(f"{_title(cell)} crashed and is tried again: {_last_line(why)}")

    def failed(self, cell: Cell, why: str) -> None:
        self.running.pop(cell.name, None)
        self.failures[cell.name] = why
        file = self.results / FAILED / f"{cell.name}.txt"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(why + "\n")
        self._say(f"{_title(cell)} failed: {_last_line(why)}")

    def left(self) -> str:
        """The time left, at the pace so far."""
        new = self.done - self.earlier
        if not new:
            return "time left unknown"
        seconds = (time.monotonic() - self.began) / new * (self.total - self.done - len(self.failures))
        return f"{seconds / 60:.0f} min left" if seconds >= 90 else f"{seconds:.0f} s left"

    def tick(self) -> None:
        if self.console.is_terminal:
            self.live.update(self.picture(), refresh=True)

    def picture(self) -> Group:
        table = Table("running", "algorithm", "seed", "where", "seconds", box=None)
        for cell, where, since in list(self.running.values())[:SHOWN]:
            passed = f"{time.monotonic() - since:.0f}"
            table.add_row(cell.task, cell.algorithm, str(cell.seed), where, passed)
        failed = f", {len(self.failures)} failed" if self.failures else ""
        return Group(Text(f"{self.done} of {self.total} cells done{failed}; {self.left()}"), table)

    def _say(self, text: str) -> None:
        self.console.print(text, highlight=False, markup=False, soft_wrap=True)
        self.tick()


def _title(cell: Cell) -> str:
    return f"{cell.task} {cell.algorithm} seed {cell.seed}"


def _last_line(text: str) -> str:
    return text.strip().rsplit("\n", 1)[-1]
