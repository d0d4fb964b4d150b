"""Steps per second of the tasks over whole episodes, resets included.

    python benchmarks/tasks.py --original PATH_TO_PYTHON_3.10_WITH_SAFETY_GYMNASIUM_1.0.0

Beside each task stands the floor, the bare physics of the same model without resets, and, if an interpreter
that has it is given, the original; every round times all of them in turn and the best round counts.
"""

import json
import subprocess
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import tyro
from rich.console import Console
from rich.table import Table

from safemil.files import atomic_file
from safemil.tasks import TASKS, make_vec
from safemil.tasks.engine import mujoco
from safemil.tasks.point import SUBSTEPS, model_xml
from safemil.worlds import cores

ORIGINAL = """
import sys, time, warnings
warnings.simplefilter("ignore")
import safety_gymnasium
name, episodes = sys.argv[1], int(sys.argv[2])
env = safety_gymnasium.make(name)
env.reset(seed=0)
steps, start = 0, time.perf_counter()
for episode in range(episodes):
    env.reset(seed=episode)
    ended = False
    while not ended:
        *_, terminated, truncated, _ = env.step(env.action_space.sample())
        ended = terminated or truncated
        steps += 1
print("STEPS_PER_SECOND", steps / (time.perf_counter() - start))
"""
SHORT_EPISODES = {"SafetyWalker2dVelocity-v1": 100, "SafetyAntVelocity-v1": 20}  # random robots fall soon


@dataclass(frozen=True)
class Settings:
    """What to time."""

    original: Path | None = None
    """A Python interpreter that can import safety_gymnasium 1.0.0."""
    tasks: tuple[str, ...] = tuple(TASKS)
    """Which tasks to time."""
    envs: int = 64
    """Environments in a batch."""
    rounds: int = 3
    """How often everything is timed."""
    out: Path | None = None
    """Where to write the figures, as JSON."""


def time_original(python: Path, name: str) -> float:
    command = [str(python), "-c", ORIGINAL, name, str(SHORT_EPISODES.get(name, 1))]
    output = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return float(output.rsplit("STEPS_PER_SECOND", 1)[1])


def time_floor(name: str, steps: int = 1000) -> float:
    """Physics alone, from one start."""
    model, substeps = physics(name)
    data, rng = mujoco.MjData(model), np.random.default_rng(0)
    controls = rng.uniform(-1, 1, (steps, model.nu))
    start = time.perf_counter()
    for control in controls:
        data.ctrl[:] = control
        mujoco.mj_step(model, data, substeps)
    return steps / (time.perf_counter() - start)


def time_second_core(name: str, steps: int = 1000) -> float:
    """How much more bare physics all cores do at once than one: what no batch can exceed."""
    model, substeps = physics(name)
    data = [mujoco.MjData(model) for _ in range(cores())]

    def run(one: Any) -> None:
        mujoco.mj_resetData(model, one)
        mujoco.mj_step(model, one, steps * substeps)

    start = time.perf_counter()
    run(data[0])
    alone = time.perf_counter() - start
    with ThreadPoolExecutor(len(data)) as pool:
        start = time.perf_counter()
        list(pool.map(run, data))
        together = time.perf_counter() - start
    return len(data) * alone / together


def physics(name: str) -> tuple[Any, int]:
    """A task's model, and physics steps per step."""
    worlds: Any = TASKS[name].make(1, 1)
    if hasattr(worlds, "robot"):
        return worlds.model, worlds.robot.substeps
    if hasattr(worlds, "simulators"):
        worlds.seed(0, 0)
        worlds.reset(0)
        return worlds.simulators.models[0], SUBSTEPS
    return mujoco.MjModel.from_xml_string(model_xml()), SUBSTEPS


def time_single(name: str) -> float:
    env: Any = gymnasium.make(f"safemil/{name}")
    env.reset(seed=0)
    actions = [env.action_space.sample() for _ in range(1000)]
    steps, start = 0, time.perf_counter()
    for episode in range(SHORT_EPISODES.get(name, 1)):
        env.reset(seed=episode)
        ended = False
        while not ended:
            *_, terminated, truncated, _ = env.step(actions[steps % len(actions)])
            ended = terminated or truncated
            steps += 1
    return steps / (time.perf_counter() - start)


def time_batch(name: str, n: int, threads: int | None) -> float:
    """Resets take a step of their own, so this counts steps and not calls."""
    envs = make_vec(name, n, threads=threads)
    actions = [envs.action_space.sample() for _ in range(100)]
    start, steps = time.perf_counter(), 0
    envs.reset(seed=0)
    for call in range(envs.limit):
        *_, info = envs.step(actions[call % len(actions)])
        steps += int(info["_cost"].sum())
    rate = steps / (time.perf_counter() - start)
    envs.close()
    return rate


def time_task(settings: Settings, name: str) -> dict[str, float]:
    timers: dict[str, Callable[[], float]] = {
        "floor": lambda: time_floor(name),
        "single": lambda: time_single(name),
        "batch, 1 core": lambda: time_batch(name, settings.envs, 1),
        "batch, all cores": lambda: time_batch(name, settings.envs, None),
        "all / 1 core, physics": lambda: time_second_core(name),
    }
    if settings.original is not None:
        original = settings.original
        timers["original"] = lambda: time_original(original, name)
    rounds = [{what: timer() for what, timer in timers.items()} for _ in range(settings.rounds)]
    return {what: max(one[what] for one in rounds) for what in timers}


def time_resets(name: str, count: int = 100) -> float:
    """Milliseconds for a reset."""
    worlds = TASKS[name].make(1, 1)
    start = time.perf_counter()
    for seed in range(count):
        worlds.seed(0, seed)
        worlds.reset(0)
        worlds.observe()
    return 1e3 * (time.perf_counter() - start) / count


def main(settings: Settings) -> None:
    console = Console()
    columns = ("floor", "single", "batch, 1 core", "batch, all cores", "original")
    ratios = ("single x", "batch, 1 core x", "all / 1 core", "all / 1 core, physics")
    table = Table("task", *columns, *ratios, "reset ms")
    figures = {}
    for name in settings.tasks:
        rates = time_task(settings, name)
        figures[name] = {**rates, "reset ms": min(time_resets(name) for _ in range(settings.rounds))}
        original = rates.get("original", np.nan)
        shares = [rates["single"] / original, rates["batch, 1 core"] / original]
        shares += [rates["batch, all cores"] / rates["batch, 1 core"], rates["all / 1 core, physics"]]
        speeds = [f"{rates[what]:.0f}" if what in rates else "-" for what in columns]
        table.add_row(name, *speeds, *(f"{each:.2f}" for each in shares), f"{figures[name]['reset ms']:.2f}")
        console.print(f"{name}: {json.dumps({key: round(value, 2) for key, value in figures[name].items()})}")
    console.print(table)
    if settings.out is not None:
        with atomic_file(settings.out) as path:
            path.write_text(json.dumps(figures, indent=1) + "\n")
        print(settings.out)


if __name__ == "__main__":
    main(tyro.cli(Settings))
