import doctest
import re
import shlex
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from safemil.cli import main
from safemil.data import describing, features, formats, interchange, splitting, trajectories
from safemil.errors import InputError, InputWarning
from small import FLAGS

PAGE = Path(__file__).parents[2] / "docs" / "formats.md"
LOGS = PAGE.with_name("logs.md")


def test_the_python_on_the_page_runs(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    exec("\n".join(re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)), {})
    assert capsys.readouterr().out == "Trajectories(2 episodes of 1 to 2 steps, 2 observed, 1 action)\n"


def test_the_page_names_every_format():
    for suffix in (each for format in formats.FORMATS.values() for each in format.SUFFIXES):
        assert f"`{suffix}`" in PAGE.read_text()


@pytest.mark.parametrize("module", [interchange, describing, features, formats, splitting, trajectories])
def test_examples_in_docstrings_are_true(module):
    assert doctest.testmod(module).failed == 0


def drives(seed=0):
    """The driving table of docs/logs.md: 320 drives of 12 vehicles, rows in no order, with lost frames, a
    sensor that drops out, and empty cells where no vehicle is seen."""
    rng = np.random.default_rng(seed)
    drive, steps = np.repeat(np.arange(320), 12), np.tile(np.arange(12), 320)
    bad = drive % 8 == 0
    noise = rng.normal(size=(len(drive), 7)).astype(np.float32)
    gap = np.where(bad, 30 - 2.4 * steps, 30) + noise[:, 0]
    unseen, dropped = rng.random(len(drive)) < 0.1, (steps > 3) & (steps < 6) & (drive % 5 == 1)
    begin = np.datetime64("2026-03-01T08:00:00", "ms") + 600_000 * drive
    zoned = pa.array(begin + 100 * steps).cast(pa.timestamp("ms", "Europe/Berlin"))
    table = pa.table(
        {
            "drive": [f"v{number % 12:02}-{number // 12}" for number in drive],
            "stamp": zoned,
            "ego_speed": pa.array(20 + noise[:, 1], mask=dropped),
            "lane_left": 1.8 + 0.1 * noise[:, 2],
            "lane_right": 1.8 + 0.1 * noise[:, 3],
            "gap_front": pa.array(gap, mask=unseen),
            "dv_front": pa.array(noise[:, 4], mask=unseen),
            "accel_cmd": np.clip(0.5 * noise[:, 5] + bad, -6, 6),
            "steer_cmd": np.clip(0.05 * noise[:, 6], -0.3, 0.3),
            "incident": bad & (steps >= 9),
        }
    )
    return table.take(rng.permutation(len(drive))[: len(drive) - 40])


@pytest.fixture(scope="module")
def walkthrough(tmp_path_factory):
    """Folder with the driving table, and the commands of docs/logs.md with a training of a few updates."""
    folder = tmp_path_factory.mktemp("walkthrough")
    pq.write_table(drives(), folder / "drives.parquet")
    text = LOGS.read_text().replace("\\\n", " ")
    commands = [shlex.split(line) for line in re.findall(r"^    (safemil .*)$", text, re.MULTILINE)]
    return folder, {command[1]: command[1:] for command in commands}


def test_the_commands_on_the_page_of_logs_go_from_the_raw_table_to_the_report(
    walkthrough, monkeypatch, capsys
):
    folder, commands = walkthrough
    monkeypatch.chdir(folder)
    assert [*commands] == ["data", "train", "score", "report"]
    assert main(commands["data"]) == 0
    shown = capsys.readouterr().out
    for told in (
        "320 declared",
        "passed over for their faults",
        '--fill "gap_front=previous"',
        "--action-low",
    ):
        assert told in shown
    assert main([*commands["data"], "--strict"]) == 1
    assert main([*commands["train"], *FLAGS]) == 0
    assert main(commands["score"]) == 0
    risk, log = pq.read_table("risk.parquet"), pq.read_table("drives.parquet")
    assert risk.column_names == ["drive", "stamp", "risk", "novelty"]
    assert risk.select(["drive", "stamp"]).equals(log.select(["drive", "stamp"]))
    assert main(commands["report"]) == 0
    assert "gap_front" in Path("report.html").read_text()
    scope: dict[str, Any] = {}
    exec("\n".join(re.findall(r"```python\n(.*?)```", LOGS.read_text(), re.DOTALL)), scope)
    assert np.isfinite(scope["action"]).all()
    with pytest.raises(InputError, match=r'lacks columns .*"gap_front" \(did you mean'):
        scope["run"].act({name: value for name, value in scope["seen"].items() if name != "gap_front"})
    with pytest.warns(InputWarning, match="unlike the training data"):
        scope["run"].act([1e6] * 5)


def test_drives_with_the_flags_of_training_have_no_fault(walkthrough, monkeypatch, capsys):
    folder, commands = walkthrough
    monkeypatch.chdir(folder)
    flags = commands["train"][commands["train"].index("--incident") :]
    flags = flags[: flags.index("--out")]
    assert main(["data", "info", "drives.parquet", *flags, "--strict"]) == 0
    shown = capsys.readouterr().out
    assert "320 episodes, 3800 steps" in shown
    assert "incidents       40 episodes" in shown
    assert "all actions lie in --action-low" in shown
    assert "steps are missing" in shown
