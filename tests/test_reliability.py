"""Diverging training, damaged runs, locks and names from strangers."""

import contextlib
import dataclasses
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import safemil
from safemil import catalog, rollouts
from safemil.bench.grid import make_grid
from safemil.cli import main
from safemil.errors import DivergedError, InputError, InputWarning
from safemil.files import atomic_file
from safemil.locks import Lock
from safemil.ownership import HOST
from safemil.tasks import TASKS, TaskEnv, make_vec
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


UNENCODABLE = {
    "latin-1": {"PYTHONIOENCODING": "latin-1"},
    "ascii": {"PYTHONIOENCODING": "ascii"},
    "a locale without UTF-8": {"LC_ALL": "C", "PYTHONCOERCECLOCALE": "0", "PYTHONUTF8": "0"},
}


@pytest.mark.parametrize("environment", UNENCODABLE.values(), ids=[*UNENCODABLE])
def test_a_terminal_that_lacks_characters_gets_others_instead(environment, tmp_path):
    rows = ["episode,step,obs_é,act_0", "é\U0001f4a5,0,0.5,0", "é\U0001f4a5,1,0.25,0", "b,0,0.5,0"]
    (tmp_path / "logs.csv").write_text("\n".join(rows), encoding="utf-8")
    code = "from safemil.cli import main; a = main(['data', 'info', 'logs.csv']); "
    code += "b = main(['data', 'convert', 'logs.csv', 'out']); c = main(['nothing', chr(233)])"
    done = subprocess.run(
        [sys.executable, "-c", f"{code}; print(a, b, c)"],
        cwd=tmp_path, env=os.environ | environment, capture_output=True, check=False,
    )  # fmt: skip
    assert b"Traceback" not in done.stderr
    assert done.stdout.split()[-3:] == [b"0", b"0", b"2"], done
    assert safemil.load(tmp_path / "out").ids.tolist() == ["b", "é\U0001f4a5"]


def test_a_file_name_that_is_not_utf8_is_refused(unlabeled, tmp_path, capsys):
    path = tmp_path / "logs\udcff.csv"
    path.write_text("episode,step,obs_0,act_0\na,0,0.5,0\n")
    assert main(["data", "info", str(path)]) == 2
    assert "not in UTF-8" in capsys.readouterr().err
    for refused in (path, tmp_path):
        with pytest.raises(InputError, match="not in UTF-8"):
            safemil.load(refused)
    with pytest.raises(InputError, match="not in UTF-8"):
        safemil.save(tmp_path / "out\udcff.parquet", unlabeled)


@pytest.mark.parametrize("bad", [np.nan, np.inf])
@pytest.mark.parametrize("name", catalog.names())
def test_every_task_refuses_actions_that_are_not_finite(name, bad):
    def act(observations, number):
        actions = np.zeros((len(observations), worlds.action_size))
        actions[-1, 0] = bad if number == 1 else 0
        return actions

    worlds = rollouts.begin(catalog.task(name), [0], 1)
    worlds.close()
    with pytest.raises(InputError, match="finite actions"):
        rollouts.roll_out(catalog.task(name), act, [0, 1], threads=1)
    with pytest.raises(InputError, match="finite actions"):
        rollouts.record(catalog.task(name), act, [0, 1])


@pytest.mark.parametrize("name", TASKS)
def test_environments_refuse_actions_that_are_not_finite(name):
    env, several = TaskEnv(name), make_vec(name, 2)
    env.reset(seed=0), several.reset(seed=0)
    action = np.zeros((2, env.worlds.action_size))
    env.step(action[0]), several.step(action)
    action[1, -1] = np.nan
    with pytest.raises(InputError, match="finite actions"):
        env.step(action[1])
    with pytest.raises(InputError, match="finite actions"):
        several.step(action)
    env.close(), several.close()


@pytest.mark.parametrize("suffix", ["", ".parquet", ".csv", ".hdf5"])
@pytest.mark.parametrize("first", ["the last", 2**53, -(2**63)])
def test_first_steps_at_the_ends_of_their_range_are_read_again(first, suffix, unlabeled, tmp_path):
    last = 2**63 - 1 - unlabeled.steps
    with pytest.raises(InputError, match="first_steps"):
        dataclasses.replace(unlabeled, first_steps=np.full(len(unlabeled), last + 1))
    held = dataclasses.replace(
        unlabeled, first_steps=np.full(len(unlabeled), last if first == "the last" else first)
    )
    path = tmp_path / f"logs{suffix}"
    try:
        safemil.save(path, held)
    except InputError:
        assert not path.exists()
        return
    assert safemil.load(path).first_steps.tolist() == held.first_steps.tolist()


def test_a_pipe_is_refused_as_a_log(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(InputError, match="is a pipe or a device"):
        safemil.load(tmp_path / "pipe")


def test_a_foreign_folder_with_a_manifest_is_never_overwritten(unlabeled, tmp_path):
    Path(tmp_path / "manifest.json").write_text(json.dumps({"source": "theirs"}))
    with pytest.raises(InputError, match="holds something else"):
        safemil.save(tmp_path, unlabeled, overwrite=True)
    assert [path.name for path in tmp_path.iterdir()] == ["manifest.json"]
