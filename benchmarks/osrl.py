"""Our COptiDICE beside OSRL's own (Liu et al. 2024, arXiv:2306.09303), on the same data in the same run.

    python -m venv osrl && osrl/bin/pip install torch==2.13.0 numpy gymnasium tqdm safetensors
    pip download --no-deps osrl-lib==0.1.0 && python -m zipfile -e osrl_lib-0.1.0-py3-none-any.whl osrl/source
    python benchmarks/osrl.py --python osrl/bin/python --source osrl/source

The two take turns of some hundred updates each, with the same batch, networks, rates and number of updates.
Ours weighs steps, as OSRL's does and our `fast` preset does not, so that both do the same work.
Both policies are then judged over the same 50 episodes. osrl-lib asks for torch 1.13 and for packages that
do not install beside a later one, so its two files are loaded alone (osrl_side.py).
"""

import dataclasses
import json
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import tyro
from rich.console import Console
from rich.table import Table
from safetensors.numpy import load_file, save_file

from safemil import evaluation, loop
from safemil.algorithms import coptidice, find
from safemil.api import Run
from safemil.bench.datasets import piles, prepare
from safemil.bench.grid import Data
from safemil.data.sampling import Dataset, Scaler, transitions_at
from safemil.data.trajectories import recorded_actions
from safemil.files import atomic_file
from safemil.progress import bar
from safemil.rollouts import Act
from safemil.schema import Schema

TURN = 200  # updates
STEPS: dict[str, Any] = {"decisions": "steps", "cost_limit": 1.0, "noise": 0.1}  # as tuned for steps
SIDE = Path(__file__).with_name("osrl_side.py")


@dataclasses.dataclass(frozen=True)
class Side:
    """Results of one implementation."""

    milliseconds: float  # of an update, the median over turns
    mean_return: float
    mean_cost: float


def main(
    python: Path,
    source: Path,
    tasks: tuple[str, ...] = ("SafetySwimmerVelocity-v1", "SafetyPointGoal1-v0"),
    data: Path = Path("data"),
    updates: int = 3_000,
    batch: int = coptidice.PRESETS["fast"].batch,
    seeds: int = 3,
    out: Path | None = None,
) -> None:
    """Compare the two.

    Args:
        python: interpreter with torch
        source: folder with OSRL's package `osrl`
        tasks: whose data and worlds
        data: folder of datasets; those missing are made
        updates: of each
        batch: steps of an update; OSRL's default is 512
        seeds: trainings of each
        out: JSON file for the figures
    """
    title = f"COptiDICE, {updates:,} updates of {batch}, {seeds} seeds"
    table = Table("task", "", "ms/update", "return", "", "cost", "", title=title)
    config = dataclasses.replace(coptidice.PRESETS["fast"], **STEPS, updates=updates, batch=batch)
    command, found = [str(python), str(SIDE), str(source)], {}
    for task in tasks:
        pairs = [compare(task, data, config, command, seed) for seed in range(seeds)]
        ours, theirs = zip(*pairs, strict=True)
        for name, sides in (("safemil", ours), ("OSRL", theirs)):
            table.add_row(task, name, f"{speed(sides):.2f}", *summary(sides))
        table.add_row("", "ratio of times", f"{speed(theirs) / speed(ours):.2f}")
        found[task] = {"safemil": ours, "osrl": theirs}
        if out:
            with atomic_file(out) as file:
                told = {"updates": updates, "batch": batch, "tasks": found}
                file.write_text(json.dumps(told, indent=1, default=dataclasses.asdict) + "\n")
    Console().print(table)


def speed(sides: Sequence[Side]) -> float:
    """Milliseconds of an update, the median over seeds."""
    return float(np.median([side.milliseconds for side in sides]))


def summary(sides: Sequence[Side]) -> list[str]:
    """Mean return and mean cost, each beside those of the seeds."""
    columns = [[side.mean_return for side in sides], [side.mean_cost for side in sides]]
    return [
        text
        for column in columns
        for text in (f"{np.mean(column):.1f}", ", ".join(f"{each:.1f}" for each in column))
    ]


def compare(
    task: str, folder: Path, config: coptidice.Config, command: list[str], seed: int
) -> tuple[Side, Side]:
    prepare(task, folder)
    drawn = piles(task, folder, vars(Data()))
    scaler = Scaler.of(drawn.unlabeled)
    data = Dataset.of(scaler, drawn.unlabeled, annotations=drawn.annotations)
    method = find("coptidice")
    state, (_, keys) = loop.init(method, config, data, [seed]), loop.seed_keys([seed])
    nothing = loop.no_metrics(method, config, state, data, keys)
    times: dict[str, list[float]] = {"ours": [], "theirs": []}
    with (
        other_side([*command, str(seed)], config, data) as other,
        bar(f"{task}, seed {seed}", config.updates) as shown,
    ):
        for first in range(0, config.updates, TURN):
            count = min(TURN, config.updates - first)
            began = time.perf_counter()
            state, metrics, _ = loop.advance(method, config, state, data, keys, first, count, nothing)
            jax.block_until_ready((state, metrics))  # type: ignore[no-untyped-call]
            times["ours"].append((time.perf_counter() - began) / count)
            times["theirs"].append(other.train(count) / count)
            shown.at(first + count)
        actor = other.actor()
    bounds = drawn.unlabeled.action_low, drawn.unlabeled.action_high
    schema = Schema.of(drawn.unlabeled, [], scaler.deviation)
    run = Run("coptidice", config, range(seed, seed + 1), state, scaler, schema, [])
    judged = [
        (found.returns, found.costs)
        for found in (
            evaluation.evaluate(run, task),
            evaluation.roll_out(task, acting(actor, scaler, bounds)),
        )
    ]
    milliseconds = [1e3 * float(np.median(times[name])) for name in ("ours", "theirs")]
    ours, theirs = (
        Side(each, float(returns.mean()), float(costs.mean()))
        for each, (returns, costs) in zip(milliseconds, judged, strict=True)
    )
    return ours, theirs


class Other:
    """The process that runs OSRL's code."""

    def __init__(self, process: "subprocess.Popen[str]", folder: Path) -> None:
        self.process, self.folder = process, folder

    def _ask(self, what: str) -> str:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(what + "\n")
        self.process.stdin.flush()
        answer = self.process.stdout.readline()
        if not answer:
            raise SystemExit("the process with OSRL's code has died; its error stands above.")
        return answer

    def train(self, updates: int) -> float:
        """Seconds that so many updates took."""
        return float(self._ask(f"train {updates}"))

    def actor(self) -> dict[str, np.ndarray]:
        self._ask("save")
        return load_file(self.folder / "actor.safetensors")


@contextmanager
def other_side(command: list[str], config: coptidice.Config, data: Dataset) -> Iterator[Other]:
    """Give OSRL's code the transitions and settings that ours has."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        save_file(transitions(config, data), folder / "steps.safetensors")
        (folder / "settings.json").write_text(json.dumps(dataclasses.asdict(config)))
        process = subprocess.Popen([*command, name], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        try:
            yield Other(process, folder)
        finally:
            process.kill()
            process.wait()


def transitions(config: coptidice.Config, data: Dataset) -> dict[str, np.ndarray]:
    """Standardised as ours are; a last step whose successor is unknown counts as an end."""
    pile = data.unlabeled
    assert data.rewards is not None
    assert data.costs is not None
    rows = jnp.arange(int(pile.lengths.sum()))
    batch = transitions_at(pile, rows)
    first = np.zeros(len(rows), np.float32)
    first[np.asarray(pile.starts)] = 1.0
    return {
        "observations": np.asarray(batch.observations),
        "next_observations": np.asarray(batch.next_observations),
        "actions": np.asarray(batch.actions),
        "rewards": config.reward_scale * np.asarray(data.rewards),
        "costs": np.asarray(data.costs),
        "done": 1.0 - np.asarray(batch.continues) * np.asarray(batch.known),
        "is_init": first,
        "mean_length": np.asarray(pile.lengths).mean(keepdims=True),
    }


def acting(actor: dict[str, np.ndarray], scaler: Scaler, bounds: tuple[Any, Any]) -> Act:
    """OSRL's policy without noise: ReLU layers, and the tanh of its mean."""
    layers = len(actor) // 2

    def act(observations: np.ndarray, step: int) -> np.ndarray:
        hidden = np.asarray(scaler(jnp.asarray(observations, jnp.float32)))
        for number in range(layers):
            hidden = hidden @ actor[f"weight{number}"].T + actor[f"bias{number}"]
            hidden = np.tanh(hidden) if number == layers - 1 else np.maximum(hidden, 0)
        return recorded_actions(hidden, *bounds)

    return act


if __name__ == "__main__":
    tyro.cli(main)
