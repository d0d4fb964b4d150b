"""Time and work of one update, beside the matrix-multiplication rate of the same machine in the same run.

    python benchmarks/update.py                      # every algorithm, both presets
    python benchmarks/update.py --algorithms safemil --rounds 5

See README.md beside this file for how to read it.
"""

import dataclasses
import json
import resource
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import tyro
from rich.console import Console
from rich.table import Table

from safemil import loop
from safemil.algorithms import ALGORITHMS, find
from safemil.data import Annotations, Trajectories
from safemil.data.sampling import Dataset, Scaler

OBSERVATIONS, ACTIONS, STEPS = 60, 2, 1000  # SafetyPointGoal1-v0: 62 inputs
NONPREFERRED, UNLABELED = 50, 200


@dataclasses.dataclass(frozen=True)
class Timing:
    algorithm: str
    preset: str
    phase: str
    milliseconds: float  # of one update, the median over rounds
    gigaflop: float  # of one update, as counted by hand from the shapes of its matrix products
    limit_milliseconds: float  # the same matrix products alone, in the same round
    training_seconds: float | None  # of a whole training at these rates, without compilation

    @property
    def share(self) -> float:
        """How much of the matrix-multiplication limit is reached."""
        return self.limit_milliseconds / self.milliseconds


def main(
    algorithms: tuple[str, ...] = tuple(ALGORITHMS),
    presets: tuple[str, ...] = ("paper", "fast"),
    rounds: int = 5,
    out: Path | None = None,
) -> None:
    """Measure updates of algorithms.

    Args:
        algorithms: which to measure
        presets: which of their presets
        rounds: how often each is measured; the median counts
        out: JSON file for the figures
    """
    data = random_dataset()
    timings = [
        timing
        for algorithm in algorithms
        for preset in presets
        for timing in measure(algorithm, preset, data, rounds)
    ]
    show(timings)
    if out:
        out.write_text(json.dumps([dataclasses.asdict(timing) for timing in timings], indent=2) + "\n")


def random_dataset() -> Dataset:
    """50 + 200 episodes of 1000 steps: what an update costs does not depend on what is in them."""
    rng = np.random.default_rng(0)

    def pile(episodes: int) -> Trajectories:
        steps = episodes * STEPS
        observations = rng.standard_normal((steps, OBSERVATIONS), np.float32)
        return Trajectories(observations, rng.uniform(-1, 1, (steps, ACTIONS)), np.full(episodes, STEPS))

    unlabeled, nonpreferred = pile(UNLABELED), pile(NONPREFERRED)
    costs = (rng.random(unlabeled.steps) < 0.1).astype(np.float32)
    annotations = Annotations(rng.random(unlabeled.steps), costs)
    return Dataset.of(Scaler.of(unlabeled), unlabeled, nonpreferred, annotations)


def measure(name: str, preset: str, data: Dataset, rounds: int) -> list[Timing]:
    """One row per phase: an algorithm whose cost stops learning has a cheaper update afterwards."""
    algorithm, config = find(name), find(name).PRESETS[preset]
    switch = getattr(config, "cost_updates", None)
    phases = {"whole": 0} if switch is None else {"cost learns": 0, "cost fixed": switch + 1}
    state = loop.init(algorithm, config, data, [0])
    _, keys = loop.seed_keys([0])
    nothing = loop.no_metrics(algorithm, config, state, data, keys)
    rows: list[Timing] = []
    for phase, first in phases.items():
        count = 4 if preset == "paper" and name == "safemil" else 40
        products = matrix_products(algorithm, config, state, data, first)

        def run(first: int = first, count: int = count) -> None:
            done = loop.advance(algorithm, config, state, data, keys, first, count, nothing)
            jax.block_until_ready(done)  # type: ignore[no-untyped-call]

        measured, limits = [], []
        limit = multiply(products)
        run()
        for _ in range(rounds):
            measured.append(seconds(run) / count)
            limits.append(seconds(limit))
        gigaflop = sum(2e-9 * rows * inner * columns for rows, inner, columns in products)
        rows.append(
            Timing(
                name,
                preset,
                phase,
                1e3 * float(np.median(measured)),
                gigaflop,
                1e3 * float(np.median(limits)),
                None,
            )
        )
    return [dataclasses.replace(row, training_seconds=training_seconds(config, rows)) for row in rows]


def training_seconds(config: Any, rows: list[Timing]) -> float:
    if len(rows) == 1:
        return config.updates * rows[0].milliseconds / 1e3
    with_cost = min(config.cost_updates, config.updates)
    return (with_cost * rows[0].milliseconds + (config.updates - with_cost) * rows[1].milliseconds) / 1e3


def matrix_products(
    algorithm: Any, config: Any, state: Any, data: Dataset, step: int
) -> list[tuple[int, int, int]]:
    """(rows, inner, columns) of every matrix product in one update, read off its traced program."""
    one = jax.tree.map(lambda leaf: leaf[0], state)
    key = jax.random.key(0)
    traced = jax.make_jaxpr(lambda state: algorithm.update(config, state, data, np.int32(step), key))(one)
    return list(_products(traced.jaxpr, taken=step == 0))


def _products(jaxpr: Any, taken: bool) -> Any:
    for equation in jaxpr.eqns:
        if equation.primitive.name == "dot_general":
            left, right = (operand.aval.shape for operand in equation.invars)
            ((contract_left, _), _) = equation.params["dimension_numbers"]
            inner = int(np.prod([left[axis] for axis in contract_left]))
            yield int(np.prod(left)) // inner, inner, int(np.prod(right)) // inner
        elif equation.primitive.name == "cond":  # of two branches, the second is the one taken when true
            yield from _products(equation.params["branches"][int(taken)].jaxpr, taken)
        else:
            for value in equation.params.values():
                inner_jaxpr = getattr(value, "jaxpr", None)
                if inner_jaxpr is not None:
                    yield from _products(inner_jaxpr, taken)


def multiply(products: list[tuple[int, int, int]]) -> Callable[[], None]:
    """The same products with nothing around them, one after the other: what the machine can do at best."""
    shapes = sorted(set(products))
    operands = {s: (jnp.ones((s[0], s[1])), jnp.ones((s[1], s[2]))) for s in shapes}
    compiled = {s: jax.jit(jnp.matmul).lower(*operands[s]).compile() for s in shapes}

    def run() -> None:
        for shape in products:
            result = compiled[shape](*operands[shape])
        result.block_until_ready()

    run()
    return run


def seconds(work: Callable[[], None]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def show(timings: list[Timing]) -> None:
    table = Table(
        "algorithm", "preset", "phase", "ms/update", "GFLOP", "limit ms", "of the limit", "training"
    )
    for t in timings:
        training = f"{t.training_seconds:,.0f} s" if t.training_seconds is not None else ""
        table.add_row(
            t.algorithm, t.preset, t.phase, f"{t.milliseconds:.2f}", f"{t.gigaflop:.3f}",
            f"{t.limit_milliseconds:.2f}", f"{t.share:.0%}", training,
        )  # fmt: skip
    console = Console()
    console.print(table)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    console.print(
        f"peak memory of this process {peak:,.0f} MB; {jax.default_backend()}, {jax.device_count()} device"
    )


if __name__ == "__main__":
    tyro.cli(main)
