"""The first five minutes, as a stranger has them."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from safemil.evaluation import Evaluation

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def demo(tmp_path_factory, optimised):
    folder = tmp_path_factory.mktemp("demo") / "demo"
    command = [sys.executable, "-m", "safemil", "demo", "--out", folder]
    return folder, subprocess.run(command, check=True, capture_output=True, text=True).stdout


def test_the_demo_ends_with_the_path_of_its_report(demo):
    folder, printed = demo
    assert printed.splitlines()[-1] == str(folder / "report.html")
    assert (folder / "report.html").stat().st_size < 3e6


def test_safemil_is_safer_than_bc_in_the_demo_and_does_the_task(demo):
    safe, cloned = Evaluation.load(demo[0] / "safemil"), Evaluation.load(demo[0] / "bc")
    assert safe.costs.mean() <= cloned.costs.mean() / 3
    assert safe.returns.mean() >= 0.85 * cloned.returns.mean()


def test_the_demo_leaves_alone_what_is_there(demo):
    command = [sys.executable, "-m", "safemil", "demo", "--out", demo[0]]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 2
    assert "--overwrite" in done.stderr


def test_the_example_goes_from_csv_to_a_report(tmp_path):
    command = [sys.executable, ROOT / "examples" / "incidents.py", "--folder", tmp_path]
    command += ["--episodes", "40", "--reported", "6", "--updates", "300"]
    printed = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    assert re.search(r"riskiest unreported trips: \d+ \((0\.\d+|1\.00)\)", printed)
    assert (tmp_path / "report.html").exists()
