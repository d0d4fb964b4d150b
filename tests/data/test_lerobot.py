"""LeRobot datasets: two that LeRobot wrote, and changes of them."""

import contextlib
import json
import shutil
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from safemil.cli.verbs import _print_edit_command
from safemil.data import Columns, load, save
from safemil.data.formats import read
from safemil.data.interchange import Options
from safemil.errors import InputError, InputWarning

FIXTURES = Path(__file__).parents[3] / "shared" / "fixtures"
pytestmark = pytest.mark.skipif(
    not (FIXTURES / "lerobot_v30").is_dir(), reason="the datasets that LeRobot wrote are not here"
)
BOUNDS = (-3, 3)
DATA = "data/chunk-000/file-000.parquet"


@pytest.fixture
def dataset(tmp_path):
    """Copy of a dataset; `change` edits its info.json, and `rewrite` the table of a Parquet file."""

    class Dataset:
        def __init__(self, version="v21"):
            self.path = tmp_path / version
            shutil.copytree(FIXTURES / f"lerobot_{version}", self.path, copy_function=shutil.copy)
            for each in self.path.rglob("*"):
                each.chmod(0o755)

        def change(self, **entries):
            info = self.path / "meta" / "info.json"
            info.write_text(json.dumps(json.loads(info.read_text()) | entries))
            return self

        def feature(self, name, **entries):
            features = json.loads((self.path / "meta" / "info.json").read_text())["features"]
            features[name] = features.get(name, {}) | entries
            return self.change(features=features)

        def rewrite(self, file, edit):
            pq.write_table(edit(pq.read_table(self.path / file)), self.path / file)
            return self

    return Dataset


def test_versions_2_1_and_3_0_hold_the_same_episodes():
    old, new = (contents(FIXTURES / f"lerobot_{version}") for version in ("v21", "v30"))
    assert old.trajectories.content_hash() == new.trajectories.content_hash()
    held = new.trajectories
    assert (held.ids.tolist(), held.lengths.tolist()) == ([0, 1, 2], [8, 9, 10])
    rows = pq.read_table(FIXTURES / "lerobot_v30" / "data" / "chunk-000" / "file-000.parquet")
    np.testing.assert_array_equal(
        held.observations, np.array(rows["observation.state"].to_pylist()).astype("f4")
    )
    np.testing.assert_allclose(held.recorded_actions(), np.array(rows["action"].to_pylist()), atol=1e-6)
    assert new.rewards.tolist() == [0.5] * 27
    assert new.manifest["lerobot"]["tasks"] == [["drive"], ["drive"], ["incident"]]


def contents(path):
    return read(path, Options(action_bounds=BOUNDS))


def test_version_2_0_is_read_too(dataset):
    made = dataset().change(codebase_version="v2.0")
    (made.path / "meta" / "episodes_stats.jsonl").unlink()
    (made.path / "meta" / "stats.json").write_text("{}")
    expected = load(FIXTURES / "lerobot_v21", action_bounds=BOUNDS)
    assert load(made.path, action_bounds=BOUNDS).content_hash() == expected.content_hash()


def test_names_come_from_the_description(dataset):
    held = load(FIXTURES / "lerobot_v30", action_bounds=BOUNDS)
    assert held.observation_names == ("x", "y", "vx", "vy", "yaw", "r")
    assert held.action_names == ("steer", "throttle")
    made = dataset().feature("action", names={"motors": ["x", "y"]})  # joints are both observed and moved
    assert load(made.path, action_bounds=BOUNDS).action_names == ("x", "y")
    made.feature("observation.state", names=["dim"])
    assert load(made.path, action_bounds=BOUNDS).observation_names[1] == "observation.state[1]"


def test_features_and_single_entries_are_read_on_request(dataset):
    made = dataset("v30")
    extra = pa.array([[float(i), -float(i)] for i in range(27)], pa.list_(pa.float64()))
    made.rewrite(DATA, lambda table: table.append_column("observation.goal", extra))
    made.feature("observation.goal", dtype="float64", shape=[2], names=["x", "gy"])
    plain = load(made.path, action_bounds=BOUNDS)
    assert plain.observation_size == 6
    columns = Columns(observation="gy,observation.state,timestamp")
    contents = read(made.path, Options(columns, BOUNDS))
    held = contents.trajectories
    assert held.observation_names[:3] == ("gy", "observation.state.x", "y")
    np.testing.assert_array_equal(held.observations[:, 0], -np.arange(27))
    np.testing.assert_array_equal(held.observations[:, 1:7], plain.observations)
    assert held.reading == contents.resolved
    again = read(made.path, held.reading)
    assert again.trajectories.observation_names == held.observation_names
    assert again.trajectories.content_hash() == held.content_hash()
    whole = load(made.path, columns=Columns(observation="observation.*"), action_bounds=BOUNDS)
    assert whole.observation_size == 8


def test_steps_may_be_timestamps():
    held = load(FIXTURES / "lerobot_v30", columns=Columns(step="timestamp"), action_bounds=BOUNDS)
    np.testing.assert_allclose(held.step_values[:8], np.arange(8) / 10, atol=1e-6)


def with_success(made, values):
    """Add `next.success`, true in the last frame of some episodes."""
    frames = np.zeros(27, bool)
    frames[[7, 16, 26]] = values
    made.rewrite(DATA, lambda table: table.append_column("next.success", pa.array(frames)))
    return made.feature("next.success", dtype="bool", shape=[1], names=None)


def test_an_episode_that_does_not_end_in_success_is_an_incident(dataset):
    made = with_success(dataset("v30"), [True, False, True])
    bad, rest = load(made.path, incident="next.success", action_bounds=BOUNDS)
    assert (bad.ids.tolist(), rest.ids.tolist()) == ([1], [0, 2])
    assert not bad.marks.any()


@pytest.mark.parametrize("version", ["v21", "v30"])
def test_incidents_are_told_by_task_or_by_number(version):
    path = FIXTURES / f"lerobot_{version}"
    by_task = load(path, incident="task=incident", action_bounds=BOUNDS)
    by_number = load(path, incident_episodes=[2], action_bounds=BOUNDS)
    for piles in (by_task, by_number):
        assert [pile.ids.tolist() for pile in piles] == [[2], [0, 1]]


def test_pictures_are_passed_over_with_a_warning(dataset):
    made = dataset().feature("observation.images.top", dtype="video", shape=[480, 640, 3], names=None)
    with pytest.warns(InputWarning, match=r"passed over observation\.images\.top: pictures are not read"):
        held = load(made.path, action_bounds=BOUNDS)
    assert held.content_hash() == load(FIXTURES / "lerobot_v21", action_bounds=BOUNDS).content_hash()


@pytest.mark.parametrize("version", ["v21", "v30"])
@pytest.mark.parametrize(
    ("entries", "message"),
    [
        ({"codebase_version": "v1.6"}, "version 'v1.6', but versions v2.0, v2.1, v3.0 can be read"),
        ({"codebase_version": ["v3.0"]}, "can be read"),
        ({"features": None}, '"features" in .* must be an object'),
        ({"features": {"action": 3}}, 'feature "action" in .* must be an object'),
        ({"features": {"action": {"dtype": "float32", "shape": [-2]}}}, "list of positive sizes"),
        ({"features": {"action": {"dtype": "float32", "shape": [10**15]}}}, "no feature of numbers"),
        ({"total_frames": 28}, "says 28 for total_frames, but the list of episodes 27"),
        ({"total_episodes": 2.0}, "must be a whole number"),
        ({"total_episodes": 10**30}, "for total_episodes, but the list of episodes 3"),
        ({"data_path": 3}, '"data_path" in .* must be a text'),
        ({"data_path": "../{episode_index}{chunk_index}.parquet"}, "must be a path within the dataset"),
        ({"data_path": "/etc/passwd"}, "must be a path within the dataset"),
        ({"data_path": "data/{episode_index.__class__}"}, "must be a path within the dataset"),
        ({"data_path": "data/{episode_index:0999999999d}"}, "must be a path within the dataset"),
        ({"data_path": "data/none.parquet"}, "of 1 data files are missing, the first is data/none.parquet"),
    ],
)
def test_a_wrong_description_is_refused(version, entries, message, dataset):
    with pytest.raises(InputError, match=message):
        load(dataset(version).change(**entries).path, action_bounds=BOUNDS)


@pytest.mark.parametrize("text", ["", "[]", "{", "[" * 100_000, '{"a": ' * 5000, "\xff", "1" * 5000, "null"])
def test_a_description_that_is_no_object_is_refused(text, dataset):
    made = dataset()
    (made.path / "meta" / "info.json").write_text(text, encoding="latin-1")
    with pytest.raises(InputError, match=r"info\.json (is damaged|must hold a JSON object)"):
        load(made.path)


def test_data_that_differ_from_the_description_are_refused(dataset):
    made = dataset("v30").rewrite(DATA, lambda table: table.slice(0, 26))
    with pytest.raises(InputError, match="declares 27 frames, but the data files hold 26"):
        load(made.path)
    made = dataset("v21").feature("action", shape=[3], names=None)
    with pytest.raises(InputError, match=r'"action" has 3 entries according to .*, but 2 in the data files'):
        load(made.path)
    made.feature("action", shape=[2])
    episode = "data/chunk-000/episode_000001.parquet"
    shifted = pa.array([0] * 9)
    made.rewrite(
        episode, lambda table: table.drop_columns(["episode_index"]).append_column("episode_index", shifted)
    )
    with pytest.raises(InputError, match="episode 0 has 8 frames according to the list of episodes, but 17"):
        load(made.path, action_bounds=BOUNDS)


@pytest.mark.parametrize("version", ["v21", "v30"])
def test_damaged_files_are_answered_with_an_error(version, dataset):
    path = dataset(version).path
    rng = np.random.default_rng(0)
    for file in [file for file in sorted(path.rglob("*")) if file.is_file() and "stats" not in file.name]:
        whole = file.read_bytes()
        for _ in range(12):
            broken = bytearray(whole[: rng.integers(1, len(whole) + 1)])
            broken[rng.integers(len(broken))] ^= int(rng.integers(1, 256))
            file.write_bytes(broken)
            with contextlib.suppress(InputError):
                load(path, action_bounds=BOUNDS)
        file.write_bytes(whole)
    assert load(path, action_bounds=BOUNDS).steps == 27


def test_a_dataset_is_read_and_not_written(tmp_path):
    held = load(FIXTURES / "lerobot_v30", action_bounds=BOUNDS)
    with pytest.raises(InputError, match="LeRobot dataset can be read but not written"):
        save(tmp_path / "copy", held, format="lerobot")
    assert not (tmp_path / "copy").exists()


@pytest.mark.parametrize("several", [False, True])
def test_the_command_that_deletes_the_riskiest_episodes_is_printed(several, tmp_path, capsys):
    path = FIXTURES / "lerobot_v30"
    _print_edit_command((path,) if several else path, [2, 0])
    printed = capsys.readouterr().out
    assert f"lerobot-edit-dataset --repo_id lerobot_v30 --root {path} " in printed
    assert "--operation.type delete_episodes --operation.episode_indices '[0, 2]'" in printed
    _print_edit_command(tmp_path, [2, 0])
    assert not capsys.readouterr().out
