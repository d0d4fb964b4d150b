import json
import os

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from safemil.data import Trajectories, load, save
from safemil.errors import InputError


@pytest.fixture
def store(walk, marks, tmp_path):
    save(tmp_path / "store", walk, marks)
    return tmp_path / "store"


def describe(store, **changes):
    noted = json.loads((store / "dataset.json").read_text())
    (store / "dataset.json").write_text(json.dumps(noted | changes))


@pytest.mark.parametrize("name", ["observations", "terminated", "costs"])
def test_changed_arrays_are_noticed(name, store):
    arrays = load_file(store / "arrays.safetensors")
    changed = arrays[name].copy()
    changed.flat[0] = not changed.flat[0]
    save_file(arrays | {name: changed}, store / "arrays.safetensors")
    with pytest.raises(InputError, match="store is damaged"):
        load(store)


def test_missing_or_damaged_arrays_are_said_to_be(store):
    arrays = load_file(store / "arrays.safetensors")
    save_file({"actions": arrays["actions"]}, store / "arrays.safetensors")
    with pytest.raises(InputError, match="has no observations, lengths"):
        load(store)
    whole = (store / "arrays.safetensors").read_bytes()
    (store / "arrays.safetensors").write_bytes(whole[:-5])
    with pytest.raises(InputError, match="missing or damaged"):
        load(store)
    (store / "arrays.safetensors").unlink()
    with pytest.raises(InputError, match="missing or damaged"):
        load(store)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"version": 99}, "version 99, but this safemil reads version 1 and 2"),
        ({"format": "other"}, "does not describe a safemil dataset"),
        ({"manifest": None}, "does not describe a safemil dataset"),
        ({"hashes": None}, "store is damaged"),
    ],
)
def test_a_description_of_something_else_is_refused(changes, message, store):
    describe(store, **changes)
    with pytest.raises(InputError, match=message):
        load(store)


def test_a_description_that_is_no_json_is_refused(store):
    (store / "dataset.json").write_text("{")
    with pytest.raises(InputError, match=r"dataset\.json can't be read"):
        load(store)


def test_a_store_has_bounds_and_names_of_its_own(store):
    from safemil.data import Columns

    with pytest.raises(InputError, match="records its own action bounds"):
        load(store, action_bounds=(0, 1))
    with pytest.raises(InputError, match="column names are for tables"):
        load(store, columns=Columns(episode="trip"))


def test_arrays_are_little_endian_float32(store):
    arrays = load_file(store / "arrays.safetensors")
    assert arrays["observations"].dtype == np.dtype("<f4")


def test_lengths_whose_sum_wraps_around_are_refused(store):
    arrays = load_file(store / "arrays.safetensors")
    lengths = np.array([2**63 - 1, 2**63 - 1, 8])
    assert lengths.sum() == len(arrays["observations"]) == 6  # in int64
    save_file(arrays | {"lengths": lengths}, store / "arrays.safetensors")
    with pytest.raises(InputError, match="lengths add up to 18446744073709551622 steps, but there are 6"):
        load(store)


@pytest.mark.parametrize("name", ["episodes", "steps", "observation_size", "action_size"])
@pytest.mark.parametrize("size", [None, "3", 3.0, True, 0, -3])
def test_a_size_that_is_no_positive_integer_is_refused(name, size, store):
    describe(store, **{name: size})
    with pytest.raises(InputError, match=f"{name} in dataset.json must be a whole number of at least 1, got"):
        load(store)


@pytest.mark.parametrize("name", ["episodes", "steps", "observation_size", "action_size"])
def test_a_size_that_is_not_that_of_the_arrays_is_refused(name, store):
    describe(store, **{name: 99})
    with pytest.raises(InputError, match="store is damaged"):
        load(store)


@pytest.mark.parametrize("mask", [0o022, 0o077])
def test_all_files_of_a_store_have_the_mode_that_the_umask_gives(mask, walk, tmp_path):
    before = os.umask(mask)
    try:
        save(tmp_path / "store", walk)
    finally:
        os.umask(before)
    modes = {path.name: path.stat().st_mode & 0o777 for path in (tmp_path / "store").iterdir()}
    assert modes == dict.fromkeys(("arrays.safetensors", "dataset.json"), 0o666 & ~mask)


def test_a_store_keeps_marks_and_column_names(tmp_path):
    marked = Trajectories(
        np.zeros((2, 1)), np.zeros((2, 1)), [2], marks=[False, True], observation_names=["gap"]
    )
    save(tmp_path / "marked", marked)
    found = load(tmp_path / "marked")
    assert found.marks.tolist() == [False, True]
    assert (found.observation_names, found.action_names) == (("gap",), None)
    assert found.content_hash() == marked.content_hash()


@pytest.mark.parametrize(
    "steps",
    [
        np.array([1, 2, 4, 0, 1, 9]),
        np.array([0.1, 0.2, 0.4, 0, 1, 9]),
        np.arange(6).astype("datetime64[ms]"),
        np.arange(6).astype("timedelta64[s]"),
        np.array(["a", "b", "c", "a", "b", "ünd"]),
    ],
)
def test_steps_of_the_log_gaps_and_choices_are_kept(steps, walk, tmp_path):
    fields = {name: getattr(walk, name) for name in Trajectories.__dataclass_fields__}
    fields |= {"step_values": steps, "after_gap": np.arange(6) == 1, "step_zone": "Europe/Berlin"}
    save(tmp_path / "store", Trajectories(**fields | {"action_categories": ["left", "right"]}))
    again = load(tmp_path / "store")
    np.testing.assert_array_equal(again.step_values, steps)
    assert again.step_values.dtype.kind == steps.dtype.kind
    assert again.after_gap.tolist() == [False, True, False, False, False, False]
    assert (again.step_zone, again.action_categories) == ("Europe/Berlin", ("left", "right"))
    assert again.take([1, 2]).logged_steps.tolist() == again.step_values[2:].tolist()


def test_steps_of_an_unknown_type_are_refused(walk, tmp_path):
    fields = {name: getattr(walk, name) for name in Trajectories.__dataclass_fields__}
    save(tmp_path / "store", Trajectories(**fields | {"step_values": np.arange(6.0)}))
    describe(tmp_path / "store", step_values="object")
    with pytest.raises(InputError, match="no type of step that is known"):
        load(tmp_path / "store")
