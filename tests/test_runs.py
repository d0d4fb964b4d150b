"""The run directory under bad luck."""

import errno
import json
import os

import numpy as np
import pytest

from safemil.data.interchange import Columns, Options
from safemil.errors import InputError
from safemil.runs import Checkpoint, RunDirectory

CONFIG = {"algorithm": "bc", "seeds": [0, 1], "settings": {"lr": 1e-5, "pool": None}}
MANIFEST = {"safemil": "1.0"}


@pytest.fixture
def directory(tmp_path):
    directory = RunDirectory(tmp_path / "run")
    directory.create(CONFIG, MANIFEST)
    directory.unlock()
    return directory


def checkpoint(update):
    return Checkpoint(update, {"weights": np.full(100, update, np.float32)})


def test_a_checkpoint_comes_back_as_it_was(directory):
    directory.save_checkpoint(checkpoint(3))
    loaded = directory.latest_checkpoint()
    assert loaded.update == 3
    np.testing.assert_array_equal(loaded.arrays["weights"], checkpoint(3).arrays["weights"])


def test_the_last_two_checkpoints_are_kept(directory):
    for update in (1, 2, 3):
        directory.save_checkpoint(checkpoint(update))
    assert sorted(path.stem for path in directory.checkpoints.glob("*.safetensors")) == [
        "000000002",
        "000000003",
    ]


@pytest.mark.parametrize("damage", ["flip", "truncate", "remove", "garble"])
def test_a_damaged_checkpoint_is_passed_over_with_a_warning(directory, damage):
    for update in (1, 2):
        directory.save_checkpoint(checkpoint(update))
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
    with pytest.warns(UserWarning, match=r"000000002 is damaged .* using the one before it"):
        assert directory.latest_checkpoint().update == 1


def test_arrays_without_their_json_are_no_checkpoint(directory):
    directory.save_checkpoint(checkpoint(1))
    directory.save_checkpoint(checkpoint(2))
    (directory.checkpoints / "000000002.json").unlink()
    assert directory.latest_checkpoint().update == 1


def test_a_run_without_a_whole_checkpoint_has_none(directory):
    assert directory.latest_checkpoint() is None


def test_metrics_after_the_checkpoint_are_forgotten(directory):
    for update in (1, 2, 3):
        directory.append_metrics({"update": update, "seconds": 0.1, "loss": [0.5]})
    with open(directory.metrics_file, "a") as file:
        file.write('{"update": 4, "lo')  # cut off by a kill
    directory.truncate_metrics(2)
    assert [line["update"] for line in directory.read_metrics()] == [1, 2]


def test_a_folder_that_holds_something_else_is_left_alone(tmp_path):
    (tmp_path / "thesis.tex").write_text("years of work")
    (tmp_path / "config.toml").write_text('title = "not a run"')
    for options in ({}, {"overwrite": True}):
        with pytest.raises(InputError, match="is not a run that can be resumed or overwritten"):
            RunDirectory(tmp_path).create(CONFIG, MANIFEST, **options)
    assert {each.name for each in tmp_path.iterdir()} == {"thesis.tex", "config.toml"}


def test_a_run_is_overwritten_only_if_asked_for(directory):
    directory.save_checkpoint(checkpoint(1))
    with pytest.raises(InputError, match=r"holds a run already; .* `resume=True` .* `overwrite=True`"):
        directory.create(CONFIG, MANIFEST)
    assert directory.latest_checkpoint() is not None
    directory.create(CONFIG, MANIFEST, overwrite=True)
    assert directory.latest_checkpoint() is None


def test_an_overwritten_run_is_deleted_only_once_the_new_one_is_in_its_place(directory, monkeypatch):
    directory.save_checkpoint(checkpoint(1))
    replace = os.replace

    def fail(source, target):
        if str(target) == str(directory.path) and ".safemil-" in source.name:
            raise OSError(errno.EIO, "the disk is gone")
        replace(source, target)

    monkeypatch.setattr(os, "replace", fail)
    with pytest.raises(OSError, match="the disk is gone"):
        directory.create(CONFIG, MANIFEST, overwrite=True)
    assert directory.latest_checkpoint().update == 1


def test_a_run_is_made_in_an_empty_folder_that_stays_the_same_folder(tmp_path):
    before = tmp_path.stat().st_ino
    RunDirectory(tmp_path).create(CONFIG, MANIFEST)
    assert tmp_path.stat().st_ino == before
    assert RunDirectory(tmp_path).read_config()["algorithm"] == "bc"


def test_a_folder_that_is_no_run_says_so(tmp_path):
    with pytest.raises(InputError, match=r"is not a run: it has no config\.toml"):
        RunDirectory(tmp_path).read_config()


def test_a_config_comes_back_as_it_was(directory):
    assert directory.read_config() == CONFIG | {"settings": {"lr": 1e-5, "pool": "none"}}


@pytest.mark.parametrize(("line", "found"), [("", "names no format"), ("format = 1\n", "is of format 1")])
def test_a_run_of_another_format_is_refused_and_never_overwritten(directory, line, found):
    config = directory.path / "config.toml"
    config.write_text(config.read_text().replace("format = 3\n", line))
    with pytest.raises(InputError, match=f"{found}, but .* reads run folders of format 2 and 3; train again"):
        directory.read_config()
    with pytest.raises(InputError, match=found):
        directory.create(CONFIG, MANIFEST, overwrite=True)
    assert config.exists()


def test_sources_are_relative_to_the_run_so_that_both_can_move(tmp_path):
    run = RunDirectory(tmp_path / "project" / "run")
    run.create(CONFIG, MANIFEST)
    (tmp_path / "project" / "logs.parquet").touch()
    options = Options(Columns(episode="trip", observation="x,y"), (-2.0, [1.0, 3.0]))
    run.note_sources({"unlabeled": tmp_path / "project" / "logs.parquet"}, options)
    (tmp_path / "project").rename(tmp_path / "moved")
    found, read = RunDirectory(tmp_path / "moved" / "run").read_sources()
    assert [path.resolve() for path in found["unlabeled"]] == [tmp_path / "moved" / "logs.parquet"]
    assert read == options


def test_sources_that_are_missing_moved_or_damaged_are_asked_for(directory, tmp_path):
    with pytest.raises(InputError, match=r"does not say where its episodes are; .* `unlabeled=...`"):
        directory.read_sources()
    directory.note_sources({"unlabeled": tmp_path / "logs.parquet"}, Options())
    with pytest.raises(InputError, match=r"the unlabeled episodes of .* are no longer at"):
        directory.read_sources()
    directory.write_json("data.json", json.loads('{"paths": {}, "options": {"columns": {"trip": 1}}}'))
    with pytest.raises(InputError, match=r"data\.json is damaged"):
        directory.read_sources()
