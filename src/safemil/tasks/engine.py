"""MuJoCo, imported after its drawing library has been chosen.

MuJoCo reads MUJOCO_GL when it is first imported. On Linux without a display, and unless the user has chosen,
that is EGL where it is installed, else OSMesa, else nothing, so that all but drawing works.
"""

import ctypes.util
import os
import sys
from typing import Any

from safemil.errors import InputError
from safemil.extras import require_extra

NEEDS = (
    "drawing without a display needs EGL or OSMesa: on Debian or Ubuntu `apt-get install libegl1 "
    "libgl1-mesa-dri`, or `apt-get install libosmesa6` and MUJOCO_GL=osmesa before Python starts"
)


def _choose_drawing_library() -> None:
    headless = sys.platform == "linux" and not os.environ.get("DISPLAY")
    if not headless or "MUJOCO_GL" in os.environ or "mujoco" in sys.modules:
        return
    found = [name for name in ("EGL", "OSMesa") if ctypes.util.find_library(name)]
    os.environ["MUJOCO_GL"] = found[0].lower() if found else "off"


def _import_mujoco() -> Any:
    require_extra("tasks", "a MuJoCo task")
    try:
        import mujoco
        import mujoco.rollout
    except (ImportError, AttributeError, RuntimeError) as error:  # what a missing library raises
        if isinstance(error, ModuleNotFoundError) and error.name == "mujoco":
            raise InputError("this task needs the `tasks` extra: pip install 'safemil[tasks]'.") from error
        if "MUJOCO_GL" not in os.environ:
            raise
        raise InputError(f"MUJOCO_GL={os.environ['MUJOCO_GL']} can't be used ({error}); {NEEDS}.") from error
    return mujoco


_choose_drawing_library()
mujoco = _import_mujoco()  # compiled, and untyped
