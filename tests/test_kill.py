"""A run that is killed again and again ends with the same weights, bit for bit."""

import os
import random
import signal
import subprocess
import sys
import time

import pytest
from safetensors.numpy import load_file

import safemil

KILLS = 20
COMMAND = [sys.executable, "-m", "safemil", "train", "bc", "--unlabeled", "logs.parquet", "--log-every", "10"]
SETTINGS = [
    "--set",
    "updates=6000",
    "--set",
    "hidden_policy=[8]",
    "--set",
    "batch=4",
    "--checkpoint-seconds",
    "0",
]


@pytest.fixture
def environment(tmp_path):
    """A cache of compiled programs, so that a restart takes a second or two."""
    cache = {
        "JAX_COMPILATION_CACHE_DIR": str(tmp_path / "cache"),
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
    }
    return os.environ | cache


def newest(run):
    return max((run / "checkpoints").glob("*.json"), default=None)


def start_and_kill(command, folder, environment, delay):
    """Start the run, wait until it gets on with its updates, and kill it `delay` seconds later."""
    before = newest(folder / "killed")
    process = subprocess.Popen(command, cwd=folder, env=environment, stderr=subprocess.PIPE)
    while newest(folder / "killed") == before and process.poll() is None:
        time.sleep(0.01)
    time.sleep(delay)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    return process.returncode


def test_a_run_killed_at_twenty_random_moments_ends_with_the_same_weights(tmp_path, unlabeled, environment):
    safemil.save(tmp_path / "logs.parquet", unlabeled)
    command = [*COMMAND, *SETTINGS, "--out"]
    subprocess.run([*command, "whole"], cwd=tmp_path, env=environment, check=True, capture_output=True)
    rng = random.Random(0)
    killed = sum(
        start_and_kill([*command, "killed", "--resume"], tmp_path, environment, rng.uniform(0, 0.03))
        == -signal.SIGKILL
        for _ in range(KILLS)
    )
    assert killed == KILLS, "the run ended before it was killed often enough"
    subprocess.run(
        [*command, "killed", "--resume"], cwd=tmp_path, env=environment, check=True, capture_output=True
    )
    whole, resumed = (
        load_file(newest(tmp_path / run).with_suffix(".safetensors")) for run in ("whole", "killed")
    )
    assert whole.keys() == resumed.keys()
    assert all(whole[name].tobytes() == resumed[name].tobytes() for name in whole)
    lines = [
        [line["update"] for line in safemil.Run.load(tmp_path / run).metrics] for run in ("whole", "killed")
    ]
    assert lines[0] == lines[1]
