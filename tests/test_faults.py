"""A disk that fails at its n-th write, sync or rename, for every n: the old or the new state is left."""

import builtins
import errno
import functools
import io
import json
import os
import shutil
import subprocess
import sys
import urllib.request
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

import safemil
from safemil.behaviour import making, plotting
from safemil.bench import figures, local
from safemil.bench.cell import run_cell, write_result
from safemil.cli import demo, main
from safemil.data import piles as data_piles
from safemil.files import atomic_file
from safemil.tasks import film

SMALL = ["--set=updates=4", "--set=batch=4", "--set=hidden_policy=[8]", "--log-every=2"]
GRID = """
reference = "bc"
seeds = 1
evaluation = {episodes = 1}
data = {nonpreferred = 2, unlabeled = 4}
[families.generated]
tasks = ["toy:speed"]
settings.bc = {updates = 2, batch = 4, hidden_policy = [8]}
[studies.performance]
algorithms = ["bc", "random"]
"""


class Disk:
    """Counts what is asked of the disk of the current folder, and fails at the n-th request.

    A full disk also fails at every later one but renames, which take no space.
    """

    def __init__(self, monkeypatch, fails_at, *, full=False):
        self.fails_at, self.asked, self.full = fails_at, 0, full
        opened, synced, replaced, here = io.open, os.fsync, os.replace, str(Path.cwd())

        def open_(file, mode="r", *arguments, **options):
            if set(mode) & set("wax+") and isinstance(file, str | Path):
                self._ask(os.path.abspath(file).startswith(here))
            return opened(file, mode, *arguments, **options)

        def fsync(handle):
            self._ask()
            synced(handle)

        def replace(source, target):
            self._ask(os.path.abspath(target).startswith(here), takes_space=False)
            replaced(source, target)

        for module, name, function in (
            (builtins, "open", open_), (io, "open", open_), (os, "fsync", fsync), (os, "replace", replace),
        ):  # fmt: skip
            monkeypatch.setattr(module, name, function)

    def _ask(self, is_ours=True, takes_space=True):
        self.asked += is_ours
        is_full = self.full and takes_space and self.asked > self.fails_at
        if is_ours and (self.asked == self.fails_at or is_full):
            raise OSError(errno.ENOSPC, "No space left on device")


def contents(folder):
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def outcomes(command, before, work, monkeypatch, full=False):
    """Run a command with a fault at each request in turn, until none is left; yield what each run leaves."""
    for fails_at in range(1, 500):
        shutil.rmtree(work, ignore_errors=True)
        shutil.copytree(before, work)
        with monkeypatch.context() as patch:
            disk = Disk(patch, fails_at, full=full)
            code = main(command)
        done = disk.asked < fails_at
        assert code == (0 if done else 1), (fails_at, code)
        yield done, contents(work)
        if done:
            assert fails_at > 2, "the disk was hardly asked"
            return
    raise AssertionError("the command never ended")


def assert_old_or_new(command, before, work, monkeypatch, full=(False, True)):
    """Whatever fails, the folder is as it was before, or as it is when nothing fails."""
    for is_full in full:
        left = [state for _, state in outcomes(command, before, work, monkeypatch, is_full)]
        old, new = contents(before), left[-1]
        assert old != new
        for number, state in enumerate(left, 1):
            assert state in (old, new), (number, is_full, sorted(state))


@pytest.fixture(scope="module")
def toy(tmp_path_factory):
    """Episodes of a generated problem, and a run on them."""
    folder = tmp_path_factory.mktemp("toy")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        assert main(["data", "make", "toy:speed", "--episodes", "4", "--out", "toy"]) == 0
        piles = ["--nonpreferred", "toy/incidents.parquet", "--unlabeled", "toy/logs.parquet"]
        small = ["--set=reward_updates=2", "--set=pairs=2", "--set=length=3", "--set=hidden_reward=[8]"]
        assert main(["train", "trex-wbc", *piles, *SMALL, *small, "--out", "run"]) == 0
    return folder


@pytest.fixture
def work(tmp_path, monkeypatch):
    """Folder that commands run in."""
    folder = tmp_path / "work"
    folder.mkdir()
    monkeypatch.chdir(tmp_path)
    return folder


@pytest.fixture
def before(tmp_path, toy):
    """What is there before a command: input, and output of an earlier run."""
    return shutil.copytree(toy, tmp_path / "before")


def test_score(before, work, monkeypatch):
    (before / "risk.csv").write_text("old")
    command = ["score", "work/run", "work/toy/logs.parquet", "--out", "work/risk.csv", "--overwrite"]
    assert_old_or_new(command, before, work, monkeypatch)


@pytest.mark.parametrize("out", ["converted", "converted.parquet", "converted.csv", "converted.hdf5"])
def test_data_convert(before, work, monkeypatch, nonpreferred, out):
    safemil.save(before / out, nonpreferred)
    command = ["data", "convert", "work/toy/logs.parquet", f"work/{out}", "--overwrite"]
    assert_old_or_new(command, before, work, monkeypatch)


SPLIT = ["data", "split", "work/told.parquet", "--nonpreferred", "1", "--unlabeled", "1"]


@pytest.mark.parametrize("is_there", ["nothing", "an empty folder", "an earlier split"])
def test_data_split(before, work, monkeypatch, is_there):
    episodes = safemil.Trajectories(np.zeros((8, 1)), np.zeros((8, 1)), np.ones(8, int))
    safemil.save(before / "told.parquet", episodes, safemil.Annotations(np.ones(8), np.arange(8)))
    if is_there == "an empty folder":
        (before / "out").mkdir()
    if is_there == "an earlier split":
        shutil.copytree(before, work, dirs_exist_ok=True)
        assert main([*SPLIT, "--seed", "1", "--out", "work/out", "--preferred-share", "0"]) == 0
        shutil.copytree(work / "out", before / "out")
    command = [*SPLIT, "--out", "work/out", "--preferred-share", "1", "--overwrite"]
    assert_old_or_new(command, before, work, monkeypatch)


def test_data_make(before, work, monkeypatch):
    monkeypatch.setattr(data_piles, "draw_piles", functools.cache(data_piles.draw_piles))
    command = ["data", "make", "toy:speed", "--episodes", "2", "--out", "work/toy", "--overwrite"]
    assert_old_or_new(command, before, work, monkeypatch)


def test_evaluate(before, work, monkeypatch):
    (before / "run" / "evaluation.json").write_text("{}")
    command = ["evaluate", "work/run", "--task", "toy:speed", "--episodes", "1"]
    assert_old_or_new(command, before, work, monkeypatch)


def test_report(before, work, monkeypatch):
    (before / "report.html").write_text("old")
    command = ["report", "work/run", "--out", "work/report.html", "--overwrite"]
    assert_old_or_new(command, before, work, monkeypatch)


def test_export(before, work, monkeypatch):
    (before / "policy.safetensors").write_text("old")
    command = ["export", "work/run", "--out", "work/policy.safetensors", "--overwrite"]
    assert_old_or_new(command, before, work, monkeypatch)


def test_guard(before, work, monkeypatch):
    (before / "guard.json").write_text("old")
    calm = ["--calm", "work/toy/logs.parquet", "--alpha", "0.5"]
    assert_old_or_new(
        ["guard", "work/run", *calm, "--out", "work/guard.json", "--overwrite"], before, work, monkeypatch
    )


@pytest.mark.parametrize("format", ["store", "dsrl"])
def test_data_make_of_a_task(before, work, monkeypatch, format, nonpreferred):
    truth = safemil.Annotations(np.ones(nonpreferred.steps), np.zeros(nonpreferred.steps))
    made = nonpreferred, truth, {"task": "x", "policies": [], "format": "safemil-store"}
    monkeypatch.setattr(making, "make", lambda *arguments, **options: made)
    monkeypatch.setattr(plotting, "scatter", lambda path, *_, **__: draw_nothing(path, []))
    out = "work/made" if format == "store" else "work/made.hdf5"
    command = ["data", "make", "SafetyPointGoal1-v0", "--format", format, "--out", out, "--overwrite"]
    assert_old_or_new(command, before, work, monkeypatch)


def answer(*_, **__):
    """What a server sends when it is asked for a file."""
    content: Any = io.BytesIO()
    with h5py.File(content, "w") as file:
        file["noise"] = np.arange(1000)
    content.seek(0)
    content.status, content.headers = 200, {"Content-Length": str(len(content.getvalue())), "ETag": '"1"'}
    return content


def test_data_fetch(before, work, monkeypatch):
    """A download that fails leaves a part, and never a file that is not whole; then it is continued."""
    monkeypatch.setattr(urllib.request, "urlopen", answer)
    command = ["data", "fetch", "SafetyPointGoal1-v0", "--out", "work/goal.hdf5"]
    for full in (False, True):
        *broken, (_, whole) = outcomes(command, before, work, monkeypatch, full)
        assert all(left.get("goal.hdf5") in (None, whole["goal.hdf5"]) for _, left in broken)
    shutil.rmtree(work)
    shutil.copytree(before, work)
    with monkeypatch.context() as patch:
        Disk(patch, 3, full=True)
        assert main(command) == 1
    assert main(command) == 0
    assert (work / "goal.hdf5").read_bytes() == whole["goal.hdf5"]


def test_tasks_render_of_a_picture(before, work, monkeypatch):
    monkeypatch.setattr(film, "_picture", lambda env: np.zeros((16, 16, 3), np.uint8))
    (before / "new.png").write_text("old")
    command = ["tasks", "render", "SafetyPointGoal1-v0", "--steps", "2", "--size", "16"]
    assert_old_or_new([*command, "--out", "work/new.png"], before, work, monkeypatch)


FILM = """
import resource, sys
import numpy as np
from safemil.cli import main
from safemil.tasks import film

def picture(env):
    if sys.argv[1] == "Ctrl-C" and env.steps > 5:
        raise KeyboardInterrupt
    return np.random.default_rng(env.steps).integers(0, 255, (256, 256, 3), np.uint8)

film._picture = picture
if sys.argv[1] == "full disk":
    resource.setrlimit(resource.RLIMIT_FSIZE, (2000, 2000))
command = ["tasks", "render", "SafetyPointGoal1-v0", "--steps", "10", "--out", "film.mp4"]
sys.exit(main([*command, "--size", "1000000" if sys.argv[1] == "size" else "256"]))
"""


@pytest.mark.parametrize(("fault", "code"), [("full disk", 1), ("Ctrl-C", 130), ("size", 2), ("", 0)])
def test_tasks_render_of_a_video(fault, code, tmp_path):
    (tmp_path / "film.mp4").write_text("old")
    done = subprocess.run(
        [sys.executable, "-c", FILM, fault], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == code, done
    assert [each.name for each in tmp_path.iterdir()] == ["film.mp4"]
    assert ((tmp_path / "film.mp4").read_bytes() == b"old") == (code != 0)
    assert done.stderr.strip().count("\n") == 0, done.stderr


def test_demo(before, work, monkeypatch):
    """Whatever fails, the files that are there are whole: the same command does it again."""
    run, logs = before / "run", str(before / "toy" / "logs.parquet")
    steps = [
        ["data", "convert", logs, "work/demo/piles/hindsight", "--overwrite"],
        [
            "score",
            str(run),
            str(before / "toy" / "logs.parquet"),
            "--out",
            "work/demo/risk.csv",
            "--overwrite",
        ],
        ["report", str(run), "--out", "work/demo/report.html", "--overwrite"],
    ]
    monkeypatch.setattr(demo, "commands", lambda out, seed: steps)
    monkeypatch.setattr(demo, "comparison", lambda out: "table")
    command = ["demo", "--out", "work/demo", "--overwrite"]
    *broken, (_, whole) = outcomes(command, before, work, monkeypatch)
    for _, left in broken:
        assert all(whole[name] == content for name, content in left.items())


def run_here(cells, results, folder, workers, status, claims):
    """Run cells in this process, whose disk fails; the engine's workers are processes of their own."""
    for cell in cells:
        if cell.name not in FINISHED:
            FINISHED[cell.name] = {**run_cell(cell, folder), "seconds": {"train": 0.0, "all": 0.0}}
        write_result(results, cell, FINISHED[cell.name])
        status.finished(cell, 0.0)


FINISHED: dict[str, dict[str, object]] = {}  # results by the name of their cell


def draw_nothing(path, entries):
    """Write a figure as figures are written; drawing one takes a second."""
    with atomic_file(path) as file:
        file.write_bytes(b"picture")


def test_bench_and_tables(before, work, monkeypatch):
    monkeypatch.setattr(local, "run", run_here)
    for name in ("bars", "worst"):
        monkeypatch.setattr(figures, name, draw_nothing)
    (before / "grid.toml").write_text(GRID)
    bench = ["bench", "work/grid.toml", "--out", "work/results"]
    *broken, (_, whole) = outcomes(bench, before, work, monkeypatch)
    for _, left in broken:  # each file is whole, so that the same command continues
        assert all(whole[name] == content for name, content in left.items())
    shutil.copytree(work / "results", before / "results")
    for number, file in enumerate(sorted((before / "results" / "cells").iterdir())):
        file.write_text(json.dumps({**json.loads(file.read_text()), "returns": [number], "costs": [1]}))
    assert main(["tables", str(before / "results"), "--out", str(before / "page")]) == 0
    (before / "page.md").write_text("old")
    (before / "page" / "performance-overall.csv").write_text("old")
    command = ["tables", "work/results", "--out", "work/page", "--overwrite"]
    assert_old_or_new(command, before, work, monkeypatch)


def weights(run):
    return {name: np.asarray(each) for name, each in run._checkpoint(0, run._state).arrays.items()}


def same_weights(one, other):
    return all(np.array_equal(one[name], other[name]) for name in other)


def test_train(before, work, monkeypatch):
    """The earlier run stays until the new one has a checkpoint; from then on the new one can be resumed."""
    command = ["train", "bc", "--unlabeled", "work/toy/logs.parquet", *SMALL, "--out", "work/bc"]
    earlier = [each.replace("work/", f"{before}/") for each in command]
    assert main([*earlier, "--seed", "1"]) == 0
    old = weights(safemil.Run.load(before / "bc"))
    left = []
    for done, _ in outcomes([*command, "--overwrite"], before, work, monkeypatch):
        found = weights(safemil.Run.load(work / "bc"))
        if not done and not same_weights(found, old):
            assert main([*command, "--resume"]) == 0
            found = weights(safemil.Run.load(work / "bc"))
        left.append(found)
        assert not [path for path in work.rglob("*") if "safemil-" in path.name or path.name == ".lock"]
    assert not same_weights(left[-1], old)
    assert same_weights(left[0], old)
    assert all(same_weights(each, old) or same_weights(each, left[-1]) for each in left)
    assert Path("work/bc/config.toml").exists()
