"""A toy grid run once by the local engine, and a results folder as it would be after a larger one."""

import dataclasses
import json
import os
from pathlib import Path

import numpy as np
import pytest

from safemil.bench.cell import write_result
from safemil.bench.grid import read_grid
from safemil.bench.runner import run_grid

GRID = """
title = "Toy"
seeds = 2
reference = "bc"

[evaluation]
episodes = 4
curve_every = 10
curve_episodes = 2

[data]
nonpreferred = 2
unlabeled = 4

[families.generated]
tasks = ["toy:speed"]
[families.generated.settings.bc]
updates = 20
batch = 4
hidden_policy = [8]

[studies.performance]
algorithms = ["bc", "random"]
"""
LARGER = """
title = "Larger"
seeds = 3
reference = "bc"
[evaluation]
episodes = 20
[families.velocity]
tasks = ["SafetyAntVelocity-v1", "SafetySwimmerVelocity-v1"]
[families.navigation]
tasks = ["SafetyPointGoal1-v0"]
settings.safemil.length = 10
[studies.performance]
title = "Performance"
algorithms = ["random", "bc", "safemil"]
[studies.bag-size]
title = "Sensitivity to the bag size K"
tasks = ["SafetyPointGoal1-v0"]
vary.bag_size = [1, 8, 128]
"""
MEAN_ACTION = '''
"""Takes the mean action of the unlabeled episodes."""

from dataclasses import dataclass
from typing import NamedTuple

import jax.numpy as jnp
from jax import Array

TITLE = "Mean action"
NEEDS = frozenset()


@dataclass(frozen=True)
class Config:
    updates: int = 2


PRESETS = {"fast": Config()}


class State(NamedTuple):
    action: Array


def init(config, data, key):
    return State(jnp.zeros(data.unlabeled.action_size))


def update(config, state, data, number, key):
    return State(data.unlabeled.actions.mean(axis=0)), {"loss/policy": jnp.var(data.unlabeled.actions)}


def act(state, observations, key=None):
    return jnp.broadcast_to(state.action, (*observations.shape[:-1], len(state.action)))
'''


@pytest.fixture(scope="session")
def grid_file(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("grid") / "toy.toml"
    path.write_text(GRID)
    return path


@pytest.fixture(scope="session")
def results(grid_file, tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("results")
    assert run_grid(read_grid(grid_file), GRID, folder, workers=2) == {}
    return folder


@pytest.fixture(scope="session")
def larger(tmp_path_factory) -> Path:
    """Drawn numbers: random returns 0 and costs 50, cloning 100 and 30, ours 90 and 10."""
    folder = tmp_path_factory.mktemp("larger")
    (folder / "grid.toml").write_text(LARGER)
    rng = np.random.default_rng(0)
    means = {"random": (0, 50), "bc": (100, 30), "safemil": (90, 10)}
    for cell in read_grid(folder / "grid.toml").cells():
        gained, paid = means[cell.algorithm]
        curve = [{"update": at, "return": gained + at / 1e3, "cost": paid - at / 1e3} for at in (1e3, 2e3)]
        result = {
            "cell": dataclasses.asdict(cell),
            "data_sha256": {},
            "returns": rng.normal(gained, 5, 20).tolist(),
            "costs": rng.normal(paid, 5, 20).tolist(),
            "curve": curve,
            "seconds": {"train": 60.0},
        }
        write_result(folder, cell, json.loads(json.dumps(result)))
    return folder


@pytest.fixture(scope="session")
def with_mean_action(tmp_path_factory) -> dict[str, str]:
    """Variables of an interpreter in which a package with the algorithm mean-action is installed."""
    site = tmp_path_factory.mktemp("site")
    info = site / "mean_action-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: mean-action\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[safemil.algorithms]\nmean-action = mean_action\n")
    (site / "mean_action.py").write_text(MEAN_ACTION)
    paths = [str(site), *filter(None, [os.environ.get("PYTHONPATH")])]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
