"""Short clips of a policy: frames side by side in one picture, which the page shows one after the other."""

import base64
import io
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from PIL import Image

from safemil import rollouts
from safemil.arrays import Doubles, Floats
from safemil.progress import bar
from safemil.worlds import Task

Picture = npt.NDArray[np.uint8]  # (height, width, 3)
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


def film(task: Task, seed: int, actions: Floats, *, progress: bool = False) -> Clip | None:
    """Draw the beginning of an episode, replayed by its actions (T, A); None if nothing draws the task."""
    if task.painter is None:
        return None
    worlds = rollouts.begin(task, [seed], 1)
    every = max(1, round(SPEED / RATE / worlds.dt))
    shown_steps = list(range(0, len(actions), every))[:FRAMES]
    painter = task.painter(worlds, SIZE, SIZE)
    frames: list[Picture] = []

    def act(observations: Doubles, number: int) -> Floats:
        if number in shown_steps:
            frames.append(painter.draw().copy())
        return actions[None, number]

    try:
        with bar("drawing frames", shown_steps[-1] + 1, show=progress) as shown:
            for step in rollouts.steps(worlds, act, shown_steps[-1] + 1):
                shown.at(step.number + 1)
    finally:
        painter.close()
    return Clip(_sheet(frames), shown_steps)


def _sheet(frames: list[Picture]) -> str:
    """Frames in rows as one picture, a data URL."""
    rows = -(-len(frames) // COLUMNS)
    sheet: npt.NDArray[np.uint8] = np.zeros((rows * SIZE, COLUMNS * SIZE, 3), np.uint8)
    for number, frame in enumerate(frames):
        top, left = SIZE * (number // COLUMNS), SIZE * (number % COLUMNS)
        sheet[top : top + SIZE, left : left + SIZE] = frame
    held = io.BytesIO()
    Image.fromarray(sheet).save(held, "WEBP", quality=QUALITY, method=4)
    return "data:image/webp;base64," + base64.b64encode(held.getvalue()).decode()
