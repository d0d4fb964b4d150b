"""Storage formats of Minari: arrays of episodes in one HDF5 file, or in an Arrow or Parquet file each."""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from math import prod
from pathlib import Path
from typing import Any, NamedTuple

import h5py
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from safemil.data import arrow_files
from safemil.data.features import WIDEST
from safemil.data.foreign import damage_reported
from safemil.data.hdf5_arrays import own, own_array, own_group
from safemil.data.interchange import MOST_IN_SMALL, check_declared_size, listed
from safemil.data.minari_spaces import DEEPEST, Keys, Leaf
from safemil.data.parquet_footer import values_declared
from safemil.errors import InputError

Array = Any  # array of HDF5, which is not read yet, or of NumPy
PADDED = ("actions", "rewards", "terminations", "truncations")  # by one row, in Arrow and Parquet


class Storage(NamedTuple):
    """Access to the episodes of one storage format."""

    path: Path
    array: Callable[[int, Keys], Array]  # array of an episode, not read yet if possible
    infos: Callable[
        [int], list[Leaf]
    ]  # arrays of numbers within the infos of the first episode, by its steps


@contextmanager
def opened(path: Path, format: object) -> Iterator[Storage]:
    """Open the folder `data` of a dataset."""
    if format == "hdf5":
        with damage_reported("data/main_data.hdf5"), h5py.File(path / "main_data.hdf5", "r") as file:
            yield _in_hdf5(file)
    elif format in ("arrow", "parquet"):
        with damage_reported("a data file"):
            yield _in_arrow(path, str(format))
    else:
        raise InputError(f'"data_format" must be hdf5, arrow or parquet, but is {str(format)[:40]!r}.')


def _in_hdf5(file: h5py.File) -> Storage:
    groups: dict[int, h5py.Group] = {}
    arrays: dict[tuple[int, Keys], h5py.Dataset] = {}

    def array(episode: int, keys: Keys) -> Array:
        if (episode, keys) not in arrays:
            group = groups[episode] = groups.get(episode) or own_group(file, f"episode_{episode}")
            for key in keys[:-1]:
                group = own_group(group, _hdf5_key(key))
            arrays[episode, keys] = own_array(group, _hdf5_key(keys[-1]))
        return arrays[episode, keys]

    def infos(steps: int) -> list[Leaf]:
        group = own_group(file, "episode_0")
        return [*_info_leaves(own_group(group, "infos"), ("infos",), steps)] if "infos" in group else []

    return Storage(Path(file.filename), array, infos)


def _hdf5_key(key: str | int) -> str:
    return f"_index_{key}" if isinstance(key, int) else key


def _info_leaves(group: h5py.Group, keys: Keys, steps: int) -> Iterator[Leaf]:
    for name in group:
        found = own(group, name)
        if isinstance(found, h5py.Dataset):
            yield from _info_leaf((*keys, name), found, steps)
        elif isinstance(found, h5py.Group) and len(keys) < DEEPEST:
            yield from _info_leaves(found, (*keys, name), steps)


def _info_leaf(keys: Keys, array: Array, steps: int) -> Iterator[Leaf]:
    """Array of `infos` as a leaf, if it holds numbers for each step."""
    shape = array.shape or (0,)
    if array.dtype.kind in "fiub" and shape[0] in (steps, steps + 1) and 0 < prod(shape[1:]) <= WIDEST:
        yield Leaf(keys, prod(shape[1:]))


def _in_arrow(path: Path, format: str) -> Storage:
    tables: dict[int, pa.Table] = {}
    declared = 0

    def column(episode: int, name: str) -> pa.Array:
        nonlocal declared
        if episode not in tables:
            files = _episode_files(path / str(episode), format)
            declared += sum(map(_declared, files))
            if declared > MOST_IN_SMALL:  # as few files are: the size of the whole folder takes a while
                check_declared_size(path, declared)
            tables[episode] = pa.concat_tables(map(_opened, files))
        if name not in tables[episode].column_names:
            here = listed(tables[episode].column_names)
            raise InputError(f'episode {episode} has no "{name}" (here: {here}).')
        chunks = tables[episode][name].chunks
        return chunks[0] if len(chunks) == 1 else pa.concat_arrays(chunks)

    def array(episode: int, keys: Keys) -> Array:
        found = column(episode, str(keys[0]))
        for key in keys[1:]:
            found = found.field(str(key))
        values = _numpy(found, ".".join(map(str, keys)))
        return values[:-1] if keys[0] in PADDED else values

    def infos(steps: int) -> list[Leaf]:
        column(0, "rewards")
        names = tables[0].column_names
        return [*_arrow_infos(column(0, "infos"), ("infos",), steps)] if "infos" in names else []

    return Storage(path, array, infos)


def _episode_files(folder: Path, format: str) -> list[Path]:
    names = sorted(os.listdir(folder)) if folder.is_dir() else []
    files = [folder / name for name in names if name.endswith(f".{format}")]
    if not files:
        raise InputError(f"there is no .{format} file in {folder.name}, the folder of an episode.")
    return files


def _declared(file: Path) -> int:
    """Bytes that a file says it will take in memory."""
    return 8 * values_declared(file) if file.suffix == ".parquet" else arrow_files.declared_size(file)


def _opened(file: Path) -> pa.Table:
    """Table in a file; one in Arrow stays on the disk until its columns are used."""
    if file.suffix == ".parquet":
        return pq.read_table(str(file))
    return arrow_files.opened(file)


def _arrow_infos(values: pa.Array, keys: Keys, steps: int) -> Iterator[Leaf]:
    for field in values.type if pa.types.is_struct(values.type) else ():
        inner = values.field(field.name)
        if pa.types.is_struct(field.type):
            yield from _arrow_infos(inner, (*keys, field.name), steps)
        elif _holds_numbers(field.type) and not inner.null_count:
            yield from _info_leaf((*keys, field.name), _numpy(inner, field.name), steps)


def _holds_numbers(kind: pa.DataType) -> bool:
    inner = kind.value_type if pa.types.is_fixed_size_list(kind) else kind
    return bool(pa.types.is_integer(inner) or pa.types.is_floating(inner) or pa.types.is_boolean(inner))


def _numpy(values: pa.Array, name: str) -> npt.NDArray[Any]:
    if not _holds_numbers(values.type) or values.null_count:
        raise InputError(
            f'"{name}" must hold a number in every row, but holds {values.type} or empty entries.'
        )
    if not pa.types.is_fixed_size_list(values.type):
        return values.to_numpy(zero_copy_only=False)
    return values.flatten().to_numpy(zero_copy_only=False).reshape(len(values), -1)
