"""Tables, figures and the page of a results folder."""

import csv
import dataclasses
import doctest
import io
import json
import math
import re
import shutil
from pathlib import Path

import numpy as np
import pytest

from safemil import algorithms
from safemil.bench import figures, render, tables
from safemil.bench.cell import write_result
from safemil.bench.grid import read_grid
from safemil.bench.markdown_page import write_page
from safemil.bench.page import build, headline
from safemil.bench.results import Entry, Results, cost_ratios
from safemil.bench.tables import INTERVAL, LOST_COST, Table, Value
from safemil.cli import main
from safemil.errors import InputError

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def page(larger, tmp_path_factory):
    out = tmp_path_factory.mktemp("page") / "results.md"
    assert main(["tables", str(larger), "--out", str(out)]) == 0
    return out


@pytest.mark.parametrize("module", [tables, render, figures])
def test_the_examples_hold(module):
    assert doctest.testmod(module).failed == 0


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


def test_an_algorithm_that_loses_every_episode_has_no_cost_of_others(larger, tmp_path):
    results = Results(with_episodes(larger, tmp_path, [-500.0] * 4, [0.0] * 4))
    table = tables.lost(results.lost(results.grid.studies[0]))
    assert "100%" in map(str, table.rows[0])


def test_no_lost_episodes_are_no_table(page):
    assert "Lost episodes" not in page.read_text()


def priced(**costs):
    """Entries of one task with the given normalised costs."""
    empty = np.zeros((1, 1))
    return [
        Entry("SafetyPointGoal1-v0", name, 0, {}, empty, np.full((2, 3), cost), (empty[0], empty, empty), 0.0)
        for name, cost in costs.items()
    ]


def test_the_ratio_compares_the_best_baseline_that_is_given_no_costs_with_ours():
    entries = priced(**{"random": 0.1, "bc-preferred": 0.2, "bc": 8.0, "trex-wbc": 9.0, "safemil": 2.0})
    assert cost_ratios(entries) == {"SafetyPointGoal1-v0": 4.0}
    assert "Goal1 4.00; median 4.00" in headline(entries)


def test_the_ratio_is_infinite_where_only_the_baseline_exceeds_the_reference():
    assert "Goal1 ∞; median ∞" in headline(priced(bc=8.0, safemil=-2.0))


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
    lines = (page.parent / "results" / "performance-navigation.csv").read_text().splitlines()
    latex = (page.parent / "results" / "performance-navigation.tex").read_text()
    assert lines[0].startswith("algorithm,Goal1 Return,Goal1 Return ±,Goal1 Cost,")
    ours = lines[-1].split(",")
    assert ours[0] == "SafeMIL"
    assert rf"\textbf{{{ours[3]} $\pm$ {ours[4]}}}" in latex
    assert r"CVaR 20\% cost" in latex


MIXED = Table(
    ["task, K", "Cost", "lost"],
    [
        ["a_1 & <b>|", Value((1.25, 0.5), INTERVAL, best=True), Value((1.0, math.nan), LOST_COST)],
        ['say "2"', "", Value((0.25, 2381.4), LOST_COST)],
    ],
)


def test_csv_has_a_column_per_number_and_reads_back_with_its_quotes():
    assert list(csv.reader(io.StringIO(render.csv(MIXED)))) == [
        ["task, K", "Cost", "Cost ±", "lost lost", "lost cost of the others"],
        ["a_1 & <b>|", "1.25", "0.50", "1.00", ""],
        ['say "2"', "", "", "0.25", "2381.40"],
    ]


def test_every_form_shows_the_same_numbers_and_marks_the_best():
    shown = ["1.25 ± 0.50", "100%", "25% / 2,381"]
    for write, pm, percent, best in (
        (render.markdown, "±", "%", "**{}**"),
        (render.latex, r"$\pm$", r"\%", r"\textbf{{{}}}"),
        (render.html, "±", "%", "<strong>{}</strong>"),
    ):
        first, *rest = (each.replace("±", pm).replace("%", percent) for each in shown)
        text = write(MIXED)
        assert best.format(first) in text
        assert all(each in text for each in rest)


def test_a_table_without_rows_is_its_head():
    assert render.csv(Table(["a", "b"], [])) == "a,b\n"
    assert render.markdown(Table(["a", "b"], [])) == "| a | b |\n| --- | --- |\n"


def test_text_is_escaped_in_every_form():
    assert r"| a_1 & <b>\| |" in render.markdown(MIXED)
    assert r"a\_1 \& <b>| &" in render.latex(MIXED)
    assert "a_1 &amp; &lt;b&gt;|</th>" in render.html(MIXED)


def test_columns_of_texts_are_sorted_as_texts_and_missing_values_are_the_least():
    text = render.html(MIXED)
    assert re.findall(r'data-kind="(\w+)"', text) == ["text", "number", "number"]
    values = re.findall(r'<td class="num" data-value="([^"]*)"', text)
    assert values == ["1.25", "1.0", "-Infinity", "0.25"]


def test_the_places_of_a_grid_have_styles_that_differ():
    assert len({tuple(figures.style(place).values()) for place in range(72)}) == 72
    assert len({figures.style(place)["color"] for place in range(8)}) == 8


@pytest.fixture
def outside(monkeypatch):
    """Names of eight more algorithms: cloning under other titles, as installed packages may add them."""
    find = algorithms.find
    titles = {f"outside-{number}": f"Outside {number}" for number in range(8)}

    def find_any(name):
        if name not in titles:
            return find(name)
        return dataclasses.replace(find("bc"), name=name, TITLE=titles[name])

    monkeypatch.setattr(algorithms, "find", find_any)
    return list(titles)


def test_an_algorithm_from_outside_is_tabulated_and_drawn_like_the_others(outside, larger, tmp_path):
    grid = (
        (larger / "grid.toml")
        .read_text()
        .replace('["random", "bc", "safemil"]', str(["random", "bc", "safemil", *outside]))
    )
    (tmp_path / "grid.toml").write_text(grid)
    rng = np.random.default_rng(0)
    for cell in read_grid(tmp_path / "grid.toml").cells():
        costs = rng.normal(50 if cell.algorithm == "random" else 20, 1, 5).tolist()
        returns = rng.normal(0 if cell.algorithm == "random" else 90, 1, 5).tolist()
        found = {"cell": cell.to_json(), "data_sha256": {}, "returns": returns, "costs": costs}
        write_result(tmp_path, cell, {**found, "curve": [], "seconds": {"train": 1.0}})
    results = Results(tmp_path)
    entries = results.entries(results.grid.studies[0])
    styles = {each.algorithm: tuple(figures.style(each.place).values()) for each in entries}
    assert len(styles) - 1 == len(set(styles.values()) - {styles["random"]}) == 10
    text = write_page(tmp_path, tmp_path / "page.md").read_text()
    table = text.partition("### Velocity")[2].partition("###")[0]
    for number in range(8):
        assert re.search(rf"^\| Outside {number} \|(.* ± .* \|){{6}}$", table, re.MULTILINE)


def test_markdown_and_html_have_the_same_sections_and_cells(larger, tmp_path):
    folder = with_episodes(larger, tmp_path, [-500.0, 90.0], [0.0, 10.0])
    markdown = write_page(folder, tmp_path / "page.md").read_text()
    assert main(["report", str(folder), "--out", str(tmp_path / "page.html")]) == 0
    html = (tmp_path / "page.html").read_text()
    page = build(Results(folder))
    assert [part.title for part in page.sections[0].parts][-2:] == ["As measured", "Lost episodes"]
    for section in page.sections:
        assert f"## {section.title}\n" in markdown
        assert f"<h2>{section.title}</h2>" in html
        for part in section.parts:
            assert part.text in markdown
            assert part.text in html
            assert render.markdown(part.table) in markdown
            assert render.html(part.table) in html


def test_a_page_is_named_as_markdown_and_replaced_only_on_request(larger, page, tmp_path):
    with pytest.raises(InputError, match="exists already"):
        write_page(larger, page.with_suffix(""))
    (tmp_path / "page.md").write_text("old")
    assert write_page(larger, tmp_path / "page", overwrite=True) == tmp_path / "page.md"
    assert (tmp_path / "page.md").read_text() == page.read_text().replace("(results/", "(page/")
    assert (tmp_path / "page" / "bag-size.png").exists()
    with pytest.raises(InputError, match=r"ends in \.md"):
        write_page(larger, tmp_path / "page.html")


def test_the_committed_page_has_the_tables_of_the_committed_cells():
    page, committed = build(Results(ROOT / "results" / "paper")), (ROOT / "docs" / "results.md").read_text()
    for section in page.sections:
        assert section.text in committed
        for part in section.parts:
            assert render.markdown(part.table) in committed
            for form, write in (("csv", render.csv), ("tex", render.latex)):
                assert (ROOT / "docs" / "results" / f"{part.name}.{form}").read_text() == write(part.table)


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
    for found in numbers.values():
        assert set(found) == {"bc", "dwbc-nu", "trex-wbc", "safedice", "safemil"}
        assert np.asarray(list(found.values())).shape == (5, 3, 2)


def test_a_folder_without_a_grid_is_refused(tmp_path):
    with pytest.raises(InputError, match="holds no grid"):
        Results(tmp_path)
