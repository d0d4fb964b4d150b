"""Arrays of HDF5 files, checked before anything is read."""

import h5py

from safemil.data.interchange import listed
from safemil.errors import InputError

MOST_COMPRESSED = 1100  # gzip, the strongest filter that h5py always has, packs up to 1032 bytes into one


def own_array(group: h5py.Group, name: str) -> h5py.Dataset:
    """Find an array in the file itself: links and external storage could make us read another file."""
    found = own(group, name)
    if not isinstance(found, h5py.Dataset) or found.external or found.is_virtual:
        raise InputError(f'"{name}" must be an array in the file itself, not a group or a link to elsewhere.')
    return found


def own_group(group: h5py.Group, name: str) -> h5py.Group:
    """Find a group in the file itself."""
    found = own(group, name)
    if not isinstance(found, h5py.Group):
        raise InputError(f'"{name}" must be a group in the file itself, not an array or a link to elsewhere.')
    return found


def own(group: h5py.Group, name: str) -> h5py.Group | h5py.Dataset | None:
    """Find what is in the file itself; None for a link."""
    link = group.get(name, getlink=True)
    if link is None:
        raise InputError(f'there is no "{name}", which is needed (here: {listed(group)}).')
    return group[name] if isinstance(link, h5py.HardLink) else None


def check_stored(name: str, dataset: h5py.Dataset) -> None:
    """Refuse an array that declares more numbers than the file can hold."""
    if dataset.nbytes > MOST_COMPRESSED * dataset.id.get_storage_size():
        raise InputError(
            f'"{name}" declares {dataset.nbytes:,} bytes, but the file holds '
            f"{dataset.id.get_storage_size():,} of it: the file is damaged or was never filled."
        )
