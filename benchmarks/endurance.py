"""Train every method on every task for far longer than it needs: does everything stay finite?

    python benchmarks/endurance.py --out endurance.json

A network that has once become NaN or infinite stays so, whatever its metrics' means say: the state at the
end is what is looked at. Batches are a sixteenth of the `fast` presets', which takes less time and makes
gradients noisier. Trainings that are in the output file are not repeated.
"""

import json
from pathlib import Path

import jax
import numpy as np
import tyro

from safemil import loop
from safemil.algorithms import ALGORITHMS, find
from safemil.bench.datasets import piles, prepare
from safemil.bench.grid import Data
from safemil.data.sampling import Dataset, Scaler
from safemil.files import atomic_file
from safemil.progress import bar
from safemil.settings import resolve
from safemil.tasks import TASKS

CHUNK = 500
BATCHES = ("batch", "policy_batch", "cost_batch", "discriminator_batch", "pool", "pairs", "initial")


def main(
    out: Path,
    algorithms: tuple[str, ...] = tuple(ALGORITHMS),
    tasks: tuple[str, ...] = tuple(TASKS),
    data: Path = Path("data"),
    updates: int = 50_000,
) -> None:
    """Write for each task and method whether its state is finite at the end.

    Args:
        out: JSON file
        algorithms: which methods
        tasks: whose data
        data: folder of datasets; those missing are made
        updates: of each
    """
    found = json.loads(out.read_text()) if out.exists() else {}
    for task in tasks:
        for algorithm in algorithms:
            name = f"{task} {algorithm} {updates}"
            if name not in found:
                found[name] = stays_finite(task, algorithm, updates, data)
                with atomic_file(out) as file:
                    file.write_text(json.dumps(found, indent=1) + "\n")
            print(name, "finite" if found[name] else "NOT FINITE", flush=True)


def stays_finite(task: str, algorithm: str, updates: int, folder: Path) -> bool:
    prepare(task, folder)
    drawn = piles(task, folder, vars(Data()))
    data = Dataset.of(
        Scaler.of(drawn.unlabeled),
        drawn.unlabeled,
        nonpreferred=drawn.nonpreferred,
        annotations=drawn.annotations,
    )
    method = find(algorithm)
    fast = method.PRESETS["fast"]
    sizes = [name for name in BATCHES if hasattr(fast, name)]
    changes = {name: max(getattr(fast, name) // 16, 1) for name in sizes} | {"updates": updates}
    if algorithm == "safemil":
        changes["cost_updates"] = updates // 2
    config = resolve(fast, changes)
    with bar(f"{algorithm}, {task}", updates) as shown:
        state = loop.fit(
            method,
            config,
            data,
            [0],
            loop.init(method, config, data, [0]),
            interval=CHUNK,
            on_interval=lambda step, state, metrics: shown.at(step),
        )
    return all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(state) if leaf.dtype.kind == "f")


if __name__ == "__main__":
    tyro.cli(main)
