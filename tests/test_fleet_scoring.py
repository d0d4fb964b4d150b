"""Risk of many files: each is scored once, whoever does it and however often a worker dies."""

import contextlib
import io
import json
import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from safemil import fleet, train
from safemil.cli import main
from safemil.data import Trajectories, load, save
from safemil.data.interchange import Options
from safemil.export import encoded
from safemil.locks import Claim
from safemil.scoring import rank

FILES = ("a/0.parquet", "a/1.parquet", "b/0.parquet", "b/c/2.csv")


def episodes(seed, count=40, length=50):
    rng = np.random.default_rng(seed)
    steps = count * length
    return Trajectories(
        rng.normal(size=(steps, 3)),
        rng.uniform(-1, 1, (steps, 2)),
        [length] * count,
        ids=[f"{i:03}" for i in range(count)],
    )


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A run, and logs in folders."""
    folder = tmp_path_factory.mktemp("fleet")
    small = {"updates": 4, "cost_updates": 2, "members": 2, "hidden_cost": (8,), "hidden_policy": (8,)}
    train(
        "safemil",
        unlabeled=episodes(0),
        nonpreferred=episodes(1, 5),
        out=folder / "run",
        progress=False,
        **small,
    )
    for number, name in enumerate(FILES):
        save(folder / "logs" / name, episodes(10 + number))
    return folder


@pytest.fixture(scope="module")
def scorer(place):
    run = safemil_run(place)
    return fleet.encode([encoded(run[0])], run.schema, Options(lenient=True))


def safemil_run(place):
    from safemil.api import Run

    return Run.load(place / "run")


@pytest.fixture(scope="module")
def expected(place, scorer, tmp_path_factory):
    """Every file of risks, made by the command on this machine."""
    out = tmp_path_factory.mktemp("risk") / "risk"
    code = main(["score", str(place / "run"), str(place / "logs"), "--out", str(out), "--workers", "1"])
    assert code == 0
    return contents(out)


def contents(folder):
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def test_each_file_has_its_risks_under_the_same_folders(expected, place):
    assert [*expected] == ["a/0.parquet", "a/1.parquet", "b/0.parquet", "b/c/2.csv.parquet"]


def test_risks_are_those_of_the_run(expected, place, tmp_path):
    run, log = safemil_run(place), load(place / "logs" / "a" / "1.parquet")
    (tmp_path / "risk.parquet").write_bytes(expected["a/1.parquet"])
    table = pq.read_table(tmp_path / "risk.parquet")
    np.testing.assert_allclose(table["risk"], np.concatenate(run.cost(log)), atol=1e-5)
    np.testing.assert_allclose(table["novelty"], np.concatenate(run.novelty(log).deviations), rtol=1e-5)
    assert table["episode"].to_pylist() == np.repeat(log.ids, log.lengths).tolist()
    noted = json.loads(pq.read_metadata(tmp_path / "risk.parquet").metadata[fleet.SUMMARY])
    assert noted["riskiest"][0]["episode"] == log.ids[rank(run.cost(log))[0]]


def test_a_file_read_in_pieces_has_the_same_risks(expected, place, scorer, monkeypatch):
    from safemil.data import converting, parquet

    monkeypatch.setattr(converting, "ROWS", 120)
    monkeypatch.setattr(parquet, "ROWS_AT_ONCE", 70)
    path = place / "logs" / "a" / "0.parquet"
    ours, theirs = (
        pq.read_table(io.BytesIO(each))
        for each in (fleet.score_file(scorer, str(path), "a/0.parquet"), expected["a/0.parquet"])
    )
    assert ours["episode"].equals(theirs["episode"])
    np.testing.assert_allclose(ours["risk"], theirs["risk"], atol=1e-6)


def test_present_files_are_skipped_and_missing_ones_made(expected, place, tmp_path, capsys):
    out = tmp_path / "risk"
    for name, content in expected.items():
        (out / name).parent.mkdir(parents=True, exist_ok=True)
        (out / name).write_bytes(content)
    (out / "b" / "0.parquet").unlink()
    stamp = (out / "a" / "0.parquet").stat().st_mtime_ns
    assert main(["score", str(place / "run"), str(place / "logs"), "--out", str(out)]) == 0
    assert contents(out) == expected
    assert (out / "a" / "0.parquet").stat().st_mtime_ns == stamp
    assert "160 episodes of 8,000 steps in 4 files are scored, 3 of them before" in capsys.readouterr().out


def test_a_file_that_fails_is_named_and_the_others_are_scored(expected, place, tmp_path, capsys):
    logs, out = tmp_path / "logs", tmp_path / "risk"
    for name in FILES[:2]:
        (logs / name).parent.mkdir(parents=True, exist_ok=True)
        (logs / name).write_bytes((place / "logs" / name).read_bytes())
    (logs / "a" / "broken.parquet").write_bytes(b"PAR1 and no more")
    assert main(["score", str(place / "run"), str(logs), "--out", str(out), "--workers", "1"]) == 1
    assert [*contents(out)] == ["0.parquet", "1.parquet"]
    assert "broken.parquet: failed: " in capsys.readouterr().out


def test_risks_of_another_run_are_not_taken_for_those_of_this_one(expected, place, scorer, tmp_path):
    out = tmp_path / "risk"
    (out / "a").mkdir(parents=True)
    (out / "a" / "0.parquet").write_bytes(expected["a/0.parquet"])
    other = scorer.replace(b'"lenient": true', b'"lenient": false')
    found = fleet.score_files(other, place / "logs", out, workers=1, progress=False)
    assert "made with another run" in found.failures["a/0.parquet"]
    assert len(found.summaries) == 3


def test_a_killed_worker_loses_no_file_and_doubles_none(expected, place, scorer, tmp_path):
    out, found = tmp_path / "risk", []
    thread = threading.Thread(
        target=lambda: found.append(fleet.score_files(scorer, place / "logs", out, workers=2, progress=False))
    )
    thread.start()
    while not (workers := multiprocessing.active_children()) and thread.is_alive():
        time.sleep(0.01)
    os.kill(workers[0].pid, signal.SIGKILL)
    thread.join()
    assert not found[0].failures
    assert {name: each for name, each in contents(out).items() if "claim" not in name} == expected


def test_two_calls_on_one_folder_share_the_files(expected, place, scorer, tmp_path):
    out, found = tmp_path / "risk", []
    claim = Claim.on(out / "a" / "0.parquet")  # as of another process
    assert Claim.on(out / "a" / "0.parquet") is None
    thread = threading.Thread(
        target=lambda: found.append(fleet.score_files(scorer, place / "logs", out, workers=1, progress=False))
    )
    thread.start()
    while len(contents(out)) < 4 and thread.is_alive():  # three files, and the claim
        time.sleep(0.05)
    assert not (out / "a" / "0.parquet").exists()
    claim.release()
    thread.join()
    assert contents(out) == expected


def test_workers_import_no_jax(place, scorer, tmp_path):
    (tmp_path / "scorer").write_bytes(scorer)
    code = (
        "import sys; from pathlib import Path; from safemil import fleet; "
        f"fleet.score_file(Path({str(tmp_path / 'scorer')!r}).read_bytes(), "
        f"{str(place / 'logs' / 'a' / '0.parquet')!r}, 'x'); "
        "print([name for name in ('jax', 'equinox', 'optax') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def workers_of(driver):
    """Ray's workers of this driver that score a file just now: their titles say so."""

    def parent_of(pid):
        return int((Path("/proc") / str(pid) / "stat").read_text().rsplit(")", 1)[1].split()[1])

    def descends(pid):
        while pid > 1 and pid != driver:
            pid = parent_of(pid)
        return pid == driver

    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            if (
                entry.name.isdigit()
                and (entry / "cmdline").read_bytes().startswith(b"ray::outcome")
                and descends(int(entry.name))
            ):
                yield int(entry.name)


def test_ray_gives_the_same_bytes_though_a_worker_is_killed(expected, place, tmp_path):
    pytest.importorskip("ray")
    command = ["score", str(place / "run"), str(place / "logs"), "--out", str(tmp_path / "risk")]
    driver = subprocess.Popen(
        [sys.executable, "-m", "safemil", *command, "--engine", "ray", "--workers", "2"],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    try:
        while not (working := [*workers_of(driver.pid)]) and driver.poll() is None:
            time.sleep(0.01)
        if working:
            os.kill(working[0], signal.SIGKILL)
        told, _ = driver.communicate(timeout=300)
    finally:
        driver.kill()
    assert working, told
    assert driver.returncode == 0, told
    assert contents(tmp_path / "risk") == expected
