"""Short clips of a policy: frames side by side in one picture, which the page shows one after the other."""

import base64
import io
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from PIL import Image

from safemil.progress import bar
from safemil.report.replay import Walk
from safemil.tasks.envs import TaskEnv
from safemil.tasks.render import Picture

SIZE = 240  # pixels
FRAMES = 64  # at most
RATE = 8  # frames a second on the page
SPEED = 2  # times as fast as it happened
COLUMNS = 8
QUALITY = 60  # of WebP


class Clip(NamedTuple):
    """A sheet of frames, and the steps they show."""

    source: str  # data: URL
    steps: list[int]


def film(task: str, seed: int, walk: Walk, *, progress: bool = False) -> Clip:
    """The beginning of an episode, by the actions it took."""
    env = TaskEnv(task, render_mode="rgb_array", width=SIZE, height=SIZE)
    every = max(1, round(SPEED / RATE / env.worlds.dt))
    actions = walk.trajectories.actions
    shown_steps = list(range(0, len(actions), every))[:FRAMES]
    frames: list[Picture] = []
    try:
        env.reset(seed=seed)
        with bar("drawing frames", len(shown_steps), show=progress) as shown:
            for step in range(shown_steps[-1] + 1):
                if step in shown_steps:
                    frames.append(_picture(env))
                    shown.at(len(frames))
                env.step(actions[step].astype(env.worlds.action_dtype))
    finally:
        env.close()
    return Clip(_sheet(frames), shown_steps)


def _picture(env: TaskEnv) -> Picture:
    picture = env.render()
    assert picture is not None  # the mode asks for it
    return picture.copy()


def _sheet(frames: list[Picture]) -> str:
    """Frames in rows, as a data URL."""
    rows = -(-len(frames) // COLUMNS)
    sheet: npt.NDArray[np.uint8] = np.zeros((rows * SIZE, COLUMNS * SIZE, 3), np.uint8)
    for number, frame in enumerate(frames):
        top, left = SIZE * (number // COLUMNS), SIZE * (number % COLUMNS)
        sheet[top : top + SIZE, left : left + SIZE] = frame
    held = io.BytesIO()
    Image.fromarray(sheet).save(held, "WEBP", quality=QUALITY, method=4)
    return "data:image/webp;base64," + base64.b64encode(held.getvalue()).decode()
