"""The command line as a user meets it."""

import contextlib
import importlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import fields

import numpy as np
import pyarrow.csv
import pyarrow.parquet
import pytest
from rich.cells import cell_len

import safemil
from safemil.algorithms import find, names
from safemil.cli import NOUNS, main
from small import FLAGS

SMALL = [*FLAGS, "--log-every=20"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory, unlabeled, nonpreferred):
    folder = tmp_path_factory.mktemp("cli")
    safemil.save(folder / "incidents.parquet", nonpreferred)
    safemil.save(folder / "logs.parquet", unlabeled)
    assert main(train_command(folder, "--out", str(folder / "run"))) == 0
    return folder


def train_command(folder, *more):
    piles = ["--nonpreferred", str(folder / "incidents.parquet"), "--unlabeled", str(folder / "logs.parquet")]
    return ["train", "safemil", *piles, *SMALL, *more]


def test_a_run_can_not_make_a_report_read_other_files_than_it_was_trained_on(folder, tmp_path, capsys):
    shutil.copytree(folder / "run", tmp_path / "run")
    rng = np.random.default_rng(0)
    secret = safemil.Trajectories(rng.normal(size=(8, 3)), rng.uniform(-1, 1, (8, 2)), [8], ids=["secret"])
    safemil.save(tmp_path / "private.parquet", secret)
    noted = json.loads((tmp_path / "run" / "data.json").read_text())
    noted["paths"] = {
        "unlabeled": ["../private.parquet"],
        "nonpreferred": [str(folder / "incidents.parquet")],
    }
    (tmp_path / "run" / "data.json").write_text(json.dumps(noted))
    for command in (["report", "--out", "page.html"], ["export", "--out", "policy.safetensors"]):
        verb, *flags = command
        assert main([verb, str(tmp_path / "run"), flags[0], str(tmp_path / flags[1])]) == 2
        assert "give their path by --unlabeled" in capsys.readouterr().err
        assert not (tmp_path / flags[1]).exists()
    noted["paths"]["unlabeled"] = [str(folder / "logs.parquet")]
    (tmp_path / "run" / "data.json").write_text(json.dumps(noted))
    assert main(["export", str(tmp_path / "run"), "--out", str(tmp_path / "policy.safetensors")]) == 0


def clone_command(*more):
    return [
        "train",
        "bc",
        "--unlabeled",
        "logs.parquet",
        "--set=hidden_policy=[64]",
        "--set=updates=40",
        *more,
    ]


def test_help_does_not_import_jax():
    code = "import sys; from safemil.cli import main; main(['--help']); assert 'jax' not in sys.modules"
    output = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert "safemil train safemil --nonpreferred" in output


@pytest.mark.parametrize("command", ["train", "score", "algorithms", "data info", "data split", "tasks list"])
def test_the_help_of_a_command_opens_with_an_example_that_names_it(command, capsys):
    assert main([*command.split(), "--help"]) == 0
    assert f"safemil {command}" in capsys.readouterr().out.split("╭", 1)[0].replace("usage: safemil", "")


@pytest.mark.parametrize(
    ("command", "usage"),
    [
        ("score", "RUN LOGS ... --out FILE"),
        ("evaluate", "RUN"),
        ("report", "RUN_OR_RESULTS [DATA] --out FILE"),
        ("algorithms", "[NAME]"),
        ("data convert", "LOGS OUT"),
        ("tasks render", "TASK --out FILE"),
        ("tasks verify", "FILE ..."),
    ],
)
def test_the_usage_of_a_command_says_what_its_arguments_are(command, usage, capsys):
    assert main([*command.split(), "--help"]) == 0
    assert capsys.readouterr().out.splitlines()[0] == f"usage: safemil {command} {usage} [options]"


def printed(command, columns, monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", str(columns))
    with contextlib.suppress(SystemExit):
        main(command)
    return capsys.readouterr().out


COMMANDS = [[verb] for verb in importlib.import_module("safemil.cli.verbs").COMMANDS]
COMMANDS += [
    [noun, verb] for noun, module in NOUNS.items() for verb in importlib.import_module(module).COMMANDS
]
NARROW = [["--help"], *([*command, "--help"] for command in COMMANDS), ["algorithms"]]


@pytest.mark.parametrize("command", [*NARROW, *(["algorithms", name] for name in names())], ids=" ".join)
def test_no_word_is_broken_at_80_columns(command, monkeypatch, capsys):
    narrow, wide = (printed(command, columns, monkeypatch, capsys) for columns in (80, 300))
    assert max(map(cell_len, narrow.splitlines())) <= 80
    drawn = re.compile("[─╭╮╰╯│|+]+|-{3,}")  # boxes
    assert {*drawn.sub(" ", narrow).split()} == {*drawn.sub(" ", wide).split()}
    assert "…" not in narrow


def test_algorithms_says_what_each_setting_is_and_what_each_preset_gives_it(monkeypatch, capsys):
    papers, ours, networks = (
        printed(["algorithms", "safemil"], 120, monkeypatch, capsys).strip().split("\n\n")
    )
    assert re.search(r"bag_size +128 +128 +K, segments in a bag", papers)
    assert re.search(r"lr_policy +0.001 +1e-05 +learning rate of the policy", papers)
    assert re.search(r"pool +128 +none +M, segments per side", ours)
    assert re.search(r"hidden_policy +\[256, 256\] +\[256, 256\] +hidden layers of the policy", networks)
    shown = sum(len(each.splitlines()) - 2 for each in (papers, ours, networks))
    assert shown == len(fields(find("safemil").Config))


def test_a_reader_that_closes_the_pipe_ends_a_command_quietly(folder):
    for command in ("algorithms", "--help", "data info logs.parquet"):
        read, write = os.pipe()
        os.close(read)  # as `head` does, once it has read enough
        words = [sys.executable, "-m", "safemil", *command.split()]
        done = subprocess.run(words, cwd=folder, stdout=write, stderr=subprocess.PIPE, text=True)
        os.close(write)
        assert (done.returncode, done.stderr) == (141, "")


def test_train_ends_with_the_path_it_wrote(folder, capsys):
    assert main(train_command(folder, "--out", str(folder / "again"))) == 0
    printed = capsys.readouterr().out
    assert printed.splitlines()[-1] == str(folder / "again")
    assert re.search("^Evidence: (strong|weak|none)$", printed, re.MULTILINE)
    assert main(["evidence", str(folder / "again")]) == 0
    assert capsys.readouterr().out.splitlines()[0] in printed.splitlines()


def test_training_with_bags_warns_where_they_are_too_small(folder, capsys):
    bags = ["--set=cost_updates=none", "--set=weighting=segment", "--set=draw=segments"]
    command = train_command(folder, "--out", str(folder / "bags"), "--preferred-share", "0.01", *bags)
    assert main(command) == 0
    printed = capsys.readouterr().out
    assert "with 99% probability" in printed
    assert "warning: with 1.0% preferred" in printed


def test_known_good_episodes_of_a_log_are_given_beside_it(unlabeled, nonpreferred, tmp_path):
    ids = [f"drive-{number}" for number in range(len(unlabeled) + len(nonpreferred))]
    both = safemil.Trajectories.concatenate([unlabeled, nonpreferred])
    safemil.save(tmp_path / "log.parquet", replaced_ids(both, ids))
    safemil.save(tmp_path / "fine.parquet", replaced_ids(unlabeled.take([1]), ["drive-1"]))
    incidents = ",".join(ids[len(unlabeled) :])
    command = ["train", "safemil", "--logs", str(tmp_path / "log.parquet"), "--incident-episodes", incidents]
    command += ["--preferred", str(tmp_path / "fine.parquet"), *SMALL, "--out", str(tmp_path / "run")]
    assert main(command) == 0
    evidence = json.loads((tmp_path / "run" / "evidence.json").read_text())
    assert (evidence["unlabeled"], evidence["preferred"]) == (len(unlabeled) - 1, 1)
    assert main([*command, "--resume"]) == 0
    assert main(["report", str(tmp_path / "run"), "--out", str(tmp_path / "report.html")]) == 0


def replaced_ids(episodes, ids):
    return safemil.Trajectories(episodes.observations, episodes.actions, episodes.lengths, ids=ids)


def test_a_folder_of_piles_can_be_given_instead_of_two_files(folder, unlabeled, nonpreferred):
    safemil.save(folder / "piles" / "unlabeled", unlabeled)
    safemil.save(folder / "piles" / "nonpreferred", nonpreferred)
    command = ["train", "safemil", str(folder / "piles"), *SMALL, "--out", str(folder / "from-piles")]
    assert main(command) == 0
    ours, theirs = (safemil.Run.load(folder / name).cost(unlabeled) for name in ("from-piles", "run"))
    np.testing.assert_array_equal(np.concatenate(ours), np.concatenate(theirs))


@pytest.mark.parametrize(
    ("name", "read"), [("r.parquet", pyarrow.parquet.read_table), ("r.csv", pyarrow.csv.read_csv)]
)
def test_score_writes_a_row_per_step_in_the_words_of_the_log(folder, unlabeled, capsys, name, read):
    assert (
        main(["score", str(folder / "run"), str(folder / "logs.parquet"), "--out", str(folder / name)]) == 0
    )
    table = read(folder / name)
    assert table.column_names == ["episode", "step", "risk", "novelty"]
    assert table.num_rows == unlabeled.steps
    np.testing.assert_array_equal(table["step"], unlabeled.step_numbers)
    expected = np.concatenate(safemil.Run.load(folder / "run").cost(unlabeled))
    np.testing.assert_allclose(table["risk"], expected, rtol=1e-6)
    printed = capsys.readouterr().out
    assert "mean risk" in printed
    assert printed.splitlines()[-1] == str(folder / name)


@pytest.mark.parametrize(
    ("command", "message"),
    [
        (["tran"], 'no command "tran"; did you mean "train"?'),
        (["train", "safemill", "--out", "x"], 'no algorithm "safemill"; did you mean "safemil"?'),
        (["train", "safemil", "--out", "x"], "no episodes given; give --unlabeled"),
        (["train", "safemil", "--out", "x", "--unlabeled", "nothing.parquet"], "nothing.parquet"),
        (["train", "safemil", "--out", "x", "--set", "betta=1"], 'no setting "betta"; did you mean "beta"?'),
        (["train", "safemil", "--out", "x", "--set", "beta=0"], "beta must be above 0, got 0.0"),
        (["train", "safemil", "--out", "x", "--config", "nothing.toml"], "nothing.toml: No such file"),
        (["score", "nothing", "nothing.parquet", "--out", "risk.parquet"], "nothing is not a run"),
        (["score", "nothing", "nothing.parquet", "--out", "risk.pdf"], "written as .parquet or .csv"),
    ],
)
def test_bad_input_is_one_line_and_exit_code_two(command, message, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(command) == 2
    error = capsys.readouterr().err
    assert message in error.replace("\n", " ")
    assert "Traceback" not in error
    assert list(tmp_path.iterdir()) == []


def test_an_unknown_flag_is_refused_without_a_traceback(capsys):
    with pytest.raises(SystemExit, match="2"):
        main(["train", "safemil", "--outt", "x"])
    assert "--outt" in capsys.readouterr().err


def test_a_folder_in_use_is_refused_in_words_of_the_command_line(folder, capsys):
    assert main(train_command(folder, "--out", str(folder / "run"))) == 2
    error = capsys.readouterr().err
    assert "holds a run already" in error
    assert "--resume to continue the run, or --overwrite to replace it" in error


def test_a_damaged_checkpoint_is_told_and_the_one_before_is_used(folder, tmp_path, capsys):
    command = train_command(folder, "--out", str(tmp_path / "run"), "--checkpoint-seconds", "0")
    assert main(command) == 0
    (tmp_path / "run" / "checkpoints" / "000000060.safetensors").write_bytes(b"gone")
    assert (
        main(["score", str(tmp_path / "run"), str(folder / "logs.parquet"), "--out", str(tmp_path / "r.csv")])
        == 0
    )
    assert "warning: checkpoint" in capsys.readouterr().err


def test_a_damaged_manifest_is_an_error(folder, tmp_path, capsys):
    shutil.copytree(folder / "run", tmp_path / "run")
    (tmp_path / "run" / "manifest.json").write_text(json.dumps({"observation_size": 3}))
    assert (
        main(["score", str(tmp_path / "run"), str(folder / "logs.parquet"), "--out", str(tmp_path / "r.csv")])
        == 2
    )
    assert "manifest.json is damaged ('columns')" in capsys.readouterr().err


# A shell that starts the tests in the background makes all they start deaf to Ctrl-C; undo that.
LISTENING = "import signal, sys; signal.signal(signal.SIGINT, signal.default_int_handler)"
RUN = f"{LISTENING}; from safemil.cli import main; sys.exit(main())"


def start(folder, *command, wrapper=()):
    started = [*wrapper, sys.executable, "-c", RUN, *command]
    return subprocess.Popen(started, cwd=folder, stderr=subprocess.PIPE, text=True)


@pytest.mark.parametrize(("sent", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_saves_and_says_how_to_go_on(sent, code, folder):
    endless = ("--log-every", "10", "--set", "updates=10000000")
    process = start(folder, *clone_command("--out", f"long-{code}", *endless))
    metrics = folder / f"long-{code}" / "metrics.jsonl"
    while process.poll() is None and (not metrics.exists() or metrics.read_text().count("\n") < 2):
        time.sleep(0.05)
    process.send_signal(sent)
    error = process.communicate()[1]
    assert process.returncode == code
    assert "Continue with:\n\n  safemil train bc" in error
    assert error.strip().endswith("--resume")
    assert safemil.Run.load(folder / f"long-{code}").metrics


def test_ctrl_c_in_the_demo_says_how_to_continue_its_training(monkeypatch, tmp_path, capsys):
    def interrupt(*arguments, **options):
        raise KeyboardInterrupt

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.argv", ["safemil", "demo"])
    monkeypatch.setattr("safemil.api.train", interrupt)
    monkeypatch.setattr("safemil.cli.verbs._load_piles", lambda paths, needs, options, *others: ({}, options))
    monkeypatch.setattr(
        "safemil.cli.demo.commands", lambda out, seed: [["train", "bc", "piles", "--out", "demo/bc"], []]
    )
    assert main(["demo"]) == 130
    error = capsys.readouterr().err
    assert "  safemil train bc piles --out demo/bc --resume" in error
    assert "demo --resume" not in error


def test_strict_training_without_evidence_ends_with_code_1(folder, capsys):
    assert main(train_command(folder, "--strict", "--out", str(folder / "strict"))) == 1
    assert capsys.readouterr().err.startswith("error: ")


def test_a_full_disk_is_an_error_and_leaves_no_half_made_file(folder):
    # Stands in for a full disk: the system refuses to write more than four kilobytes into a file.
    wrapper = ["sh", "-c", 'trap "" XFSZ; ulimit -f 8; exec "$@"', "sh"]
    process = start(folder, *clone_command("--out", "full"), wrapper=wrapper)
    error = process.communicate()[1]
    assert process.returncode == 1
    assert error.startswith("error: ")
    assert "Traceback" not in error
    assert list((folder / "full" / "checkpoints").iterdir()) == []
