"""Formats that installed packages add."""

import sys
from textwrap import dedent

import pytest

from safemil.data import formats, load, load_annotated, save
from safemil.errors import InputError

LINES = """
    import json
    import numpy as np
    from safemil.data import Trajectories
    from safemil.data.interchange import Contents

    SUFFIXES = (".lines",)

    def recognises(path):
        return path.is_file() and path.read_bytes().startswith(b"LINES")

    def read(path, options):
        held, rewards, costs = json.loads(path.read_text()[5:].lstrip(","))
        return Contents(Trajectories(**held), np.array(rewards), np.array(costs))

    def write(path, contents):
        names = ("observations", "actions", "lengths")
        held = {name: getattr(contents.trajectories, name).tolist() for name in names}
        path.write_text("LINES\\n" + json.dumps([held, contents.rewards.tolist(), contents.costs.tolist()]))
"""


@pytest.fixture
def install(tmp_path, monkeypatch):
    """Put a package on the path, with a module `<name>_format` as its format `name`."""
    site = tmp_path / "site"
    site.mkdir()
    monkeypatch.syspath_prepend(str(site))

    def put(name, code):
        info = site / f"{name}_package-1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}-package\nVersion: 1.0\n")
        (info / "entry_points.txt").write_text(f"[safemil.formats]\n{name} = {name}_format\n")
        (site / f"{name}_format.py").write_text(dedent(code))
        monkeypatch.delitem(sys.modules, f"{name}_format", raising=False)

    yield put
    for module in [each for each in sys.modules if each.endswith("_format")]:
        del sys.modules[module]


def test_a_format_of_an_installed_package_is_written_by_suffix_and_read_by_content(
    install, walk, marks, tmp_path
):
    install("lines", LINES)
    save(tmp_path / "log.lines", walk, marks)
    assert (tmp_path / "log.lines").read_bytes().startswith(b"LINES\n")
    (tmp_path / "log.lines").rename(tmp_path / "mystery.bin")
    held, found = load_annotated(tmp_path / "mystery.bin")
    assert held.observations.tolist() == walk.observations.tolist()
    assert found.costs.tolist() == marks.costs.tolist()


def test_a_format_of_an_installed_package_can_be_named(install, walk, marks, tmp_path):
    install("lines", LINES)
    save(tmp_path / "log", walk, marks, format="lines")
    assert load(tmp_path / "log").steps == 6
    with pytest.raises(InputError, match='no format "line"; did you mean "lines"'):
        save(tmp_path / "other", walk, marks, format="line")


def test_text_that_looks_like_csv_is_of_the_installed_format_only_if_the_suffix_says_so(
    install, walk, marks, tmp_path
):
    install("lines", LINES.replace("LINES\\n", "LINES,"))
    save(tmp_path / "log.lines", walk, marks)
    assert load(tmp_path / "log.lines").steps == 6
    (tmp_path / "log.lines").rename(tmp_path / "log.txt")
    with pytest.raises(InputError, match='no column "episode"'):
        load(tmp_path / "log.txt")


def test_built_in_formats_load_no_package(install, walk, tmp_path):
    install("lines", LINES)
    for name in ("log.parquet", "log.hdf5", "log.csv", "log"):
        save(tmp_path / name, walk)
        assert load(tmp_path / name).steps == 6
    assert "lines_format" not in sys.modules


def test_a_package_can_not_replace_a_built_in_format(install, walk, tmp_path):
    install("parquet", "raise RuntimeError('loaded')")
    save(tmp_path / "log", walk, format="parquet")
    assert load(tmp_path / "log").content_hash() == walk.content_hash()


@pytest.mark.parametrize(
    ("code", "cause"),
    [
        ("import no_such_module", "ModuleNotFoundError: No module named 'no_such_module'"),
        ("SUFFIXES = ('.lines',)", "AttributeError: .*recognises"),
        (LINES.replace("return path.is_file()", "return 1 / 0"), "ZeroDivisionError"),
    ],
)
def test_a_broken_package_is_named_and_stops_no_other_format(code, cause, install, walk, marks, tmp_path):
    install("broken", code.replace(".lines", ".broken"))
    (tmp_path / "mystery.bin").write_bytes(b"BINARY \0")
    message = f'none of the formats .*, broken.* format "broken" of the .* package broken-package .*{cause}'
    with pytest.raises(InputError, match=message):
        load(tmp_path / "mystery.bin")
    with pytest.raises(InputError, match=r"is a folder.* package broken-package does not work"):
        load(tmp_path)
    for name in ("log.parquet", "log.csv", "log"):
        save(tmp_path / name, walk)
        assert load(tmp_path / name).steps == 6
    install("lines", LINES)
    save(tmp_path / "log.lines", walk, marks)
    assert load(tmp_path / "log.lines").steps == 6


def test_a_suffix_that_a_broken_package_may_write_is_an_error_unless_the_format_is_named(
    install, walk, tmp_path
):
    install("broken", "import no_such_module")
    with pytest.raises(InputError, match=r'which format writes "\.odd".*package broken-package'):
        save(tmp_path / "log.odd", walk)
    save(tmp_path / "log.odd", walk, format="store")
    assert formats.find("store").recognises(tmp_path / "log.odd")
    with pytest.raises(InputError, match="package broken-package does not work: ModuleNotFoundError"):
        save(tmp_path / "log", walk, format="broken")
