"""Every page: its Python runs, its commands and flags exist, and so do the files it names."""

import ast
import contextlib
import io
import re
import shlex
import subprocess
import sys
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest
from readme_results import with_table

from safemil.algorithms import find
from safemil.cli import main

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
FOLDERS = ("benchmarks", "docs", "examples", "src", "tests", "tools")


def blocks(page: Path, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", page.read_text(), re.DOTALL | re.MULTILINE)


def commands(page: Path) -> list[str]:
    """Commands on lines of their own, indented or in a fence, with continued lines joined."""
    text = page.read_text().replace("\\\n", " ")
    return re.findall(r"^(?: {4}|)((?:safemil|make|python) \S.*?)(?: {2,}.*)?$", text, re.MULTILINE)


@cache
def help_of(*verbs: str) -> str:
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        assert main([*verbs, "--help"]) == 0
    return printed.getvalue()


def verbs_of(words: list[str]) -> list[str]:
    return words[:2] if words[0] in ("data", "tasks") else words[:1]


CASES = [(page.name, command) for page in PAGES for command in commands(page)]


@pytest.mark.parametrize(("page", "command"), CASES, ids=[" in ".join(reversed(case)) for case in CASES])
def test_a_command_and_its_flags_exist(page, command):
    program, *words = shlex.split(command, comments=True)
    if program == "make":
        targets = re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
        assert next(word for word in words if "=" not in word) in targets
    elif program == "python":
        assert (ROOT / words[0]).is_file()
    else:
        known = help_of(*verbs_of(words)) if words[0] != "--help" else help_of()
        for flag in (word for word in words if word.startswith("--")):
            assert re.search(rf"{flag}\b", known), f"{flag} is not a flag of safemil {verbs_of(words)}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_files_that_a_page_names_exist(page):
    text = page.read_text()
    linked = [page.parent / link for link in re.findall(r"\]\(([^)#:]+)\)", text)]
    named = [ROOT / path for path in re.findall(rf"`((?:{'|'.join(FOLDERS)})/[\w./-]+)`", text)]
    missing = [path for path in (*linked, *named) if not path.exists()]
    assert not missing


@pytest.mark.parametrize(
    "page",
    [
        page for page in PAGES if blocks(page, "python") and page.name != "logs.md"
    ],  # in tests/data/test_docs.py
    ids=lambda page: page.name,
)
def test_the_python_of_a_page_runs(page, tmp_path, monkeypatch, request):
    """All blocks of a page in one go; the README's in a folder with the files that it speaks of.

    A training is cut short: the demo's tests train with the default settings.
    """
    short = replace(find("safemil").PRESETS["fast"], updates=50, cost_updates=40, members=2)
    monkeypatch.setitem(find("safemil").PRESETS, "fast", short)
    for file in request.getfixturevalue("incident_files") if page.name == "README.md" else []:
        (tmp_path / file.name).write_bytes(file.read_bytes())
    monkeypatch.chdir(tmp_path)
    exec("\n".join(blocks(page, "python")), {})


@pytest.fixture(scope="module")
def incident_files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("toy")
    assert main(["data", "make", "toy:speed", "--episodes", "40", "--out", str(folder / "toy")]) == 0
    return [folder / "toy" / name for name in ("incidents.parquet", "logs.parquet")]


def test_every_module_has_a_row_in_the_design():
    """A row names modules as `folder/a`, `b` or as `a.py`, or a whole folder as `folder/`."""
    table = (ROOT / "docs" / "design.md").read_text().split("## Decisions")[0]
    named = set()
    for row in re.findall(r"^\| (`.+?`) \|", table, re.MULTILINE):
        first, *others = re.findall(r"`([^`]+)`", row)
        folder = first[: first.rfind("/") + 1]
        named |= {first, *(folder + each for each in others)}
    paths = (ROOT / "src" / "safemil").rglob("[!_]*.py")
    modules = {str(path.relative_to(ROOT / "src" / "safemil")) for path in paths}
    modules = {name.removesuffix(".py") if "/" in name else name for name in modules}
    whole = ("algorithms/", "cli/", "deploy/")  # folders with a single row
    assert {name for name in modules - named if not name.startswith(whole)} == set()
    assert {name for name in named - modules if not name.endswith("/")} == set()


def test_a_docstring_begins_with_its_subject_or_a_verb():
    files = [file for folder in FOLDERS for file in (ROOT / folder).rglob("*.py")]
    documented = ast.Module | ast.ClassDef | ast.FunctionDef
    found = [
        f"{file.relative_to(ROOT)}: {text}"
        for file in files
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8")))
        if isinstance(node, documented) and (text := ast.get_docstring(node)) is not None
    ]
    assert len(found) > 1000
    assert not [each for each in found if re.search(r": (Of|That of|Those of)\b", each)]


def test_the_site_builds_without_a_warning(tmp_path):
    command = [
        sys.executable,
        "-m",
        "mkdocs",
        "build",
        "--quiet",
        "--strict",
        "--site-dir",
        tmp_path / "site",
    ]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "segment_weights" in (tmp_path / "site" / "method" / "index.html").read_text()


def test_the_table_of_results_is_that_of_the_committed_cells():
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    assert with_table(text, ROOT / "results" / "paper") == text
