"""`safemil tasks`: the six safety tasks."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import tyro

from safemil.cli.arguments import OutFile, TaskName
from safemil.terminal import say

if TYPE_CHECKING:
    from safemil.tasks.verify import Replay


def list_tasks() -> None:
    """List all tasks: safety tasks, generated problems, those of other packages.

    safemil tasks list
    """
    from rich.table import Column, Table

    from safemil import catalog
    from safemil.evaluation import sizes
    from safemil.terminal import console

    table = Table(Column("task", no_wrap=True), "obs", "act", "steps", "what to do")
    for name in catalog.names():
        task = catalog.task(name)
        table.add_row(name, *map(str, (*sizes(name), task.limit)), task.summary)
    console().print(table)


def verify(
    files: Annotated[tuple[Path, ...], tyro.conf.Positional, tyro.conf.arg(metavar="FILE ...")],
) -> int:
    """Replay recordings of the original tasks and compare them with ours.

    safemil tasks verify recordings/SafetyPointGoal1-v0.npz

    Args:
        files: recordings (.npz) with the keys that docs/tasks.md lists
    """
    from safemil.errors import InputError
    from safemil.tasks.verify import replay

    if not files:
        raise InputError("need at least one recording; give the paths of .npz files.")
    replays = [replay(path) for path in files]
    _print_replays(replays)
    for path, one in zip(files, replays, strict=True):
        _print_failures(path, one)
    return 0 if all(one.passed for one in replays) else 1


def _print_replays(replays: list["Replay"]) -> None:
    import numpy as np
    from rich.table import Table
    from rich.text import Text

    from safemil.terminal import console

    table = Table(
        caption="≠ counts mismatches; 'in step' are rows reached within tolerance from the seeds alone"
    )
    for column in ("task", "rows", "obs max", "obs p99", "reward max", "reward p99", "cost ≠", "term ≠"):
        table.add_column(column, justify="right" if column != "task" else "left", no_wrap=column == "task")
    for column in ("trunc ≠", "goal ≠", "reset ≠", "in step", ""):
        table.add_column(column, justify="right")
    for one in replays:
        errors = [f(error) for error in (one.observation_error, one.reward_error) for f in (np.max, _p99)]
        flags = (one.cost_wrong, one.terminated_wrong, one.truncated_wrong, one.goal_wrong)
        counts = [str(flag.sum()) for flag in flags] + [
            f"{len(one.reset_errors)}/{one.resets}",
            str(one.free_rows),
        ]
        verdict = Text("ok", style="green") if one.passed else Text("FAIL", style="red")
        table.add_row(one.task, str(len(one.reward_error)), *(f"{e:.0e}" for e in errors), *counts, verdict)
    terminal = console()
    terminal.width = max(terminal.width, TABLE_WIDTH)  # figures are better wrapped than cropped
    terminal.print(table)


def _p99(errors: "object") -> float:
    import numpy as np

    return float(np.quantile(np.asarray(errors), 0.99))


TABLE_WIDTH = 145  # characters
FAILURES_SHOWN = 5  # of each recording


def _print_failures(path: Path, one: "Replay") -> None:
    rows = one.wrong_rows()
    lines = [
        f"row {row}: observation off by {one.observation_error[row]:.1e}, "
        f"reward by {one.reward_error[row]:.1e}"
        for row in rows
    ]
    lines += one.reset_errors
    if one.free_wrong:
        lines.append(f"{one.free_wrong} rows replayed from the seeds have another cost, end or goal")
    for line in lines[:FAILURES_SHOWN]:
        say(f"{path}: {line}")
    if len(lines) > FAILURES_SHOWN:
        say(f"{path}: {len(lines) - FAILURES_SHOWN} more")


def render(task: TaskName, out: OutFile, *, steps: int = 200, seed: int = 0, size: int = 480) -> None:
    """Draw a task under smooth random actions, as a video or a picture.

    safemil tasks render SafetyPointGoal1-v0 --out goal.mp4

    Args:
        task: name of the task
        out: file to write: .mp4 for a video, .png for a picture of the last step
        steps: number of steps
        seed: seed of the reset and of the actions
        size: width and height in pixels
    """
    from safemil.tasks.film import film

    film(task, out, steps=steps, seed=seed, size=size)
    say(out)


COMMANDS = {"list": list_tasks, "verify": verify, "render": render}
