"""Stores in shards: the same episodes whatever the number of files, and however often writing was stopped."""

import json
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from safetensors.numpy import load_file, save_file

from safemil.data import Annotations, Trajectories, converting, load, parquet, save, shards, store
from safemil.data.converting import convert
from safemil.data.interchange import Options
from safemil.data.shards import name_of
from safemil.errors import InputError

LENGTHS = [7, 3, 12, 5, 9, 4, 8, 6]


@pytest.fixture(scope="module")
def log():
    """Episodes whose names do not come sorted as numbers, with gaps and final observations."""
    rng = np.random.default_rng(0)
    steps = sum(LENGTHS)
    return Trajectories(
        rng.normal(size=(steps, 3)),
        rng.uniform(-1, 1, (steps, 2)),
        LENGTHS,
        final_observations=rng.normal(size=(len(LENGTHS), 3)),
        has_final=np.arange(len(LENGTHS)) % 2 == 0,
        after_gap=rng.random(steps) < 0.1,
        ids=[f"drive {i}" for i in range(5, 5 + len(LENGTHS))],
        observation_names=["speed", "gap", "lane"],
    )


@pytest.fixture(autouse=True)
def small_pieces(monkeypatch):
    monkeypatch.setattr(converting, "ROWS", 10)
    monkeypatch.setattr(parquet, "ROWS_AT_ONCE", 5)


def truth(log):
    rng = np.random.default_rng(1)
    return Annotations(rng.random(log.steps), rng.integers(0, 2, log.steps))


def same(a, b):
    assert a.content_hash() == b.content_hash()
    assert a.ids.tolist() == b.ids.tolist()
    assert a.observation_names == b.observation_names
    np.testing.assert_array_equal(a.logged_steps, b.logged_steps)


@pytest.mark.parametrize("shards", [1, 3, 64])
@pytest.mark.parametrize("suffix", [".parquet", ".csv", "", ".hdf5"])
def test_a_log_has_one_content_in_any_number_of_shards(log, suffix, shards, tmp_path):
    source = tmp_path / f"log{suffix}"
    save(source, log, truth(log))
    options = Options() if suffix != ".csv" else Options(max_gap=None)
    expected = load(source)
    found = convert(source, tmp_path / "store", options, shards=shards, progress=False)
    assert len(found.shards) == min(shards, len(found.shards))
    assert found.measured_hash() == found.content_hash() == expected.content_hash()
    same(load(tmp_path / "store"), expected)
    assert found.per_step("costs").sum() == truth(log).costs.sum()


def test_several_files_are_one_store_in_the_order_of_their_names(log, tmp_path):
    for number, episodes in enumerate(([5, 1, 7], [0, 2], [3, 4, 6])):
        save(tmp_path / "logs" / f"{number}.parquet", log.take(episodes))
    expected = load(tmp_path / "logs")
    same(
        convert(tmp_path / "logs", tmp_path / "store", Options(), shards=4, progress=False)
        .load()
        .trajectories,
        expected,
    )


def test_names_that_several_files_have_are_told_apart_by_the_file(log, tmp_path):
    for number in range(2):
        save(tmp_path / "logs" / f"{number}.parquet", log.take([number, 3]))
    with pytest.warns(UserWarning, match="told apart by the file"):
        expected = load(tmp_path / "logs")
    found = convert(tmp_path / "logs", tmp_path / "store", Options(), shards=2, progress=False)
    same(found.load().trajectories, expected)


def test_a_conversion_that_was_stopped_goes_on(log, tmp_path, monkeypatch):
    source, out = tmp_path / "log.parquet", tmp_path / "store"
    save(source, log)
    write = shards.write_shard
    written: list[int] = []

    def failing(folder, number, pieces):
        if number == 2 and len(written) == 2:
            raise KeyboardInterrupt
        written.append(number)
        return write(folder, number, pieces)

    monkeypatch.setattr(converting, "write_shard", failing)
    with pytest.raises(KeyboardInterrupt):
        convert(source, out, Options(), shards=4, progress=False)
    assert converting.is_unfinished(out)
    with pytest.raises(InputError, match="is a folder, but not a store"):
        load(out)
    with pytest.raises(InputError, match="conversion of other logs, or with other options"):
        convert(source, out, Options(max_gap="1s"), shards=4, progress=False)
    written.append(-1)
    found = convert(source, out, Options(), shards=4, progress=False)
    assert written[:4] == [0, 1, -1, 2]
    same(found.load().trajectories, load(source))
    assert not converting.is_unfinished(out)


def test_a_finished_store_is_not_written_over(log, tmp_path):
    save(tmp_path / "log.parquet", log)
    convert(tmp_path / "log.parquet", tmp_path / "store", Options(), shards=2, progress=False)
    with pytest.raises(InputError, match="exists already"):
        convert(tmp_path / "log.parquet", tmp_path / "store", Options(), shards=2, progress=False)


def test_rows_of_an_episode_must_be_together(tmp_path):
    episode = [0] * 8 + [1] * 8 + [0] * 4
    table = {"episode": episode, "step": np.arange(20), "obs_0": np.zeros(20), "act_0": np.zeros(20)}
    pq.write_table(pa.table(table), tmp_path / "log.parquet")
    with pytest.raises(InputError, match="episode 0 are not all together"):
        convert(tmp_path / "log.parquet", tmp_path / "store", Options(), shards=2, progress=False)


@pytest.fixture
def sharded(log, tmp_path):
    save(tmp_path / "log.parquet", log)
    convert(tmp_path / "log.parquet", tmp_path / "store", Options(), shards=3, progress=False)
    return tmp_path / "store"


def test_steps_are_gathered_in_any_order(log, sharded):
    found, rows = store.stored(sharded), np.array([53, 0, 13, 13, 30])
    whole = found.load().trajectories
    expected = np.hstack([whole.observations, whole.actions])[rows]
    np.testing.assert_array_equal(found.gather(rows), expected)


def test_blocks_hold_whole_episodes_in_order(sharded):
    found = store.stored(sharded)
    blocks = list(found.blocks(rows=13))
    assert all(len(block) == 1 or block.steps <= 13 for block in blocks)
    assert Trajectories.concatenate(blocks).content_hash() == found.content_hash()


def test_a_changed_step_is_noticed(sharded):
    arrays = {name: each.copy() for name, each in load_file(sharded / name_of(1)).items()}
    arrays["rows"][0, 0] += 1
    save_file(arrays, sharded / name_of(1))
    with pytest.raises(InputError, match="the store is damaged"):
        load(sharded)


def forged(header, rest=b""):
    text = json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text + rest


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\xff" * 8,
        forged({"rows": {"dtype": "F32", "shape": [2**62, 2**62], "data_offsets": [0, 0]}}),
        forged({"rows": {"dtype": "F32", "shape": [2**61], "data_offsets": [0, 2**63]}}),
        forged({"rows": {"dtype": "F32", "shape": [-1, -1], "data_offsets": [0, 4]}}, b"1234"),
        forged({"rows": {"dtype": "O", "shape": [1], "data_offsets": [0, 8]}}, b"12345678"),
        forged({"rows": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}}, b"1234"),
        forged([1, 2]),
    ],
)
def test_a_forged_shard_is_refused_before_it_is_read(content, sharded):
    (sharded / name_of(0)).write_bytes(content)
    with pytest.raises(InputError, match="shard-00000"):
        load(sharded)


@pytest.mark.parametrize(
    "changes", [{"shards": 10**9}, {"shards": "../x"}, {"steps": 1}, {"action_low": [1]}, {"hashes": {}}]
)
def test_a_forged_description_is_refused(changes, sharded):
    path = sharded / "dataset.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))
    with pytest.raises(InputError):
        load(sharded)


def test_lengths_that_wrap_around_are_refused(sharded):
    arrays = {name: each.copy() for name, each in load_file(sharded / name_of(0)).items()}
    arrays["lengths"][:2] = 2**62 + 1, 2**62
    save_file(arrays, sharded / name_of(0))
    with pytest.raises(InputError, match="don't fit together"):
        load(sharded)


def test_a_store_of_steps_that_are_times_keeps_them(log, tmp_path):
    times = np.arange(log.steps) * np.timedelta64(100, "ms") + np.datetime64("2026-01-01")
    table = {
        "episode": np.repeat(log.ids, log.lengths),
        "step": times.astype("datetime64[ns]"),
        "obs_0": log.observations[:, 0],
        "act_0": log.actions[:, 0],
    }
    pq.write_table(pa.table(table), tmp_path / "log.parquet")
    found = convert(tmp_path / "log.parquet", tmp_path / "store", Options(), shards=3, progress=False)
    same(found.load().trajectories, load(tmp_path / "log.parquet"))
    assert replace(found.load()).trajectories.step_values.dtype.kind == "M"
