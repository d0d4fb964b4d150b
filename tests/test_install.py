"""What works without the optional dependencies, and what the rest says that they are missing."""

import json
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import safemil
from safemil.extras import EXTRAS, MissingExtra, require_extra

ROOT = Path(__file__).parents[1]
# An interpreter in which no package of an extra can be imported.
BARE = f"""
import sys

class Refuse:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {sorted(name for names in EXTRAS.values() for name in names)}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)

sys.meta_path.insert(0, Refuse())
"""
SMALL = {"updates": 4, "cost_updates": 2, "hidden_cost": [4], "hidden_policy": [4], "bag_size": 2, "pool": 2}


def bare(code, folder, *arguments):
    command = [sys.executable, "-c", BARE + code, *map(str, arguments)]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True)


def bare_cli(folder, *arguments):
    return bare("from safemil.cli import main; sys.exit(main())", folder, *arguments)


@pytest.fixture(scope="module")
def folder(tmp_path_factory, unlabeled, nonpreferred):
    folder = tmp_path_factory.mktemp("bare")
    safemil.save(folder / "logs.parquet", unlabeled)
    safemil.save(folder / "bad.parquet", nonpreferred)
    code = f"""
import safemil
bad, logs = safemil.load("bad.parquet"), safemil.load("logs.parquet")
safemil.train("safemil", nonpreferred=bad, unlabeled=logs, out="run", **{SMALL})
run = safemil.Run.load("run")
print(len(run.cost(logs)), run.act(logs.observations[0]).shape)
"""
    done = bare(code, folder)
    assert done.returncode == 0, done.stderr
    assert done.stdout == f"{len(unlabeled)} (2,)\n"
    return folder


def test_a_run_is_trained_loaded_and_asked_without_any_extra(folder):
    assert safemil.Run.load(folder / "run").config.updates == SMALL["updates"]


@pytest.mark.parametrize(
    ("arguments", "printed"),
    [
        (["--help"], "safemil data info"),
        (["algorithms"], "bag"),
        (["data", "info", "logs.parquet"], "4 episodes"),
        (["score", "run", "logs.parquet", "--out", "risk.csv"], "risk.csv"),
    ],
)
def test_a_command_that_needs_no_extra_works_without(folder, arguments, printed):
    done = bare_cli(folder, *arguments)
    assert done.returncode == 0, done.stderr
    assert printed in done.stdout


@pytest.mark.parametrize(
    ("arguments", "extra"),
    [
        (["report", "run", "--unlabeled", "logs.parquet", "--out", "page.html"], "report"),
        (["evaluate", "run", "--task", "SafetyPointGoal1-v0"], "tasks"),
        (["tasks", "list"], "tasks"),
        (["data", "make", "SafetyPointGoal1-v0"], "tasks"),
    ],
)
def test_a_command_names_the_extra_that_it_lacks_in_one_line(folder, arguments, extra):
    done = bare_cli(folder, *arguments)
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert done.stderr.endswith(f"pip install 'safemil[{extra}]'\n")


def test_an_import_names_the_extra_that_it_lacks(folder):
    done = bare("import safemil.tasks.envs", folder)
    assert done.stderr.strip().endswith("pip install 'safemil[tasks]'")


def test_a_missing_extra_is_an_input_error_and_an_import_error(monkeypatch):
    monkeypatch.setitem(EXTRAS, "tasks", ("no_such_package",))
    with pytest.raises(ImportError, match=r"^a task needs no_such_package, .*\[tasks\]") as caught:
        require_extra("tasks", "a task")
    assert isinstance(caught.value, MissingExtra | safemil.InputError)


def test_every_extra_of_the_package_is_known_and_all_has_each_but_the_largest():
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert {*extras} == {*EXTRAS, "all", "cuda"}
    assert extras["all"] == [f"safemil[{','.join(sorted({*EXTRAS} - {'wandb', 'trackio'}))}]"]


def test_nothing_of_an_extra_is_imported_by_the_library_alone(folder):
    code = (
        "import sys, json, safemil.api; print(json.dumps(sorted({m.partition('.')[0] for m in sys.modules})))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert not {name for names in EXTRAS.values() for name in names} & {*json.loads(done.stdout)}
