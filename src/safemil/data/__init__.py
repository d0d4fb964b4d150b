"""Episodes: what they are, and how they are read, written, described and split."""

from safemil.data.contents import Columns
from safemil.data.formats import load, load_annotated, read_manifest, save
from safemil.data.trajectories import Annotations, Trajectories, recorded_actions, scaled_actions

__all__ = [
    "Annotations",
    "Columns",
    "Trajectories",
    "load",
    "load_annotated",
    "read_manifest",
    "recorded_actions",
    "save",
    "scaled_actions",
]
