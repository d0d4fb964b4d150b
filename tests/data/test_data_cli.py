import json
import subprocess
import sys
from dataclasses import fields

import numpy as np
import pytest
import tyro

from safemil.cli.arguments import Reading
from safemil.cli.data import COMMANDS
from safemil.data import (
    Annotations,
    Columns,
    Options,
    Trajectories,
    load,
    load_annotated,
    read_manifest,
    save,
)
from safemil.errors import InputError


def run(verb, *arguments):
    return tyro.cli(
        COMMANDS[verb], args=[str(each) for each in arguments], config=(tyro.conf.OmitArgPrefixes,)
    )


@pytest.fixture
def annotated(tmp_path):
    """100 episodes of two steps with bounds of their own, costs 0 to 99."""
    rng = np.random.default_rng(0)
    held = Trajectories(
        rng.normal(size=(200, 3)), rng.uniform(-1, 1, (200, 1)), [2] * 100, action_low=0, action_high=4
    )
    save(tmp_path / "log.hdf5", held, Annotations(np.ones(200), np.repeat(np.arange(100) / 2, 2)))
    return tmp_path / "log.hdf5"


def test_info_says_what_is_in_a_file(annotated, capsys):
    run("info", annotated)
    shown = capsys.readouterr().out
    assert "100 episodes, 200 steps" in shown
    assert "action bounds   0 to 4" in shown
    assert "cost            0 to 99" in shown
    assert "observation 2" in shown


def test_info_shows_what_looks_wrong_and_json_shows_all_of_it(tmp_path, capsys):
    held = Trajectories(np.ones((50, 2)), np.zeros((50, 1)), [2] * 25)
    save(tmp_path / "store", held)
    run("info", tmp_path / "store")
    shown = capsys.readouterr().out
    assert "constant columns: observation 0, observation 1, action 0" in shown
    assert "suspicious: episode 1: identical to episode 0 (and 23 more episodes like it)" in shown
    assert shown.count("suspicious") == 2
    run("info", tmp_path / "store", "--json")
    assert len(json.loads(capsys.readouterr().out)["suspicious"]) == 49


def test_split_writes_two_piles_beside_the_input_and_prints_where(annotated, capsys):
    run("split", annotated, "--nonpreferred", 5, "--unlabeled", 20, "--seed", 3)
    out = annotated.with_name("log-split")
    assert capsys.readouterr().out.splitlines() == ["5 non-preferred and 20 unlabeled episodes", str(out)]
    assert (len(load(out / "nonpreferred")), len(load(out / "unlabeled"))) == (5, 20)
    assert load(out / "unlabeled").action_high.tolist() == [4]
    noted = json.loads((out / "manifest.json").read_text())
    assert noted["source"] == "log.hdf5"
    assert noted["split"]["seed"] == 3
    with pytest.raises(InputError, match='no "rewards"'):
        load_annotated(out / "unlabeled")


def test_split_touches_an_earlier_one_only_when_told(annotated, tmp_path):
    arguments = ("split", annotated, "--nonpreferred", 5, "--unlabeled", 20, "--out", tmp_path / "piles")
    run(*arguments)
    with pytest.raises(InputError, match="exists already"):
        run(*arguments)
    run(*arguments, "--overwrite")


def test_split_that_fails_leaves_nothing(annotated, tmp_path):
    with pytest.raises(InputError, match="need 100 preferred"):
        run("split", annotated, "--out", tmp_path / "piles")
    assert [each.name for each in tmp_path.iterdir()] == ["log.hdf5"]


@pytest.mark.parametrize("name", ["log.parquet", "log.csv", "log.h5", "log"])
def test_convert_writes_any_format_with_all_that_is_known(name, annotated, tmp_path, capsys):
    run("convert", annotated, tmp_path / name)
    assert capsys.readouterr().out == f"{tmp_path / name}\n"
    bounds = ("--action-low", 0, "--action-high", 4) if name.endswith("csv") else ()
    run("convert", tmp_path / name, tmp_path / "back.hdf5", *bounds)
    held, marks = load_annotated(tmp_path / "back.hdf5")
    assert held.content_hash() == load(annotated).content_hash()
    assert marks.costs.tolist() == load_annotated(annotated)[1].costs.tolist()


def test_convert_touches_what_is_there_only_when_told(annotated, tmp_path):
    (tmp_path / "precious.csv").write_text("mine")
    with pytest.raises(InputError, match="exists already"):
        run("convert", annotated, tmp_path / "precious.csv")
    assert (tmp_path / "precious.csv").read_text() == "mine"
    run("convert", annotated, tmp_path / "precious.csv", "--overwrite")


def test_flags_name_columns_and_bounds(tmp_path):
    (tmp_path / "log.csv").write_text("trip,step,speed,gap,steer,pedal\n1,0,3,4,5,0.5\n")
    flags = ("--episode", "trip", "--observation", "speed,gap", "--action", "steer,pedal")
    run(
        "convert",
        tmp_path / "log.csv",
        tmp_path / "log",
        *flags,
        "--action-low",
        -5,
        0,
        "--action-high",
        5,
        1,
    )
    held = load(tmp_path / "log")
    assert held.actions.tolist() == [[1, 0]]
    assert held.observations.tolist() == [[3, 4]]
    with pytest.raises(InputError, match="come in pairs"):
        run("info", tmp_path / "log.csv", "--action-low", -1)


def test_the_flags_are_the_columns_with_the_same_defaults():
    ours = {field.name: field.default for field in fields(Reading)}
    theirs = {field.name: field.default for field in fields(Columns)}
    assert ours | theirs == ours
    assert Reading().options() == Options()


def test_help_needs_no_heavy_import():
    code = "import sys, safemil.cli.data; print({*sys.modules} & {'numpy', 'pyarrow', 'h5py', 'jax'})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"


def test_split_of_a_store_keeps_what_the_store_says_of_itself(tmp_path):
    held = Trajectories(np.zeros((40, 2)), np.zeros((40, 1)), [1] * 40)
    truth = Annotations(np.ones(40), np.arange(40))
    save(tmp_path / "store", held, truth, manifest={"task": "SafetyPointGoal1-v0"})
    run("split", tmp_path / "store", "--nonpreferred", 2, "--unlabeled", 4, "--out", tmp_path / "piles")
    assert read_manifest(tmp_path / "piles" / "unlabeled")["origin"] == {"task": "SafetyPointGoal1-v0"}
