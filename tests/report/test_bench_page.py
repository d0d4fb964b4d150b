import dataclasses
import re

import numpy as np
import pytest

from safemil.bench.cell import write_result
from safemil.bench.grid import read_grid
from safemil.cli import main
from safemil.report.bench_page import inline

GRID = """
title = "A <b>grid</b>"
seeds = 2
reference = "bc"
[evaluation]
episodes = 5
[families.navigation]
tasks = ["SafetyPointGoal1-v0"]
[studies.performance]
title = "Performance"
algorithms = ["random", "bc", "safemil"]
[studies.bag-size]
title = "Bag size"
tasks = ["SafetyPointGoal1-v0"]
vary.bag_size = [1, 8]
"""


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    """Random costs 50, cloning 30, ours 10."""
    folder = tmp_path_factory.mktemp("results")
    (folder / "grid.toml").write_text(GRID)
    rng = np.random.default_rng(0)
    means = {"random": (0, 50), "bc": (100, 30), "safemil": (90, 10)}
    for cell in read_grid(folder / "grid.toml").cells():
        gained, paid = (rng.normal(mean, 1, 5).tolist() for mean in means[cell.algorithm])
        found = {"cell": dataclasses.asdict(cell), "data_sha256": {}, "returns": gained, "costs": paid}
        write_result(folder, cell, {**found, "curve": [], "seconds": {"train": 1.0}})
    return folder


def test_results_become_a_page_of_their_tables_and_figures(results, tmp_path, capsys):
    out = tmp_path / "bench.html"
    assert main(["report", str(results), "--out", str(out)]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == str(out)
    text = out.read_text()
    assert "A &lt;b&gt;grid&lt;/b&gt;" in text
    assert "Navigation tasks" in text
    assert re.search(r"<strong>-\d+\.\d\d ± \d\.\d\d</strong>", text)  # ours is the safest
    assert text.count("<svg ") == 3
    assert "bag_size = 8" in text


def test_the_same_results_give_the_same_bytes(results, tmp_path):
    for name in ("one.html", "two.html"):
        assert main(["report", str(results), "--out", str(tmp_path / name)]) == 0
    assert (tmp_path / "one.html").read_bytes() == (tmp_path / "two.html").read_bytes()


def test_results_without_a_reference_are_refused(tmp_path, capsys):
    (tmp_path / "grid.toml").write_text(GRID)
    assert main(["report", str(tmp_path), "--out", str(tmp_path / "page.html")]) == 2
    assert "run more cells" in capsys.readouterr().err


def test_a_figure_takes_the_ink_of_the_page_and_keeps_no_names_or_styles():
    drawn = """<?xml?><!DOCTYPE svg><svg width="9pt" viewBox="0 0 90 50"><metadata>today</metadata>
    <style type="text/css">*{a: b}</style>
    <g id="axes_1" style="font-family: 'X', sans-serif; fill: #010203"/></svg>"""
    found = str(inline(drawn, "says <this>"))
    assert found.startswith('<svg viewBox="0 0 90.0 50.0" role="img" aria-label="says &lt;this&gt;"')
    assert 'style="fill: currentColor"' in found
    assert "px;fill:currentColor;" in found.partition(">")[0]  # of black shapes, whose fill is left out
    for unwanted in ("today", "*{a", "axes_1", "font-family"):
        assert unwanted not in found
