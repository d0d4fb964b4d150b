"""Tables and figures from a results folder."""

import doctest
import json
import re
import shutil

import numpy as np
import pytest

from safemil.bench import tables
from safemil.bench.page import sentence, write_page
from safemil.bench.results import Entry, Results, headline
from safemil.cli import main
from safemil.errors import InputError


@pytest.fixture(scope="module")
def page(larger, tmp_path_factory):
    out = tmp_path_factory.mktemp("page") / "results.md"
    assert main(["tables", str(larger), "--out", str(out)]) == 0
    return out


def test_the_examples_hold():
    assert doctest.testmod(tables).failed == 0


def test_the_reference_returns_one_and_costs_nothing_above_itself(larger):
    results = Results(larger)
    entries = {(each.task, each.algorithm): each for each in results.entries(results.grid.studies[0])}
    for task in ("SafetyAntVelocity-v1", "SafetyPointGoal1-v0"):
        reference, random, ours = (entries[task, name] for name in ("bc", "random", "safemil"))
        np.testing.assert_allclose([each.value for each in reference.measures[:2]], [1, 0], atol=1e-12)
        np.testing.assert_allclose(random.measures[0].value, 0, atol=1e-12)
        np.testing.assert_allclose([each.value for each in ours.measures[:2]], [0.9, -20], rtol=0.15)


def with_episodes(larger, tmp_path, returns, costs):
    """The folder with other episodes of SafeMIL's on Goal1."""
    folder = tmp_path / "results"
    shutil.copytree(larger, folder)
    for path in (folder / "cells").glob("*.json"):
        result = json.loads(path.read_text())
        if (result["cell"]["algorithm"], result["cell"]["task"]) == ("safemil", "SafetyPointGoal1-v0"):
            path.write_text(json.dumps(result | {"returns": returns, "costs": costs}))
    return folder


def test_episodes_lost_are_counted_and_left_out_of_the_cost(larger, tmp_path):
    returns, costs = [-500.0, 90.0, 90.0, -500.0], [0.0, 10.0, 20.0, 0.0]
    folder = with_episodes(larger, tmp_path, returns, costs)
    results = Results(folder)
    found = results.lost(results.grid.studies[0])
    assert list(found) == ["SafetyPointGoal1-v0"]
    assert found["SafetyPointGoal1-v0"]["safemil"] == (0.5, 15.0)
    assert found["SafetyPointGoal1-v0"]["bc"][0] == 0
    out = tmp_path / "page" / "results.md"
    write_page(folder, out)
    row = next(line for line in out.read_text().partition("### Lost")[2].splitlines() if "Goal1" in line)
    assert "| 50% / 15.0 |" in row


def test_a_method_that_loses_every_episode_has_no_cost_of_others(larger, tmp_path):
    results = Results(with_episodes(larger, tmp_path, [-500.0] * 4, [0.0] * 4))
    rows = tables.lost(results.lost(results.grid.studies[0]))
    assert "100%" in rows[1]


def test_no_lost_episodes_are_no_table(page):
    assert "Lost episodes" not in page.read_text()


def priced(**costs):
    """Entries of one task with the given normalised costs."""
    empty = np.zeros((1, 1))
    return [
        Entry("SafetyPointGoal1-v0", name, {}, empty, np.full((2, 3), cost), (empty[0], empty, empty), 0.0)
        for name, cost in costs.items()
    ]


def test_the_factor_compares_ours_with_the_best_of_those_that_see_no_costs():
    entries = priced(random=0.1, bc=8.0, safemil=2.0)
    assert headline(entries) == {"SafetyPointGoal1-v0": 4.0}
    assert "Goal1 4.00; median 4.00" in sentence(entries)


def test_a_cost_below_the_references_is_lower_without_bound():
    assert "Goal1 ∞; median ∞" in sentence(priced(bc=8.0, safemil=-2.0))


def test_the_page_holds_tables_the_papers_numbers_and_figures_that_are_there(page):
    text = page.read_text()
    assert "| BC-Unlabeled | 1.00 ± " in text
    assert "1.19 ± 1.43" not in text  # Walker2d is not in this grid
    assert "0.86 ± 0.71" in text  # the paper's Ant
    assert re.search(r"SafeMIL \| 0\.\d\d ± 0\.\d\d \| \*\*-\d\d\.\d\d ± ", text)
    pictures = re.findall(r"\]\((results/[^)]+\.png)\)", text)
    assert len(pictures) == 2 * 3 + 1
    for picture in pictures:
        assert (page.parent / picture).read_bytes().startswith(b"\x89PNG")


def test_csv_and_latex_hold_the_same_numbers(page):
    csv = (page.parent / "results" / "performance-navigation.csv").read_text().splitlines()
    latex = (page.parent / "results" / "performance-navigation.tex").read_text()
    assert csv[0].startswith("algorithm,Goal1 Return,Goal1 Return ±,Goal1 Cost,")
    ours = csv[-1].split(",")
    assert ours[0] == "SafeMIL"
    assert rf"\textbf{{{ours[3]} $\pm$ {ours[4]}}}" in latex
    assert r"CVaR 20\% cost" in latex


def test_a_study_varies_one_setting_and_shares_cells_with_another(larger):
    results = Results(larger)
    performance, bag_size = results.grid.studies
    entries = results.entries(bag_size)
    assert [entry.change for entry in entries] == [{"bag_size": k} for k in (1, 8, 128)]
    shared = {cell.name for _, cell in performance.cells} & {cell.name for _, cell in bag_size.cells}
    assert len(shared) == 3  # the default bag size, three seeds


def test_the_papers_tables_are_whole():
    numbers = tables.paper()["tasks"]
    assert len(numbers) == 6
    for algorithms in numbers.values():
        assert set(algorithms) == {"bc", "dwbc-nu", "trex-wbc", "safedice", "safemil"}
        assert np.asarray(list(algorithms.values())).shape == (5, 3, 2)


def test_a_folder_without_a_grid_is_refused(tmp_path):
    with pytest.raises(InputError, match="holds no grid"):
        Results(tmp_path)
