"""Files of the right form and the wrong meaning that once were accepted, or ended a reader: fixed cases."""

import contextlib
import json
import os
import shutil
import sqlite3

import h5py
import ml_dtypes
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from foreign import BOMB, mcap_bomb
from foreign_materials import build_foreign
from safetensors.numpy import load_file, save_file

from safemil.api import configure
from safemil.cli import main
from safemil.cli.arguments import Reading
from safemil.data import Trajectories, bag_sizes, load, save, searching
from safemil.data.interchange import Columns
from safemil.data.trajectories import CONTENT, digest
from safemil.deploy.graph import Graph
from safemil.errors import InputError
from safemil.evaluation import Evaluation


@pytest.fixture
def walk() -> Trajectories:
    rng = np.random.default_rng(0)
    return Trajectories(rng.normal(size=(4, 2)), rng.uniform(-1, 1, (4, 1)), [1, 2, 1], ids=["a", "b", "c"])


@pytest.fixture
def store(walk, tmp_path):
    save(tmp_path / "store", walk)
    return tmp_path / "store"


@pytest.fixture
def hdf5(walk, tmp_path):
    save(tmp_path / "logs.hdf5", walk)
    return tmp_path / "logs.hdf5"


def forge(store, **changes):
    """Change arrays of a store, and let its description fit them."""
    arrays = load_file(store / "arrays.safetensors") | changes
    save_file(arrays, store / "arrays.safetensors")
    described = json.loads((store / "dataset.json").read_text())
    described |= {"episodes": len(arrays["lengths"]), "ids": [f"e{i}" for i in range(len(arrays["lengths"]))]}
    described["hashes"]["content"] = digest({name: arrays[name] for name in CONTENT})
    (store / "dataset.json").write_text(json.dumps(described))


def replaced(path, name, **how):
    """Replace an array of an HDF5 file."""
    with h5py.File(path, "r+") as file:
        if name in file:
            del file[name]
        file.create_dataset(name, **how)


def table(path, rows=2, **columns):
    held = {
        "episode": ["a"] * rows,
        "step": list(range(rows)),
        "obs_0": [0.5] * rows,
        "act_0": [0.0] * rows,
    } | columns
    pq.write_table(pa.table(held), path)
    return path


# Stores


@pytest.mark.parametrize(
    "lengths",
    [
        np.array([2**63 - 1, 2**63 - 1, 6], np.int64),  # wraps around to 4
        np.array([2**64 - 1, 2, 3], np.uint64),
        np.array([6, -2], np.int64),
    ],
)
def test_lengths_whose_sum_wraps_around_are_refused(lengths, store, tmp_path):
    forge(store, lengths=lengths)
    with pytest.raises(InputError, match="lengths"):
        load(store)
    assert main(["data", "convert", str(store), str(tmp_path / "out.csv")]) == 2
    assert not (tmp_path / "out.csv").exists()


def test_first_steps_that_can_not_be_counted_on_are_refused(store):
    forge(store, first_steps=np.full(3, 2**63 - 1))
    with pytest.raises(InputError, match="first_steps"):
        load(store)


@pytest.mark.parametrize("kind", [ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2])
def test_eight_bit_floats_in_a_store_are_refused(kind, store):
    arrays = load_file(store / "arrays.safetensors")
    save_file(arrays | {"actions": np.zeros((4, 1), kind)}, store / "arrays.safetensors")
    with pytest.raises(InputError, match="damaged"):
        load(store)


def test_rewards_of_another_length_than_the_steps_are_refused(store):
    forge(store, rewards=np.zeros(3, np.float32))
    with pytest.raises(InputError, match="one number for each of the 4 steps"):
        load(store)


def test_a_description_nested_too_deeply_is_refused(store):
    (store / "dataset.json").write_text("[" * 100_000)
    with pytest.raises(InputError, match="can't be read"):
        load(store)


def test_one_long_name_among_many_does_not_take_its_space_for_each(store):
    described = json.loads((store / "dataset.json").read_text())
    described["ids"] = ["x" * 200_000, *("y" for _ in range(19_999))]
    (store / "dataset.json").write_text(json.dumps(described))
    with pytest.raises(InputError, match="256 characters"):
        load(store)


def test_half_of_a_surrogate_pair_in_a_name_is_refused(store):
    described = json.loads((store / "dataset.json").read_text())
    described["ids"] = ["\ud800", "b", "c"]
    (store / "dataset.json").write_text(json.dumps(described))
    with pytest.raises(InputError, match="surrogate"):
        load(store)


@pytest.mark.parametrize("name", ["arrays.safetensors", "dataset.json"])
def test_a_named_pipe_in_a_store_is_not_waited_for(name, store):
    (store / name).unlink()
    os.mkfifo(store / name)
    with pytest.raises(InputError):
        load(store)


# HDF5


def test_a_small_file_that_declares_gigabytes_is_refused_before_it_is_read(hdf5):
    for name in ("observations", "actions", "terminals", "timeouts"):
        shape = (10**8,) if name[0] == "t" else (10**8, 1)
        replaced(hdf5, name, shape=shape, dtype="f4", chunks=True)
    assert hdf5.stat().st_size < 20_000
    with pytest.raises(InputError, match="declare"):
        load(hdf5)


def test_a_chunk_far_larger_than_its_array_is_refused(hdf5):
    replaced(hdf5, "actions", shape=(4, 1), dtype="f8", chunks=(2**14, 2**14), maxshape=(None, None))
    with pytest.raises(InputError, match="declare"):
        load(hdf5)


def test_names_of_fixed_length_are_refused_by_what_they_declare(hdf5):
    replaced(hdf5, "safemil/ids", shape=(3,), dtype=h5py.string_dtype(length=2**28), chunks=(1,))
    with pytest.raises(InputError, match="declare"):
        load(hdf5)


@pytest.mark.parametrize(
    ("name", "how"),
    [
        ("observations", {"data": h5py.Empty("f4")}),
        ("rewards", {"data": h5py.Empty("f4")}),
        ("safemil/ids", {"data": h5py.Empty(h5py.string_dtype())}),
        ("safemil", {"data": np.zeros(3)}),
        ("safemil/ids", {"shape": (3,), "dtype": h5py.ref_dtype}),
        ("safemil/ids", {"shape": (3,), "dtype": h5py.vlen_dtype(np.int64)}),
        ("safemil/ids", {"data": [b"\xff"] * 3, "dtype": h5py.string_dtype()}),
        ("safemil/ids", {"data": np.zeros((3, 2), int)}),
        ("safemil/ids", {"data": ["x" * 300, "b", "c"], "dtype": h5py.string_dtype()}),
        ("actions", {"data": np.zeros((4, 1), [("a", "f4")])}),
    ],
)
def test_arrays_of_another_kind_are_refused(name, how, hdf5):
    replaced(hdf5, name, **how)
    with pytest.raises(InputError):
        load(hdf5)


@pytest.mark.parametrize("name", ["observations", "terminals", "rewards", "safemil/ids"])
def test_a_group_in_place_of_an_array_is_refused(name, hdf5):
    with h5py.File(hdf5, "r+") as file:
        if name in file:
            del file[name]
        file.create_group(name)
    with pytest.raises(InputError, match="array"):
        load(hdf5)


# Tables


def test_columns_of_the_same_name_are_refused(tmp_path):
    columns = [pa.array(["a"]), pa.array([0]), pa.array([0.5]), pa.array([0.5]), pa.array([0.0])]
    names = ["episode", "step", "obs_0", "obs_0", "act_0"]
    pq.write_table(pa.table(columns, names), tmp_path / "logs.parquet")
    with pytest.raises(InputError, match='2 columns called "obs_0"'):
        load(tmp_path / "logs.parquet")
    (tmp_path / "logs.csv").write_text("episode,step,obs_0,obs_0,act_0\na,0,1,2,0\n")
    with pytest.raises(InputError, match='2 columns called "obs_0"'):
        load(tmp_path / "logs.csv")


def test_a_column_that_is_observed_and_acted_is_refused(tmp_path):
    path = tmp_path / "logs.csv"
    path.write_text("episode,step,obs_0,act_0\na,0,0.5,0.5\na,1,0.5,0.5\n")
    with pytest.raises(InputError, match='"obs_0" can\'t be observed and acted both'):
        load(path, columns=Columns(observation="obs_0", action="obs_0"))


def test_old_line_ends_of_csv_are_read(tmp_path):
    path = tmp_path / "logs.csv"
    path.write_bytes(b"episode,step,obs_0,act_0\ra,0,0.5,0.5\ra,1,0.25,0.5\r")
    assert load(path).observations.tolist() == [[0.5], [0.25]]


def test_more_columns_than_a_table_has_are_refused(tmp_path):
    path = tmp_path / "logs.csv"
    path.write_text("," * 900_000 + "\n1\n")
    with pytest.raises(InputError, match="columns"):
        load(path)


def test_a_column_may_end_in_more_digits_than_python_converts(tmp_path):
    path = table(tmp_path / "logs.parquet", **{"obs_" + "1" * 5000: [0.25, 0.75]})
    assert load(path).observations.tolist() == [[0.5, 0.25], [0.5, 0.75]]


def test_names_that_are_not_utf8_are_refused(tmp_path):
    buffers = [None, pa.py_buffer(np.array([0, 2, 4], np.int32).tobytes()), pa.py_buffer(b"\xff\xfe" * 2)]
    path = table(tmp_path / "logs.parquet", episode=pa.Array.from_buffers(pa.string(), 2, buffers))
    with pytest.raises(InputError, match="UTF8"):
        load(path)


@pytest.mark.parametrize("column", ["episode", "step"])
def test_a_long_text_that_every_row_refers_to_is_not_written_out(column, tmp_path):
    rows = 20_000
    texts = pa.DictionaryArray.from_arrays(pa.array(np.zeros(rows, np.int32)), ["x" * 200_000])
    columns = {"episode": ["a"] * rows, "step": range(rows), "obs_0": np.zeros(rows), "act_0": np.zeros(rows)}
    path = tmp_path / "logs.parquet"
    pq.write_table(pa.table(columns | {column: texts}), path, store_schema=False)
    assert path.stat().st_size < 1_000_000
    with pytest.raises(InputError, match="declare"):
        load(path)


def test_rows_that_take_no_space_in_a_file_are_refused_by_their_number(tmp_path):
    rows = 5_000_000
    columns = {f"obs_{i}": pa.array(np.zeros(rows, np.float32)) for i in range(4)}
    names = pa.array(np.zeros(rows, np.int32))
    path = table(
        tmp_path / "logs.parquet", rows=0, episode=names, step=names, act_0=columns["obs_0"], **columns
    )
    assert path.stat().st_size < 1_000_000
    with pytest.raises(InputError, match="declare"):
        load(path)


@pytest.mark.parametrize("bounds", [b"[" * 100_000, b'{"action_low": ' + b"9" * 5000 + b"}", b"\xff"])
def test_action_bounds_that_can_not_be_parsed_are_refused(bounds, tmp_path):
    path = table(tmp_path / "logs.parquet")
    pq.write_table(pq.read_table(path).replace_schema_metadata({b"safemil": bounds}), path)
    with pytest.raises(InputError, match="bounds"):
        load(path)


# Folders and patterns


@pytest.mark.parametrize("asked", [".", "**/*.csv", "*/*/*/*.csv"])
def test_a_folder_with_more_than_can_be_searched_is_refused(asked, tmp_path, monkeypatch):
    monkeypatch.setattr(searching, "MOST_FOUND", 30)
    for name in ("a", "b"):  # links that a pattern would follow without end
        (tmp_path / name).symlink_to(".")
    for number in range(30):
        (tmp_path / f"{number}.txt").touch()
    with pytest.raises(InputError, match="narrower pattern"):
        load(tmp_path / asked)


def test_a_pattern_is_only_searched_as_deep_as_it_goes(tmp_path, walk, monkeypatch):
    monkeypatch.setattr(searching, "MOST_FOUND", 10)
    (tmp_path / "deep").mkdir()
    for number in range(30):
        (tmp_path / "deep" / f"{number}.txt").touch()
    save(tmp_path / "logs.parquet", walk)
    assert load(tmp_path / "*.parquet").content_hash() == walk.content_hash()


@pytest.mark.parametrize("content", ["x," * 300, "\0"])
def test_a_list_of_episodes_may_be_longer_than_a_path(content):
    assert Reading(incident_episodes=content).options().incident_episodes


def test_a_list_of_episodes_that_is_no_text_is_refused(tmp_path):
    (tmp_path / "list").write_bytes(b"\xff\xfe")
    with pytest.raises(InputError, match="damaged"):
        Reading(incident_episodes=str(tmp_path / "list")).options()


# Evaluations


@pytest.mark.parametrize(
    "change",
    [
        {"lengths": [[0]]},
        {"returns": [[1.0, 2.0]]},
        {"seeds": [0, 1]},
        {"costs": [["x"]]},
        {"task": 3},
        {"seed": -1},
        {"returns": [[1.0], [1.0, 2.0]]},
    ],
)
def test_an_evaluation_that_does_not_fit_itself_is_refused(change, tmp_path):
    content = {"task": "toy:speed", "algorithm": "bc", "seeds": [0], "seed": 0, "stochastic": False}
    content |= {"returns": [[1.0]], "costs": [[0.0]], "lengths": [[5]]}
    (tmp_path / "evaluation.json").write_text(json.dumps(content))
    assert Evaluation.load(tmp_path)
    (tmp_path / "evaluation.json").write_text(json.dumps(content | change))
    with pytest.raises(InputError, match=r"evaluation\.json is damaged"):
        Evaluation.load(tmp_path)


def test_a_pipe_in_place_of_an_evaluation_is_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / "evaluation.json")
    with pytest.raises(InputError, match="pipe"):
        Evaluation.load(tmp_path)


# Recordings


def test_a_pipe_in_place_of_a_recording_is_not_waited_for(tmp_path, capsys):
    os.mkfifo(tmp_path / "pipe.npz")
    assert main(["tasks", "verify", str(tmp_path / "pipe.npz")]) == 2
    assert "is not a file" in capsys.readouterr().err


def test_a_recording_that_unpacks_to_far_more_is_refused(tmp_path, capsys):
    np.savez_compressed(tmp_path / "zeros.npz", reward=np.zeros(20_000_000))
    assert (tmp_path / "zeros.npz").stat().st_size < 1_000_000
    assert main(["tasks", "verify", str(tmp_path / "zeros.npz")]) == 2
    assert "declare" in capsys.readouterr().err


@pytest.mark.parametrize("meta", ['{"task": [1]}', "[]", "{", "[" * 100_000])
def test_a_recording_that_names_no_task_is_refused(meta, tmp_path):
    np.savez(tmp_path / "x.npz", meta=np.array(meta))
    assert main(["tasks", "verify", str(tmp_path / "x.npz")]) == 2


# Small files that would fill the memory


def test_rows_of_a_compressed_csv_file_count(tmp_path):
    text = b"episode,step,obs_0,act_0\n" + b"a,0,0,0\n" * 1_200_000
    (tmp_path / "logs.csv.zst").write_bytes(pa.Codec("zstd").compress(text, asbytes=True))
    with pytest.raises(InputError, match="declare"):
        load(tmp_path / "logs.csv.zst")


def test_one_long_list_among_short_ones_counts(tmp_path):
    lists = pa.ListArray.from_arrays(
        pa.array([0, 1, 13_000_001], pa.int32()), pa.nulls(13_000_001, pa.int8())
    )
    path = table(tmp_path / "logs.parquet", observation=lists, action=[[0.0], [0.0]])
    assert path.stat().st_size < 100_000
    with pytest.raises(InputError, match="declare"):
        load(path)


@pytest.mark.parametrize("damage", [lambda text: text[:-1] + b"\xff", lambda text: b"\xff" * len(text)])
def test_a_damaged_footer_of_parquet_is_refused(damage, tmp_path):
    path = table(tmp_path / "logs.parquet", observation=[[0.5], [0.5]], action=[[0.0], [0.0]])
    content = path.read_bytes()
    length = int.from_bytes(content[-8:-4], "little")
    path.write_bytes(content[: -8 - length] + damage(content[-8 - length : -8]) + content[-8:])
    with pytest.raises(InputError):
        load(path)


@pytest.fixture(scope="module")
def foreign(tmp_path_factory):
    folder = tmp_path_factory.mktemp("foreign")
    build_foreign(folder)
    return folder


@pytest.fixture
def dataset(foreign, tmp_path):
    return lambda name: shutil.copytree(foreign / name, tmp_path / "dataset")


@pytest.mark.parametrize("compression", ["zstd", "lz4"])
def test_a_chunk_of_a_bag_that_unpacks_to_far_more_is_refused(compression, dataset):
    path = dataset("bags-file.mcap")
    content = (path / "file.mcap").read_bytes()
    (path / "file.mcap").write_bytes(content[:8] + mcap_bomb(compression) + content[8:])
    with pytest.raises(InputError, match="declare"):
        load(path / "mapping.toml")


def test_an_index_of_a_bag_that_leads_into_a_record_is_refused(dataset):
    path = dataset("bags-file.mcap")
    content = bytearray((path / "file.mcap").read_bytes())
    with open(path / "file.mcap", "rb") as file:
        place = next(chunk.place for chunk in bag_sizes._mcap_chunks(file) if chunk.compression is None)
    at = content.rfind(place.to_bytes(8, "little"))
    content[at : at + 8] = (place + 1).to_bytes(8, "little")
    (path / "file.mcap").write_bytes(content)
    with pytest.raises(InputError, match="no chunk begins"):
        load(path / "mapping.toml")


def test_a_chunk_of_a_ros1_bag_that_unpacks_to_far_more_is_refused(dataset):
    path = dataset("bags-ros1.bag")
    content = (path / "ros1.bag").read_bytes()
    place = content.find(b"BZh")
    (path / "ros1.bag").write_bytes(content[: place - 4] + len(BOMB).to_bytes(4, "little") + BOMB)
    with pytest.raises(InputError, match="declare"):
        load(path / "mapping.toml")


@pytest.mark.parametrize(
    "order",
    [
        "DROP TABLE messages; CREATE VIEW messages AS SELECT 1 AS id",
        "ALTER TABLE messages ADD COLUMN more GENERATED ALWAYS AS (zeroblob(9))",
        "CREATE TRIGGER x AFTER INSERT ON messages BEGIN SELECT 1; END",
    ],
)
def test_a_database_that_computes_its_rows_is_refused(order, dataset):
    path = dataset("bags-ros2")
    with contextlib.closing(sqlite3.connect(path / "ros2" / "ros2.db3")) as database:
        database.executescript(order)
    with pytest.raises(InputError, match="plain tables"):
        load(path / "mapping.toml")


def test_a_bag_whose_messages_are_compressed_one_by_one_is_refused(dataset):
    path = dataset("bags-ros2")
    text = (path / "ros2" / "metadata.yaml").read_text()
    text = text.replace("compression_format: ''", "compression_format: zstd")
    (path / "ros2" / "metadata.yaml").write_text(
        text.replace("compression_mode: ''", "compression_mode: message")
    )
    with pytest.raises(InputError, match="one by one"):
        load(path / "mapping.toml")


def test_steps_between_two_far_messages_of_a_bag_count(dataset):
    path = dataset("bags-file.mcap")
    text = (path / "mapping.toml").read_text()
    (path / "mapping.toml").write_text(text.replace("rate = 10", "rate = 5000000"))
    with pytest.raises(InputError, match="declare"):
        load(path / "mapping.toml")


@pytest.mark.parametrize("compression", ["zstd", "lz4"])
def test_an_arrow_file_that_is_compressed_within_is_refused(compression, dataset):
    path = dataset("minari-arrow/x-v0")
    file = sorted((path / "data" / "0").glob("*.arrow"))[0]
    rows = pa.ipc.open_file(pa.BufferReader(file.read_bytes())).read_all()
    with pa.ipc.new_file(
        str(file), rows.schema, options=pa.ipc.IpcWriteOptions(compression=compression)
    ) as out:
        out.write_table(rows)
    with pytest.raises(InputError, match="compressed within"):
        load(path)


@pytest.mark.parametrize("name", ["lerobot-v2.1", "lerobot-v3.0", "minari-hdf5/x-v0"])
@pytest.mark.parametrize("make", [os.mkfifo, lambda path: path.symlink_to("/dev/zero")])
def test_a_dataset_with_a_pipe_or_a_device_in_it_is_not_waited_for(make, name, dataset):
    path = dataset(name)
    for file in [each for each in path.rglob("*") if each.is_file()]:
        content = file.read_bytes()
        file.unlink()
        make(file)
        with pytest.raises(InputError):
            load(path, action_bounds=(-2, 2))
        file.unlink()
        file.write_bytes(content)


@pytest.mark.parametrize("place", ["../x.parquet", "/etc/passwd", "{episode_index.__class__}", "C:\\x"])
def test_a_lerobot_dataset_names_no_file_outside_of_it(place, dataset):
    path = dataset("lerobot-v2.1")
    info = json.loads((path / "meta" / "info.json").read_text())
    (path / "meta" / "info.json").write_text(json.dumps(info | {"data_path": place}))
    with pytest.raises(InputError, match="within the dataset"):
        load(path, action_bounds=(-2, 2))


# Settings and graphs


@pytest.mark.parametrize(("name", "setting"), [("coptidice", "reward_scale"), ("bc", "clip_norm")])
def test_an_infinite_setting_is_refused(name, setting):
    with pytest.raises(InputError, match="must be finite"):
        configure(name, "fast", {setting: np.inf})


def test_a_graph_whose_results_grow_together_is_refused():
    nodes = [["Concat", ["x", "x"], "y0", {"axis": 1}]]
    nodes += [["Concat", [f"y{n}", f"y{n}"], f"y{n + 1}", {"axis": 1}] for n in range(40)]
    with pytest.raises(InputError, match="products"):
        Graph.from_json({"inputs": {"x": 2}, "outputs": ["y40"], "nodes": nodes}, {})
