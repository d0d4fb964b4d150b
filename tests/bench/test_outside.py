"""An algorithm of an installed package in a benchmark: workers find it, tables and reports show it."""

import subprocess
import sys

GRID = """
seeds = 1
reference = "bc"
evaluation.episodes = 10
data.nonpreferred = 2
data.unlabeled = 4
[families.generated]
tasks = ["toy:speed"]
settings.bc = {updates = 500, batch = 64, hidden_policy = [32]}
[studies.performance]
algorithms = ["random", "bc", "mean-action"]
"""


def test_an_algorithm_of_an_installed_package_is_run_by_workers_and_reported(tmp_path, with_mean_action):
    def safemil(*words):
        command = [sys.executable, "-m", "safemil", *words]
        done = subprocess.run(command, cwd=tmp_path, env=with_mean_action, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr

    (tmp_path / "grid.toml").write_text(GRID)
    safemil("bench", "grid.toml", "--out", "results", "--workers", "1")
    safemil("tables", "results", "--out", "page.md")
    safemil("report", "results", "--out", "page.html")
    assert "| Mean action | " in (tmp_path / "page.md").read_text()
    html = (tmp_path / "page.html").read_text()
    assert ">Mean action</th>" in html  # in a table
    assert ">Mean action</text>" in html  # in a figure
