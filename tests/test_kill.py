"""A run that is killed again and again ends with the same weights, bit for bit."""

import multiprocessing
import random
import signal
import time

from safetensors.numpy import load_file

import safemil
from safemil.cli import main

KILLS = 20


def command(folder, run):
    paths = ["--unlabeled", f"{folder}/logs.parquet", "--out", f"{folder}/{run}"]
    settings = ["updates=6000", "hidden_policy=[8]", "batch=4"]
    often = ["--log-every=10", "--checkpoint-seconds=0", *(f"--set={each}" for each in settings)]
    return ["train", "bc", *paths, *often, "--resume"]


def newest(run):
    return max((run / "checkpoints").glob("*.json"), default=None)


def kill_after(process, run, delay):
    """Wait until the run gets on with its updates, and kill it `delay` seconds later."""
    before = newest(run)
    while newest(run) == before and process.is_alive():
        time.sleep(0.01)
    time.sleep(delay)
    process.kill()


def test_a_run_killed_at_twenty_random_moments_ends_with_the_same_weights(tmp_path, unlabeled):
    safemil.save(tmp_path / "logs.parquet", unlabeled)
    # Forked from a process that has imported JAX and not used it yet: a start takes no second import.
    processes = multiprocessing.get_context("forkserver")
    processes.set_forkserver_preload(["safemil.api", "safemil.cli.verbs"])

    def start(run, kill=lambda process: None):
        process = processes.Process(target=main, args=(command(tmp_path, run),))
        process.start()
        kill(process)
        process.join()
        return process.exitcode

    assert start("whole") == 0
    rng = random.Random(0)
    ends = [
        start("killed", lambda process: kill_after(process, tmp_path / "killed", rng.uniform(0, 0.03)))
        for _ in range(KILLS)
    ]
    assert ends == [-signal.SIGKILL] * KILLS, "the run ended before it was killed often enough"
    assert start("killed") == 0
    whole, resumed = (
        load_file(newest(tmp_path / run).with_suffix(".safetensors")) for run in ("whole", "killed")
    )
    assert whole.keys() == resumed.keys()
    assert all(whole[name].tobytes() == resumed[name].tobytes() for name in whole)
    lines = [
        [line["update"] for line in safemil.Run.load(tmp_path / run).metrics] for run in ("whole", "killed")
    ]
    assert lines[0] == lines[1]
