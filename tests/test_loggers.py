"""Loggers and functions that are told of training, and progress where there is no terminal."""

import importlib.util
import time

import pytest

import safemil
from safemil import extras, progress
from safemil.cli import main
from safemil.errors import InputError
from safemil.loggers import Loggers

TINY = {"updates": 20, "log_every": 10, "hidden_policy": [8], "progress": False}


def test_a_function_is_told_every_line_of_metrics(unlabeled):
    told = []
    run = safemil.train(
        "bc", unlabeled=unlabeled, on_log=lambda update, metrics: told.append((update, metrics)), **TINY
    )
    assert [update for update, _ in told] == [10, 20]
    assert [{"update": update, **metrics} for update, metrics in told] == run.metrics


def test_functions_among_the_loggers_are_told_too(unlabeled):
    told = []
    safemil.train("bc", unlabeled=unlabeled, loggers=[lambda update, metrics: told.append(update)], **TINY)
    assert told == [10, 20]


def events(folder):
    """Scalars by tag, and texts by tag, of all event files of a folder."""
    from tensorboardX.proto.event_pb2 import Event

    scalars: dict[str, dict[int, float]] = {}
    texts: dict[str, str] = {}
    for file in sorted(folder.glob("events.*")):
        content = file.read_bytes()
        while content:  # length, its checksum, the event, its checksum
            size = int.from_bytes(content[:8], "little")
            event, content = Event.FromString(content[12 : 12 + size]), content[16 + size :]
            for value in event.summary.value:
                if value.HasField("simple_value"):
                    scalars.setdefault(value.tag, {})[event.step] = value.simple_value
                else:
                    texts[value.tag] = value.tensor.string_val[0].decode()
    return scalars, texts


def test_tensorboard_gets_settings_metrics_evaluation_and_the_last_values(unlabeled, tmp_path):
    run = safemil.train(
        "bc",
        unlabeled=unlabeled,
        seeds=2,
        out=tmp_path / "run",
        loggers=["tensorboard"],
        evaluate=lambda run: {"evaluation/cost": [3.0, 4.0]},
        evaluate_every=10,
        **TINY,
    )
    scalars, texts = events(tmp_path / "run" / "tensorboard")
    assert scalars["evaluation/cost/seed-1"] == {10: 4.0, 20: 4.0}
    logged = [line["loss/policy"][0] for line in run.metrics]
    assert [*scalars["loss/policy/seed-0"].values()] == pytest.approx(logged, rel=1e-6)
    assert "| algorithm | bc |" in texts["settings/text_summary"]
    assert "| updates | 20 |" in texts["settings/text_summary"]
    assert f"| loss/policy/seed-0 | {logged[-1]} |" in texts["last-values/text_summary"]


def test_the_command_line_asks_for_a_logger(unlabeled, tmp_path):
    safemil.save(tmp_path / "logs.parquet", unlabeled)
    flags = ["--unlabeled", f"{tmp_path}/logs.parquet", "--set", "updates=10", "--log", "tensorboard"]
    assert main(["train", "bc", *flags, "--out", f"{tmp_path}/run"]) == 0
    assert events(tmp_path / "run" / "tensorboard")[0]["loss/policy"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"loggers": ["tensorbord"]}, r'no logger "tensorbord"; did you mean "tensorboard"\?'),
        (
            {"loggers": ["tensorboard"]},
            r'the logger "tensorboard" belongs to a run folder; give `out=\.\.\.`',
        ),
        ({"loggers": "tensorboard"}, r'loggers are a list, as in loggers=\["tensorboard"\]'),
    ],
)
def test_wrong_loggers_are_refused_before_training(unlabeled, options, message):
    with pytest.raises(InputError, match=message):
        safemil.train("bc", unlabeled=unlabeled, **TINY, **options)


@pytest.mark.parametrize("name", ["tensorboard", "wandb", "trackio"])
def test_a_missing_package_is_named_and_nothing_is_written(unlabeled, tmp_path, monkeypatch, name):
    monkeypatch.setitem(extras.EXTRAS, name, ("no_such_package",))
    with pytest.raises(InputError, match=rf"needs no_such_package.*pip install 'safemil\[{name}\]'"):
        safemil.train("bc", unlabeled=unlabeled, loggers=[name], out=tmp_path / "run", **TINY)
    assert not (tmp_path / "run").exists()


@pytest.mark.skipif(importlib.util.find_spec("wandb") is None, reason="wandb is not installed")
def test_weights_and_biases_writes_on_this_machine(unlabeled, tmp_path):
    safemil.train("bc", unlabeled=unlabeled, loggers=["wandb"], out=tmp_path / "run", **TINY)
    assert [*(tmp_path / "run" / "wandb").glob("offline-run-*/*.wandb")]


@pytest.mark.skipif(importlib.util.find_spec("trackio") is None, reason="trackio is not installed")
def test_trackio_writes_on_this_machine(unlabeled, tmp_path, monkeypatch):
    monkeypatch.setenv("TRACKIO_DIR", str(tmp_path / "trackio"))
    safemil.train("bc", unlabeled=unlabeled, loggers=["trackio"], out=tmp_path / "run", **TINY)
    assert [*(tmp_path / "trackio").rglob("*.db")]


def test_an_interrupted_training_closes_its_loggers_without_last_values():
    class Noted:
        def end(self, last):
            closed.append(last)

    closed: list[object] = []
    loggers = Loggers([], [0])
    loggers.log({"update": 10, "loss/policy": [1.0]})
    loggers._open.append(Noted())
    loggers.end(finished=False)
    loggers.end(finished=True)
    assert closed == [{}]


def test_without_a_terminal_progress_is_a_line_now_and_then(monkeypatch, capsys):
    now = [0.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    with progress.bar("training bc", 5000) as shown:
        for second in range(0, 101):
            now[0] = float(second)
            shown.at(10 * second, "policy 0.500")
    lines = capsys.readouterr().err.splitlines()
    assert lines == [
        f"training bc: {done} of 5,000, 10/s, {left} left; policy 0.500"
        for done, left in ((100, "0:08:10"), (400, "0:07:40"), (700, "0:07:10"), ("1,000", "0:06:40"))
    ]


def test_silent_progress_prints_nothing(monkeypatch, capsys):
    now = [0.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    with progress.bar("training bc", 5000, show=False) as shown:
        for second in (0, 50, 100):
            now[0] = float(second)
            shown.at(second)
    assert capsys.readouterr().err == ""
