"""An algorithm of an installed package in a benchmark: workers find it, tables and reports show it."""

import os
import subprocess
import sys

import pytest

ALGORITHM = '''
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
GRID = """
seeds = 1
reference = "bc"
evaluation.episodes = 10
data.nonpreferred = 2
data.unlabeled = 4
[families.generated]
tasks = ["toy:speed"]
settings.bc = {updates = 500, batch = 64, hidden_policy = [32]}
[studies.performance]
algorithms = ["random", "bc", "mean-action"]
"""


@pytest.fixture
def environment(tmp_path):
    """Variables of an interpreter in which the package is installed."""
    info = tmp_path / "site" / "mean_action-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: mean-action\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[safemil.algorithms]\nmean-action = mean_action\n")
    (tmp_path / "site" / "mean_action.py").write_text(ALGORITHM)
    paths = [str(tmp_path / "site"), *filter(None, [os.environ.get("PYTHONPATH")])]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}


def test_an_algorithm_of_an_installed_package_is_run_by_workers_and_reported(tmp_path, environment):
    def safemil(*words):
        command = [sys.executable, "-m", "safemil", *words]
        done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr

    (tmp_path / "grid.toml").write_text(GRID)
    safemil("bench", "grid.toml", "--out", "results", "--workers", "1")
    safemil("tables", "results", "--out", "page.md")
    safemil("report", "results", "--out", "page.html")
    assert "| Mean action | " in (tmp_path / "page.md").read_text()
    html = (tmp_path / "page.html").read_text()
    assert ">Mean action</th>" in html  # in a table
    assert ">Mean action</text>" in html  # in a figure
