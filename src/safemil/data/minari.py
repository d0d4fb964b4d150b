"""Minari datasets: a folder with `data/metadata.json` and episodes in HDF5, Arrow or Parquet.

Minari itself is not needed. Spaces of observations and actions are flattened into columns; bounds of the
actions are those of their space. Pictures and texts are passed over. An array of `infos` is a feature
"infos.NAME", read if it is asked for.
"""

import os
import warnings
from collections.abc import Mapping, Set
from dataclasses import replace
from math import prod
from pathlib import Path
from typing import Any, NamedTuple

import h5py
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from safemil.arrays import Bools, Ints
from safemil.data.actions import MOST_CHOICES
from safemil.data.features import Column, columns_of, lists, matching, named_field, numbered, places
from safemil.data.foreign import (
    damage_reported,
    entry,
    incident_column,
    json_object,
    refuse_writing,
    require_plain_files,
    with_defaults,
    with_own_names,
)
from safemil.data.hdf5_arrays import check_stored
from safemil.data.interchange import (
    Bounds,
    Columns,
    ColumnSpec,
    Contents,
    Options,
    check_declared_size,
    listed,
)
from safemil.data.minari_spaces import Keys, Leaf, leaves_of, name_of
from safemil.data.minari_storage import Array, Storage, opened
from safemil.data.table import from_table
from safemil.data.trajectories import starts_of
from safemil.errors import InputError, InputWarning

SUFFIXES: tuple[str, ...] = ()
BLOCKS = ("observation", "action")
METADATA = Path("data", "metadata.json")

write = refuse_writing("a Minari dataset")


def recognises(path: Path) -> bool:
    return (path / METADATA).is_file()


def folder(name: str) -> Path | None:
    """Folder of the dataset with this id in Minari's own folder, if it is there."""
    home = Path(os.environ.get("MINARI_DATASETS_PATH") or Path.home() / ".minari" / "datasets")
    inside = not Path(name).is_absolute() and ".." not in Path(name).parts
    return home / name if inside and recognises(home / name) else None


def read(path: Path, options: Options) -> Contents:
    require_plain_files(path)
    with damage_reported(str(METADATA)):
        text = (path / METADATA).read_bytes()
    described = json_object(text, str(METADATA))
    spaces = {kind: [*leaves_of(_space(described, kind), (f"{kind}s",))] for kind in BLOCKS}
    given = with_defaults(options.columns, Columns(cost="infos.cost"))
    with opened(path / "data", described.get("data_format", "hdf5")) as storage:
        lengths = _lengths(storage, described)
        infos = {name_of(leaf.keys): leaf for leaf in storage.infos(int(lengths[0]))}
        found = _found(spaces, infos, given)
        table = _table(storage, lengths, found, {given.cost, incident_column(options, infos)})
    options = replace(options, columns=replace(given, observation=("observation",), action=("action",)))
    if found.choices and options.action_kind != "continuous":
        options = replace(options, action_kind="discrete")
        options = replace(options, action_categories=options.action_categories or found.choices)
        action = table["action"]
        table = table.set_column(table.column_names.index("action"), "action", pc.list_element(action, 0))
    contents = from_table(table, options, _bounds(found))
    origin = {name: described.get(name) for name in ("dataset_id", "env_spec", "minari_version")}
    contents = replace(contents, manifest={"minari": origin})
    return with_own_names(contents, given, found.observed, found.acted)


class Found(NamedTuple):
    """Features of a dataset, and the columns chosen from them."""

    features: dict[str, Leaf]  # that can be observed
    actions: dict[str, Leaf]
    observed: dict[str, Column]
    acted: dict[str, Column]

    @property
    def choices(self) -> tuple[str, ...]:
        """Values of an action that is a choice, as text."""
        leaf = self.actions[next(iter(self.acted.values())).feature]
        if len(self.acted) > 1 or not leaf.choice or not 1 <= leaf.high[0] - leaf.low[0] < MOST_CHOICES:
            return ()
        return tuple(str(value) for value in range(int(leaf.low[0]), int(leaf.high[0]) + 1))


def _found(spaces: dict[str, list[Leaf]], infos: dict[str, Leaf], given: Columns) -> Found:
    passed_over = [leaf for leaves in spaces.values() for leaf in leaves if leaf.width is None]
    if passed_over:
        names = listed(name_of(leaf.keys) for leaf in passed_over)
        warnings.warn(f"passed over {names}: pictures and texts are not read.", InputWarning, stacklevel=3)
    seen, done = ({name_of(leaf.keys): leaf for leaf in spaces[kind] if leaf.width} for kind in BLOCKS)
    observed = _block("observation", given.observation, seen, infos)
    acted = _block("action", given.action, done, {})
    return Found(seen | infos, done, observed, acted)


def _table(storage: Storage, lengths: Ints, found: Found, singles: Set[str | None]) -> pa.Table:
    """Make a table with one row per observation; the last row of an episode has no action."""
    observations = _matrix(storage, lengths + 1, found.observed, found.features, np.float32)
    actions = _matrix(storage, lengths, found.acted, found.actions, np.float64)
    is_step = np.ones(len(observations), bool)
    is_step[np.cumsum(lengths + 1) - 1] = False
    arrays = {
        "observation": lists(observations),
        "action": lists(_spread(actions, is_step), ~is_step),
        "episode": pa.array(np.repeat(np.arange(len(lengths)), lengths + 1)),
        "step": pa.array(np.arange(len(is_step)) - np.repeat(starts_of(lengths + 1), lengths + 1)),
    }
    sources: dict[str, Keys] = {"reward": ("rewards",), "terminated": ("terminations",)}
    sources |= {name: found.features[name].keys for name in singles if name in found.features}
    for name, keys in sources.items():
        arrays[name] = pa.array(_spread(_outcomes(storage, lengths, keys, name), is_step), mask=~is_step)
    blocks = {"observation": found.observed, "action": found.acted}
    fields = [
        named_field(name, values, blocks[name]) if name in blocks else pa.field(name, values.type)
        for name, values in arrays.items()
    ]
    return pa.table([*arrays.values()], schema=pa.schema(fields))


def _block(
    kind: str, spec: ColumnSpec, leaves: Mapping[str, Leaf], infos: Mapping[str, Leaf]
) -> dict[str, Column]:
    """Columns of an observation or an action; "observation" stands for all parts of its space."""
    widths = {name: leaf.width or 0 for name, leaf in (*leaves.items(), *infos.items())}
    known = columns_of({name: numbered(name, width) for name, width in widths.items()})
    spec = spec or kind
    parts = [part.strip() for part in spec.split(",")] if isinstance(spec, str) else spec
    asked = [name for part in parts for name in ([*leaves] if part == kind else [part])]
    if not asked:
        raise InputError(f"the space of the {kind} has no numbers; pictures and texts are not read.")
    return matching(kind, asked, known)


def _matrix(
    storage: Storage,
    rows: Ints,
    block: Mapping[str, Column],
    leaves: Mapping[str, Leaf],
    dtype: npt.DTypeLike,
) -> npt.NDArray[Any]:
    """Numbers of all episodes, (rows, columns); declared shapes are checked before memory is taken."""
    placed = places(block)
    found = {
        name: [
            _checked(storage.array(episode, leaves[name].keys), (int(count), leaves[name].width), name)
            for episode, count in enumerate(rows)
        ]
        for name in placed
    }
    check_declared_size(storage.path, 8 * int(rows.sum()) * len(block), rows=int(rows.sum()))
    values = np.empty((int(rows.sum()), len(block)), dtype)
    for name, (columns, entries) in placed.items():
        whole = entries == [*range(leaves[name].width or 0)] and columns == [
            *range(columns[0], columns[-1] + 1)
        ]
        into = slice(columns[0], columns[-1] + 1) if whole else columns
        for array, start, count in zip(found[name], starts_of(rows), rows, strict=True):
            part = array[()].reshape(int(count), -1)
            values[start : start + count, into] = part if whole else part[:, entries]
    return values


def _outcomes(storage: Storage, lengths: Ints, keys: Keys, name: str) -> npt.NDArray[Any]:
    """Numbers that belong to an action; of an array that begins at the reset, the first one is left out."""
    parts = []
    for episode, count in enumerate(lengths):
        array = storage.array(episode, keys)
        extra = int(len(array.shape) > 0 and array.shape[0] == count + 1)
        parts.append(_checked(array, (int(count) + extra, 1), name)[()].reshape(-1)[extra:])
    return np.concatenate(parts)


def _checked(array: Array, shape: tuple[int, int | None], name: str) -> Array:
    if array.dtype.kind not in "fiub":
        raise InputError(f'"{name}" must hold numbers, but holds {array.dtype}.')
    rows, width = shape
    if not array.shape or array.shape[0] != rows or prod(array.shape[1:]) != width:
        raise InputError(
            f'"{name}" of an episode must have {rows} rows of {width} numbers, but has shape {array.shape}.'
        )
    if isinstance(array, h5py.Dataset):
        check_stored(name, array)
    return array


def _spread(values: npt.NDArray[Any], is_step: Bools) -> npt.NDArray[Any]:
    spread = np.zeros((len(is_step), *values.shape[1:]), values.dtype)
    spread[is_step] = values
    return spread


def _bounds(found: Found) -> Bounds | None:
    """Bounds of the space of the actions; None if they are not finite."""
    chosen = [(found.actions[column.feature], column.position) for column in found.acted.values()]
    low, high = (np.array([getattr(leaf, side)[place] for leaf, place in chosen]) for side in ("low", "high"))
    return (low, high) if np.isfinite([low, high]).all() else None


def _space(described: dict[str, Any], kind: str) -> dict[str, Any]:
    text = entry(described, f"{kind}_space", str, str(METADATA))
    return json_object(text, f'"{kind}_space" in {METADATA}')


def _lengths(storage: Storage, described: dict[str, Any]) -> Ints:
    """Number of steps of each episode, compared with the totals in the metadata."""
    episodes, steps = (
        entry(described, name, int, str(METADATA)) for name in ("total_episodes", "total_steps")
    )
    if not episodes:
        raise InputError("the dataset has no episodes; need at least one.")
    lengths = []
    for episode in range(episodes):
        shape = storage.array(episode, ("rewards",)).shape
        lengths.append(shape[0] if shape else 0)
    if sum(lengths) != steps or not all(lengths):
        raise InputError(
            f"{METADATA} declares {steps} steps, but the episodes have {sum(lengths)}, the shortest "
            f"{min(lengths)}: the dataset is damaged."
        )
    return np.array(lengths)
