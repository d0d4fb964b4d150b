"""What an algorithm is, and how one is found."""

import importlib
import types

import pytest

from safemil import algorithms
from safemil.algorithms import bc, find, names, of_config
from safemil.errors import InputError


def test_an_algorithm_is_found_by_its_name_its_module_and_its_settings():
    assert find("bc") is find(bc) is find(find("bc")) is of_config(bc.Config())
    assert (find("bc").name, find("bc").TITLE) == ("bc", "BC-Unlabeled")


def test_a_module_of_a_package_has_the_name_of_its_entry_point_else_its_own(tmp_path, monkeypatch):
    info = tmp_path / "cloners-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: cloners\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[safemil.algorithms]\nmy-cloner = cloners.offered\n")
    (tmp_path / "cloners").mkdir()
    for module in ("offered", "private"):
        (tmp_path / "cloners" / f"{module}.py").write_text("from safemil.algorithms.bc import *")
    monkeypatch.syspath_prepend(tmp_path)
    offered, private = map(importlib.import_module, ("cloners.offered", "cloners.private"))
    assert find(offered) is find("my-cloner")
    assert (find(offered).name, find(private).name) == ("my-cloner", "cloners.private")


def test_what_an_algorithm_does_not_define_is_none():
    assert find("bc").cost is None
    assert find("bc").advice is None
    assert find("safemil").cost is not None


def test_a_module_that_is_no_algorithm_is_told_what_it_lacks():
    with pytest.raises(InputError, match="not an algorithm: it does not define TITLE, NEEDS"):
        find(types.ModuleType("nothing"))


def test_settings_of_no_algorithm_are_refused():
    with pytest.raises(InputError, match="dict is not the Config of an algorithm"):
        of_config({})


def test_a_wrong_name_is_answered_with_the_near_one():
    with pytest.raises(InputError, match='did you mean "safemil"'):
        find("safemill")


def test_every_algorithm_is_listed():
    assert names()[:2] == ["safemil", "bc"]
    assert set(algorithms.available()) == set(names())
