"""Progress with rate and remaining time, on standard error: a bar in a terminal, else a line now and then."""

import contextlib
import sys
import time
from collections.abc import Iterator
from datetime import timedelta

from rich.progress import (
    BarColumn,
    DownloadColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    Task,
    TextColumn,
    TimeRemainingColumn,
    TransferSpeedColumn,
)
from rich.text import Text

from safemil.terminal import console

FIRST_LINE, NEXT_LINE = 10.0, 30.0  # s, until a line is printed where there is no terminal
RATE_SECONDS = 120.0  # that the rate of a bar is measured over; a unit may take half a minute


class RateColumn(ProgressColumn):
    """Shows units of work per second."""

    def render(self, task: Task) -> Text:
        if not task.speed:
            return Text("  …/s", style="cyan")
        return Text(f"{task.speed:,.0f}/s" if task.speed >= 10 else f"{task.speed:.2g}/s", style="cyan")


class Bar:
    """Progress that is being shown: a bar in a terminal, else a line now and then."""

    def __init__(self, progress: Progress, total: int, description: str, start: int, *, lines: bool):
        self._progress = progress
        self._task = progress.add_task(description, total=total, completed=start, note="")
        self._description, self._total, self._lines = description, total, lines
        self._since: tuple[float, int] | None = None  # time and units at the last line
        self._due = time.monotonic() + FIRST_LINE

    def at(self, completed: int, note: str = "") -> None:
        """Show how many units are done, with a note beside the bar."""
        self._progress.update(self._task, completed=completed, note=note)
        if self._lines:
            self._print(completed, note)

    def _print(self, completed: int, note: str) -> None:
        now = time.monotonic()
        if self._since is None:
            self._since = now, completed
        before, done = self._since
        if now < self._due or completed <= done:
            return
        rate = (completed - done) / (now - before)
        left = timedelta(seconds=round((self._total - completed) / rate))
        line = f"{self._description}: {completed:,} of {self._total:,}, {rate:.3g}/s, {left} left"
        print(f"{line}; {note}" if note else line, file=sys.stderr, flush=True)
        self._since, self._due = (now, completed), now + NEXT_LINE


@contextlib.contextmanager
def bar(
    description: str, total: int, *, start: int = 0, show: bool = True, in_bytes: bool = False
) -> Iterator[Bar]:
    """Show progress over `total` units of work, of which `start` are done already."""
    terminal = console(stderr=True)
    counts = (DownloadColumn(), TransferSpeedColumn()) if in_bytes else (MofNCompleteColumn(), RateColumn())
    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        *counts,
        TimeRemainingColumn(compact=True),
        TextColumn("{task.fields[note]}", style="dim", markup=False),
    )
    drawn = show and terminal.is_terminal
    with Progress(
        *columns, console=terminal, disable=not drawn, speed_estimate_period=RATE_SECONDS
    ) as progress:
        yield Bar(progress, total, description, start, lines=show and not drawn)
