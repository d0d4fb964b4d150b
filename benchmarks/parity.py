"""How far are exported policies, costs and novelties from those of JAX, on runs of the six tasks?

    python benchmarks/parity.py --data data --runs runs/parity

Every algorithm is trained for a few updates, with one seed and with three of which the last is exported. Runs
that are at RUNS/TASK/ALGORITHM already are compared as they are. The largest difference may be 1e-5.
"""

import json
from pathlib import Path
from typing import Any

import tyro
from rich.console import Console
from rich.table import Table

import safemil
from safemil.algorithms import ALGORITHMS, find
from safemil.bench.datasets import prepare
from safemil.bench.tables import short_name
from safemil.data import load_annotated, split
from safemil.export import MOST_DIFFERENCE, export
from safemil.files import atomic_file
from safemil.tasks import TASKS

HERE = Path(__file__).parent
SHORT = {"updates": 20}
PHASES = {"safemil": {"cost_updates": 10}}  # of the short trainings


def main(
    tasks: tuple[str, ...] = tuple(TASKS),
    algorithms: tuple[str, ...] = tuple(ALGORITHMS),
    seeds: tuple[int, ...] = (1, 3),
    data: Path = Path("data"),
    runs: Path = Path("runs/parity"),
    out: Path = HERE / "results" / "parity.json",
) -> None:
    """Export runs and compare them with JAX.

    Args:
        tasks: tasks to export runs of
        algorithms: algorithms to train
        seeds: numbers of seeds to train with; the last of them is exported
        data: folder with a store of annotated episodes per task; those missing are made
        runs: folder with the runs TASK/ALGORITHM that are there already
        out: JSON file for the results; what is in it is not repeated
    """
    found: dict[str, Any] = json.loads(out.read_text(encoding="utf-8")) if out.exists() else {}
    for task in tasks:
        prepare(task, data)
        logs, truth = load_annotated(data / task)
        piles = split(logs, truth)
        for name in algorithms:
            for count in seeds:
                key = f"{task} {name} {count}"
                if key in found:
                    continue
                run, trained = run_of(name, runs / task / name, piles, count)
                differences = {
                    form: export(run, runs / f"parity{form}", piles.unlabeled, overwrite=True).difference
                    for form in (".onnx", ".safetensors")
                }
                found[key] = {"updates": trained, **differences}
                with atomic_file(out) as file:
                    file.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    table = Table("task", "algorithm", "seeds", "updates", "ONNX", "small form")
    for key, row in found.items():
        task, name, number = key.split()
        shown = [f"{row[form]:.1e}" for form in (".onnx", ".safetensors")]
        table.add_row(short_name(task), name, number, f"{row['updates']:,}", *shown)
    Console().print(table)
    worst = max(max(row[".onnx"], row[".safetensors"]) for row in found.values())
    print(f"largest difference {worst:.2g} of {len(found)} runs; allowed {MOST_DIFFERENCE:g}")


def run_of(name: str, folder: Path, piles: Any, count: int) -> tuple[safemil.Run, int]:
    """Run of one seed: the first of a folder, or the last of a short training."""
    if count == 1 and (folder / "config.toml").exists():
        run = safemil.Run.load(folder)[0]
        return run, run.config.updates
    offered = {"nonpreferred": piles.nonpreferred, "annotations": piles.annotations}
    given: dict[str, Any] = {each: offered[each] for each in find(name).NEEDS}
    short: dict[str, Any] = SHORT | PHASES.get(name, {})
    run = safemil.train(name, unlabeled=piles.unlabeled, seeds=count, progress=False, **given, **short)
    return run[count - 1], run.config.updates


if __name__ == "__main__":
    tyro.cli(main)
