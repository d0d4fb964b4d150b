"""Types of arguments that several commands take."""

import importlib
import os
import sys
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import tyro

if TYPE_CHECKING:  # their import takes 0.4 s, which `--help` does not need
    from safemil.data import Trajectories
    from safemil.data.interchange import Options

RunPath = Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="RUN")]
LogsPath = Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="LOGS")]
ResultsPath = Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="RESULTS")]
DataPath = Annotated[
    Path | None, tyro.conf.Positional, tyro.conf.arg(metavar="[DATA]", help_behavior_hint="")
]
TaskName = Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="TASK")]
TaskFlag = Annotated[str | None, tyro.conf.arg(metavar="TASK", help_behavior_hint="")]
EnvFlag = Annotated[str | None, tyro.conf.arg(metavar="MODULE:FUNCTION", help_behavior_hint="")]
OutFile = Annotated[Path, tyro.conf.arg(metavar="FILE")]
OutFolder = Annotated[Path, tyro.conf.arg(metavar="FOLDER")]
PathFlag = Annotated[Path | None, tyro.conf.arg(metavar="PATH", help_behavior_hint="")]
NameFlag = Annotated[str | None, tyro.conf.arg(metavar="NAME", help_behavior_hint="")]
LogPaths = Annotated[
    tuple[Path, ...],
    tyro.conf.Positional,
    tyro.conf.arg(metavar="LOGS ...", help_behavior_hint="(one or more)"),
]
Fills = Annotated[
    tuple[str, ...],
    tyro.conf.UseAppendAction,
    tyro.conf.arg(metavar="PATTERN=VALUE", help_behavior_hint=""),
]
Kind = Annotated[
    Literal["continuous", "discrete"] | None, tyro.conf.arg(metavar="KIND", help_behavior_hint="")
]
Numbers = Annotated[tuple[float, ...] | None, tyro.conf.arg(metavar="NUMBER ...", help_behavior_hint="")]


@dataclass(frozen=True)
class Reading:
    """Flags for how a file is read; the column names are for tables (Parquet, CSV)."""

    episode: str = "episode"
    """column that names the episode"""
    step: str = "step"
    """column that numbers the step within the episode"""
    observation: NameFlag = None
    """column of lists, or columns of numbers, as in "x, y" or "obs_*" (default: observation, else obs_*)"""
    action: NameFlag = None
    """as --observation (default: action, else act_*)"""
    reward: str = "reward"
    """column of rewards, if a command needs them"""
    cost: str = "cost"
    """column of costs, if a command needs them"""
    terminated: str = "terminated"
    """column that says whether the task itself ended the episode"""
    action_low: Numbers = None
    """least action, one number or one per column (default: as recorded in the file, else -1)"""
    action_high: Numbers = None
    """greatest action, one number or one per column (default: as recorded in the file, else 1)"""
    action_kind: Kind = None
    """discrete if whole numbers are choices (default: discrete for a column of texts)"""
    fill: Fills = ()
    """what replaces empty cells, as in "gap_*=90", "speed=previous" or "gap_*=flag" (a column of 0 and 1)"""
    max_gap: Annotated[str | None, tyro.conf.arg(metavar="STEP", help_behavior_hint="")] = None
    """no segment crosses a longer step: a number in the units of the step column, or 1s, 500ms, 2min"""
    incident: NameFlag = None
    """column that is true at incidents, or column=value"""
    incident_episodes: Annotated[str | None, tyro.conf.arg(metavar="LIST_OR_FILE", help_behavior_hint="")] = (
        None
    )
    """episodes that are incidents: names separated by commas, or a file with one in each line"""

    def options(self) -> "Options":
        from safemil.data.interchange import Columns, Fill, Options
        from safemil.errors import InputError

        low, high = self.action_low, self.action_high
        if (low is None) != (high is None):
            raise InputError("action bounds come in pairs; give both --action-low and --action-high.")
        return Options(
            Columns(**{field.name: getattr(self, field.name) for field in fields(Columns)}),
            None if low is None or high is None else (low, high),
            self.incident,
            None if self.incident_episodes is None else _names(self.incident_episodes),
            tuple(Fill.parse(each) for each in self.fill),
            self.max_gap,
            self.action_kind,
        )


def _names(text: str) -> tuple[str, ...]:
    """Names in a file, one in each line, or separated by commas."""
    from safemil.texts import read_text

    try:
        is_file = Path(text).is_file()
    except (OSError, ValueError):  # too long for a path, or no text for one
        is_file = False
    found = read_text(text).splitlines() if is_file else text.split(",")
    return tuple(name.strip() for name in found if name.strip())


ReadingFlags = Annotated[Reading, tyro.conf.arg(name="")]
READING = Reading()


def training_data(run: Path, unlabeled: Path | None, reading: Reading) -> "Trajectories":
    """Read the unlabeled pile of a run as training did, or another one as the flags say."""
    from safemil.data.formats import read

    if unlabeled is not None:
        return read(unlabeled, reading.options()).trajectories
    return piles_of_training(run, "unlabeled")["unlabeled"]


def piles_of_training(run: Path, *names: str) -> "dict[str, Trajectories]":
    """Read piles that a run notes, if it does, which must be those that it was trained on."""
    from safemil.data.formats import read_piles
    from safemil.runs import RunDirectory

    directory = RunDirectory(run)
    noted = read_piles(*directory.read_sources())
    found = {name: noted[name].trajectories for name in names if name in noted}
    for name, pile in found.items():
        directory.require_learned(name, pile.content_hash())
    return found


def function(name: str) -> Any:
    """Import a function that is given as module:function; modules in the current folder are found too."""
    from safemil.errors import InputError

    module, colon, attribute = name.partition(":")
    if not colon:
        raise InputError(f'a function is given as module:function, got "{name}".')
    sys.path.insert(0, os.getcwd())
    try:
        found = importlib.import_module(module)
        for part in attribute.split("."):
            found = getattr(found, part)
    except (ImportError, AttributeError, ValueError) as error:
        raise InputError(f'can\'t import "{name}": {error}; give module:function.') from None
    finally:
        sys.path.remove(os.getcwd())
    return found


def environment(name: str) -> Any:
    """Function that makes an environment, or an id that Gymnasium knows or finds by importing its module."""
    _, colon, attribute = name.partition(":")
    if not colon or "-v" in attribute:  # as in highway_env:highway-v0, where Gymnasium imports the module
        return name
    return function(name)
