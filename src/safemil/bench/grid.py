"""A grid of cells from a TOML file, as `docs/benchmark.md` describes it.

A cell holds every setting as resolved, so that its name, a hash of them, changes with anything that could
change its result. Studies may share cells: SafeMIL with its own bag size is in all of them, and runs once.
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

ALL = "all"  # in place of an algorithm's name: the settings of each of them
RANDOM = "random"  # the policy that a normalised return of 0 is measured by; it is not trained
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
    """One training and its evaluation: all that its result depends on."""

    task: str  # where the policy acts
    source: str  # where the data come from: a task, a generated problem or a path
    algorithm: str
    preset: str
    settings: Mapping[str, Any]  # of the algorithm, all of them
    seed: int
    data: Mapping[str, Any]  # how the piles are drawn
    evaluation: Mapping[str, Any]

    def to_json(self) -> dict[str, Any]:
        return json.loads(json.dumps(dataclasses.asdict(self)))

    @staticmethod
    def from_json(content: Mapping[str, Any]) -> "Cell":
        return Cell(**content)

    @property
    def name(self) -> str:
        """Readable, and unlike that of any other cell."""
        text = json.dumps(self.to_json(), sort_keys=True)
        digest = hashlib.sha256(text.encode()).hexdigest()[:12]
        return f"{self.task.replace(':', '-')}_{self.algorithm}_{self.seed}_{digest}"

    @property
    def group(self) -> str:
        """What cells that differ in their seed alone have in common: they share compiled programs."""
        return json.dumps({**self.to_json(), "seed": None}, sort_keys=True)


@dataclasses.dataclass(frozen=True)
class Study:
    """Cells that are compared, each with what sets it apart."""

    name: str
    title: str
    varied: tuple[str, ...]  # the settings that vary, none in a comparison of algorithms
    cells: tuple[tuple[Mapping[str, Any], Cell], ...]


@dataclasses.dataclass(frozen=True)
class Grid:
    title: str
    reference: str
    families: Mapping[str, tuple[str, ...]]
    studies: tuple[Study, ...]
    folder: str  # of stores that are made

    def cells(
        self, *, studies: Sequence[str] = (), tasks: Sequence[str] = (), algorithms: Sequence[str] = ()
    ) -> list[Cell]:
        """Every cell once, those of a group side by side; only those of what is named, where something is."""
        every = [(study.name, cell) for study in self.studies for _, cell in study.cells]
        _check_names("study in the grid", studies, {study.name for study in self.studies})
        _check_names("task in the grid", tasks, {cell.task for _, cell in every})
        _check_names("algorithm in the grid", algorithms, {cell.algorithm for _, cell in every})

        def wanted(study: str, cell: Cell) -> bool:
            choices = (studies, study), (tasks, cell.task), (algorithms, cell.algorithm)
            return all(not named or value in named for named, value in choices)

        return list({cell.name: cell for study, cell in every if wanted(study, cell)}.values())


def read_grid(path: Path) -> Grid:
    """The grid that a TOML file describes; every name and value in it is checked."""
    try:
        content = tomllib.loads(path.read_text())
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InputError(f"{path} is not a TOML file ({error}).") from None
    return make_grid(content)


def make_grid(content: Mapping[str, Any]) -> Grid:
    _check_names("part of a grid", content, TOP)
    if not content.get("families") or not content.get("studies"):
        raise InputError("a grid needs [families.NAME] with tasks and [studies.NAME] with algorithms.")
    evaluation = _over("evaluation", EVALUATION, content.get("evaluation", {}))
    data = _over("data", DATA, content.get("data", {}))
    families = {name: tuple(family["tasks"]) for name, family in content["families"].items()}
    studies = tuple(
        _study(name, study, content, evaluation, data) for name, study in content["studies"].items()
    )
    return Grid(
        content.get("title", "Benchmark"),
        content.get("reference", "coptidice"),
        families,
        studies,
        data["folder"],
    )


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
    """What a family or a study says of an algorithm, over what it says of all."""
    from safemil.algorithms import ALGORITHMS

    given = part.get("settings", {})
    _check_names("algorithm to set", given, {ALL, *ALGORITHMS})
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


def _over(what: str, defaults: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    _check_names(f"setting of {what}", given, set(defaults))
    return {**defaults, **given}


def _check_names(what: str, given: Iterable[str], known: set[str]) -> None:
    for name in given:
        if name not in known:
            raise unknown(what, name, known)
