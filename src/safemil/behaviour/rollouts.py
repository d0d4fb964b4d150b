"""Episodes of behaviour policies in the batched tasks."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from safemil.behaviour.policy import Policy
from safemil.tasks import make_vec

Floats = npt.NDArray[np.float32]


@dataclass(frozen=True, eq=False)
class Episodes:
    """n episodes of one policy, each padded to the longest."""

    observations: Floats  # (n, T + 1, S), the last one after the last action
    actions: Floats  # (n, T, A)
    rewards: Floats  # (n, T), 0 after the end
    costs: Floats  # (n, T), 0 after the end
    lengths: npt.NDArray[np.int64]  # (n,)
    terminated: npt.NDArray[np.bool_]  # (n,)

    @property
    def returns(self) -> Floats:
        return self.rewards.sum(axis=1, dtype=np.float64).astype(np.float32)

    @property
    def total_costs(self) -> Floats:
        return self.costs.sum(axis=1, dtype=np.float64).astype(np.float32)


def roll_out(
    task: str,
    policy: Policy,
    seeds: list[int],
    noise: npt.NDArray[np.float64],
    generator: np.random.Generator,
    watch: Callable[[int], None] = lambda steps: None,
) -> Episodes:
    """One episode for each seed; `noise` (n,) scales each one's deviation, 0 for the most likely action.

    `watch` is told after each step how many episodes took it.
    """
    n = len(seeds)
    envs = make_vec(task, n)
    size, actions = envs.worlds.observation_size, envs.worlds.action_size
    seen, done = (
        np.zeros((n, envs.limit + 1, size), np.float32),
        np.zeros((n, envs.limit, actions), np.float32),
    )
    rewards, costs = np.zeros((n, envs.limit), np.float32), np.zeros((n, envs.limit), np.float32)
    lengths, fell, running = np.zeros(n, np.int64), np.zeros(n, bool), np.ones(n, bool)
    observations, _ = envs.reset(seed=list(seeds))
    seen[:, 0] = observations
    step = 0
    while running.any():
        draws = generator.standard_normal((n, actions)) * noise[:, None]
        done[:, step] = policy.act(
            observations, draws
        )  # what is recorded is what is done, in single precision
        observations, reward, terminated, truncated, info = envs.step(
            done[:, step].astype(envs.worlds.action_dtype)
        )
        rewards[running, step], costs[running, step] = reward[running], info["cost"][running]
        lengths[running] += 1
        fell[running] = terminated[running]
        step += 1
        seen[running, step] = observations[running]
        watch(int(running.sum()))
        running &= ~(terminated | truncated)
    envs.close()
    return Episodes(seen[:, : step + 1], done[:, :step], rewards[:, :step], costs[:, :step], lengths, fell)
