"""The run directory under bad luck."""

import numpy as np
import pytest

from safemil.errors import InputError
from safemil.runs import Checkpoint, RunDirectory


@pytest.fixture
def directory(tmp_path):
    directory = RunDirectory(tmp_path / "run")
    directory.create()
    return directory


def checkpoint(step):
    return Checkpoint(step, {"weights": np.full(100, step, np.float32)})


def test_a_checkpoint_comes_back_as_it_was(directory):
    directory.save_checkpoint(checkpoint(3))
    loaded = directory.latest_checkpoint()
    assert loaded.step == 3
    np.testing.assert_array_equal(loaded.arrays["weights"], checkpoint(3).arrays["weights"])


def test_the_last_two_checkpoints_are_kept(directory):
    for step in (1, 2, 3):
        directory.save_checkpoint(checkpoint(step))
    assert sorted(path.stem for path in directory.checkpoints.glob("*.safetensors")) == [
        "000000002",
        "000000003",
    ]


@pytest.mark.parametrize("damage", ["flip", "truncate", "remove", "garble"])
def test_a_damaged_checkpoint_is_passed_over_with_a_warning(directory, damage):
    for step in (1, 2):
        directory.save_checkpoint(checkpoint(step))
    arrays = directory.checkpoints / "000000002.safetensors"
    content = bytearray(arrays.read_bytes())
    if damage == "flip":
        content[-1] ^= 1
        arrays.write_bytes(content)
    elif damage == "truncate":
        arrays.write_bytes(content[:50])
    elif damage == "remove":
        arrays.unlink()
    else:
        arrays.with_suffix(".json").write_text("{")
    with pytest.warns(UserWarning, match="000000002 is damaged .* using the one before it"):
        assert directory.latest_checkpoint().step == 1


def test_arrays_without_their_json_are_no_checkpoint(directory):
    directory.save_checkpoint(checkpoint(1))
    directory.save_checkpoint(checkpoint(2))
    (directory.checkpoints / "000000002.json").unlink()
    assert directory.latest_checkpoint().step == 1


def test_a_run_without_a_whole_checkpoint_has_none(directory):
    assert directory.latest_checkpoint() is None


def test_metrics_after_the_checkpoint_are_forgotten(directory):
    for step in (1, 2, 3):
        directory.append_metrics({"step": step, "loss": [0.5]})
    with open(directory.metrics_file, "a") as file:
        file.write('{"step": 4, "lo')  # cut off by a kill
    directory.truncate_metrics(2)
    assert [line["step"] for line in directory.read_metrics()] == [1, 2]


def test_a_folder_that_holds_something_is_left_alone(tmp_path):
    (tmp_path / "thesis.tex").write_text("years of work")
    with pytest.raises(InputError, match="is not empty; choose another folder, or go on with --resume"):
        RunDirectory(tmp_path).create()
    with pytest.raises(InputError, match="is not a run, so --overwrite won't empty it"):
        RunDirectory(tmp_path).create(overwrite=True)
    assert (tmp_path / "thesis.tex").exists()


def test_overwrite_empties_a_run(directory):
    directory.write_config({"algorithm": "bc"}, {"updates": 1})
    directory.save_checkpoint(checkpoint(1))
    directory.create(overwrite=True)
    assert directory.latest_checkpoint() is None


def test_a_folder_that_is_no_run_says_so(tmp_path):
    with pytest.raises(InputError, match=r"is not a run: it holds no config\.toml"):
        RunDirectory(tmp_path).read_config()


def test_a_config_comes_back_as_it_was(directory):
    directory.write_config({"algorithm": "bc", "seeds": [0, 1]}, {"lr": 1e-5, "pool": None})
    expected = {"algorithm": "bc", "seeds": [0, 1], "settings": {"lr": 1e-5, "pool": "none"}}
    assert directory.read_config() == expected


def test_sources_are_kept_as_seen_from_the_run_so_that_both_can_move(tmp_path):
    (tmp_path / "project" / "run").mkdir(parents=True)
    paths = {"unlabeled": tmp_path / "project" / "logs.parquet"}
    RunDirectory(tmp_path / "project" / "run").note_sources(paths, {"episode": "trip"})
    (tmp_path / "project").rename(tmp_path / "moved")
    found, reading = RunDirectory(tmp_path / "moved" / "run").read_sources()
    assert found["unlabeled"].resolve() == tmp_path / "moved" / "logs.parquet"
    assert reading == {"episode": "trip"}


def test_a_run_trained_from_python_notes_no_sources(tmp_path):
    assert RunDirectory(tmp_path).read_sources() == ({}, {})
