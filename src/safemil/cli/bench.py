"""`safemil bench` and `safemil tables`."""

import sys
from pathlib import Path
from typing import Annotated

import tyro

Names = Annotated[tuple[str, ...], tyro.conf.arg(metavar="NAME [NAME ...]", help_behavior_hint="")]


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

    safemil bench grids/paper.toml --out results/paper

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
    from safemil.bench.runner import run_grid

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
