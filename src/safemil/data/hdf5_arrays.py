"""Arrays of HDF5 files, checked before anything is read."""

import h5py

from safemil.data.interchange import listed
from safemil.errors import InputError

MOST_COMPRESSED = 1100  # gzip, the strongest filter that h5py always has, packs up to 1032 bytes into one


def own_array(group: h5py.Group, name: str) -> h5py.Dataset:
    """Find an array in the file itself: links and external storage could make us read another file."""
    if name not in group:
        raise InputError(f'there is no "{name}", which is needed (here: {listed(group)}).')
    found = group[name] if isinstance(group.get(name, getlink=True), h5py.HardLink) else None
    if not isinstance(found, h5py.Dataset) or found.external or found.is_virtual:
        raise InputError(f'"{name}" must be an array in the file itself, not a group or a link to elsewhere.')
    return found


def check_stored(name: str, dataset: h5py.Dataset) -> None:
    """Refuse an array that declares more numbers than the file can hold."""
    if dataset.nbytes > MOST_COMPRESSED * dataset.id.get_storage_size():
        raise InputError(
            f'"{name}" declares {dataset.nbytes:,} bytes, but the file holds '
            f"{dataset.id.get_storage_size():,} of it: the file is damaged or was never filled."
        )
