"""Six Safety-Gymnasium tasks, native, exact and fast, with Gymnasium's API.

>>> import gymnasium, safemil.tasks
>>> env = gymnasium.make("safemil/SafetyPointGoal1-v0")
>>> observation, info = env.reset(seed=0)
>>> observation, reward, terminated, truncated, info = env.step(env.action_space.sample())
>>> info["cost"]
0.0
>>> envs = safemil.tasks.make_vec("SafetyPointGoal1-v0", 64)
"""

from typing import Any

from safemil.catalog import NAMESPACE
from safemil.catalog import SAFETY_TASKS as TASKS
from safemil.extras import require_extra

with require_extra("tasks", "safemil.tasks"):
    import gymnasium

from safemil.tasks.envs import TaskEnv, TaskVectorEnv

__all__ = ["TASKS", "TaskEnv", "TaskVectorEnv", "make_vec"]


def make_vec(name: str, n: int = 1, **options: Any) -> TaskVectorEnv:
    """n environments of a task in one; options are those of `TaskVectorEnv`."""
    return TaskVectorEnv(name, n, **options)


def _register() -> None:
    for name, task in TASKS.items():
        gymnasium.register(
            f"{NAMESPACE}/{name}",
            entry_point="safemil.tasks.envs:TaskEnv",
            vector_entry_point="safemil.tasks.envs:TaskVectorEnv",
            max_episode_steps=task.limit,
            kwargs={"task": name},
        )


_register()
