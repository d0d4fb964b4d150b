"""`safemil bench` and `safemil tables`."""

from pathlib import Path
from typing import Annotated

import tyro

from safemil.cli.arguments import OutFile, OutFolder, ResultsPath
from safemil.terminal import say

Names = Annotated[tuple[str, ...], tyro.conf.arg(metavar="NAME [NAME ...]", help_behavior_hint="")]


def bench(
    grid: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="GRID")],
    *,
    out: OutFolder,
    engine: str = "local",
    workers: Annotated[int | None, tyro.conf.arg(metavar="N", help_behavior_hint="")] = None,
    studies: Names = (),
    tasks: Names = (),
    algorithms: Names = (),
) -> int:
    """Run a grid of tasks, algorithms, settings and seeds; finished cells are kept.

    safemil bench grids/paper.toml --out results/paper

    Args:
        grid: TOML file that describes the grid (docs/benchmark.md)
        out: folder of results, one small JSON file per cell
        engine: "local" for this machine, "ray" for a Ray cluster
        workers: number of cells to run at the same time (default: number of cores)
        studies: only the cells of these studies (default: all)
        tasks: only the cells of these tasks (default: all)
        algorithms: only the cells of these algorithms (default: all)
    """
    from safemil.bench.grid import read_grid
    from safemil.bench.runner import run_grid
    from safemil.cli import signal_code
    from safemil.texts import read_text

    try:
        failures = run_grid(
            read_grid(grid),
            read_text(grid),
            out,
            engine=engine,
            workers=workers,
            studies=studies,
            tasks=tasks,
            algorithms=algorithms,
        )
    except KeyboardInterrupt as stopped:
        say(f"\nstopped; finished cells are in {out}. Run the same command to continue.", stderr=True)
        return signal_code(stopped)
    for name in failures:
        say(f"failed: {name} (see {out / 'failed' / name}.txt)", stderr=True)
    say(out)
    return 1 if failures else 0


def tables(results: ResultsPath, *, out: OutFile, overwrite: bool = False) -> None:
    """Make tables and figures of a benchmark's results, beside the paper's numbers.

    safemil tables results/paper --out results.md

    Args:
        results: folder that `safemil bench` wrote
        out: Markdown page to write; figures, CSV and LaTeX tables go into a folder of the same name
        overwrite: replace the page, its figures and its tables
    """
    from safemil.bench.markdown_page import write_page

    say(write_page(results, out, overwrite=overwrite))
