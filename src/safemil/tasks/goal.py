"""SafetyPointGoal1: reach one goal after the other without crossing hazards; a vase stands in the way.

Numbers are those of safety-gymnasium 1.0.0. Kept on purpose: the goal is drawn twice at a reset, the vase
may be pushed without cost, and a step that meets its goal already shows the next one.
"""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from safemil.tasks.engine import mujoco
from safemil.tasks.point import (
    DT,
    SENSORS,
    SUBSTEPS,
    Robots,
    Simulators,
    Streams,
    distances,
    lidar,
    model_xml,
    sample_layout,
    slots,
    turned,
)
from safemil.tasks.worlds import Array, Ints, Outcome, Worlds

HAZARDS = 8
EXTENT = 1.5  # m, half the side of the square in which everything starts
AGENT_KEEPOUT, GOAL_KEEPOUT, HAZARD_KEEPOUT, VASE_KEEPOUT = 0.4, 0.305, 0.18, 0.15  # m
LAYOUT = slots(EXTENT, [(1, AGENT_KEEPOUT), (1, GOAL_KEEPOUT), (HAZARDS, HAZARD_KEEPOUT), (1, VASE_KEEPOUT)])
GOAL_RADIUS = 0.3  # m
GOAL_REWARD = 1.0
GOAL_TRIES = 10_000
HAZARD_RADIUS = 0.2  # m
REACH = 3.0  # m, of the lidar
VASE_HEIGHT = 0.1 - 4e-5  # m, of its centre: it starts a little way into the floor
KINDS = np.array([0] + HAZARDS * [1] + [2])  # goal, hazards, vase: the lidars in their order

MODEL = model_xml("""
    <body name="vase"><freejoint/><geom name="vase" type="box" size="0.1 0.1 0.1" density="0.001"/></body>""")


class GoalWorlds(Worlds):
    observation_size = SENSORS + 3 * 16
    action_size = 2
    action_dtype = np.float64
    dt = DT

    def __init__(self, n: int, threads: int = 1) -> None:
        super().__init__(n, threads)
        self.streams, self.robots, self.simulators = Streams(n), Robots(n), Simulators(MODEL, n)
        self.objects = np.zeros((n, 1 + HAZARDS + 1, 2))  # goal, hazards, vase
        self.goal, self.hazards, self.vase = self.objects[:, 0], self.objects[:, 1:-1], self.objects[:, -1]
        self.last_distance = np.zeros(n)  # m, to the goal, before the step
        self.vase_rotation = np.zeros(n)

    def seed(self, row: int, seed: int | None) -> None:
        self.streams.seed(row, seed)

    def reset(self, row: int) -> None:
        rng = self.streams.ready(row)
        places = sample_layout(rng, LAYOUT)
        rotations = rng.uniform(0, 2 * np.pi, len(LAYOUT))
        self.place(row, places[0], rotations[0], places[2:-1], places[-1], rotations[-1])
        self.draw_goal(row)

    def place(
        self, row: int, robot: Array, rotation: float, hazards: Array, vase: Array, vase_rotation: float
    ) -> None:
        """Lay out a world, at rest."""
        self.robots.place(row, robot, rotation)
        self.simulators.place(row, robot, rotation)
        self.simulators.data[row].qpos[3:] = *vase, VASE_HEIGHT, *turned(vase_rotation)
        self.hazards[row] = hazards
        self.update(row)

    def update(self, row: int) -> None:
        """Take over what the simulator says of a world."""
        self.simulators.forward(row)
        qpos, qvel = self.simulators.qpos[row], self.simulators.qvel[row]
        self.robots.q[row], self.robots.velocity[row] = qpos[:3], qvel[:3]
        self.vase[row] = qpos[3:5]

    def draw_goal(self, row: int) -> bool:
        """Put the goal where nothing is; False if no such place was found."""
        rng, pose = self.streams.ready(row), self.robots.pose()
        robot = np.array([[pose.x[row], pose.y[row]]])
        others = np.concatenate([robot, self.hazards[row], self.vase[row, None]])
        keepouts = np.array([AGENT_KEEPOUT] + HAZARDS * [HAZARD_KEEPOUT] + [VASE_KEEPOUT]) + GOAL_KEEPOUT
        bound = EXTENT - GOAL_KEEPOUT
        for _ in range(GOAL_TRIES):
            goal = rng.uniform(-bound, bound, 2)
            offsets = others - goal
            if (np.sqrt(offsets[:, 0] ** 2 + offsets[:, 1] ** 2) >= keepouts).all():
                self.set_goal(row, goal)
                return True
        return False

    def set_goal(self, row: int, goal: Array) -> None:
        self.goal[row] = goal
        self.last_distance[row] = distances(self.robots.pose(), self.objects[:, :1])[row, 0]

    def step(self, actions: npt.NDArray[np.floating], rows: Ints) -> Outcome:
        self.robots.ctrl[rows] = np.clip(actions[rows], -1, 1)
        self.streams.due[rows] += 1
        self.crew.run(self._simulate, rows)
        distance = distances(self.robots.pose(), self.objects[:, :-1])
        met = distance[:, 0] <= GOAL_RADIUS
        reward = self.last_distance - distance[:, 0] + GOAL_REWARD * met
        cost = (distance[:, 1:].min(axis=1) < HAZARD_RADIUS).astype(np.float64)
        self.last_distance[rows] = distance[rows, 0]
        terminated = np.zeros(self.n, bool)
        for row in rows[met[rows]].tolist():
            terminated[row] = not self.draw_goal(row)
        return Outcome(reward, cost, terminated, {"cost_hazards": cost, "cost_sum": cost, "goal_met": met})

    def _simulate(self, rows: Sequence[int]) -> None:
        for row in rows:
            data = self.simulators.data[row]
            data.ctrl[:] = self.robots.ctrl[row]
            mujoco.mj_step(self.simulators.models[row], data, SUBSTEPS)
            self.update(row)

    def observe(self) -> Array:
        seen = lidar(self.robots.pose(), self.objects, KINDS, REACH)
        return np.concatenate([self.simulators.sensed, seen], axis=1)
