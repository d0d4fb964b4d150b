"""`safemil demo`."""

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any

from safemil.cli.arguments import OutFolder

if TYPE_CHECKING:
    from rich.table import Table

TASK = "SafetyPointCircle2-v0"  # run along a circle as fast as possible, without crossing the walls


def demo(
    *,
    out: OutFolder = Path("demo"),
    seed: int = 0,
    overwrite: bool = False,
) -> int:
    """Make data of a task, train bc and safemil on it, and write a report on both.

    safemil demo

    Args:
        out: folder for data, runs and the report
        seed: seed of both trainings
        overwrite: replace the data, runs and report in the folder
    """
    from safemil.ownership import require_free
    from safemil.terminal import console

    require_free(out, overwrite=overwrite)
    *first, report = commands(out, seed)
    for command in first:
        if code := _run(command):
            return code
    console().print("\n", comparison(out))
    return _run(report)


def commands(out: Path, seed: int) -> list[list[str]]:
    """List the commands that the demo runs, as a user would type them."""
    data, piles, cloned, safe = (str(out / name) for name in ("data", "piles", "bc", "safemil"))
    return [
        ["data", "make", TASK, "--out", data, "--overwrite"],
        ["data", "split", data, "--out", piles, "--overwrite"],
        ["train", "bc", piles, "--seed", str(seed), "--out", cloned, "--overwrite"],
        ["train", "safemil", piles, "--seed", str(seed), "--out", safe, "--overwrite"],
        ["evaluate", cloned, "--task", TASK],
        ["evaluate", safe, "--task", TASK],
        ["report", safe, "--compare", cloned, "--out", str(out / "report.html"), "--overwrite"],
    ]


def _run(arguments: list[str]) -> int:
    from safemil.cli import main
    from safemil.terminal import console

    line = f"\n$ safemil {shlex.join(arguments)}"
    console().print(line, style="bold", soft_wrap=True)
    return main(arguments)


def comparison(out: Path) -> "Table":
    """Make a table of the two policies and the episodes that they learned from."""
    from rich.table import Table

    from safemil import stats
    from safemil.data import load_annotated
    from safemil.evaluation import Evaluation

    logs, truth = load_annotated(out / "piles" / "hindsight")
    returns, costs = truth.episode_sums(logs.lengths)
    rows: list[tuple[str, Any, Any]] = [("unlabeled logs", returns[None], costs[None])]
    for name, title in (("bc", "BC, from the logs"), ("safemil", "SafeMIL, also from 50 incidents")):
        found = Evaluation.load(out / name)
        assert found is not None
        rows.append((title, found.returns, found.costs))
    table = Table("", "return", "cost", "CVaR 20% cost", title=f"{TASK}, mean ± 95% interval")
    for title, returns, costs in rows:
        values = stats.interval(returns), stats.interval(costs), stats.cvar_interval(costs)
        table.add_row(title, *map(str, values))
    return table
