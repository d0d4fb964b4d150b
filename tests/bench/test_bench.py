"""Grids, cells and the local engine."""

import json
import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time
import tomllib
from pathlib import Path

import numpy as np
import pytest
from finished import contents

from safemil import toy
from safemil.bench import datasets, local
from safemil.bench.cell import CELLS, result_file, run_cell
from safemil.bench.claims import Claims
from safemil.bench.grid import Cell, make_grid, read_grid
from safemil.bench.live_status import LiveStatus
from safemil.bench.runner import run_grid
from safemil.data import save
from safemil.errors import InputError
from safemil.locks import Claim

PAPER = Path(__file__).parents[2] / "grids" / "paper.toml"
DRAWN = {
    "nonpreferred": 1,
    "unlabeled": 4,
    "preferred_share": 0.5,
    "return_rule": "median",
    "split_seed": 0,
}


def small(**parts):
    studies = {"one": {"algorithms": ["bc"], "vary": parts.pop("vary", {})}}
    return {"families": {"toys": {"tasks": ["toy:speed"]}}, "studies": studies, "seeds": 2} | parts


def test_a_cell_says_everything_needed_to_redo_it(results):
    for found in contents(results).values():
        assert len(found["returns"]) == len(found["costs"]) == len(found["lengths"]) == 4
        assert found["versions"].keys() >= {"safemil", "jax", "mujoco"}
        if found["cell"]["algorithm"] == "bc":
            assert [point["update"] for point in found["curve"]] == [10, 20]
            assert found["data_sha256"].keys() == {"nonpreferred", "unlabeled", "annotations"}


def test_a_cell_is_a_function_of_its_settings(results):
    random = next(found for name, found in contents(results).items() if "random" in name)
    again = run_cell(Cell.from_json(random["cell"]), Path("nowhere"))
    assert json.loads(json.dumps({**again, "seconds": None})) == random


def test_a_cell_of_a_generated_problem_needs_no_simulator(results, monkeypatch):
    monkeypatch.setattr("safemil.bench.cell.PACKAGES", ("numpy", "no-such-simulator"))
    random = next(found for name, found in contents(results).items() if "random" in name)
    again = run_cell(Cell.from_json(random["cell"]), Path("nowhere"))
    assert again["versions"].keys() == {"safemil", "python", "numpy"}
    assert again["returns"] == random["returns"]


def test_what_is_done_is_not_done_again(results, grid_file):
    before = {path: path.stat().st_mtime_ns for path in (results / CELLS).iterdir()}
    assert run_grid(read_grid(grid_file), grid_file.read_text(), results) == {}
    assert {path: path.stat().st_mtime_ns for path in (results / CELLS).iterdir()} == before


def test_any_setting_changes_the_name_of_a_cell():
    grids = [
        small(),
        small(seeds=1, evaluation={"episodes": 3}),
        small(seeds=1, data={"split_seed": 1}),
        small(seeds=1, preset="paper"),
        small(seeds=1, vary={"lr": [2e-3, 1e-4]}),
    ]
    names = [cell.name for grid in grids for cell in make_grid(grid).cells()]
    assert len(set(names)) == len(names) == 7


def test_families_have_settings_of_their_own_and_studies_lay_theirs_over():
    content = small()
    content["families"]["toys"]["settings"] = {"bc": {"batch": 7}}
    assert {cell.settings["batch"] for cell in make_grid(content).cells()} == {7}
    content["studies"]["one"]["vary"] = {"batch": [8, 9]}
    assert [cell.settings["batch"] for cell in make_grid(content).cells()] == [8, 8, 9, 9]


def test_what_is_set_for_all_algorithms_yields_to_what_is_set_for_one():
    content = small()
    content["studies"]["one"]["algorithms"] = ["random", "bc", "trex-wbc"]
    content["families"]["toys"]["settings"] = {"all": {"components": 1, "batch": 5}, "bc": {"batch": 7}}
    found = {cell.algorithm: cell.settings for cell in make_grid(content).cells()}
    assert [found[name]["components"] for name in ("bc", "trex-wbc")] == [1, 1]
    assert [found[name]["batch"] for name in ("bc", "trex-wbc")] == [7, 5]
    assert found["random"] == {}


@pytest.mark.parametrize(
    ("parts", "cells"),
    [
        ({}, 33),  # 27 and 9, of which the 3 with the default K are in both studies
        ({"studies": ["bag-size"]}, 9),
        ({"tasks": ["SafetyPointGoal1-v0"]}, 15),
        ({"tasks": ["SafetyPointGoal1-v0", "SafetyAntVelocity-v1"], "algorithms": ["bc"]}, 6),
        ({"studies": ["bag-size"], "algorithms": ["bc"]}, 0),
    ],
)
def test_a_part_of_a_grid_is_chosen_by_names(larger, parts, cells):
    assert len(read_grid(larger / "grid.toml").cells(**parts)) == cells


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        ({"tasks": ["toy:sped"]}, 'did you mean "toy:speed"'),
        ({"algorithms": ["safemil"]}, "bc, random"),
        ({"studies": ["weighting"]}, "performance"),
    ],
)
def test_a_part_that_a_grid_has_not_leaves_nothing_behind(tmp_path, grid_file, parts, message):
    with pytest.raises(InputError, match=message):
        run_grid(read_grid(grid_file), grid_file.read_text(), tmp_path / "results", **parts)
    assert not (tmp_path / "results").exists()


def test_names_that_no_cell_has_together_are_refused(tmp_path, larger):
    grid = larger / "grid.toml"
    with pytest.raises(InputError, match="leave some of them out"):
        run_grid(read_grid(grid), grid.read_text(), tmp_path / "new", studies=["bag-size"], algorithms=["bc"])
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"sedes": 3}, 'did you mean "seeds"'),
        ({"evaluation": {"episode": 3}}, 'did you mean "episodes"'),
        ({"vary": {"batsch": [1]}}, 'did you mean "batch"'),
        ({"preset": "quick"}, "fast, paper"),
        ({"reference": "bcc"}, 'did you mean "bc"'),
        ({"studies": {}}, "needs"),
        ({"studies": {"one": {"tasks": ["toy:disk"]}}}, "toy:speed"),
        ({"studies": {"one": {"algorithms": ["bcc"]}}}, 'did you mean "bc"'),
        ({"studies": {"one": {"settings": {"safemill": {}}}}}, 'did you mean "safemil"'),
    ],
)
def test_a_wrong_name_in_a_grid_is_answered_with_the_near_ones(change, message):
    with pytest.raises(InputError, match=message):
        make_grid(small(**change))


def test_the_papers_grid_has_its_tasks_and_one_setting_of_safemil():
    grid = read_grid(PAPER)
    assert sum(map(len, grid.families.values())) == 6
    assert [study.name for study in grid.studies] == ["performance"]
    ours = [cell.settings for _, cell in grid.studies[0].cells if cell.algorithm == "safemil"]
    shared = {"hidden_policy", "components"}  # set for all algorithms of a family
    alike = {tuple((name, str(value)) for name, value in each.items() if name not in shared) for each in ours}
    assert len(alike) == 1


def test_piles_are_drawn_from_any_annotated_file(tmp_path):
    reckless = np.arange(60) % 2 == 0
    episodes, truth = toy.make_episodes("disc", reckless, np.random.default_rng(0))
    save(tmp_path / "store", episodes, truth)
    piles = datasets.piles(str(tmp_path / "store"), tmp_path, DRAWN)
    assert (piles.nonpreferred.episodes, piles.unlabeled.episodes) == (1, 4)
    assert len(piles.annotations) == piles.unlabeled.steps


def test_data_that_are_nowhere_are_asked_for(tmp_path, monkeypatch):
    with pytest.raises(InputError, match="no data at"):
        datasets.piles(str(tmp_path / "gone"), tmp_path, DRAWN)
    monkeypatch.setattr(datasets, "MAKER", "safemil.no_such_module")
    with pytest.raises(InputError, match="put a store"):
        datasets.prepare("SafetyPointGoal1-v0", tmp_path)


def test_a_task_without_data_does_not_stop_the_others(tmp_path):
    content = """
        seeds = 1
        evaluation.episodes = 1
        data.sources = { "toy:speed" = "nowhere" }
        families.toys.tasks = ["toy:speed"]
        studies.one.algorithms = ["bc", "random"]
    """
    failures = run_grid(make_grid(tomllib.loads(content)), content, tmp_path, workers=1)
    assert ["no data at nowhere" in why for why in failures.values()] == [True]
    assert [found["cell"]["algorithm"] for found in contents(tmp_path).values()] == ["random"]


def test_a_cell_that_cannot_work_is_reported_and_the_others_go_on(tmp_path, grid_file):
    good = next(cell for cell in read_grid(grid_file).cells() if cell.algorithm == "random")
    bad = Cell.from_json({**good.to_json(), "task": "toy:none"})
    status = LiveStatus(2, 0, tmp_path)
    local.run([bad, good], tmp_path, tmp_path, 1, status, Claims(tmp_path))
    assert list(status.failures) == [bad.name]
    assert "no task" in (tmp_path / "failed" / f"{bad.name}.txt").read_text()
    assert list(contents(tmp_path)) == [f"{good.name}.json"]


def test_a_worker_that_dies_twice_at_a_cell_is_given_up(tmp_path, grid_file, monkeypatch):
    cell = next(cell for cell in read_grid(grid_file).cells() if cell.algorithm == "random")
    kills = []

    class Deadly(LiveStatus):
        def started(self, cell, where):
            super().started(cell, where)
            for child in multiprocessing.active_children():
                kills.append(child.pid)
                os.kill(child.pid, signal.SIGKILL)

    status = Deadly(1, 0, tmp_path)
    local.run([cell], tmp_path, tmp_path, 1, status, Claims(tmp_path))
    assert len(kills) == 2
    assert "died" in status.failures[cell.name]


def test_a_killed_grid_goes_on_where_it_was_and_its_workers_end(tmp_path, grid_file, results):
    command = [sys.executable, "-m", "safemil", "bench", str(grid_file), "--out", str(tmp_path)]
    process = subprocess.Popen([*command, "--workers", "1"], stderr=subprocess.PIPE)
    while not list(tmp_path.glob(f"{CELLS}/*.json")) and process.poll() is None:
        time.sleep(0.02)
    process.send_signal(signal.SIGKILL)
    process.communicate()  # ends when the workers, who share the pipe, have ended too
    assert 0 < len(contents(tmp_path)) < 4
    subprocess.run(command, check=True, capture_output=True)
    assert contents(tmp_path) == contents(results)


def test_a_cell_that_another_process_has_claimed_is_left_to_it(tmp_path, grid_file, results):
    """The other process ends without a result: then this one takes the cell over."""
    grid, out = read_grid(grid_file), tmp_path / "results"
    first = grid.cells()[0]
    claim = Claim.on(result_file(out, first))
    failures: list[dict[str, str]] = []
    thread = threading.Thread(
        target=lambda: failures.append(run_grid(grid, grid_file.read_text(), out, workers=1))
    )
    thread.start()
    others = [result_file(out, cell) for cell in grid.cells()[1:]]
    while not all(path.exists() for path in others) and thread.is_alive():
        time.sleep(0.05)
    assert thread.is_alive()
    assert not result_file(out, first).exists()
    claim.release()
    thread.join()
    assert failures == [{}]
    assert contents(out) == contents(results)
