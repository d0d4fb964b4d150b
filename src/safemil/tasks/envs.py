"""Gymnasium environments of a task: a single one, and a vector of them."""

from typing import Any, SupportsFloat

import gymnasium
import numpy as np
import numpy.typing as npt
from gymnasium.spaces import Box
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space

from safemil import catalog
from safemil.arrays import Bools, Doubles
from safemil.errors import InputError
from safemil.tasks.render import Picture
from safemil.worlds import Outcome, Painter, Worlds, check_actions, cores

Info = dict[str, Any]


def spaces(worlds: Worlds) -> tuple[Any, Any]:
    """Spaces of one observation and of one action."""
    observations = Box(-np.inf, np.inf, (worlds.observation_size,), np.float64)
    return observations, Box(-1.0, 1.0, (worlds.action_size,), worlds.action_dtype)


class TaskEnv(gymnasium.Env[Doubles, npt.NDArray[np.floating]]):
    """One world of a task: `info["cost"]` is 0 or 1 at each step, its parts stand beside it.

    Episodes end at the task's limit; after `gymnasium.make` its TimeLimit wrapper sees to that.
    """

    metadata = {"render_modes": ["rgb_array"], "render_fps": 30}  # noqa: RUF012
    _painter: Painter | None

    def __init__(
        self, task: str, render_mode: str | None = None, width: int = 480, height: int = 480
    ) -> None:
        self.task = catalog.task(task)
        self.worlds = self.task.make(1, 1)
        self.observation_space, self.action_space = spaces(self.worlds)
        if render_mode not in (None, "rgb_array"):
            raise InputError(f'need render_mode "rgb_array" or None, got "{render_mode}".')
        self.render_mode = render_mode
        self.metadata = {"render_modes": ["rgb_array"], "render_fps": round(1 / self.worlds.dt)}
        self.steps, self.ended, self._seeded = 0, True, False
        self._size, self._painter = (width, height), None

    def reset(self, *, seed: int | None = None, options: Info | None = None) -> tuple[Doubles, Info]:
        super().reset(seed=seed)
        if seed is not None or not self._seeded:
            self.worlds.seed(0, seed)
            self._seeded = True
        self.worlds.reset(0)
        self.steps, self.ended = 0, False
        return self.worlds.observe()[0], {}

    def step(self, action: npt.NDArray[np.floating]) -> tuple[Doubles, SupportsFloat, bool, bool, Info]:
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
        """Picture of the current state, if `render_mode` asks for one."""
        if self.render_mode is None:
            return None
        if self._painter is None:
            if self.task.painter is None:
                raise InputError("this task has no painter; make it without a render_mode.")
            self._painter = self.task.painter(self.worlds, *self._size)
        return self._painter.draw()

    def close(self) -> None:
        if self._painter is not None:
            self._painter.close()


class TaskVectorEnv(VectorEnv[Doubles, npt.NDArray[np.floating], Any]):
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
        self.single_observation_space, self.single_action_space = spaces(self.worlds)
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
    ) -> tuple[Doubles, Info]:
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

    def _begin(self, mask: Bools) -> None:
        for row in np.flatnonzero(mask).tolist():
            self.worlds.reset(row)
        self.steps[mask], self.ended[mask] = 0, False

    def step(self, actions: npt.NDArray[np.floating]) -> tuple[Doubles, Doubles, Bools, Bools, Info]:
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

    def _restart(self, last: Doubles, info: Info) -> tuple[Doubles, Info]:
        """Reset ended worlds at once, keeping what their last step gave."""
        ended = self.ended.copy()
        final = {name: value for name, value in info.items() if not name.startswith("_")}
        kept = {**info, "final_obs": last, "_final_obs": ended, "final_info": final, "_final_info": ended}
        self._begin(ended)
        return self.worlds.observe(), kept

    def close_extras(self, **kwargs: Any) -> None:
        self.worlds.close()


def _vector_info(outcome: Outcome, active: Bools) -> Info:
    """Arrays (n,) and their masks; 0 where a value does not hold."""
    info: Info = {}
    for name, value in {"cost": outcome.cost, **outcome.info}.items():
        holds: Bools = active & (value if value.dtype == np.bool_ else ~np.isnan(value)).astype(np.bool_)
        info[name], info[f"_{name}"] = np.where(holds, value, value.dtype.type(0)), holds
    return info
