"""Training on episodes that stay in the files of a store."""

import numpy as np
import pytest

from safemil import toy, train
from safemil.data import converting, save, store
from safemil.data.converting import convert
from safemil.data.interchange import Options
from safemil.runs import RunDirectory

SMALL = {"updates": 20, "cost_updates": 10, "members": 2, "hidden_cost": (8,), "hidden_policy": (8,)}


@pytest.fixture(scope="module")
def piles(tmp_path_factory):
    """Incidents, logs, and the logs as a store in shards."""
    rng = np.random.default_rng(0)
    bad, _ = toy.make_episodes("speed", np.ones(8, bool), rng)
    logs, _ = toy.make_episodes("speed", np.arange(20) % 2 == 0, rng)
    folder = tmp_path_factory.mktemp("fleet")
    save(folder / "logs.parquet", logs)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(converting, "ROWS", 100)
        found = convert(folder / "logs.parquet", folder / "store", Options(), shards=3, progress=False)
    return bad, found.load().trajectories, folder


def stored(folder):
    return store.stored(folder / "store")


@pytest.fixture(scope="module")
def in_memory(piles):
    bad, logs, _ = piles
    return train("safemil", nonpreferred=bad, unlabeled=logs, progress=False, **SMALL)


def test_training_from_a_store_follows_training_in_memory(piles, in_memory):
    bad, logs, folder = piles
    run = train("safemil", nonpreferred=bad, unlabeled=stored(folder), progress=False, **SMALL)
    for ours, theirs in zip(run.cost(logs), in_memory.cost(logs), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-4)
    assert run.evidence.kept == in_memory.evidence.kept
    assert run.evidence.auc.value == pytest.approx(in_memory.evidence.auc.value, abs=1e-6)


def test_a_run_from_a_store_is_resumed_to_the_same_bits(piles, tmp_path):
    bad, logs, folder = piles
    options = {"nonpreferred": bad, "progress": False, "log_every": 5, **SMALL}
    whole = train("safemil", unlabeled=stored(folder), out=tmp_path / "whole", **options)

    class Stop(Exception):
        pass

    def stop(run):
        raise Stop

    with pytest.raises(Stop):
        train(
            "safemil", unlabeled=stored(folder), out=tmp_path / "run", checkpoint_seconds=0, evaluate=stop,
            evaluate_every=15, **options,
        )  # fmt: skip
    assert 0 < RunDirectory(tmp_path / "run").latest_checkpoint().update < 20
    resumed = train("safemil", unlabeled=stored(folder), out=tmp_path / "run", resume=True, **options)
    for ours, theirs in zip(resumed.cost(logs), whole.cost(logs), strict=True):
        np.testing.assert_array_equal(ours, theirs)


def test_a_store_below_the_border_is_read_by_the_command(piles, tmp_path, capsys):
    from safemil.cli import main

    bad, _, folder = piles
    save(folder / "bad.parquet", bad)
    small = {"updates": 4, "cost_updates": 2, "members": 2}
    flags = [f"--set={name}={value}" for name, value in small.items()]
    flags += ["--nonpreferred", str(folder / "bad.parquet"), "--unlabeled", str(folder / "store")]
    for number, border in enumerate(("1", "0")):
        out = str(tmp_path / str(number))
        code = main(["train", "safemil", "--out", out, "--device-gb", border, *flags])
        assert code == 0, capsys.readouterr().err
    read, kept = (RunDirectory(tmp_path / name).read_manifest() for name in "01")
    assert read["unlabeled_sha256"] == kept["unlabeled_sha256"]
    assert read["columns"]["reading"] == kept["columns"]["reading"]
