"""LeRobot datasets: two that LeRobot wrote, and changes of them."""

import json
import shutil
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from safemil.data import load
from safemil.data.formats import read
from safemil.data.interchange import Options

FIXTURES = Path(__file__).parents[3] / "shared" / "fixtures"
pytestmark = pytest.mark.skipif(
    not (FIXTURES / "lerobot_v30").is_dir(), reason="the datasets that LeRobot wrote are not here"
)
BOUNDS = (-3, 3)


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
