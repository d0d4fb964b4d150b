"""Episodes, and functions that read, write, describe and split them."""

from safemil.data.describing import Description, describe, shared_episodes
from safemil.data.formats import load, load_annotated, read_manifest, save
from safemil.data.incidents import Piles
from safemil.data.interchange import Columns, Fill, Options
from safemil.data.splitting import Split, save_split, split
from safemil.data.trajectories import Annotations, Trajectories, recorded_actions, scaled_actions

__all__ = [
    "Annotations",
    "Columns",
    "Description",
    "Fill",
    "Options",
    "Piles",
    "Split",
    "Trajectories",
    "describe",
    "load",
    "load_annotated",
    "read_manifest",
    "recorded_actions",
    "save",
    "save_split",
    "scaled_actions",
    "shared_episodes",
    "split",
]
