"""Episodes from ROS bags and MCAP files, by a TOML file that maps fields of topics to columns.

The messages of all topics are brought to one rate: at each step a column has the last value before it, or
the nearest, unless that is too old. A bag is an episode, or is cut into episodes by the value of a topic.
"""

import re
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from safemil.arrays import Bools, Ints
from safemil.data import bags
from safemil.data.foreign import damage_reported, refuse_writing
from safemil.data.interchange import Bounds, Contents, Options, check_declared_size, listed
from safemil.data.searching import require_few
from safemil.data.table import from_table
from safemil.errors import InputError, unknown

SUFFIXES: tuple[str, ...] = ()
TABLES = ("observation", "action", "other")
KEYS = ("bags", "rate", "value", "max_age", "episode", "action_low", "action_high", *TABLES)
LARGEST = 1 << 20  # bytes of a mapping
MOST_STEPS = 10_000_000  # of a bag
SMALLEST_MESSAGE = 64  # bytes, with what a bag keeps beside it
FIELD = re.compile(r"(?P<topic>/[\w/]+)\.(?P<path>[A-Za-z]\w*(\[\d+\]|\.[A-Za-z]\w*)*)")
MAPPING = """bags = ["*.mcap"]
rate = 10

[observation]
speed = "/odom.twist.twist.linear.x"

[action]
steer = "/cmd_vel.angular.z\""""

write = refuse_writing("a bag")


class Field(NamedTuple):
    """Field of the messages of a topic, such as `/odom.twist.twist.linear.x`."""

    topic: str
    path: tuple[str | int, ...]

    @classmethod
    def parse(cls, text: object, column: str) -> Self:
        found = FIELD.fullmatch(text) if isinstance(text, str) else None
        if found is None:
            raise InputError(
                f'"{column}" must name a topic and a field, as in "/odom.twist.twist.linear.x" or '
                f'"/joints.position[0]", but is {str(text)[:80]!r}.'
            )
        parts = re.findall(r"\w+", found["path"])
        return cls(found["topic"], tuple(int(part) if part.isdigit() else part for part in parts))

    def value(self, message: Any) -> float | str:
        """Value in a message: a number or a text."""
        for part in self.path:
            message = message[part] if isinstance(part, int) else getattr(message, part)
        if isinstance(message, str):
            return message
        number: float = np.asarray(message).item()
        return number

    def __str__(self) -> str:
        rest = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in self.path)
        return f"{self.topic}{rest}"


@dataclass(frozen=True)
class Recipe:
    """Content of a TOML file: which bags, and what to make of their topics."""

    bags: list[str]
    rate: float  # steps per second
    observation: dict[str, Field]
    action: dict[str, Field]
    other: dict[str, Field]
    episode: Field | None
    value: str  # "last" or "nearest"
    max_age: float  # s
    bounds: Bounds | None

    @classmethod
    def parse(cls, found: dict[str, Any]) -> Self:
        for key in found:
            if key not in KEYS:
                raise unknown("key", key, KEYS)
        names = found.get("bags")
        if not isinstance(names, list) or not names or not all(isinstance(name, str) for name in names):
            raise InputError(f'"bags" must be a list of files and folders, but is {str(names)[:80]!r}.')
        if found.get("value", "last") not in ("last", "nearest"):
            raise InputError(f'"value" must be "last" or "nearest", but is {str(found["value"])[:80]!r}.')
        low, high = found.get("action_low"), found.get("action_high")
        if (low is None) != (high is None):
            raise InputError("action bounds come in pairs; give both action_low and action_high.")
        episode, tables = found.get("episode"), {"other": {}} | found
        fields = {name: _fields(name, tables.get(name)) for name in TABLES}
        _check_distinct(fields)
        return cls(
            **fields,
            bags=names,
            rate=_positive("rate", found.get("rate")),
            episode=None if episode is None else Field.parse(episode, "episode"),
            value=found.get("value", "last"),
            max_age=_positive("max_age", found.get("max_age", 1.0)),
            bounds=None if low is None or high is None else (low, high),
        )

    @property
    def columns(self) -> dict[str, Field]:
        return self.other | self.action | self.observation


class Series(NamedTuple):
    """Values of a field over time."""

    times: Ints  # ns, sorted
    values: npt.NDArray[Any]  # float64 or object, for texts


def recognises(path: Path) -> bool:
    """Whether a path is a mapping, or a bag without one, which is then explained."""
    return bags.is_bag(path) or "bags" in _mapping(path)


def read(path: Path, options: Options) -> Contents:
    if bags.is_bag(path):
        raise InputError(_explanation(path))
    recipe = Recipe.parse(_mapping(path))
    parts = [_episodes(recipe, file, name) for name, file in _files(path.parent, recipe.bags).items()]
    table = pa.concat_tables(parts)
    columns = replace(
        options.columns,
        observation=options.columns.observation or tuple(recipe.observation),
        action=options.columns.action or tuple(recipe.action),
    )
    contents = from_table(table, replace(options, columns=columns), recipe.bounds)
    return replace(contents, manifest={"ros": {"rate": recipe.rate, "bags": len(parts)}})


def _mapping(path: Path) -> dict[str, Any]:
    if not path.is_file() or path.stat().st_size > LARGEST:
        return {}
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError):
        return {}


def _explanation(path: Path) -> str:
    with damage_reported("the bag"), bags.opened(path) as bag:
        topics = listed(f"{topic} ({kind})" for topic, kind in bag.topics.items())
    return (
        f"a bag needs a TOML file beside it that maps fields of topics to columns, such as:\n\n{MAPPING}\n\n"
        f"Read that file instead. Topics here: {topics}."
    )


def _positive(name: str, value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value < np.inf:
        raise InputError(f'"{name}" must be a positive number, but is {str(value)[:80]!r}.')
    return float(value)


def _fields(name: str, table: object) -> dict[str, Field]:
    if not isinstance(table, dict) or not (table or name == "other"):
        raise InputError(f"need a table [{name}] of columns and the fields that they hold, got {table!r}.")
    for column in table:
        if re.search(r"[,*]|^\s|\s$|^$", column) or column in ("episode", "step"):
            raise InputError(f'a column can\'t be called "{column}"; choose another name.')
    return {column: Field.parse(field, column) for column, field in table.items()}


def _check_distinct(tables: Mapping[str, dict[str, Field]]) -> None:
    names = [column for table in tables.values() for column in table]
    twice = [name for name in names if names.count(name) > 1]
    if twice:
        raise InputError(f'the column "{twice[0]}" is in two tables; give one of them another name.')


def _files(folder: Path, patterns: Iterable[str]) -> dict[str, Path]:
    """Bags by their names relative to the folder of the mapping, which they can't leave."""
    found: dict[str, Path] = {}
    for pattern in patterns:
        path = PurePosixPath(pattern)
        if path.is_absolute() or ".." in path.parts or re.search(r"[\\:\0]", pattern):
            raise InputError(f'bags must be in the folder of the mapping, but "{pattern}" is elsewhere.')
        require_few(folder / pattern)
        with damage_reported(f'the pattern "{pattern}"'):
            matches = [each for each in sorted(folder.glob(pattern)) if bags.is_bag(each)]
        if not matches:
            raise InputError(f'there is no bag "{pattern}" in {folder}.')
        found |= {each.relative_to(folder).as_posix(): each for each in matches}
    return found


def _episodes(recipe: Recipe, path: Path, name: str) -> pa.Table:
    """Table of the steps of a bag."""
    fields = recipe.columns | ({} if recipe.episode is None else {"episode": recipe.episode})
    with damage_reported(name):
        series = _series(path, fields, name)
    ticks = _ticks(recipe, series, name)
    check_declared_size(path, 8 * len(ticks) * (len(fields) + 1), rows=len(ticks))
    columns = {column: _at(ticks, series[column], recipe) for column in fields}
    present = np.logical_and.reduce([columns[column][1] for column in (*recipe.observation, *recipe.action)])
    kept, ids = _cut(columns.pop("episode", None), present, name)
    if not kept.any():
        raise InputError(
            f"{name} has no step at which every column has a value not older than {recipe.max_age:g} s "
            "(max_age), or no episode; check the topics."
        )
    arrays = {
        column: pa.array(values[kept], mask=~known[kept]) for column, (values, known) in columns.items()
    }
    times = pa.array(ticks[kept], pa.timestamp("ns", "UTC"))
    return pa.table({"episode": ids[kept], "step": times, **arrays})


def _series(path: Path, fields: Mapping[str, Field], name: str) -> dict[str, Series]:
    """Values of all fields, sorted by time."""
    wanted: dict[str, list[str]] = {}
    for column, field in fields.items():
        wanted.setdefault(field.topic, []).append(column)
    times: dict[str, list[int]] = {topic: [] for topic in wanted}
    values: dict[str, list[float | str]] = {column: [] for column in fields}
    with bags.opened(path, wanted) as bag:
        for number, message in enumerate(bag.messages):
            if number % 10_000 == 0:
                check_declared_size(path, number * SMALLEST_MESSAGE)
            times[message.topic].append(message.time)
            for column in wanted[message.topic]:
                values[column].append(_value(fields[column], message.content, column))
        for topic, found in times.items():
            if not found:
                raise unknown(f"message in {name} of topic", topic, bag.topics)
    order = {topic: np.argsort(np.array(found, np.int64), kind="stable") for topic, found in times.items()}
    return {
        column: Series(
            np.array(times[field.topic], np.int64)[order[field.topic]],
            _array(values[column])[order[field.topic]],
        )
        for column, field in fields.items()
    }


def _value(field: Field, message: Any, column: str) -> float | str:
    try:
        return field.value(message)
    except (AttributeError, IndexError, TypeError, ValueError) as error:
        raise InputError(
            f'"{column}" is {field}, but the messages of {field.topic} have no number or text there: {error}.'
        ) from error


def _array(values: list[float | str]) -> npt.NDArray[Any]:
    texts = any(isinstance(value, str) for value in values)
    return np.array(values, object if texts else np.float64)


def _ticks(recipe: Recipe, series: Mapping[str, Series], name: str) -> Ints:
    """Times of the steps, from when every column has a value to the last message."""
    start = max(int(series[column].times[0]) for column in (*recipe.observation, *recipe.action))
    end = max(int(series[column].times[-1]) for column in (*recipe.observation, *recipe.action))
    count = int((end - start) * recipe.rate / 1e9 + 1e-6) + 1
    if count > MOST_STEPS:
        raise InputError(
            f"{name} would have {count:,} steps at a rate of {recipe.rate:g}, more than {MOST_STEPS:,}; "
            "lower the rate, or check the times of the messages."
        )
    return start + np.round(np.arange(count) * (1e9 / recipe.rate)).astype(np.int64)


def _at(ticks: Ints, series: Series, recipe: Recipe) -> tuple[npt.NDArray[Any], Bools]:
    """Value at each step, and whether there is one that is not too old."""
    times = series.times
    index = np.searchsorted(times, ticks, side="right") - 1
    if recipe.value == "nearest":
        after = np.minimum(index + 1, len(times) - 1)
        closer = (index < 0) | (np.abs(times[after] - ticks) < np.abs(ticks - times[np.maximum(index, 0)]))
        index = np.where(closer, after, index)
    chosen = np.maximum(index, 0)
    known = (index >= 0) & (np.abs(ticks - times[chosen]) <= recipe.max_age * 1e9)
    return series.values[chosen], known


def _cut(
    episode: tuple[npt.NDArray[Any], Bools] | None, present: Bools, name: str
) -> tuple[Bools, npt.NDArray[Any]]:
    """Steps that belong to an episode, and its name; steps at its ends that lack a value are left out."""
    if episode is None:
        kept, runs = np.ones(len(present), bool), np.zeros(len(present), np.int64)
    else:
        values, known = episode
        kept = known & np.array([bool(value) for value in values])
        changes = (values[1:] != values[:-1]) | (kept[1:] != kept[:-1])
        runs = np.concatenate([[0], np.cumsum(changes)])
    rows, starts = np.arange(len(runs)), np.unique(runs, return_index=True)[1]
    first = np.minimum.reduceat(np.where(present, rows, len(rows)), starts)[runs]
    last = np.maximum.reduceat(np.where(present, rows, -1), starts)[runs]
    kept &= (first <= rows) & (rows <= last)
    numbers = np.unique(runs[kept], return_inverse=True)[1] if kept.any() else np.zeros(0, np.int64)
    ids = np.full(len(present), name, object)
    if episode is not None:
        ids[kept] = [f"{name} {number}" for number in numbers]
    return kept, ids
