import doctest
import re
from pathlib import Path

import pytest

from safemil.data import describing, features, formats, interchange, splitting, trajectories

PAGE = Path(__file__).parents[2] / "docs" / "formats.md"


def test_the_python_on_the_page_runs(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    exec("\n".join(re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)), {})
    assert capsys.readouterr().out == "Trajectories(2 episodes of 1 to 2 steps, 2 observed, 1 action)\n"


def test_the_page_names_every_format():
    for suffix in (each for format in formats.FORMATS.values() for each in format.SUFFIXES):
        assert f"`{suffix}`" in PAGE.read_text()


@pytest.mark.parametrize("module", [interchange, describing, features, formats, splitting, trajectories])
def test_examples_in_docstrings_are_true(module):
    assert doctest.testmod(module).failed == 0
