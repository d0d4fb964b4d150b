"""Optional dependencies: the extras of the package and the imports that each of them brings."""

import contextlib
import importlib.util

from safemil.errors import InputError

EXTRAS = {  # as in pyproject.toml; `cuda` changes JAX and brings no import of its own
    "tasks": ("gymnasium", "mujoco"),
    "report": ("jinja2", "markupsafe", "matplotlib", "PIL"),
    "video": ("imageio", "imageio_ffmpeg"),
    "ray": ("ray",),
    "onnx": ("onnx", "onnxruntime"),
    "ros": ("mcap", "mcap_ros2", "rosbags"),
    "tensorboard": ("tensorboardX",),
    "wandb": ("wandb",),
    "trackio": ("trackio",),
    "examples": ("gymnasium", "highway_env"),
}


class MissingExtra(InputError, ImportError):
    """An optional dependency is not installed; the message gives the command that installs it."""


def require_extra(extra: str, what: str) -> contextlib.AbstractContextManager[None]:
    """Refuse to go on unless every package of an extra is installed; `what` needs them.

    The check is made at once. The result is a context that does nothing, for imports at the top of a module:
    `with require_extra("tasks", "safemil.tasks"): import gymnasium`.
    """
    missing = [name for name in EXTRAS[extra] if not _installed(name)]
    if missing:
        raise MissingExtra(
            f"{what} needs {' and '.join(missing)}, not installed here: pip install 'safemil[{extra}]'"
        )
    return contextlib.nullcontext()


def _installed(name: str) -> bool:
    try:
        return importlib.util.find_spec(name) is not None
    except (ModuleNotFoundError, ValueError):  # ValueError: a stub in sys.modules without a spec
        return False
