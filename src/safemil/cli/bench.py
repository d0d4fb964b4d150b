"""`safemil evaluate`, `safemil bench` and `safemil tables`."""

import sys
from pathlib import Path
from typing import Annotated

import tyro

Names = Annotated[tuple[str, ...], tyro.conf.arg(metavar="NAME [NAME ...]", help_behavior_hint="")]


def evaluate(
    run: tyro.conf.Positional[Path],
    *,
    task: Annotated[str, tyro.conf.arg(metavar="TASK")],
    episodes: int = 50,
    seed: int = 0,
    stochastic: bool = False,
) -> None:
    """Let a trained policy act in a task: return, cost and length of each episode.

    safemil evaluate runs/first --task SafetyPointGoal1-v0 --episodes 50

    Args:
        run: a run directory; evaluation.json is written into it
        task: name of the task; `safemil tasks list` lists them
        episodes: episodes of each seed of the run
        seed: which episodes: the same for every run and algorithm
        stochastic: sample actions, instead of the likeliest
    """
    from rich.console import Console
    from rich.table import Table

    from safemil import stats
    from safemil.api import Run
    from safemil.evaluate import FILE, save, sizes
    from safemil.evaluate import evaluate as roll

    sizes(task)  # a wrong name is told before anything is read
    trained = Run.load(run)
    found = roll(trained, task, episodes=episodes, seed=seed, stochastic=stochastic, progress=True)
    save(run, trained, task, found, episodes=episodes, seed=seed, stochastic=stochastic)
    table = Table("", "return", "cost", "CVaR 20% cost", "steps", box=None)
    names = [f"seed {each}" for each in trained.seeds]
    rows = [(name, slice(i, i + 1)) for i, name in enumerate(names)]
    for name, part in [*rows, ("all", slice(None))] if len(names) > 1 else rows:
        costs = found.costs[part]
        values = stats.interval(found.returns[part]), stats.interval(costs), stats.cvar_interval(costs)
        table.add_row(name, *map(str, values), f"{found.lengths[part].mean():.0f}")
    console = Console()
    console.print(f"{trained.algorithm} on {task}, {episodes} episodes of each seed; mean ± 95% interval:")
    console.print(table)
    print(run / FILE)


def bench(
    grid: tyro.conf.Positional[Path],
    *,
    out: Annotated[Path, tyro.conf.arg(metavar="FOLDER")],
    engine: str = "local",
    workers: Annotated[int | None, tyro.conf.arg(metavar="N", help_behavior_hint="")] = None,
    studies: Names = (),
    tasks: Names = (),
    algorithms: Names = (),
) -> int:
    """Run a grid of tasks, algorithms, settings and seeds; what is done already is not done again.

    safemil bench benchmarks/paper.toml --out results/paper

    Args:
        grid: TOML file that describes the grid (docs/benchmark.md)
        out: folder of results, one small JSON file per cell
        engine: local, or ray for a Ray cluster
        workers: how many cells to run at once; as many as there are cores if left out
        studies: only the cells of these studies; of all if left out
        tasks: only the cells of these tasks
        algorithms: only the cells of these algorithms
    """
    from safemil.bench.grid import read_grid
    from safemil.bench.running import run_grid

    try:
        failures = run_grid(
            read_grid(grid),
            grid.read_text(),
            out,
            engine=engine,
            workers=workers,
            studies=studies,
            tasks=tasks,
            algorithms=algorithms,
        )
    except KeyboardInterrupt:
        print(f"\nstopped; finished cells are in {out}. The same command goes on.", file=sys.stderr)
        return 130
    for name in failures:
        print(f"failed: {name} (see {out / 'failed' / name}.txt)", file=sys.stderr)
    print(out)
    return 1 if failures else 0


def tables(
    results: tyro.conf.Positional[Path], *, out: Annotated[Path, tyro.conf.arg(metavar="FILE")]
) -> None:
    """Make tables and figures of a benchmark's results, beside the paper's numbers.

    safemil tables results/paper --out docs/results.md

    Args:
        results: folder that `safemil bench` wrote
        out: Markdown page to write; figures, CSV and LaTeX go into a folder beside it
    """
    from safemil.bench.page import write_page

    write_page(results, out)
    print(out)
