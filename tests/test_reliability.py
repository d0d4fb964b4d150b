"""Diverging training, damaged runs, locks and names from strangers."""

import contextlib
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import safemil
from safemil.bench.grid import make_grid
from safemil.cli import main
from safemil.errors import DivergedError, InputError, InputWarning
from safemil.files import atomic_file
from safemil.locks import Lock
from safemil.ownership import HOST
from safemil.terminal import console
from safemil.texts import plain_name

TINY = {"updates": 8, "batch": 4, "hidden_policy": [8], "log_every": 4, "progress": False}


def test_training_that_diverges_names_the_update_and_keeps_the_state_before_it(unlabeled, tmp_path):
    with pytest.raises(DivergedError, match=r"not finite after update 2: loss/policy, policy"):
        safemil.train("bc", unlabeled=unlabeled, out=tmp_path / "run", lr=1e30, **TINY)
    assert [path.stem for path in (tmp_path / "run" / "checkpoints").glob("*.json")] == ["000000001"]
    state = safemil.Run.load(tmp_path / "run")._checkpoint(0, safemil.Run.load(tmp_path / "run")._state)
    assert all(np.isfinite(each).all() for each in state.arrays.values() if each.dtype.kind == "f")


def test_a_damaged_line_of_metrics_is_left_out_with_a_warning(unlabeled, tmp_path):
    safemil.train("bc", unlabeled=unlabeled, out=tmp_path / "run", **TINY)
    with open(tmp_path / "run" / "metrics.jsonl", "ab") as file:
        file.write(b'\xff{"update": "x"}\n')
    with pytest.warns(InputWarning, match="1 damaged lines are left out"):
        assert len(safemil.Run.load(tmp_path / "run").metrics) == 2


@pytest.mark.parametrize("content", [b"\xff", b"[" * 100_000, b"[]", b'{"columns": 3}'])
def test_a_damaged_manifest_is_refused(unlabeled, tmp_path, content):
    safemil.train("bc", unlabeled=unlabeled, out=tmp_path / "run", **TINY)
    (tmp_path / "run" / "manifest.json").write_bytes(content)
    with pytest.raises(InputError, match=r"manifest\.json"):
        safemil.Run.load(tmp_path / "run")


def test_a_second_writer_is_refused_until_the_first_is_dead(tmp_path):
    code = f"from safemil.locks import Lock; from pathlib import Path; Lock(Path({str(tmp_path)!r}))"
    hold = f"{code}; print('held', flush=True); input()"
    with subprocess.Popen(
        [sys.executable, "-c", hold], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as first:
        assert first.stdout.readline() == "held\n"
        with pytest.raises(InputError, match=f"is being written by process {first.pid} on "):
            Lock(tmp_path)
        first.kill()
    Lock(tmp_path).release()
    assert not any(tmp_path.iterdir())


def test_files_of_a_dead_process_are_cleaned_and_those_of_a_living_one_stay(tmp_path):
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    dead, living = (
        tmp_path / f".a.safemil-{HOST}-{number}-00000000.txt" for number in (process.pid, os.getppid())
    )
    dead.touch(), living.touch()
    with atomic_file(tmp_path / "a.txt") as file:
        file.write_text("new")
    assert {path.name for path in tmp_path.iterdir()} == {"a.txt", living.name}


@pytest.mark.parametrize("name", ["../x", "/any/x", "a/b", ".hidden", "", "a\x00", "x" * 300, 3])
def test_a_name_that_leads_elsewhere_is_refused(name):
    with pytest.raises(InputError, match="becomes the name of a file"):
        plain_name("study", name)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"seeds": "five"}, "seeds must be a whole number of at least 1, got 'five'"),
        ({"studies": {"a": {"vary": {"x": 3}}}}, "studies.a.vary.x must be a list, got 3"),
        ({"families": {"f": {"tasks": 3}}}, "families.f.tasks must be a list, got 3"),
        ({"evaluation": {"episods": 3}}, 'no entry of evaluation "episods"; did you mean "episodes"'),
        ({"data": {"preferred_share": 2}}, r"data.preferred_share must be a number in \[0, 1\], got 2"),
    ],
)
def test_a_wrong_entry_of_a_grid_is_named_by_its_place(change, message):
    grid = {"families": {"f": {"tasks": ["toy:speed"]}}, "studies": {"a": {"algorithms": ["bc"]}}}
    with pytest.raises(InputError, match=message):
        make_grid({**grid, **change})


def test_data_is_never_markup_and_control_characters_are_escaped(capsys):
    console().print("[/x] [bold]b[/bold] \x1b[31mred :smile:")
    assert capsys.readouterr().out == "[/x] [bold]b[/bold] \\x1b[31mred :smile:\n"


ESCAPED = "\x1b]0;title\x07\x1b[31mred"


@pytest.mark.parametrize(
    "words",
    [
        ["--seed", ESCAPED, "--out", "run"],  # refused by the parser
        ["--checkpoint-seconds", ESCAPED, "--out", "run"],
        ["--config", ESCAPED, "--out", "run"],  # refused by the command
        ["--unlabeled", ESCAPED, "--out", "run"],
        [f"--{ESCAPED}", "--out", "run"],
        [ESCAPED, ESCAPED, ESCAPED],
    ],
)
def test_control_characters_of_an_argument_are_escaped_where_it_is_refused(
    words, tmp_path, capsys, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    with contextlib.suppress(SystemExit):
        assert main(["train", "bc", *words]) == 2
    printed = "".join(capsys.readouterr())
    assert "x1b" in printed
    assert not {"\x1b", "\x07"} & {*printed}


def test_control_characters_of_a_path_are_escaped_where_it_is_printed(unlabeled, tmp_path, capsys):
    safemil.save(tmp_path / "logs.csv", unlabeled)
    out = tmp_path / f"{ESCAPED.replace('/', '')}.parquet"
    assert main(["data", "convert", str(tmp_path / "logs.csv"), str(out)]) == 0
    assert out.exists()
    assert "\\x1b[31mred.parquet" in capsys.readouterr().out


def test_a_pipe_is_refused_as_a_log(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(InputError, match="is a pipe or a device"):
        safemil.load(tmp_path / "pipe")


def test_a_foreign_folder_with_a_manifest_is_never_overwritten(unlabeled, tmp_path):
    Path(tmp_path / "manifest.json").write_text(json.dumps({"source": "theirs"}))
    with pytest.raises(InputError, match="holds something else"):
        safemil.save(tmp_path, unlabeled, overwrite=True)
    assert [path.name for path in tmp_path.iterdir()] == ["manifest.json"]
