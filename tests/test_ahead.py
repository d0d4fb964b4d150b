"""The risk of what follows a step."""

import numpy as np
import pytest

import safemil
from safemil import ahead
from safemil.cli import main
from safemil.data import Trajectories
from safemil.data.sampling import Scaler
from safemil.errors import InputError
from safemil.runs import RunDirectory
from small import SMALL


def drives(episodes: int = 40, length: int = 30) -> tuple[Trajectories, np.ndarray]:
    """Walks along a line from a random place; the last ten metres before 30 cost."""
    rng = np.random.default_rng(0)
    place = rng.uniform(0, 20, (episodes, 1)) + np.arange(length)
    steps = Trajectories(place.reshape(-1, 1), np.zeros((episodes * length, 1)), [length] * episodes)
    return steps, (place.ravel() > 30).astype(np.float32)


def test_steps_before_a_costly_place_have_a_risk_ahead_though_they_cost_nothing():
    logs, costs = drives()
    scaler = Scaler.of(logs)
    learned = ahead.fit(logs, costs, scaler, horizon=10)
    places = np.array([[10.0], [25.0], [29.0], [35.0]], np.float32)
    far, before, close, inside = np.asarray(learned(scaler(places), np.zeros((4, 1), np.float32)))
    assert far < 0.1 < before < close < inside
    # From 25 the first costly step is the sixth to come: at most 0.9 ** 6 of the weight lies beyond.
    assert 0.3 < before < 0.9**6


@pytest.fixture(scope="module")
def folder(tmp_path_factory, unlabeled, nonpreferred):
    path = tmp_path_factory.mktemp("ahead")
    safemil.save(path / "logs.parquet", unlabeled)
    safemil.save(path / "bad.parquet", nonpreferred)
    piles = ["--nonpreferred", str(path / "bad.parquet"), "--unlabeled", str(path / "logs.parquet")]
    settings = [f"--set={name}={value}" for name, value in SMALL.items()]
    assert main(["train", "safemil", *piles, *settings, "--out", str(path / "run")]) == 0
    return path


def test_a_run_learns_it_once_and_keeps_it(folder, unlabeled):
    run = safemil.Run.load(folder / "run")
    with pytest.raises(InputError, match=r"call `run.learn_ahead\(logs\)`"):
        run.risk_ahead(unlabeled)
    with pytest.raises(InputError, match="more than one step, got 1"):
        run.learn_ahead(unlabeled, horizon=1)
    command = ["score", str(folder / "run"), str(folder / "logs.parquet"), "--ahead"]
    assert main([*command, "--out", str(folder / "risk.csv")]) == 0
    again = safemil.Run.load(folder / "run")
    assert again.learned_ahead
    assert again[0].learned_ahead
    run.learn_ahead(unlabeled)
    for ours, theirs, steps in zip(
        run.risk_ahead(unlabeled), again.risk_ahead(unlabeled), unlabeled.lengths, strict=True
    ):
        assert ours.shape == (steps,)
        np.testing.assert_allclose(ours, theirs, rtol=1e-6)
    columns = (folder / "risk.csv").read_text().splitlines()[0]
    assert '"risk_ahead"' in columns


def test_a_damaged_file_of_it_is_refused_and_one_of_an_earlier_update_passed_over(folder):
    path = folder / "run" / "ahead.safetensors"
    run = safemil.Run.load(folder / "run")
    arrays = RunDirectory(folder / "run").read_ahead()
    name = next(each for each in arrays if "update" in each)
    RunDirectory(folder / "run").save_ahead(arrays | {name: np.asarray(7, np.int32)})
    assert run.learned_ahead
    assert not safemil.Run.load(folder / "run").learned_ahead
    path.write_bytes(b"nonsense")
    with pytest.raises(InputError, match=r"ahead\.safetensors is damaged"):
        safemil.Run.load(folder / "run")
    path.unlink()
