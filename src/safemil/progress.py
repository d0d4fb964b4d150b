"""Progress bars with rate and remaining time, on standard error and only in a terminal."""

import contextlib
from collections.abc import Iterator

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


class RateColumn(ProgressColumn):
    """Shows units of work per second."""

    def render(self, task: Task) -> Text:
        return Text(f"{task.speed:,.0f}/s" if task.speed else "  …/s", style="cyan")


class Bar:
    """A progress bar that is being shown."""

    def __init__(self, progress: Progress, total: int, description: str, start: int):
        self._progress = progress
        self._task = progress.add_task(description, total=total, completed=start, note="")

    def at(self, completed: int, note: str = "") -> None:
        """Show how many units are done, with a note beside the bar."""
        self._progress.update(self._task, completed=completed, note=note)


@contextlib.contextmanager
def bar(
    description: str, total: int, *, start: int = 0, show: bool = True, in_bytes: bool = False
) -> Iterator[Bar]:
    """Show a bar for `total` units of work, of which `start` are done already."""
    terminal = console(stderr=True)
    counts = (DownloadColumn(), TransferSpeedColumn()) if in_bytes else (MofNCompleteColumn(), RateColumn())
    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        *counts,
        TimeRemainingColumn(compact=True),
        TextColumn("{task.fields[note]}", style="dim", markup=False),
    )
    with Progress(*columns, console=terminal, disable=not (show and terminal.is_terminal)) as progress:
        yield Bar(progress, total, description, start)
