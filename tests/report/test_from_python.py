"""A report from Python, of a run on disk or in memory."""

import pytest

import safemil
from safemil.errors import InputError


def test_a_run_on_disk_gives_the_page_of_the_command_line(folder, page, tmp_path):
    found = safemil.report(folder / "run", tmp_path / "report.html", compare=None)
    assert found == tmp_path / "report.html"
    assert found.read_text().count("<svg") == page.read_text().count("<svg")


def test_a_run_in_memory_is_reported_with_episodes_in_memory(unlabeled, tmp_path):
    run = safemil.train("bc", unlabeled=unlabeled, updates=10, hidden_policy=[8], seeds=2, progress=False)
    safemil.report(run[1], tmp_path / "report.html", unlabeled=unlabeled)
    assert "bc" in (tmp_path / "report.html").read_text()
    assert run.path is None
    with pytest.raises(InputError, match="already"):
        safemil.report(run[1], tmp_path / "report.html", unlabeled=unlabeled)
    with pytest.raises(InputError, match="which episodes are to be ranked"):
        safemil.report(run[1], tmp_path / "other.html", nonpreferred=unlabeled)


def test_the_function_survives_an_import_of_its_package(unlabeled, tmp_path):
    import safemil.report.page  # which sets the attribute `report` to the package

    run = safemil.train("bc", unlabeled=unlabeled, updates=10, hidden_policy=[8], progress=False)
    assert safemil.report(run, tmp_path / "report.html", unlabeled=unlabeled).exists()
