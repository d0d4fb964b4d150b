"""MuJoCo, imported after its drawing library has been chosen.

MuJoCo reads MUJOCO_GL when it is first imported. Without a display and without a choice of the user's, EGL
draws headless; where it is missing, OSMesa does.
"""

import ctypes.util
import os
import sys
from typing import Any


def _choose_drawing_library() -> None:
    headless = sys.platform == "linux" and not os.environ.get("DISPLAY")
    if not headless or "MUJOCO_GL" in os.environ or "mujoco" in sys.modules:
        return
    if ctypes.util.find_library("EGL") is None and ctypes.util.find_library("OSMesa") is not None:
        os.environ["MUJOCO_GL"] = "osmesa"
    else:
        os.environ["MUJOCO_GL"] = "egl"


_choose_drawing_library()

import mujoco as _mujoco  # noqa: E402

mujoco: Any = _mujoco  # its functions are compiled and untyped
