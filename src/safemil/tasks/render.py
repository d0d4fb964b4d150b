"""Pictures of a world: from above for the point tasks, from beside or behind for the running robots."""

import contextlib
import errno
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from safemil.errors import InputError
from safemil.extras import require_extra
from safemil.files import atomic_file
from safemil.tasks.engine import NEEDS, mujoco
from safemil.tasks.point import Thing
from safemil.worlds import Worlds

Picture = npt.NDArray[np.uint8]  # (height, width, 3)

# How each thing of the point tasks looks: sizes (m) and mostly colours are safety-gymnasium's.
LOOKS = {
    "robot": """
      <geom type="sphere" size="0.1" rgba="0.86 0.15 0.15 1"/>
      <geom type="box" pos="0.1 0 0" size="0.05 0.05 0.05" rgba="0.55 0.05 0.08 1"/>
      <geom type="box" pos="0.02 0 0.1" size="0.06 0.015 0.004" rgba="1 1 1 1"/>""",
    "goal": """
      <geom type="cylinder" size="0.3 0.004" rgba="0.20 0.70 0.35 0.55"/>
      <geom type="cylinder" size="0.2 0.006" rgba="1 1 1 0.8"/>
      <geom type="cylinder" size="0.1 0.008" rgba="0.13 0.62 0.30 1"/>""",
    "hazard": """
      <geom type="cylinder" size="0.2 0.004" rgba="0.30 0.32 0.80 0.9"/>
      <geom type="cylinder" size="0.16 0.006" rgba="0.45 0.48 0.93 1"/>""",
    "vase": """
      <geom type="box" size="0.1 0.1 0.1" rgba="0.10 0.66 0.70 1"/>
      <geom type="cylinder" pos="0 0 0.1" size="0.055 0.004" rgba="0.03 0.30 0.34 1"/>""",
    "button": """
      <geom type="cylinder" pos="0 0 -0.095" size="0.125 0.004" rgba="0.35 0.35 0.38 1"/>
      <geom type="sphere" size="0.1" rgba="0.98 0.60 0.13 1"/>""",
    "lit button": """
      <geom type="cylinder" pos="0 0 -0.096" size="0.2 0.004" rgba="0.20 0.75 0.35 0.6"/>
      <geom type="cylinder" pos="0 0 -0.095" size="0.125 0.005" rgba="0.35 0.35 0.38 1"/>
      <geom type="sphere" size="0.1" rgba="0.16 0.72 0.34 1"/>""",
    "gremlin": """
      <geom type="box" size="0.1 0.1 0.1" rgba="0.50 0.20 0.70 1"/>
      <geom type="sphere" pos="0.04 0.045 0.1" size="0.024" rgba="1 1 1 1"/>
      <geom type="sphere" pos="0.04 -0.045 0.1" size="0.024" rgba="1 1 1 1"/>
      <geom type="sphere" pos="0.047 0.045 0.115" size="0.014" rgba="0 0 0 1"/>
      <geom type="sphere" pos="0.047 -0.045 0.115" size="0.014" rgba="0 0 0 1"/>""",
    "circle": """
      <geom type="cylinder" size="1.53 0.002" rgba="0.20 0.70 0.35 1"/>
      <geom type="cylinder" size="1.47 0.004" rgba="0.86 0.94 0.87 1"/>""",
    # Lower than it is, to cast no long shadow.
    "wall": '<geom type="box" pos="0 0 -0.2" size="0.05 3.5 0.05" rgba="0.93 0.72 0.20 1"/>',
}
HALF_VIEW = 2.0  # m, from the centre of the picture to its rim, for the point tasks
CAMERA_HEIGHT = 8.0  # m
SMALL = 256  # pixels; up to here coarser shadows and edges hardly show, and take a quarter of the time


def _scene_xml(things: list[Thing]) -> str:
    bodies = "".join(f'<body mocap="true">{LOOKS[thing.kind]}</body>' for thing in things)
    angle = 2 * np.degrees(np.arctan(HALF_VIEW / CAMERA_HEIGHT))
    return f"""
<mujoco>
  <statistic extent="3" center="0 0 0"/>
  <visual>
    <headlight ambient="0.45 0.45 0.45" diffuse="0.15 0.15 0.15" specular="0 0 0"/>
    <quality shadowsize="4096" numslices="96" numstacks="32"/>
  </visual>
  <asset>
    <texture name="grid" type="2d" builtin="checker" rgb1="0.95 0.95 0.94" rgb2="0.90 0.90 0.89"
             width="64" height="64"/>
    <material name="grid" texture="grid" texrepeat="2 2" texuniform="true" specular="0"/>
  </asset>
  <default><geom contype="0" conaffinity="0"/></default>
  <worldbody>
    <light pos="-2 2 7" dir="0.28 -0.28 -1" diffuse="0.45 0.45 0.45" specular="0.1 0.1 0.1" cutoff="60"
           exponent="1" attenuation="1 0 0"/>
    <camera name="track" pos="0 0 {CAMERA_HEIGHT}" fovy="{angle}"/>
    <geom type="plane" size="8 8 0.1" material="grid"/>{bodies}
  </worldbody>
</mujoco>"""


class MujocoPainter:
    """Draws the first of some worlds."""

    def __init__(self, worlds: Worlds, width: int, height: int) -> None:
        self.worlds, self.size = worlds, (height, width)
        self._kinds: list[str] = []
        self._renderer: Any = None

    def draw(self) -> Picture:
        """Picture of the current state, (height, width, 3)."""
        things = self.worlds.things(0)
        kinds = [thing.kind for thing in things]
        if self._renderer is None or kinds != self._kinds:
            self._open(_scene_xml(things) if things else self.worlds.model_text)
            self._kinds = kinds
        if things:
            self._data.mocap_pos[:] = [thing.position for thing in things]
            self._data.mocap_quat[:] = [thing.quaternion for thing in things]
        else:
            self._data.qpos[:] = self.worlds.qpos[0]
        mujoco.mj_forward(self._model, self._data)
        self._renderer.update_scene(self._data, camera="track")
        picture: Picture = self._renderer.render()
        return picture

    def _open(self, xml: str) -> None:
        self.close()
        self._model = mujoco.MjModel.from_xml_string(xml)
        self._data = mujoco.MjData(self._model)
        self._model.vis.global_.offheight, self._model.vis.global_.offwidth = self.size
        quality = self._model.vis.quality
        quality.offsamples = 8  # smooth edges
        if max(self.size) <= SMALL:
            quality.offsamples, quality.shadowsize, quality.numslices, quality.numstacks = 4, 1024, 32, 16
        try:
            mujoco.GLContext(*self.size).free()  # a renderer that can't begin leaves a traceback behind
            self._renderer = mujoco.Renderer(self._model, *self.size)
        except Exception as error:  # each drawing library raises something else
            chosen = os.environ.get("MUJOCO_GL", "unset")
            raise InputError(f"can't draw ({error}; MUJOCO_GL is {chosen}): {NEEDS}.") from error

    def close(self) -> None:
        if self._renderer is not None:
            self._renderer.close()
            self._renderer = None


@contextlib.contextmanager
def video(path: Path, fps: int) -> Iterator[Any]:
    """Writer of an .mp4 with `append_data(picture)`; the file appears only once it is complete."""
    require_extra("video", "an .mp4")
    import imageio.v2 as imageio

    with atomic_file(path) as temporary:
        try:
            with imageio.get_writer(temporary, fps=fps, macro_block_size=1, quality=8) as writer:
                yield writer
            _check_readable(temporary)
        except (OSError, RuntimeError) as error:  # its message is the whole output of ffmpeg
            raise OSError(errno.EIO, "the video can't be written; is the disk full?") from error


def _check_readable(path: Path) -> None:
    """Raise an error if a video has no index, which ffmpeg writes last: it says nothing of a full disk.

    An .mp4 is a sequence of boxes, each with its size in four bytes and its name; the index is "moov".
    """
    with path.open("rb") as file:
        while len(header := file.read(8)) == 8 and header[4:] != b"moov":
            size = int.from_bytes(header[:4])
            if size == 1:  # the size follows in eight bytes
                size = int.from_bytes(file.read(8)) - 8
            file.seek(max(size - 8, 0), os.SEEK_CUR)
        index = int.from_bytes(header[:4]) - 8
        if header[4:] != b"moov" or len(file.read(index)) < index:
            raise OSError(errno.EIO, "the video has no index")


def save_png(path: Path, picture: Picture) -> None:
    require_extra("video", "a picture of a task")
    import imageio.v3 as imageio

    with atomic_file(path) as temporary:
        imageio.imwrite(temporary, picture)
