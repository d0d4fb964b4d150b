"""Grid of cells from a TOML file, as `docs/benchmark.md` describes it.

A cell holds all its settings, defaults included. Its name ends in a hash of them, so it changes with
anything that can change the result. Studies may share cells: a cell that is in several of them runs once.
"""

import dataclasses
import hashlib
import itertools
import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from safemil.checks import Count, Natural, Share, fit
from safemil.errors import InputError, unknown
from safemil.texts import plain_name, read_toml

MOST_CELLS = 100_000  # of a study
ALL = "all"  # in place of an algorithm's name: settings for every algorithm
RANDOM = "random"  # the random policy, whose normalised return is 0; it is not trained
Settings = dict[str, dict[str, Any]]  # by the name of an algorithm, or `ALL`


@dataclasses.dataclass(frozen=True)
class Evaluation:
    """[evaluation] of a grid."""

    episodes: Count = 50
    seed: Natural = 0
    curve_every: Natural = 0
    curve_episodes: Count = 10


@dataclasses.dataclass(frozen=True)
class Data:
    """[data] of a grid."""

    folder: str = "data"
    nonpreferred: Count = 50
    unlabeled: Count = 200
    preferred_share: Share = 0.5
    return_rule: Literal["midrange", "median"] = "midrange"
    split_seed: Natural = 0
    sources: dict[str, str] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True)
class FamilyPart:
    """[families.NAME] of a grid."""

    tasks: list[str]
    settings: Settings = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True)
class StudyPart:
    """[studies.NAME] of a grid."""

    title: str | None = None
    tasks: list[str] | None = None
    algorithms: list[str] = dataclasses.field(default_factory=lambda: ["safemil"])
    seeds: Count | None = None
    vary: dict[str, list[Any]] = dataclasses.field(default_factory=dict)
    settings: Settings = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True)
class Content:
    """Content of the TOML file of a grid."""

    families: dict[str, FamilyPart]
    studies: dict[str, StudyPart]
    title: str = "Benchmark"
    seeds: Count = 5
    preset: str = "fast"
    reference: str = "coptidice"
    evaluation: Evaluation = Evaluation()
    data: Data = Data()


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
        task = plain_name("task", self.task.replace(":", "-"))
        return f"{task}_{plain_name('algorithm', self.algorithm)}_{self.seed}_{digest}"

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
    content = read_toml(path)
    try:
        return make_grid(content)
    except InputError as error:
        raise InputError(f"{path}: {error}") from None


def make_grid(content: Mapping[str, Any]) -> Grid:
    """Make a grid from the content of a TOML file."""
    from safemil.algorithms import find

    if not content.get("families") or not content.get("studies"):
        raise InputError("a grid needs [families.NAME] with tasks and [studies.NAME] with algorithms.")
    given: Content = fit("", content, Content)
    for what, names in (("family", given.families), ("study", given.studies)):
        for name in names:
            plain_name(what, name)
    families = {name: tuple(family.tasks) for name, family in given.families.items()}
    studies = tuple(_study(name, study, given) for name, study in given.studies.items())
    return Grid(given.title, find(given.reference).name, families, studies, given.data.folder)


def _study(name: str, study: StudyPart, grid: Content) -> Study:
    everything = [task for family in grid.families.values() for task in family.tasks]
    tasks = everything if study.tasks is None else study.tasks
    for task in tasks:
        plain_name("task", task.replace(":", "-"))
        if task not in everything:
            raise unknown("task in the families", task, everything)
    seeds = study.seeds or grid.seeds
    count = len(tasks) * len(study.algorithms) * seeds * math.prod(map(len, study.vary.values()))
    if count > MOST_CELLS:
        raise InputError(f"studies.{name} has {count:,} cells, at most {MOST_CELLS:,} are run.")
    cells = []
    for task, algorithm in itertools.product(tasks, study.algorithms):
        family = next(each for each in grid.families.values() if task in each.tasks)
        own = _settings(family.settings, algorithm) | _settings(study.settings, algorithm)
        for change, seed in itertools.product(_product(study.vary), range(seeds)):
            try:
                cells.append((change, _cell(task, algorithm, own | change, seed, grid)))
            except InputError as error:
                raise InputError(f"studies.{name}: {error}") from None
    return Study(name, study.title or name, tuple(study.vary), tuple(cells))


def _settings(given: Settings, algorithm: str) -> dict[str, Any]:
    """Settings of an algorithm in a family or a study; its own replace those for all."""
    from safemil.algorithms import find

    for name in given.keys() - {ALL}:
        find(name)  # refuses a wrong name
    return {**given.get(ALL, {}), **given.get(algorithm, {})}


def _cell(task: str, algorithm: str, changes: Mapping[str, Any], seed: int, grid: Content) -> Cell:
    drawn = {name: each for name, each in vars(grid.data).items() if name not in ("folder", "sources")}
    settings = _resolved(algorithm, grid.preset, changes)
    source = grid.data.sources.get(task, task)
    return Cell(task, source, algorithm, grid.preset, settings, seed, drawn, vars(grid.evaluation))


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


def _check_names(what: str, given: Iterable[str], known: set[str]) -> None:
    for name in given:
        if name not in known:
            raise unknown(what, name, known)
