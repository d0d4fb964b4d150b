"""The Ray engine: a worker killed in the middle of a cell loses nothing."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from finished import contents

pytest.importorskip("ray")


def parent_of(pid):
    """Process id of the parent; None if the process is gone."""
    try:
        fields = (Path("/proc") / str(pid) / "stat").read_text().rsplit(")", 1)[1].split()
    except OSError:
        return None
    return int(fields[1])


def descends(pid, ancestor):
    while pid is not None and pid > 1:
        if pid == ancestor:
            return True
        pid = parent_of(pid)
    return False


def workers_at_a_cell(driver):
    """Ray's workers of this driver that run a cell just now: their titles say so."""
    found = []
    for entry in Path("/proc").iterdir():
        try:
            title = (entry / "cmdline").read_bytes()
        except OSError:
            continue
        if title.startswith(b"ray::ray_cell") and descends(int(entry.name), driver):
            found.append(int(entry.name))
    return found


def test_a_killed_worker_loses_no_cell_and_results_equal_the_local_engines(
    tmp_path, grid_file, results, with_mean_action
):
    """An algorithm of an installed package is among the cells: Ray's workers find it too."""
    grid = tmp_path / "grid.toml"
    grid.write_text(grid_file.read_text().replace('["bc", "random"]', '["bc", "random", "mean-action"]'))
    command = [sys.executable, "-m", "safemil", "bench", str(grid), "--out", str(tmp_path / "results")]
    with open(tmp_path / "told.txt", "w") as told:
        driver = subprocess.Popen(
            [*command, "--engine", "ray", "--workers", "2"], stdout=told, stderr=told, env=with_mean_action
        )
        try:
            while not (working := workers_at_a_cell(driver.pid)) and driver.poll() is None:
                time.sleep(0.01)
            assert working, (tmp_path / "told.txt").read_text()
            os.kill(working[0], signal.SIGKILL)
            assert driver.wait(timeout=120) == 0, (tmp_path / "told.txt").read_text()
        finally:
            driver.kill()
            driver.wait()
    found = contents(tmp_path / "results")
    outside = {name for name, each in found.items() if each["cell"]["algorithm"] == "mean-action"}
    assert len(outside) == 2
    assert {name: each for name, each in found.items() if name not in outside} == contents(results)
