"""Small runs, trained once: one on a log whose names are hostile, one on episodes of SafetyPointGoal1."""

import warnings
from pathlib import Path

import pytest
from small_runs import HOSTILE, QUICK, SMALL, episodes

import safemil
from safemil.behaviour import making
from safemil.behaviour.policy import shipped
from safemil.cli import main
from safemil.errors import InputWarning


@pytest.fixture(scope="session")
def folder(tmp_path_factory) -> Path:
    """Where the log, its run and a run to compare with are."""
    folder = tmp_path_factory.mktemp("report")
    safemil.save(folder / "incidents", episodes([f"bad {i}" for i in range(4)], 1, True)[0])
    safemil.save(folder / "logs", *episodes([HOSTILE, *(f"trip {i}" for i in range(11))], 2, False))
    piles = ["--nonpreferred", str(folder / "incidents"), "--unlabeled", str(folder / "logs")]
    assert main(["train", "safemil", *piles, *SMALL, "--out", str(folder / "run")]) == 0
    small = ["--set=updates=20", "--set=hidden_policy=[8]", "--set=batch=4"]
    assert main(["train", "bc", *piles[2:], *small, "--seeds", "2", "--out", str(folder / "bc")]) == 0
    return folder


@pytest.fixture(scope="session")
def page(folder) -> Path:
    """The report of the run on the hostile log."""
    out = folder / "report.html"
    assert main(["report", str(folder / "run"), "--out", str(out)]) == 0
    return out


@pytest.fixture(scope="session")
def goal(tmp_path_factory) -> Path:
    """Episodes of SafetyPointGoal1 as a split would leave them, an evaluated run on them, and its report."""
    folder = tmp_path_factory.mktemp("goal")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(making, "shipped", lambda task: shipped(task)[:2])
        held, truth, manifest = making.make("SafetyPointGoal1-v0", episodes=5)
    safemil.save(folder / "nonpreferred", held.take([0]))
    for name, known in (("unlabeled", None), ("hindsight", truth.take(held.lengths, [4, 1, 2, 3]))):
        safemil.save(folder / name, held.take([4, 1, 2, 3]), known)
    # A store keeps its manifest, in which a split keeps that of its source.
    safemil.data.save(
        folder / "unlabeled", held.take([4, 1, 2, 3]), manifest={"origin": manifest}, overwrite=True
    )
    assert main(["train", "dwbc-nu", str(folder), *QUICK, "--out", str(folder / "run")]) == 0
    task = ["--task", "SafetyPointGoal1-v0", "--episodes", "2"]
    assert main(["evaluate", str(folder / "run"), *task]) == 0
    return folder


@pytest.fixture(scope="session")
def goal_page(goal) -> Path:
    """The report of the run on SafetyPointGoal1."""
    out = goal / "report.html"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", InputWarning)  # no clips where nothing can be drawn
        assert main(["report", str(goal / "run"), "--out", str(out)]) == 0
    return out
