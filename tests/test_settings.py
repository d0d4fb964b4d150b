"""Settings from presets, files and flags."""

import dataclasses
import tomllib
from typing import Literal

import pytest

from safemil.algorithms import ALGORITHMS
from safemil.errors import InputError
from safemil.settings import (
    complete,
    meanings,
    parse_assignments,
    require_positive,
    resolve,
    to_toml,
)
from safemil.texts import read_toml


@dataclasses.dataclass(frozen=True)
class Config:
    lr: float = 1e-3  # learning rate
    updates: int = 10
    pool: int | None = 4
    length: int | Literal["full"] = 5
    hidden: tuple[int, ...] = (2, 3)
    loss: Literal["nll", "mse"] = "nll"  # "#nll" or mse

    def __post_init__(self):
        require_positive(self, "lr", "updates", "pool", "length")


@dataclasses.dataclass(frozen=True)
class Derived(Config):
    lr: float = 1e-4  # of the policy
    # A comment on a line of its own.
    beta: float = 0.5  # smaller: safer


def test_the_comment_beside_a_setting_is_its_meaning():
    assert meanings(Config) == {
        "lr": "learning rate", "updates": "", "pool": "", "length": "", "hidden": "",
        "loss": '"#nll" or mse',
    }  # fmt: skip
    assert list(meanings(Derived)) == ["lr", "beta", "updates", "pool", "length", "hidden", "loss"]
    assert [meanings(Derived)[name] for name in ("lr", "beta")] == ["of the policy", "smaller: safer"]


def test_complete_settings_are_never_filled_in():
    values = dataclasses.asdict(Config(lr=0.5))
    assert complete(Config, values) == Config(lr=0.5)
    del values["pool"], values["lr"]
    with pytest.raises(InputError, match="need every setting, but there is no lr, pool"):
        complete(Config, values)


def test_later_changes_win():
    assert resolve(Config(), {"lr": 0.1, "updates": 3}, {"lr": 0.2}) == Config(lr=0.2, updates=3)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("lr=1", Config(lr=1.0)),
        ("updates=1e3", Config(updates=1000)),
        ("pool=none", Config(pool=None)),
        ("length=full", Config(length="full")),
        ("hidden=[8, 8]", Config(hidden=(8, 8))),
        ("loss=mse", Config(loss="mse")),
    ],
)
def test_a_flag_is_read_as_the_type_of_its_setting(text, expected):
    assert resolve(Config(), parse_assignments([text])) == expected


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("updates=1.5", "updates must be a whole number, got 1.5"),
        ("updates=true", "updates must be a whole number, got True"),
        ("loss=l2", 'loss must be "nll" or "mse", got \'l2\''),
        ("length=half", "length must be a whole number or \"full\", got 'half'"),
        ("lrr=1", 'no setting "lrr"; did you mean "lr"?'),
        ("lr", "a setting is written name=value"),
        ("lr=0", "lr must be above 0, got 0.0"),
        ("lr=nan", "lr must be a number, got nan"),
        ("lr=inf", "lr must be finite, got inf"),
        ("hidden=[8, 0]", "hidden[1] must be a whole number in [1, 65536], got 0"),
        ("pool=1000000000", "pool must be 1,000,000 or less, got 1000000000"),
        ("updates=1e12", "updates must be 2,147,483,647 or less, got 1000000000000"),
        ("pool=-3", "pool must be above 0, got -3"),
    ],
)
def test_a_wrong_setting_says_what_was_needed_and_what_came(text, message):
    with pytest.raises(InputError) as error:
        resolve(Config(), parse_assignments([text]))
    assert message in str(error.value)


@pytest.mark.parametrize("name", ALGORITHMS)
@pytest.mark.parametrize("preset", ["fast", "paper"])
def test_presets_survive_a_config_file(name, preset):
    config = ALGORITHMS[name].PRESETS[preset]
    read = tomllib.loads(to_toml(dataclasses.asdict(config)))
    assert resolve(ALGORITHMS[name].PRESETS["fast"], read) == config


def test_text_in_a_config_file_is_escaped():
    assert tomllib.loads(to_toml({"name": 'a"b\\c\n'})) == {"name": 'a"b\\c\n'}


def test_a_broken_config_file_is_refused(tmp_path):
    file = tmp_path / "broken.toml"
    file.write_text("lr = = 3")
    with pytest.raises(InputError, match="is not a TOML file"):
        read_toml(file)
