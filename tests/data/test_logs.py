"""Logs as they are: one table or many files, in any order, with gaps, empty cells and incidents."""

import gzip
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from safemil.cli import main
from safemil.data import Columns, Options, Piles, load
from safemil.data.filling import fill_rows
from safemil.data.formats import read
from safemil.data.interchange import Fill
from safemil.errors import InputError, InputWarning

COLUMNS = Columns("drive", "stamp", "speed,gap_*", "steer")
HOW = {"columns": COLUMNS, "fill": ["gap_*=90", "speed=previous"]}
FIXTURES = Path(__file__).parents[3] / "shared" / "fixtures"


def drives(**changes):
    """Three drives of 4, 3 and 3 steps; the second has an incident at its end, the third throughout."""
    stamps = np.datetime64("2026-03-01T08:00:00", "ms") + np.array(
        [0, 100, 200, 300, 0, 100, 1300, 0, 90, 200]
    )
    columns = {
        "drive": ["a"] * 4 + ["b"] * 3 + ["c"] * 3,
        "stamp": stamps,
        "speed": [None, 2.0, None, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0, 10.0],
        "gap_front": [10.0, None, 30.0, 40.0, 50.0, 60.0, 70.0, 80.0, None, 99.0],
        "gap_back": np.arange(10.0),
        "steer": np.linspace(-1, 1, 10),
        "incident": [False] * 6 + [True] + [True] * 3,
    } | changes
    return pa.table({name: values for name, values in columns.items() if values is not None})


@pytest.fixture
def log(tmp_path):
    def write(table=None, name="log.parquet", **changes):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        table = drives(**changes) if table is None else table
        if path.suffix == ".parquet":
            pq.write_table(table, path)
        else:
            with pa.output_stream(str(path), compression="detect") as stream:
                pyarrow.csv.write_csv(table, stream)
        return path

    return write


def same(one, other):
    return one.content_hash() == other.content_hash() and one.ids.tolist() == other.ids.tolist()


@settings(deadline=None, max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
@pytest.mark.filterwarnings("ignore:.*rows in several files")
def test_any_order_of_rows_columns_and_files_gives_the_same_trajectories(data, tmp_path):
    plain = tmp_path / "plain.parquet"
    pq.write_table(drives(), plain)
    expected = load(plain, **HOW)
    table = drives().take(data.draw(st.permutations(range(10))))
    table = table.select(data.draw(st.permutations(table.column_names)))
    folder = tmp_path / "folder"
    folder.mkdir(exist_ok=True)
    for old in folder.iterdir():
        old.unlink()
    parts = data.draw(st.lists(st.integers(0, 2), min_size=10, max_size=10))
    for part in set(parts):
        rows = table.take([i for i, each in enumerate(parts) if each == part])
        pq.write_table(rows, folder / f"{part}.parquet")
    paths = data.draw(st.permutations(sorted(folder.iterdir())))
    one = tmp_path / "one.parquet"
    pq.write_table(table, one)
    assert same(load(one, **HOW), expected)
    # Rows that lie far apart in time may make two episodes of a name that several files have.
    joined = load(paths, **HOW, max_gap="1h")
    assert same(joined, expected)
    assert joined.observation_names == expected.observation_names
    np.testing.assert_array_equal(joined.step_values, expected.step_values)
    np.testing.assert_array_equal(joined.has_final, expected.has_final)


def test_an_incident_column_gives_both_piles_and_marks(log):
    piles = load(log(), **HOW, incident="incident")
    assert isinstance(piles, Piles)
    assert (piles.nonpreferred.ids.tolist(), piles.unlabeled.ids.tolist()) == (["b", "c"], ["a"])
    assert piles.nonpreferred.marks.tolist() == [False, False, True, False, False, False]


@pytest.mark.parametrize(
    "values",
    [[0] * 6 + [1] * 4, ["no"] * 6 + ["yes"] * 4, [None] * 6 + ["crash"] * 4, ["False"] * 6 + ["True"] * 4],
)
@pytest.mark.parametrize("name", ["log.parquet", "log.csv"])
def test_every_way_to_say_yes_is_understood(values, name, log):
    piles = load(log(name=name, incident=values), **HOW, incident="incident")
    assert piles.nonpreferred.ids.tolist() == ["b", "c"]


def test_one_value_of_a_column_or_a_list_names_the_incidents(log):
    path = log(incident=["fine"] * 7 + ["off_track"] * 3)
    assert load(path, **HOW, incident="incident=off_track").nonpreferred.ids.tolist() == ["c"]
    assert load(path, **HOW, incident_episodes=["b"]).nonpreferred.ids.tolist() == ["b"]
    with pytest.raises(InputError, match=r'no episode is without an incident.*"fine" in 7 rows'):
        load(path, **HOW, incident="incident")
    with pytest.raises(InputError, match=r'no episode is an incident.*"off_track" in 3 rows'):
        load(path, **HOW, incident="incident=on_track")
    with pytest.raises(InputError, match='no episode "d"'):
        load(path, **HOW, incident_episodes=["d"])
    with pytest.raises(InputError, match='no column "incidents"; did you mean "incident"'):
        load(path, **HOW, incident="incidents")


@pytest.mark.parametrize(
    "steps",
    [
        [0, 1, 2, 3, 0, 1, 5, 0, 1, 2],
        np.array([0, 0.1, 0.2, 0.3, 0, 0.1, 1.3, 0, 0.1, 0.2]),
        [f"2026-01-01T00:00:0{i}" for i in (0, 1, 2, 3, 0, 1, 5, 0, 1, 2)],
        [f"2026-01-01T00:00:0{i}+02:00" for i in (0, 1, 2, 3, 0, 1, 5, 0, 1, 2)],
        pa.array([0, 1, 2, 3, 0, 1, 5, 0, 1, 2], pa.duration("ms")),
        pa.array([0, 1, 2, 3, 0, 1, 5, 0, 1, 2], pa.timestamp("us", "Europe/Berlin")),
        ["a", "b", "c", "d", "a", "b", "c", "a", "b", "c"],
        ["8", "9", "10", "11", "1", "2", "3", "1", "2", "3"],
    ],
)
def test_any_column_that_sorts_orders_the_steps(steps, log):
    table = drives(stamp=steps)
    expected = load(log(), **HOW)
    held = load(log(table.take([9, 2, 1, 5, 3, 0, 8, 6, 4, 7])), **HOW)
    np.testing.assert_array_equal(held.observations, expected.observations)
    assert held.logged_steps.tolist() == load(log(table), **HOW).logged_steps.tolist()


def test_gaps_are_reported_and_kept_apart_only_on_request(log):
    options = Options(COLUMNS, fills=(Fill("gap_*", 90.0), Fill("speed", "previous")))
    contents = read(log(), options)
    assert contents.notes[0].startswith("11 steps are missing in 1 episodes (the usual step is 0.1 s)")
    assert "before episode b, step 2026-03-01T08:00:01.300" in contents.notes[0]
    assert not contents.trajectories.after_gap.any()
    held = load(log(), **HOW, max_gap="1s")
    assert np.flatnonzero(held.after_gap).tolist() == [6]
    assert held.lengths.tolist() == [4, 3, 3]


@pytest.mark.parametrize(
    ("gap", "message"),
    [("soon", "500ms, 1s"), (0, "above 0"), ("-1s", "above 0"), ("1 parsec", "500ms, 1s")],
)
def test_a_gap_that_is_no_duration_is_refused(gap, message, log):
    with pytest.raises(InputError, match=message):
        load(log(), **HOW, max_gap=gap)


def test_a_duration_needs_times(log):
    with pytest.raises(InputError, match="holds numbers, not times"):
        load(log(stamp=np.arange(10)), **HOW, max_gap="1s")


def test_doubled_steps_list_the_first_five(log):
    with pytest.raises(
        InputError, match=r"episode a has step 0 twice.*episode b has step 0 twice, and 2 more"
    ):
        load(log(stamp=[0] * 10), **HOW)


def test_empty_cells_name_all_columns_their_shares_and_the_flags(log, capsys):
    path = log()
    with pytest.raises(InputError, match=r'"speed" is empty at episode a.*20\.00%.*"gap_front" is empty'):
        load(path, columns=COLUMNS)
    flags = ["--episode", "drive", "--step", "stamp", "--observation", "speed,gap_*", "--action", "steer"]
    assert main(["data", "convert", str(path), str(path.with_name("out")), *flags]) == 2
    assert '--fill "speed=previous" --fill "gap_front=previous"' in capsys.readouterr().err.replace("\n", " ")
    assert not path.with_name("out").exists()


def test_cells_are_filled_by_number_by_the_one_before_and_flagged(log):
    held = load(log(), columns=COLUMNS, fill=["gap_front=flag", "gap_*=90", "speed=previous"])
    assert held.observation_names == ("speed", "gap_back", "gap_front", "gap_front is missing")
    assert held.observations[:4, 0].tolist() == [2, 2, 2, 4]
    assert held.observations[:4, 2].tolist() == [10, 90, 30, 40]
    assert np.flatnonzero(held.observations[:, 3]).tolist() == [1, 8]


def test_resolved_options_read_another_file_in_the_same_way(log):
    options = Options(COLUMNS, fills=(Fill("gap_*", 90.0), Fill("speed", "previous")), max_gap="1s")
    first = read(log(), options)
    again = read(log(), Options.from_dict(first.resolved.to_dict()))
    assert first.resolved.columns.observation == ("speed", "gap_back", "gap_front")
    assert same(first.trajectories, again.trajectories)


def test_a_rule_that_fills_nothing_and_a_single_row(log):
    with pytest.raises(InputError, match='is called "gpa_front", which should be filled'):
        load(log(), columns=COLUMNS, fill=["gpa_front=1"])
    nothing = np.full((1, 1), np.nan, np.float32)
    with pytest.raises(InputError, match="previous, needs an earlier row"):
        fill_rows(nothing, ["gap"], [Fill("gap", "previous")])
    with pytest.raises(InputError, match="no rule fills it"):
        fill_rows(nothing, ["gap"], [])


def test_the_incident_column_is_never_observed(log):
    with pytest.raises(InputError, match="can't be observed too"):
        load(log(), columns=Columns("drive", "stamp", "speed,incident", "steer"), incident="incident")
    wild = Columns("drive", "stamp", "*", "steer")
    piles = load(log(), columns=wild, fill=["*=0"], incident="incident")
    assert piles.unlabeled.observation_names == ("gap_back", "gap_front", "speed")


@pytest.mark.parametrize("name", ["a.csv", "a.csv.gz", "a.csv.zst", "a.parquet"])
def test_folders_patterns_and_compressed_files_are_one_log(name, log, tmp_path):
    expected = load(log(), **HOW)
    for number, rows in enumerate((range(4), range(4, 7), range(7, 10))):
        log(drives().take([*rows]), f"logs/vehicle={number}/{name}")
    for paths in (tmp_path / "logs", str(tmp_path / "logs" / "*" / f"a{name[1:]}")):
        assert same(load(paths, **HOW), expected)
    by_vehicle = load(
        tmp_path / "logs", **HOW | {"columns": Columns("vehicle", "stamp", "speed,gap_*", "steer")}
    )
    assert by_vehicle.ids.tolist() == ["0", "1", "2"]


def test_names_that_repeat_in_several_files_are_told_apart(log, tmp_path):
    for name in ("logs/monday/1.csv", "logs/tuesday/1.csv"):
        log(drives(), name)
    with pytest.warns(
        InputWarning, match="3 names of episodes are in several files, told apart by the folder"
    ):
        held = load(tmp_path / "logs", **HOW)
    assert held.ids.tolist() == ["monday/a", "monday/b", "monday/c", "tuesday/a", "tuesday/b", "tuesday/c"]


def test_files_without_an_episode_column_are_an_episode_each(log, tmp_path):
    for number, rows in enumerate((range(4), range(4, 7))):
        log(drives().take([*rows]).drop_columns(["drive"]), f"logs/run-{number}.csv")
    with pytest.warns(InputWarning, match="each of 2 files is an episode"):
        held = load(tmp_path / "logs", **HOW)
    assert held.ids.tolist() == ["run-0", "run-1"]


def test_files_that_lack_a_column_or_match_nothing_are_named(log, tmp_path):
    log(drives(), "logs/1.csv")
    log(drives(speed=None), "logs/2.csv")
    with pytest.raises(InputError, match=r'2\.csv has no column "speed"'):
        load(tmp_path / "logs", **HOW)
    with pytest.raises(InputError, match="no file or folder matches"):
        load(str(tmp_path / "*.txt"), **HOW)
    (tmp_path / "bad.csv.gz").write_bytes(gzip.compress(b"drive,stamp\n")[:-9])
    with pytest.raises(InputError, match=r"bad\.csv\.gz"):
        load(tmp_path / "bad.csv.gz", **HOW)


def test_choices_are_columns_of_minus_one_and_one(log):
    path = log(name="texts.parquet", steer=["left", "right", "left", "keep"] * 2 + ["left", "keep"])
    held = load(path, **HOW)
    assert held.action_categories == ("keep", "left", "right")
    assert held.action_names == ("steer=keep", "steer=left", "steer=right")
    assert held.actions[:2].tolist() == [[-1, 1, -1], [-1, -1, 1]]
    numbers = load(log(steer=[0, 1] * 5), **HOW, action_kind="discrete")
    assert numbers.action_categories == ("0", "1")
    known = Options(COLUMNS, fills=(Fill("*", 0.0),), action_kind="discrete", action_categories=("0", "2"))
    with pytest.raises(InputError, match=r'"steer" holds "1".*none of the choices 0, 2'):
        read(log(steer=[0, 1] * 5), known)
    with pytest.raises(InputError, match="must hold texts or whole numbers"):
        load(log(), **HOW, action_kind="discrete")
    with pytest.raises(InputError, match='"steer" must hold numbers'):
        load(path, **HOW, action_kind="continuous")


def test_info_lists_every_fault_and_what_it_could_read(log, capsys):
    speeds = [1.0] * 4 + [None] + [1.0] * 2 + [np.inf] * 3
    path = log(speed=speeds, gap_front=np.ones(10))
    flags = ["--episode", "drive", "--step", "stamp", "--observation", "speed,gap_*", "--action", "steer"]
    assert main(["data", "info", str(path), *flags, "--strict"]) == 1
    shown = capsys.readouterr().out
    assert "1 episodes, 4 steps; 3 declared, 2 passed over" in shown
    assert shown.count("fault: ") == 2
    assert main(["data", "info", str(path), *flags]) == 0


def test_written_tables_keep_times_names_and_marks(log, tmp_path):
    from safemil.data import save

    bad = load(log(), **HOW, incident="incident", max_gap="1s").nonpreferred
    save(tmp_path / "bad.parquet", bad)
    again = load(tmp_path / "bad.parquet")
    assert again.content_hash() == bad.content_hash()
    assert again.observation_names == bad.observation_names
    np.testing.assert_array_equal(again.step_values, bad.step_values)


@pytest.mark.skipif(not (FIXTURES / "deepracer").exists(), reason="needs ../shared")
def test_deepracer_goes_in_with_flags_alone():
    columns = Columns(step="steps", observation="X,Y,yaw", action="action")
    with pytest.warns(InputWarning, match="told apart by the folder"):
        piles = load(
            FIXTURES / "deepracer",
            columns=columns,
            action_kind="discrete",
            incident="episode_status=off_track",
        )
    assert (len(piles.nonpreferred), len(piles.unlabeled)) == (130, 70)
    assert piles.nonpreferred.steps + piles.unlabeled.steps == 30847
    assert piles.nonpreferred.marks.sum() == 130


LIST = ["--episode", "drive", "--step", "stamp", "--observation", "speed,gap_*", "--action", "steer"]
FILLED = [*LIST, "--fill", "gap_*=90", "--fill", "speed=previous"]


@pytest.mark.parametrize(
    ("changes", "flags", "message"),
    [
        ({}, LIST, '"speed" is empty at episode a'),
        ({"incident": [False] * 10}, FILLED, 'no episode is an incident, of 3; "incident" holds "false"'),
        ({"incident": [True] * 10}, FILLED, "no episode is without an incident"),
        ({"incident": None}, FILLED, 'no column "incident"'),
        ({"stamp": [0] * 10}, FILLED, "may come once, but episode a has step 0 twice"),
        ({"stamp": [0, None, *range(8)]}, FILLED, '"stamp" is empty in row 1'),
        ({"steer": [9.0] + [0.0] * 9}, FILLED, "all actions lie in --action-low -1 --action-high 9"),
        ({"steer": ["left"] * 10}, [*FILLED, "--action-kind", "continuous"], '"steer" must hold numbers'),
        ({"steer": ["left"] * 10}, FILLED, '"steer" has 1 different values; a choice has 2 to 256'),
        ({"speed": ["fast"] * 10}, FILLED, '"speed" must hold numbers, but holds string'),
        ({}, [*FILLED, "--fill", "gpa=1"], 'no observation or action is called "gpa"'),
        ({}, [*FILLED, "--fill", "gap_front=soon"], "can be filled with a number, previous or flag"),
        ({}, [*FILLED, "--fill", "steer=flag"], "empty cells of an action can't be flagged"),
        ({}, [*FILLED, "--max-gap", "soon"], "must be a number above 0, or a duration"),
        ({}, [*FILLED, "--action-low", "1"], "action bounds come in pairs"),
        ({}, [*FILLED, "--action-low", "1", "2", "--action-high", "3", "4"], "must be one number or 1"),
        ({}, [*FILLED, "--incident-episodes", "z"], 'no episode "z"'),
        ({}, [*FILLED, "--nonpreferred", "log.parquet"], "--logs holds all episodes"),
    ],
)
def test_a_wrong_log_is_one_message_and_nothing_is_written(changes, flags, message, log, capsys):
    path = log(**changes)
    out = path.with_name("run")
    command = ["train", "bc", "--logs", str(path), "--incident", "incident", *flags, "--out", str(out)]
    assert main([*command, "--set", "updates=2"]) == 2
    told = capsys.readouterr().err
    assert message in told
    assert told.count("error: ") == 1
    assert "Traceback" not in told
    assert [each.name for each in path.parent.iterdir()] == [path.name]
