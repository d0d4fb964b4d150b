import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from safemil.data import Columns, load, load_annotated
from safemil.errors import InputError


@pytest.fixture
def parquet(tmp_path):
    def write(**columns):
        pq.write_table(pa.table(columns), tmp_path / "log.parquet")
        return tmp_path / "log.parquet"

    return write


@pytest.fixture
def csv(tmp_path):
    def write(text):
        (tmp_path / "log.csv").write_text(text)
        return tmp_path / "log.csv"

    return write


def log(**changes):
    """Two episodes, of two steps and of one."""
    columns = {
        "episode": ["a", "a", "b"],
        "step": [0, 1, 5],
        "observation": [[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]],
        "action": [[0.1], [0.2], [0.3]],
    } | changes
    return {name: values for name, values in columns.items() if values is not None}


def test_rows_may_come_in_any_order(parquet):
    rng = np.random.default_rng(0)
    episode, step = np.repeat(np.arange(20), 10), np.tile(np.arange(10), 20)
    shuffled = rng.permutation(200)
    value = episode * 100.0 + step
    path = parquet(
        episode=episode[shuffled], step=step[shuffled], obs_0=value[shuffled], act_0=value[shuffled] / 2000
    )
    held = load(path)
    assert held.lengths.tolist() == [10] * 20
    for number, observations in enumerate(held.by_episode(held.observations)):
        np.testing.assert_array_equal(observations[:, 0], held.ids[number] * 100 + np.arange(10))


def test_episodes_come_by_name_whatever_the_order_of_their_rows(parquet):
    held = load(parquet(**log(episode=["b", "b", "a"])))
    assert held.ids.tolist() == ["a", "b"]
    assert held.first_steps.tolist() == [5, 0]
    assert held.observations.tolist() == [[5, 6], [1, 2], [3, 4]]


@pytest.mark.parametrize(
    "kind",
    [pa.list_(pa.float64()), pa.list_(pa.float32(), 2), pa.large_list(pa.float64()), pa.list_(pa.int16())],
)
def test_every_kind_of_list_is_read(kind, parquet):
    held = load(parquet(**log(observation=pa.array([[1, 2], [3, 4], [5, 6]], kind))))
    assert held.observations.tolist() == [[1, 2], [3, 4], [5, 6]]


@pytest.mark.parametrize("kind", [pa.int8(), pa.uint64(), pa.float16(), pa.bool_(), pa.decimal128(30, 2)])
def test_every_kind_of_number_is_read(kind, parquet):
    ones = pa.array([1, 1, 1]).cast(kind) if kind != pa.float16() else pa.array(np.ones(3, np.float16))
    held = load(parquet(**log(observation=None, obs_0=ones)))
    assert held.observations.tolist() == [[1], [1], [1]]


@pytest.mark.parametrize("names", [pa.string(), pa.large_string(), pa.dictionary(pa.int32(), pa.string())])
def test_every_kind_of_text_names_an_episode(names, parquet):
    assert load(parquet(**log(episode=pa.array(["b", "b", "a"], names)))).ids.tolist() == ["a", "b"]


def test_a_pattern_names_columns_in_natural_order_and_a_list_in_its_own(csv):
    path = csv("episode,step,obs_10,obs_9,obs_1,act_b,act_a\n0,0,10,9,1,0.2,0.1\n")
    held = load(path)
    assert held.observations.tolist() == [[1, 9, 10]]
    assert (held.observation_names, held.action_names) == (("obs_1", "obs_9", "obs_10"), ("act_a", "act_b"))
    np.testing.assert_allclose(held.actions, [[0.1, 0.2]], rtol=1e-6)
    listed = load(path, columns=Columns(observation="obs_9, obs_*", action="act_b,act_a"))
    assert listed.observation_names == ("obs_9", "obs_1", "obs_10")
    assert listed.action_names == ("act_b", "act_a")


def test_columns_may_have_names_of_their_own(csv):
    path = csv("trip;t;speed;gap_1;gap_0;steer;paid;hit;done\nx;3;1;3;2;0.5;7;1;true\n")
    columns = Columns("trip", "t", "speed, gap_*", "steer", reward="paid", cost="hit", terminated="done")
    held, marks = load_annotated(path, columns=columns)
    assert held.observations.tolist() == [[1, 2, 3]]
    assert held.actions.tolist() == [[0.5]]
    assert held.ids.tolist() == ["x"]
    assert held.terminated.tolist() == [True]
    assert (marks.rewards.tolist(), marks.costs.tolist()) == ([7], [1])


def test_tabs_and_a_byte_order_mark_are_fine(csv):
    assert load(csv("\ufeffepisode\tstep\tobs_0\tact_0\n0\t0\t1\t0\n")).observations.tolist() == [[1]]


def test_a_last_row_without_an_action_is_the_final_observation(csv):
    held = load(csv("episode,step,obs_0,act_0,cost\n0,2,30,,\n0,0,10,0,1\n0,1,20,0,1\n1,0,1,0,1\n"))
    assert held.observations.ravel().tolist() == [10, 20, 1]
    assert held.final_observations.ravel().tolist() == [30, 0]
    assert held.has_final.tolist() == [True, False]
    assert held.lengths.tolist() == [2, 1]


@pytest.mark.parametrize("kind", [pa.list_(pa.float64()), pa.list_(pa.float64(), 1)])
def test_a_final_observation_has_an_empty_list_for_its_action(kind, parquet):
    held = load(parquet(**log(action=pa.array([[0.1], None, [0.3]], kind))))
    assert held.lengths.tolist() == [1, 1]
    assert held.final_observations.tolist() == [[3, 4], [0, 0]]
    np.testing.assert_allclose(held.actions, [[0.1], [0.3]], rtol=1e-6)


def test_an_episode_is_terminated_if_any_of_its_rows_says_so(csv):
    held = load(csv("episode,step,obs_0,act_0,terminated\n0,0,1,0,0\n0,1,1,0,1\n1,0,1,0,0\n"))
    assert held.terminated.tolist() == [True, False]


def test_bounds_scale_the_actions(parquet):
    path = parquet(**log(action=[[0.0, 5.0], [10.0, 6.0], [5.0, 7.0]]))
    held = load(path, action_bounds=([0, 5], [10, 7]))
    assert held.actions.tolist() == [[-1, -1], [1, 0], [0, 1]]
    assert held.recorded_actions().tolist() == [[0, 5], [10, 6], [5, 7]]
    assert load(path, action_bounds=(-10, 10)).actions[1].tolist() == [1, pytest.approx(0.6)]


def test_actions_outside_their_bounds_say_which_and_what_to_do(parquet, csv):
    path = parquet(**log(action=[[0.0, 0.0], [0.0, 3.5], [0.0, 0.0]]))
    with pytest.raises(
        InputError, match=r'"action\[1\]" holds 3\.5, outside its bounds -1 to 1 .*; give the action bounds'
    ):
        load(path)
    with pytest.raises(InputError, match="one number or 2, one per action column"):
        load(path, action_bounds=([1, 2, 3], 4))
    with pytest.raises(InputError, match="low < high, got 4 and -4"):
        load(path, action_bounds=(4, -4))
    with pytest.raises(InputError, match='"act_0" holds -2'):
        load(csv("episode,step,obs_0,act_0\n0,0,1,-2\n"))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"episode": None}, 'no column "episode"'),
        ({"step": None}, 'no column "step"; did you mean "stap"'),
        ({"observation": None}, r'need a column "observation" of lists or columns obs_\* of numbers'),
        ({"action": None}, r"columns: episode, step, observation, stap\); say which columns hold the action"),
        ({"observation": [[1.0], [1.0, 2.0], [1.0]]}, "equally long.*one has 1 entries and another 2"),
        ({"observation": [[], [], []]}, "equally long, at least 1"),
        (
            {"observation": [[1.0, 2.0], None, [1.0, 2.0]]},
            r'"observation\[0\]" is empty at episode a, step 1',
        ),
        (
            {"observation": [[1.0, 2.0], [1.0, None], [1.0, 2.0]]},
            r'"observation\[1\]" is empty at episode a, step 1',
        ),
        (
            {"observation": [[1.0, 2.0], [1.0, np.nan], [1, 2]]},
            r'"observation\[1\]".*is nan at episode a, step 1',
        ),
        ({"observation": [[1.0, 2.0], [1.0, 2.0], [np.inf, 2]]}, "is inf at episode b, step 5"),
        ({"observation": ["x", "y", "z"]}, '"observation" must hold numbers, but holds string'),
        ({"action": [[np.nan], [0.0], [0.0]]}, r'"action\[0\]".*is nan at episode a, step 0'),
        ({"action": [None, [0.0], [0.0]]}, r'"action" is empty at episode a, step 0 \(.*only the last row'),
        ({"action": [[0.0], [0.0], None]}, "episode b has no step with an action"),
        ({"step": [0, 0, 5]}, "episode a has step 0 twice"),
        ({"step": [0, None, 5]}, '"step" is empty in row 1'),
        ({"episode": ["a", None, "b"]}, '"episode" is empty in row 1'),
        ({"episode": [True, True, False]}, '"episode" must hold whole numbers or text'),
        ({"cost": ["high", "low", "low"]}, '"cost" must hold numbers'),
    ],
)
def test_what_is_wrong_with_a_table_is_said(changes, message, parquet):
    with pytest.raises(InputError, match=message) as caught:
        load(parquet(**log(stap=[0, 0, 0], **changes)))
    assert "log.parquet: " in str(caught.value)


def test_a_table_without_rows_is_refused(parquet, csv):
    with pytest.raises(InputError, match="has no rows"):
        load(csv("episode,step,obs_0,act_0\n"))


def test_an_action_that_is_half_there_is_refused(csv):
    with pytest.raises(InputError, match='"act_1" is empty at episode 0, step 1'):
        load(csv("episode,step,obs_0,act_0,act_1\n0,0,1,0,0\n0,1,1,0,\n"))


def test_nan_in_a_csv_is_no_missing_action(csv):
    with pytest.raises(InputError, match=r'"act_0".*is nan at episode 0, step 1'):
        load(csv("episode,step,obs_0,act_0\n0,0,1,0\n0,1,1,nan\n"))


def test_a_csv_with_rows_of_different_widths_is_refused(csv):
    with pytest.raises(InputError, match=r"CSV file can't be read.*Expected 4 columns, got 3"):
        load(csv("episode,step,obs_0,act_0\n0,0,1,0\n0,1,1\n"))


def test_a_column_that_is_there_twice_is_refused(csv):
    with pytest.raises(InputError, match='2 columns called "step"'):
        load(csv("episode,step,step,obs_0,act_0\n0,0,0,1,0\n"))


def test_a_wrong_name_is_answered_with_the_near_ones(parquet):
    with pytest.raises(InputError, match='no column "episod"; did you mean "episode"'):
        load(parquet(**log()), columns=Columns(episode="episod"))
    with pytest.raises(InputError, match='no column begins with "sensor_"'):
        load(parquet(**log()), columns=Columns(observation="sensor_*"))


def test_two_episodes_of_one_name_can_not_share_a_table(walk, tmp_path):
    from safemil.data import save

    with pytest.raises(InputError, match="a name of its own for each episode"):
        save(tmp_path / "log.parquet", walk.take([0, 0]))
    assert not list(tmp_path.iterdir())


def test_damaged_bounds_in_a_file_are_refused(parquet):
    path = parquet(**log())
    table = pq.read_table(path).replace_schema_metadata({"safemil": "{}"})
    pq.write_table(table, path)
    with pytest.raises(InputError, match="recorded action bounds can't be read"):
        load(path)


def test_duplicate_names_among_the_columns_that_a_pattern_matches_are_refused(csv, tmp_path):
    with pytest.raises(InputError, match='2 columns called "obs_0"; rename one of them'):
        load(csv("episode,step,obs_0,obs_1,obs_0,act_0\n0,0,1,2,3,0\n"))
    columns = [pa.array([0]), pa.array([0]), pa.array([1.0]), pa.array([0.1]), pa.array([0.2])]
    table = pa.Table.from_arrays(columns, names=["episode", "step", "obs_0", "act_0", "act_0"])
    pq.write_table(table, tmp_path / "log.parquet")
    with pytest.raises(InputError, match='2 columns called "act_0"'):
        load(tmp_path / "log.parquet")


def test_duplicate_names_of_columns_that_are_not_read_do_no_harm(csv):
    assert load(csv("episode,step,obs_0,act_0,note,note\n0,0,1,0,a,b\n")).steps == 1
