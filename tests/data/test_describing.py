import json
import re

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from safemil.cli import main
from safemil.data import Annotations, Trajectories, describe, shared_episodes


@pytest.fixture
def noise():
    rng = np.random.default_rng(0)
    return rng.normal(size=(600, 3)), rng.uniform(-1, 1, size=(600, 2))


def reasons(observations, actions, lengths):
    found = describe(Trajectories(observations, actions, lengths)).suspicious
    return {each.episode: each.reason for each in found}


def test_the_figures_are_those_of_the_arrays(walk, marks):
    found = describe(walk, marks)
    assert (found.episodes, found.steps, found.observation_size, found.action_size) == (3, 6, 3, 2)
    assert (found.lengths.low, found.lengths.median, found.lengths.high) == (1, 2, 3)
    assert (found.final_observations, found.terminated) == (2, 1)
    assert [column.name for column in found.columns][2:4] == ["observation 2", "action 0"]
    column = walk.observations[:, 1].astype(float)
    assert found.columns[1].mean == pytest.approx(column.mean())
    assert found.columns[1].deviation == pytest.approx(column.std())
    assert (found.columns[1].low, found.columns[1].high) == (column.min(), column.max())
    assert (found.returns.high, found.costs.mean) == (15, 1)
    assert found.content_hash == walk.content_hash()
    assert describe(walk).returns is None


def test_a_description_survives_json(walk, marks):
    found = describe(walk, marks).as_dict()
    assert json.loads(json.dumps(found))["lengths"] == found["lengths"]


def test_constant_and_equal_columns_are_named(noise):
    observations, actions = noise
    observations[:, 0] = 4
    observations[:, 2] = actions[:, 1]
    found = describe(Trajectories(observations, actions, [600]))
    assert found.constant == ("observation 0",)
    assert found.duplicate == (("observation 2", "action 1"),)


def test_ordinary_episodes_arouse_no_suspicion(noise):
    assert not reasons(*noise, lengths=[200] * 3)


def test_a_rare_sensor_is_no_outlier(noise):
    observations, actions = noise
    observations[:, 0] = 0
    observations[50::200, 0] = 1  # 14 deviations from the mean, but once in every episode
    assert not reasons(observations, actions, [200] * 3)


def test_an_episode_far_shorter_than_the_others_is_named(noise):
    assert reasons(*noise, lengths=[5, 195, 200, 200]) == {0: "only 5 steps long, the median is 197.5"}


def test_twins_are_named(noise):
    observations, actions = noise
    observations[200:400], actions[200:400] = observations[:200], actions[:200]
    assert reasons(observations, actions, [200] * 3) == {1: "identical to episode 0"}


def test_frozen_observations_are_named(noise):
    observations, actions = noise
    observations[250:400] = observations[250]
    found = reasons(observations, actions, [200] * 3)
    assert found == {1: "74% of its observations repeat the one before"}


@pytest.mark.parametrize(("value", "reason"), [(1, "at its bounds"), (-1, "at its bounds"), (0, "is zero")])
def test_actions_that_say_nothing_are_named(value, reason, noise):
    observations, actions = noise
    actions[400:] = value
    assert reason in reasons(observations, actions, [200] * 3)[2]


def test_a_value_far_from_all_others_is_named(noise):
    observations, actions = noise
    observations[300, 1] = 1000
    assert reasons(observations, actions, [200] * 3) == {1: "observation 1 is 24 deviations from its mean"}


def test_shared_episodes_are_found_by_content(walk):
    other = Trajectories.concatenate([walk.take([2]), walk.take([0])])
    assert shared_episodes(walk, other).tolist() == [0, 2]
    assert shared_episodes(walk.take([1]), other).tolist() == []


def test_annotations_of_other_episodes_are_refused(walk):
    with pytest.raises(ValueError, match="6 steps, but 2 steps are annotated"):
        describe(walk, Annotations([1, 2], [0, 0]))


def test_an_episode_that_is_shared_several_times_counts_once(walk):
    five, ten = (walk.take([1] * count) for count in (5, 10))
    assert shared_episodes(five, ten).tolist() == [0, 1, 2, 3, 4]


FAULTY = {
    "drive": ["a", "a", "b", "b", None, "c", "c", "c"],
    "stamp": [0, 1, 0, 0, 0, 0, 1, 3],
    "speed": [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 6.0, 6.0],
    "gap": [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, None, 7.0],
    "note": ["x"] * 8,
    "cell": [[1.0], [1.0, 2.0], [1.0], [1.0], [1.0], [1.0], [1.0], [1.0]],
    "steer": [0.0, 5.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0],
    "crash": [False, False, True, True, False, False, False, False],
}


def info(path, *flags):
    named = ["--episode", "drive", "--step", "stamp", "--action", "steer", "--incident", "crash"]
    return main(["data", "info", str(path), *named, *flags])


@pytest.fixture
def faulty(tmp_path):
    path = tmp_path / "faulty.parquet"
    pq.write_table(pa.table(FAULTY), path)
    return path


def test_info_names_every_kind_of_fault_in_one_go(faulty, capsys):
    assert info(faulty, "--observation", "speed,gap,note,cell,missing", "--fill", "gpa=1", "--strict") == 1
    shown = capsys.readouterr().out
    for fault in (
        'no column "missing"',
        '"note" must hold numbers, but holds string',
        'the lists in "cell" must all be equally long, at least 1, but have 1 and 2 entries',
        '"drive" is empty in row 4, in 1 rows',
        'no observation or action is called "gpa"',
        "episode b has step 0 twice",
        '"steer" holds 5, outside its bounds -1 to 1 (1 rows, the first at episode a, step 1)',
        '"gap" is empty at episode c, step 1 (12.50% of its cells)',
    ):
        assert shown.count(fault) == 1, fault
    assert "--action-low -1 --action-high 5" in shown
    assert "1 episodes, 2 steps; 4 declared, 3 passed over" in shown
    assert "speed" in shown
    assert shown.count("fault: ") == 9  # no episode that could be read has an incident


def test_info_describes_columns_where_no_episode_can_be_read(faulty, capsys):
    assert info(faulty, "--observation", "gap,speed", "--action-low", "-5", "--action-high", "-4") == 2
    out, err = capsys.readouterr()
    assert "0 episodes; 4 declared, all passed over" in out
    assert '"crash" holds "false" in 6 rows, "true" in 2 rows' in out
    assert re.search(r"gap +1 +7 +12\.5% +0\.0%", out)
    assert re.search(r"speed +1 +6 +0\.0% +25\.0%", out)
    assert err.count("also:") == 3


def test_info_lists_missing_columns_and_describes_the_others(faulty, capsys):
    assert main(["data", "info", str(faulty), "--json"]) == 2
    out, err = capsys.readouterr()
    found = json.loads(out)
    assert [each["name"] for each in found["columns"]] == ["stamp", "speed", "gap", "steer", "crash"]
    for missing in ('no column "episode"', 'no column "step"', 'need a column "action"', '"observation" of'):
        assert missing in err
