"""A task of an installed package: found by its name, and made, evaluated and drawn like the others."""

import base64
import json
import re

import numpy as np
import pytest
from small_runs import QUICK

import safemil
from safemil import catalog
from safemil.cli import main
from safemil.errors import InputError


@pytest.fixture
def installed(tmp_path, monkeypatch):
    """The metadata of a package whose entry points name the task of outside_field.py."""
    info = tmp_path / "packages" / "field-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: field\nVersion: 1.0\n")
    entries = "[safemil.tasks]\nField-v0 = outside_field:TASK\nBroken-v0 = outside_field:NO_TASK\n"
    (info / "entry_points.txt").write_text(entries)
    monkeypatch.syspath_prepend(info.parent)


def test_it_is_found_by_name_and_listed(installed, capsys):
    assert catalog.task("Field-v0").limit == 40
    assert catalog.names()[-2:] == ["Broken-v0", "Field-v0"]
    with pytest.raises(InputError, match='did you mean "Field-v0"'):
        catalog.task("Feild-v0")


def test_an_entry_point_that_names_no_task_is_told_what_is_wrong(installed):
    with pytest.raises(
        InputError, match=r"must name a safemil.worlds.Task, but outside_field:NO_TASK is a str"
    ):
        catalog.task("Broken-v0")


def test_the_package_is_not_needed_for_its_neighbours():
    with pytest.raises(InputError, match='no task "Field-v0"'):
        catalog.task("Field-v0")


def test_a_report_draws_its_arena(installed, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(["data", "make", "Field-v0", "--episodes", "12", "--out", "data"]) == 0
    piles = ["--nonpreferred", "data/incidents.parquet", "--unlabeled", "data/logs.parquet"]
    assert main(["train", "dwbc-nu", *piles, *QUICK, "--out", "run"]) == 0
    assert main(["evaluate", "run", "--task", "Field-v0", "--episodes", "2"]) == 0
    assert main(["report", "run", "--out", "page.html"]) == 0
    text = (tmp_path / "page.html").read_text()
    assert "A step inside a blue disc (pit) costs" in text
    assert "Outlined: flag." in text
    assert '<circle class="hazard"' in text
    assert '<circle class="flag"' in text
    assert re.search("metres (east|north)", text)
    data = json.loads(re.search(r'id="data">(.*?)</script>', text, re.DOTALL)[1])
    first = data["episodes"][0]
    assert first["discs"] == [["hazard", 3.0, 4.0, 2.0], ["flag", -8.0, -8.0, 0.5]]
    path = np.frombuffer(base64.b64decode(first["path"]), "<i2").reshape(-1, 2) / data["fineness"]
    logs = safemil.load("data/logs.parquet")
    recorded = logs.take(np.flatnonzero(logs.ids.astype(str) == first["name"])).observations
    np.testing.assert_allclose(path, recorded, atol=0.001)
    assert data["clips"] == []  # nothing draws the task
