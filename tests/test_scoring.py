"""`safemil score`: the run knows its columns, and the file it writes keeps the log's own names and values."""

import warnings

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import pytest

import safemil
from safemil.cli import main
from safemil.data import Trajectories
from safemil.errors import InputError, InputWarning
from small import FLAGS

COLUMNS = [
    "--observation",
    "gap,speed,lane",
    "--action",
    "accel,steer",
    "--episode",
    "drive",
    "--step",
    "stamp",
]
BOUNDS = ["--action-low", "-6", "-0.3", "--action-high", "6", "0.3"]
BEGIN = np.datetime64("2026-03-01T08:00:00", "ms")
WRITE = {".parquet": pyarrow.parquet.write_table, ".csv": pyarrow.csv.write_csv}
READ = {".parquet": pyarrow.parquet.read_table, ".csv": pyarrow.csv.read_csv}


def named(pile: Trajectories) -> Trajectories:
    return Trajectories(
        pile.observations,
        pile.actions,
        pile.lengths,
        action_low=[-6, -0.3],
        action_high=[6, 0.3],
        observation_names=["gap", "speed", "lane"],
        action_names=["accel", "steer"],
    )


def table(pile):
    """A log as it comes: names of drives, timestamps, and a column that no flag names."""
    values = np.hstack([pile.observations.astype(np.float64), pile.recorded_actions()])
    steps = [*pile.step_numbers.tolist()]
    columns = dict(zip(("gap", "speed", "lane", "accel", "steer"), values.T, strict=True))
    return pa.table(
        {
            "drive": pa.array([f"d{number}" for number in pile.episode_of_step], pa.string()),
            "stamp": pa.array(BEGIN + 100 * np.array(steps), pa.timestamp("ms", "UTC")),
            **columns,
            "note": pa.array(["" if step else "start" for step in steps]),
        }
    )


@pytest.fixture(scope="module")
def folder(unlabeled, nonpreferred, tmp_path_factory):
    folder = tmp_path_factory.mktemp("score")
    for name, pile in (("logs", unlabeled), ("bad", nonpreferred)):
        pyarrow.parquet.write_table(table(named(pile)), folder / f"{name}.parquet")
    piles = ["--unlabeled", f"{folder}/logs.parquet", "--nonpreferred", f"{folder}/bad.parquet"]
    command = ["train", "safemil", *piles, *COLUMNS, *BOUNDS, *FLAGS, "--log-every", "20"]
    assert main([*command, "--out", f"{folder}/run"]) == 0
    return folder


@pytest.fixture(scope="module")
def log(folder):
    return pyarrow.parquet.read_table(folder / "logs.parquet")


@pytest.fixture(scope="module")
def expected(folder):
    assert main(["score", f"{folder}/run", f"{folder}/logs.parquet", "--out", f"{folder}/risk.parquet"]) == 0
    return pyarrow.parquet.read_table(folder / "risk.parquet")


def score(folder, log, name, *flags, out="risk.parquet", path):
    WRITE[name[name.index(".") :]](log, path / name)
    code = main(["score", f"{folder}/run", f"{path}/{name}", "--out", f"{path}/{out}", *flags])
    return READ[out[out.index(".") :]](path / out) if code == 0 else code


def test_a_run_of_several_seeds_writes_how_far_they_disagree(folder, tmp_path):
    piles = ["--unlabeled", f"{folder}/logs.parquet", "--nonpreferred", f"{folder}/bad.parquet"]
    out = ["--seeds", "2", "--out", f"{tmp_path}/run"]
    assert main(["train", "safemil", *piles, *COLUMNS, *BOUNDS, *FLAGS, *out]) == 0
    assert main(["score", f"{tmp_path}/run", f"{folder}/logs.parquet", "--out", f"{tmp_path}/risk.csv"]) == 0
    found = pyarrow.csv.read_csv(tmp_path / "risk.csv")
    assert found.column_names == ["drive", "stamp", "risk", "novelty", "risk_spread"]
    trained = safemil.Run.load(tmp_path / "run")
    spread = trained.cost(trained.read(folder / "logs.parquet"), spread=True)
    written = np.sort(found["risk_spread"].to_numpy())
    np.testing.assert_allclose(written, np.sort(np.concatenate(spread.deviation)), rtol=1e-5)


def test_risk_keeps_the_logs_own_columns_values_and_types(folder, log, expected):
    assert expected.column_names == ["drive", "stamp", "risk", "novelty"]
    assert expected.select(["drive", "stamp"]).equals(log.select(["drive", "stamp"]))
    run = safemil.Run.load(folder / "run")
    held = run.read(folder / "logs.parquet")
    np.testing.assert_array_equal(expected["risk"], np.concatenate(run.cost(held)))
    assert not np.asarray(expected["novelty"]).any()


@pytest.mark.parametrize("name", ["sorted.csv", "sorted.parquet"])
def test_columns_and_rows_in_another_order_give_the_same_risks(folder, log, expected, name, tmp_path):
    """Columns sorted by name once gave other risks without a word."""
    rows = np.random.default_rng(0).permutation(log.num_rows)
    other = log.select(sorted(log.column_names)).take(rows)
    found = score(folder, other, name, path=tmp_path)
    np.testing.assert_allclose(found["risk"], np.asarray(expected["risk"])[rows], rtol=1e-5)
    assert found["drive"].equals(other["drive"])
    stamps = [
        each.removesuffix("Z") if isinstance(each, str) else each for each in found["stamp"].to_pylist()
    ]
    expected_stamps = other["stamp"].cast(pa.timestamp("ms"))
    assert pa.array(stamps).cast(pa.timestamp("ms")).equals(expected_stamps.combine_chunks())


def test_a_pattern_that_names_the_columns_in_another_order_is_put_right(folder, log, expected, tmp_path):
    found = score(folder, log, "a.parquet", "--observation", "lane,gap,sp*", path=tmp_path)
    np.testing.assert_array_equal(found["risk"], expected["risk"])


@pytest.mark.parametrize(
    ("change", "flags", "message"),
    [
        (lambda log: log.rename_columns([each.replace("gap", "gapp") for each in log.column_names]), [],
         'no column "gap"; did you mean "gapp"?'),
        (lambda log: log, ["--observation", "speed,lane"],
         'lack observation columns that this run was trained on: "gap"; there are speed, lane.'),
        (lambda log: log, ["--action-low", "-9", "--action-high", "9"],
         "trained on accel bounded by -6 and 6, but the data have it bounded by -9 and 9"),
        (lambda log: log.append_column("risk", log["gap"]), ["--append"],
         'the log has a column "risk" already'),
    ],
)  # fmt: skip
def test_wrong_columns_are_one_line_and_nothing_is_written(
    folder, log, change, flags, message, tmp_path, capsys
):
    assert score(folder, change(log), "a.parquet", *flags, path=tmp_path) == 2
    assert message in capsys.readouterr().err.replace("\n", " ")
    assert [each.name for each in tmp_path.iterdir()] == ["a.parquet"]


@pytest.mark.parametrize("name", ["all.csv", "all.parquet"])
def test_append_writes_every_column_and_row_of_the_log(folder, log, expected, name, tmp_path):
    end = {"drive": "d0", "stamp": (BEGIN + 10**6).item(), "gap": 0.0, "speed": 0.0, "lane": 0.0}
    with_end = pa.concat_tables([pa.Table.from_pylist([end], schema=log.schema), log])
    found = score(folder, with_end, "a.parquet", "--append", out=name, path=tmp_path)
    assert found.column_names == [*log.column_names, "risk", "novelty"]
    assert found.num_rows == log.num_rows + 1
    assert found["risk"][0].as_py() is None  # the first row is a final observation, and no step
    np.testing.assert_allclose(found["risk"][1:], expected["risk"], rtol=1e-5)
    if name.endswith(".parquet"):
        assert found.select(log.column_names).equals(with_end)


def test_a_file_that_was_converted_by_safemil_is_scored_without_flags(folder, expected, tmp_path):
    run = safemil.Run.load(folder / "run")
    safemil.save(tmp_path / "converted.parquet", run.read(folder / "logs.parquet"))
    found = np.concatenate(run.cost(run.read(tmp_path / "converted.parquet")))
    np.testing.assert_allclose(found, expected["risk"], rtol=1e-5)


def test_append_needs_a_table(folder, unlabeled, tmp_path, capsys):
    safemil.save(tmp_path / "store", named(unlabeled))
    command = ["score", f"{folder}/run", f"{tmp_path}/store", "--out", f"{tmp_path}/r.csv"]
    assert main(command) == 0
    assert READ[".csv"](tmp_path / "r.csv").column_names == ["episode", "step", "risk", "novelty"]
    assert main([*command, "--overwrite", "--append"]) == 2
    assert "only tables (Parquet, CSV) have columns to append to" in capsys.readouterr().err


def test_episodes_far_from_the_training_data_are_counted(folder, log, tmp_path, capsys):
    far = np.where(np.asarray(log["drive"]) == "d1", 1e6, np.asarray(log["gap"]))
    found = score(folder, log.set_column(2, "gap", pa.array(far)), "far.parquet", path=tmp_path)
    shown = " ".join(capsys.readouterr().out.split())
    assert (
        "In 1 of 4 episodes the risk should not be trusted: more than 5% of their steps lie over 1" in shown
    )
    novel = np.asarray(found["novelty"])
    assert (novel > 1e5).tolist() == (np.asarray(log["drive"]) == "d1").tolist()


def test_files_that_share_names_of_episodes_are_told_apart(folder, log, expected, tmp_path):
    for name in ("a.parquet", "b.parquet"):
        pyarrow.parquet.write_table(log, tmp_path / name)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", InputWarning)
        out = f"{tmp_path}/r.csv"
        assert main(["score", f"{folder}/run", f"{tmp_path}/*.parquet", "--out", out]) == 0
    found = READ[".csv"](out)
    assert found["drive"].to_pylist()[:: log.num_rows] == ["a/d0", "b/d0"]
    np.testing.assert_allclose(found["risk"], np.tile(expected["risk"], 2), rtol=1e-5)


def test_empty_values_are_filled_as_in_the_log(unlabeled, tmp_path):
    log = table(named(unlabeled))
    gap = pa.array(np.asarray(log["gap"]), mask=np.arange(log.num_rows) % 5 == 1)
    pyarrow.parquet.write_table(log.set_column(2, "gap", gap), tmp_path / "gaps.parquet")
    held = safemil.load(
        tmp_path / "gaps.parquet",
        columns=safemil.data.Columns("drive", "stamp", "gap,speed,lane", "accel,steer"),
        action_bounds=([-6, -0.3], [6, 0.3]),
        fill=["gap=90", "gap=flag", "speed=previous"],
    )
    safemil.train("bc", unlabeled=held, updates=2, hidden_policy=[4], out=tmp_path / "run")
    run = safemil.Run.load(tmp_path / "run")
    assert run.observation_names == ("gap", "speed", "lane", "gap is missing")
    named_so = {"speed": 0.0, "lane": 0.0}
    for empty in (None, float("nan")):
        np.testing.assert_array_equal(run.act({"gap": empty, **named_so}), run.act([90, 0, 0, 1]))
    np.testing.assert_array_equal(
        run.act({"gap": [None, 1.0], "speed": [0, 0], "lane": [0, 0]}), run.act([[90, 0, 0, 1], [1, 0, 0, 0]])
    )
    with pytest.raises(
        InputError, match='no value for "speed", and its rule, previous, needs an earlier row'
    ):
        run.act({"gap": 1.0, "speed": None, "lane": 0.0})
    with pytest.raises(InputError, match='no value for "lane", and no rule fills it; give a number'):
        run.act({"gap": 1.0, "speed": 0.0, "lane": None})
    np.testing.assert_array_equal(run.read(tmp_path / "gaps.parquet").observations, held.observations)


def test_times_of_a_csv_file_stay_as_they_stand_there(folder, log, expected, tmp_path):
    texts = [each.isoformat().replace("+00:00", "Z") for each in log["stamp"].to_pylist()]
    written = log.set_column(1, "stamp", pa.array(texts))
    for flags, out in (([], "r.csv"), (["--append"], "all.csv"), (["--append"], "all.parquet")):
        found = score(folder, written, "texts.csv", *flags, out=out, path=tmp_path)
        assert "Z" in (tmp_path / out).read_bytes().decode("latin-1")
        np.testing.assert_allclose(found["risk"], expected["risk"], rtol=1e-5)
    kept = READ[".parquet"](tmp_path / "all.parquet")
    assert kept["stamp"].to_pylist() == texts


def test_appended_rows_of_files_that_share_names_are_told_apart(folder, log, tmp_path):
    end = {"drive": "d0", "stamp": (BEGIN + 10**6).item(), "gap": 0.0, "speed": 0.0, "lane": 0.0}
    with_end = pa.concat_tables([pa.Table.from_pylist([end], schema=log.schema), log])
    for name in ("a.parquet", "b.parquet"):
        pyarrow.parquet.write_table(with_end, tmp_path / name)
    out = f"{tmp_path}/all.parquet"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", InputWarning)
        assert main(["score", f"{folder}/run", f"{tmp_path}/[ab].parquet", "--out", out, "--append"]) == 0
    found = READ[".parquet"](tmp_path / "all.parquet")
    plain = with_end["drive"].to_pylist()
    assert found["drive"].to_pylist() == [f"{file}/{name}" for file in "ab" for name in plain]
    assert found["risk"][0].as_py() is None
