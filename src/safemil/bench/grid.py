"""Grid of cells from a TOML file, as `docs/benchmark.md` describes it.

A cell holds all its settings, defaults included. Its name ends in a hash of them, so it changes with
anything that can change the result. Studies may share cells: a cell that is in several of them runs once.
"""

import dataclasses
import hashlib
import itertools
import json
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from safemil.errors import InputError, unknown

ALL = "all"  # in place of an algorithm's name: settings for every algorithm
RANDOM = "random"  # the random policy, whose normalised return is 0; it is not trained
TOP = {"title", "seeds", "preset", "reference", "evaluation", "data", "families", "studies"}
STUDY = {"title", "tasks", "algorithms", "seeds", "vary", "settings"}
EVALUATION = {"episodes": 50, "seed": 0, "curve_every": 0, "curve_episodes": 10}
DATA: dict[str, Any] = {
    "folder": "data",
    "nonpreferred": 50,
    "unlabeled": 200,
    "preferred_share": 0.5,
    "return_rule": "midrange",
    "split_seed": 0,
    "sources": {},
}


@dataclasses.dataclass(frozen=True)
class Cell:
    """One training run and its evaluation: everything that the result depends on."""

    task: str  # where the policy acts
    source: str  # where the data come from: a task, a generated problem or a path
    algorithm: str
    preset: str
    settings: Mapping[str, Any]  # all settings of the algorithm
    seed: int
    data: Mapping[str, Any]  # how the episodes are split and drawn
    evaluation: Mapping[str, Any]

    def to_json(self) -> dict[str, Any]:
        return json.loads(json.dumps(dataclasses.asdict(self)))

    @staticmethod
    def from_json(content: Mapping[str, Any]) -> "Cell":
        return Cell(**content)

    @property
    def name(self) -> str:
        """Readable name, unique by a hash of everything in the cell."""
        text = json.dumps(self.to_json(), sort_keys=True)
        digest = hashlib.sha256(text.encode()).hexdigest()[:12]
        return f"{self.task.replace(':', '-')}_{self.algorithm}_{self.seed}_{digest}"

    @property
    def group(self) -> str:
        """Key of the cells that differ in the seed alone; they share compiled programs."""
        return json.dumps({**self.to_json(), "seed": None}, sort_keys=True)


@dataclasses.dataclass(frozen=True)
class Study:
    """Cells to compare, each with the values of the settings that vary."""

    name: str
    title: str
    varied: tuple[str, ...]  # settings that vary; none in a comparison of algorithms
    cells: tuple[tuple[Mapping[str, Any], Cell], ...]


@dataclasses.dataclass(frozen=True)
class Grid:
    title: str
    reference: str
    families: Mapping[str, tuple[str, ...]]
    studies: tuple[Study, ...]
    folder: str  # where stores of generated data are kept

    @property
    def algorithms(self) -> list[str]:
        """Algorithms in the order of the grid; the random policy, which figures leave out, is last."""
        names = dict.fromkeys(cell.algorithm for study in self.studies for _, cell in study.cells)
        return sorted(names, key=lambda name: name == RANDOM)

    def cells(
        self, *, studies: Sequence[str] = (), tasks: Sequence[str] = (), algorithms: Sequence[str] = ()
    ) -> list[Cell]:
        """List each cell once, those of a group in a row; names restrict studies, tasks and algorithms."""
        every = [(study.name, cell) for study in self.studies for _, cell in study.cells]
        _check_names("study in the grid", studies, {study.name for study in self.studies})
        _check_names("task in the grid", tasks, {cell.task for _, cell in every})
        _check_names("algorithm in the grid", algorithms, {cell.algorithm for _, cell in every})

        def wanted(study: str, cell: Cell) -> bool:
            choices = (studies, study), (tasks, cell.task), (algorithms, cell.algorithm)
            return all(not named or value in named for named, value in choices)

        return list({cell.name: cell for study, cell in every if wanted(study, cell)}.values())


def read_grid(path: Path) -> Grid:
    """Read a TOML file; every name and value in it is checked."""
    try:
        content = tomllib.loads(path.read_text())
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InputError(f"{path} is not a TOML file ({error}).") from None
    return make_grid(content)


def make_grid(content: Mapping[str, Any]) -> Grid:
    """Make a grid from the content of a TOML file."""
    from safemil.algorithms import find

    _check_names("part of a grid", content, TOP)
    if not content.get("families") or not content.get("studies"):
        raise InputError("a grid needs [families.NAME] with tasks and [studies.NAME] with algorithms.")
    evaluation = _with_defaults("evaluation", EVALUATION, content.get("evaluation", {}))
    data = _with_defaults("data", DATA, content.get("data", {}))
    families = {name: tuple(family["tasks"]) for name, family in content["families"].items()}
    studies = tuple(
        _study(name, study, content, evaluation, data) for name, study in content["studies"].items()
    )
    reference = find(content.get("reference", "coptidice")).name
    return Grid(content.get("title", "Benchmark"), reference, families, studies, data["folder"])


def _study(
    name: str, study: Mapping[str, Any], content: Mapping[str, Any], evaluation: Any, data: Any
) -> Study:
    _check_names(f"part of study {name}", study, STUDY)
    vary: Mapping[str, list[Any]] = study.get("vary", {})
    families = content["families"]
    everything = [task for family in families.values() for task in family["tasks"]]
    tasks = study.get("tasks", everything)
    for task in tasks:
        if task not in everything:
            raise unknown("task in the families", task, everything)
    seeds = range(int(study.get("seeds", content.get("seeds", 5))))
    cells = []
    for task, algorithm in itertools.product(tasks, study.get("algorithms", ["safemil"])):
        family = next(each for each in families.values() if task in each["tasks"])
        own = _settings(family, algorithm) | _settings(study, algorithm)
        for change, seed in itertools.product(_product(vary), seeds):
            cell = _cell(task, algorithm, content.get("preset", "fast"), own | change, seed, evaluation, data)
            cells.append((change, cell))
    return Study(name, study.get("title", name), tuple(vary), tuple(cells))


def _settings(part: Mapping[str, Any], algorithm: str) -> dict[str, Any]:
    """Settings of an algorithm in a family or a study; its own replace those for all."""
    from safemil.algorithms import find

    given = part.get("settings", {})
    for name in given.keys() - {ALL}:
        find(name)  # refuses a wrong name
    return {**given.get(ALL, {}), **given.get(algorithm, {})}


def _cell(
    task: str, algorithm: str, preset: str, changes: Mapping[str, Any], seed: int, evaluation: Any, data: Any
) -> Cell:
    drawn = {name: value for name, value in data.items() if name not in ("folder", "sources")}
    settings = _resolved(algorithm, preset, changes)
    source = data["sources"].get(task, task)
    return Cell(task, source, algorithm, preset, settings, seed, drawn, evaluation)


def _resolved(algorithm: str, preset: str, changes: Mapping[str, Any]) -> dict[str, Any]:
    from safemil.algorithms import find
    from safemil.settings import resolve

    if algorithm == RANDOM:
        return {}
    presets = find(algorithm).PRESETS
    if preset not in presets:
        raise unknown("preset", preset, presets)
    return dataclasses.asdict(resolve(presets[preset], changes))


def _product(vary: Mapping[str, list[Any]]) -> Iterator[dict[str, Any]]:
    for values in itertools.product(*vary.values()):
        yield dict(zip(vary, values, strict=True))


def _with_defaults(what: str, defaults: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    _check_names(f"setting of {what}", given, set(defaults))
    return {**defaults, **given}


def _check_names(what: str, given: Iterable[str], known: set[str]) -> None:
    for name in given:
        if name not in known:
            raise unknown(what, name, known)
