"""A task as an installed package would bring it: a point on a field of 20 m with a pit in it."""

import numpy as np

from safemil import rollouts
from safemil.worlds import Disc, Outcome, Task, Worlds

PIT = Disc("pit", 3.0, 4.0, 2.0, costs=True)
FLAG = Disc("flag", -8.0, -8.0, 0.5, costs=False)


class FieldWorlds(Worlds):
    observation_size, action_size, dt = 2, 2, 1.0
    same_arena = True

    def __init__(self, n, threads):
        super().__init__(n, threads)
        self.rngs, self.xy = [np.random.default_rng() for _ in range(n)], np.zeros((n, 2))

    def seed(self, row, seed):
        self.rngs[row] = np.random.default_rng(seed)

    def reset(self, row):
        self.xy[row] = self.rngs[row].uniform(-10, 10, 2)

    def step(self, actions, rows):
        self.xy[rows] = np.clip(self.xy + actions, -10, 10)[rows]
        inside = np.hypot(self.xy[:, 0] - PIT.x, self.xy[:, 1] - PIT.y) < PIT.radius
        return Outcome(np.ones(self.n), inside.astype(float), np.zeros(self.n, bool), {})

    def observe(self):
        return self.xy.copy()

    def column_names(self):
        return ["metres east", "metres north", "push east", "push north"]

    def positions(self, observations):
        return np.asarray(observations, np.float64)

    def markers(self, row):
        return [PIT, FLAG]


def demonstrate(reckless, rng):
    def act(observations, step):
        towards = np.where(reckless[:, None], [PIT.x, PIT.y], [FLAG.x, FLAG.y]) - observations
        return np.clip(towards + rng.normal(0, 0.5, towards.shape), -1, 1)

    found = rollouts.record(TASK, act, rng.integers(2**32, size=len(reckless)).tolist())
    return found.trajectories(), found.annotations()


TASK = Task("cross the field, not the pit", 40, FieldWorlds, demonstrate=demonstrate)
NO_TASK = "something else"
