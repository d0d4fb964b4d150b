"""Gymnasium's two faces of a task: one environment, and a vector of them."""

from typing import Any, SupportsFloat

import gymnasium
import numpy as np
import numpy.typing as npt
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space

from safemil.errors import InputError
from safemil.tasks import catalog
from safemil.tasks.render import Painter, Picture
from safemil.tasks.worlds import Array, Flags, Outcome, check_actions, cores

Info = dict[str, Any]


class TaskEnv(gymnasium.Env[Array, npt.NDArray[np.floating]]):
    """One world of a task: `info["cost"]` is 0 or 1 at each step, its parts stand beside it.

    Episodes end at the task's limit; after `gymnasium.make` its TimeLimit wrapper sees to that.
    """

    metadata = {"render_modes": ["rgb_array"], "render_fps": 30}  # noqa: RUF012

    def __init__(
        self, task: str, render_mode: str | None = None, width: int = 480, height: int = 480
    ) -> None:
        self.task = catalog.task(task)
        self.worlds = self.task.make(1, 1)
        self.observation_space, self.action_space = catalog.spaces(self.worlds)
        if render_mode not in (None, "rgb_array"):
            raise InputError(f'need render_mode "rgb_array" or None, got "{render_mode}".')
        self.render_mode = render_mode
        self.metadata = {"render_modes": ["rgb_array"], "render_fps": round(1 / self.worlds.dt)}
        self.steps, self.ended, self._seeded = 0, True, False
        self._painter = Painter(self.worlds, width, height)

    def reset(self, *, seed: int | None = None, options: Info | None = None) -> tuple[Array, Info]:
        super().reset(seed=seed)
        if seed is not None or not self._seeded:
            self.worlds.seed(0, seed)
            self._seeded = True
        self.worlds.reset(0)
        self.steps, self.ended = 0, False
        return self.worlds.observe()[0], {}

    def step(self, action: npt.NDArray[np.floating]) -> tuple[Array, SupportsFloat, bool, bool, Info]:
        checked = check_actions(action, (self.worlds.action_size,))
        if self.ended and self.task.strict_end:
            raise InputError("the episode has ended; call reset() before the next step().")
        reward, cost, terminated, info = self.worlds.step_one(checked)
        self.steps += 1
        truncated = self.spec is None and self.steps >= self.task.limit
        self.ended = truncated or terminated
        told = {name: value for name, value in info.items() if value is not False and value == value}
        return self.worlds.observe()[0], reward, terminated, truncated, {"cost": cost, **told}

    def render(self) -> Picture | None:
        """A picture of the world as it is, if `render_mode` asks for one."""
        return self._painter.draw() if self.render_mode == "rgb_array" else None

    def close(self) -> None:
        self._painter.close()


class TaskVectorEnv(VectorEnv[Array, npt.NDArray[np.floating], Any]):
    """n worlds of a task, stepped together; each gives what a single environment with its seed gives.

    `reset(seed=s)` seeds the worlds with s, s + 1, ...; a list seeds each. Entries of `info` are arrays (n,),
    with a mask `_name` that says for which worlds they hold.

    An episode's end is followed by a reset according to `autoreset_mode`: NEXT_STEP (Gymnasium's default: the
    step after the end ignores its action and returns the new episode's first observation, with reward and
    cost 0), SAME_STEP (that observation comes at once, the last one is in `info["final_obs"]`, and the last
    step's other entries are in `info["final_info"]`), or DISABLED (reset ended worlds by
    `reset(options={"reset_mask": ended})`).
    """

    def __init__(
        self,
        task: str,
        num_envs: int = 1,
        *,
        autoreset_mode: AutoresetMode | str = AutoresetMode.NEXT_STEP,
        max_episode_steps: int | None = None,
        threads: int | None = None,
    ) -> None:
        if num_envs < 1:
            raise InputError(f"need at least one environment, got {num_envs}.")
        self.task = catalog.task(task)
        self.num_envs = num_envs
        self.mode = AutoresetMode(autoreset_mode)
        self.worlds = self.task.make(num_envs, min(threads or cores(), num_envs))
        self.limit = max_episode_steps or self.task.limit
        self.single_observation_space, self.single_action_space = catalog.spaces(self.worlds)
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)
        self.metadata = {
            "autoreset_mode": self.mode,
            "render_modes": [],
            "render_fps": round(1 / self.worlds.dt),
        }
        self.steps, self.ended = np.zeros(num_envs, np.int64), np.ones(num_envs, bool)
        self._everyone, self._seeded = np.arange(num_envs), np.zeros(num_envs, bool)

    def reset(
        self, *, seed: int | list[int | None] | None = None, options: Info | None = None
    ) -> tuple[Array, Info]:
        """Begin new episodes, in all worlds or in those of `options["reset_mask"]` (n,)."""
        mask = (
            self._everyone >= 0
            if options is None
            else np.asarray(options.get("reset_mask", self._everyone >= 0))
        )
        if mask.shape != (self.num_envs,) or mask.dtype != np.bool_:
            raise InputError(f"need a reset_mask of {self.num_envs} booleans, got {mask.dtype} {mask.shape}.")
        for row, given in zip(range(self.num_envs), self._seeds(seed), strict=True):
            if mask[row] and (given is not None or not self._seeded[row]):
                self.worlds.seed(row, given)
                self._seeded[row] = True
        self._begin(mask)
        return self.worlds.observe(), {}

    def _seeds(self, seed: int | list[int | None] | None) -> list[int | None]:
        if seed is None:
            return [None] * self.num_envs
        seeds = (
            [seed + row for row in range(self.num_envs)] if isinstance(seed, int | np.integer) else list(seed)
        )
        if len(seeds) != self.num_envs:
            raise InputError(f"need one seed for each of {self.num_envs} environments, got {len(seeds)}.")
        return [None if one is None else int(one) for one in seeds]

    def _begin(self, mask: Flags) -> None:
        for row in np.flatnonzero(mask).tolist():
            self.worlds.reset(row)
        self.steps[mask], self.ended[mask] = 0, False

    def step(self, actions: npt.NDArray[np.floating]) -> tuple[Array, Array, Flags, Flags, Info]:
        checked = check_actions(actions, (self.num_envs, self.worlds.action_size))
        resting = self.ended.copy()
        if self.mode is AutoresetMode.NEXT_STEP:
            self._begin(resting)
        elif resting.any():
            raise InputError(
                "an episode has ended; reset it with options={'reset_mask': ...} before the next step."
            )
        outcome = self.worlds.step(checked, np.flatnonzero(~resting))
        self.steps[~resting] += 1
        terminated, truncated = outcome.terminated & ~resting, (self.steps >= self.limit) & ~resting
        self.ended = terminated | truncated
        info = _vector_info(outcome, ~resting)
        reward = np.where(resting, 0.0, outcome.reward)
        observation = self.worlds.observe()
        if self.mode is AutoresetMode.SAME_STEP and self.ended.any():
            observation, info = self._restart(observation, info)
        return observation, reward, terminated, truncated, info

    def _restart(self, last: Array, info: Info) -> tuple[Array, Info]:
        """Reset ended worlds at once, keeping what their last step gave."""
        ended = self.ended.copy()
        final = {name: value for name, value in info.items() if not name.startswith("_")}
        kept = {**info, "final_obs": last, "_final_obs": ended, "final_info": final, "_final_info": ended}
        self._begin(ended)
        return self.worlds.observe(), kept

    def close_extras(self, **kwargs: Any) -> None:
        self.worlds.crew.close()


def _vector_info(outcome: Outcome, active: Flags) -> Info:
    """Arrays (n,) and their masks; 0 where a value does not hold."""
    info: Info = {}
    for name, value in {"cost": outcome.cost, **outcome.info}.items():
        holds: Flags = active & (value if value.dtype == np.bool_ else ~np.isnan(value)).astype(np.bool_)
        info[name], info[f"_{name}"] = np.where(holds, value, value.dtype.type(0)), holds
    return info
