"""`safemil demo`."""

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import tyro

if TYPE_CHECKING:
    from rich.table import Table

TASK = "SafetyPointCircle2-v0"  # round a circle as fast as possible, between walls that must not be crossed


def demo(
    *,
    out: Annotated[Path, tyro.conf.arg(metavar="FOLDER")] = Path("demo"),
    seed: int = 0,
    overwrite: bool = False,
) -> int:
    """Make data of a task, learn from it with and without incidents, and report what came out.

    safemil demo

    Args:
        out: folder for data, runs and the report
        seed: of both trainings
        overwrite: replace what is in the folder
    """
    from rich import print as show

    from safemil.files import require_free

    require_free(out, overwrite=overwrite)
    *steps, report = commands(out, seed)
    for step in steps:
        if code := _run(step):
            return code
    show("\n", comparison(out))
    return _run(report)


def commands(out: Path, seed: int) -> list[list[str]]:
    """What a user would type."""
    data, piles, cloned, safe = (str(out / name) for name in ("data", "piles", "bc", "safemil"))
    return [
        ["data", "make", TASK, "--out", data, "--overwrite"],
        ["data", "split", data, "--out", piles, "--overwrite"],
        ["train", "bc", piles, "--seed", str(seed), "--out", cloned, "--overwrite"],
        ["train", "safemil", piles, "--set", "length=10", "--seed", str(seed), "--out", safe, "--overwrite"],
        ["evaluate", cloned, "--task", TASK],
        ["evaluate", safe, "--task", TASK],
        ["report", safe, "--compare", cloned, "--out", str(out / "report.html"), "--overwrite"],
    ]


def _run(arguments: list[str]) -> int:
    from rich.console import Console

    from safemil.cli import main

    line = f"\n$ safemil {shlex.join(arguments)}"
    Console().print(line, style="bold", highlight=False, markup=False, soft_wrap=True)
    return main(arguments)


def comparison(out: Path) -> "Table":
    """The two policies beside the episodes they learned from."""
    from rich.table import Table

    from safemil import stats
    from safemil.data import load_annotated
    from safemil.evaluate import Evaluation

    logs, truth = load_annotated(out / "piles" / "hindsight")
    returns, costs = truth.episode_sums(logs.lengths)
    rows: list[tuple[str, Any, Any]] = [("the logs they learned from", returns[None], costs[None])]
    for name, title in (("bc", "BC, told nothing"), ("safemil", "SafeMIL, told of 50 incidents")):
        found = Evaluation.load(out / name)
        assert found is not None
        rows.append((title, found.returns, found.costs))
    table = Table("", "return", "cost", "CVaR 20% cost", title=f"{TASK}, mean ± 95% interval")
    for title, returns, costs in rows:
        values = stats.interval(returns), stats.interval(costs), stats.cvar_interval(costs)
        table.add_row(title, *map(str, values))
    return table
