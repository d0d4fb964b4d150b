"""Films of a task, moved by smooth random actions."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from safemil.errors import InputError
from safemil.tasks.envs import TaskEnv
from safemil.tasks.render import Picture, save_png, video

SMALLEST, LARGEST = 16, 4096  # pixels
SMOOTHNESS = 0.9  # share of the last action in the next


def film(task: str, out: Path, *, steps: int, seed: int, size: int) -> None:
    """Write a video (.mp4) of some steps, or a picture (.png) of the last."""
    if out.suffix not in (".mp4", ".png"):
        raise InputError(f'need a file ending in .mp4 or .png, got "{out}".')
    if steps < 0 or seed < 0 or not SMALLEST <= size <= LARGEST:
        raise InputError(
            f"need steps and a seed of at least 0 and {SMALLEST} to {LARGEST} pixels, got {steps}, {seed} "
            f"and {size}."
        )
    env = TaskEnv(task, render_mode="rgb_array", width=size, height=size)
    try:
        if out.suffix == ".png":
            for _ in _moments(env, steps, seed):
                pass
            save_png(out, _picture(env))
        else:
            with video(out, env.metadata["render_fps"]) as writer:
                for _ in _moments(env, steps, seed):
                    writer.append_data(_picture(env))
    finally:
        env.close()


def _picture(env: TaskEnv) -> Picture:
    picture = env.render()
    assert picture is not None  # the mode asks for it
    return picture


def _moments(env: TaskEnv, steps: int, seed: int) -> Iterator[None]:
    """Yield after the reset and after each step; an episode that ends is followed by another."""
    rng = np.random.default_rng(seed)
    env.reset(seed=seed)
    yield
    action = np.zeros(env.worlds.action_size)
    for _ in range(steps):
        action = SMOOTHNESS * action + (1 - SMOOTHNESS) * 3 * rng.uniform(-1, 1, len(action))
        *_, terminated, truncated, _ = env.step(np.clip(action, -1, 1))
        if terminated or truncated:
            env.reset()
        yield
