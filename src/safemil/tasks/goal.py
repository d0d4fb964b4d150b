"""SafetyPointGoal1: reach one goal after the other without crossing hazards; a vase stands in the way.

Numbers are those of safety-gymnasium 1.0.0. Kept on purpose: the goal is drawn twice at a reset, the vase
may be pushed without cost, and a step that meets its goal already shows the next one.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from safemil.arrays import Doubles, Ints
from safemil.tasks.engine import mujoco
from safemil.tasks.layout import Layout, slots
from safemil.tasks.point import (
    DT,
    SENSORS,
    SUBSTEPS,
    Lidar,
    Robots,
    Simulators,
    Streams,
    Thing,
    distances,
    lidar_columns,
    model_xml,
    nearby,
    turned,
)
from safemil.worlds import Disc, Marker, Outcome, Single, Worlds

HAZARDS = 8
EXTENT = 1.5  # m, half the side of the square in which everything starts
AGENT_KEEPOUT, GOAL_KEEPOUT, HAZARD_KEEPOUT, VASE_KEEPOUT = 0.4, 0.305, 0.18, 0.15  # m
LAYOUT = Layout(
    slots(EXTENT, [(1, AGENT_KEEPOUT), (1, GOAL_KEEPOUT), (HAZARDS, HAZARD_KEEPOUT), (1, VASE_KEEPOUT)])
)
GOAL_RADIUS = 0.3  # m
GOAL_REWARD = 1.0
GOAL_TRIES = 10_000
HAZARD_RADIUS = 0.2  # m
REACH = 3.0  # m, of the lidar
VASE_HEIGHT = 0.1 - 4e-5  # m, of its centre: it starts a little way into the floor
LIDARS = ("goal", "hazard", "vase")
KINDS = [0] + HAZARDS * [1] + [2]  # the lidar that sees each object
NEARBY = (nearby(LIDARS, "hazard", REACH, HAZARD_RADIUS, "a step costs"),)

MODEL = model_xml("""
    <body name="vase"><freejoint/><geom name="vase" type="box" size="0.1 0.1 0.1" density="0.001"/></body>""")

# A vase far from the robot need not be simulated: it sinks into the floor by some micrometres, the same way
# in every world, and stays. Once it has come to rest again after a push, the same holds.
NEAR = 0.45  # m, between the centres; farther ones can't touch within a step
REST = 1e-12  # m/s and rad/s
FALL_STEPS = 60
TOUCHED = -1


def _fall() -> Doubles:
    """Height and speed (61, 2) of an untouched vase after each step, while it settles."""
    model = mujoco.MjModel.from_xml_string(MODEL)
    data, trace = mujoco.MjData(model), np.zeros((FALL_STEPS + 1, 2))
    data.qpos[3:6] = 2.0, 0.0, VASE_HEIGHT
    trace[0] = VASE_HEIGHT, 0.0
    for step in range(FALL_STEPS):
        mujoco.mj_step(model, data, SUBSTEPS)
        trace[step + 1] = data.qpos[5], data.qvel[5]
    return trace


def _distance(x: float, y: float, other: list[float]) -> float:
    dx, dy = other[0] - x, other[1] - y
    return math.sqrt(dx * dx + dy * dy)


class GoalWorlds(Worlds):
    observation_size = SENSORS + 3 * 16
    action_size = 2
    dt = DT
    nearby = NEARBY

    def __init__(self, n: int, threads: int = 1) -> None:
        super().__init__(n, 1)  # few robots are near a vase at a time: waking a second thread costs more
        self.streams, self.robots, self.simulators = Streams(n), Robots(n), Simulators(MODEL, n)
        self.objects = np.zeros((n, 1 + HAZARDS + 1, 2))  # goal, hazards, vase
        self.goal_xy, self.hazards, self.vase = self.objects[:, 0], self.objects[:, 1:-1], self.objects[:, -1]
        self.lidar = Lidar(n, KINDS, REACH)
        self.last_distance = np.zeros(n)  # m, to the goal, before the step
        self.age = np.zeros(n, np.int64)  # steps since the reset, until physics first meets the vase
        self.still, self.simulated = np.ones(n, bool), np.zeros(n, bool)
        self.fall = _fall()

    def seed(self, row: int, seed: int | None) -> None:
        self.streams.seed(row, seed)

    def reset(self, row: int) -> None:
        rng = self.streams.ready(row)
        places = LAYOUT.sample(rng)
        rotations = rng.uniform(0, 2 * np.pi, LAYOUT.size)
        self.place(row, places[0], rotations[0], places[2:-1], places[-1], rotations[-1])
        self.draw_goal(row)

    def place(
        self, row: int, robot: Doubles, rotation: float, hazards: Doubles, vase: Doubles, vase_rotation: float
    ) -> None:
        """Lay out a world, at rest."""
        self.robots.place(row, robot, rotation)
        self.simulators.place(row, robot, rotation)
        self.simulators.data[row].qpos[3:] = *vase, VASE_HEIGHT, *turned(vase_rotation)
        self.hazards[row], self.vase[row] = hazards, vase
        self.robots.refresh()
        self.age[row], self.still[row], self.simulated[row] = 0, True, False

    def restore(self, row: int, state: Mapping[str, Any]) -> None:
        vase, vase_rotation = state["reset_vases_xy"][0], float(state["reset_vases_rot"][0])
        robot, rotation = state["reset_agent_xy"], float(state["reset_agent_rot"])
        self.place(row, robot, rotation, state["reset_hazards_xy"], vase, vase_rotation)
        self.simulators.restore(row, state)
        self.age[row] = TOUCHED
        self._take(row)
        self.robots.refresh()
        self.restore_goal(row, state)

    def restore_goal(self, row: int, state: Mapping[str, Any]) -> None:
        self.set_goal(row, state["goal_xy"])

    def places(self, row: int) -> dict[str, Any]:
        robot = {"agent_xy": self.robots.start[row], "agent_rot": self.robots.rotation[row]}
        return {
            **robot,
            "goal_xy": self.goal_xy[row],
            "hazards_xy": self.hazards[row],
            "vases_xy": self.vase[row, None],
        }

    def draw_goal(self, row: int) -> bool:
        """Put the goal at a free place; return whether one was found."""
        rng, pose = self.streams.ready(row), self.robots.pose
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

    def set_goal(self, row: int, goal: Doubles) -> None:
        self.goal_xy[row] = goal
        self.last_distance[row] = distances(self.robots.pose, self.objects[:, :1])[row, 0]

    def step(self, actions: npt.NDArray[np.floating], rows: Ints) -> Outcome:
        self.robots.act(actions, rows)
        self.streams.due[rows] += 1
        self._advance(rows)
        distance = distances(self.robots.pose, self.objects[:, :-1])
        met = distance[:, 0] <= GOAL_RADIUS
        reward = self.last_distance - distance[:, 0] + GOAL_REWARD * met
        cost = (distance[:, 1:].min(axis=1) < HAZARD_RADIUS).astype(np.float64)
        self.last_distance[rows] = distance[rows, 0]
        terminated = np.zeros(self.n, bool)
        for row in rows[met[rows]].tolist():
            terminated[row] = not self.draw_goal(row)
        return Outcome(reward, cost, terminated, {"cost_hazards": cost, "cost_sum": cost, "goal_met": met})

    def step_one(self, action: npt.NDArray[np.floating]) -> Single:
        x, y = self.robots.pose.x.item(), self.robots.pose.y.item()
        if not self.still[0] or _distance(x, y, self.vase[0].tolist()) < NEAR:
            return super().step_one(action)
        self.streams.due[0] += 1
        self.simulated[0] = False
        self.age[0] += self.age[0] != TOUCHED
        x, y, *_ = self.robots.glide_alone(action)
        goal, *hazards = (_distance(x, y, xy) for xy in self.objects[0, :-1].tolist())
        met = goal <= GOAL_RADIUS
        reward = self.last_distance.item() - goal + GOAL_REWARD * met
        cost = 1.0 if min(hazards) < HAZARD_RADIUS else 0.0
        self.last_distance[0] = goal
        terminated = met and not self.draw_goal(0)
        return Single(reward, cost, terminated, {"cost_hazards": cost, "cost_sum": cost, "goal_met": met})

    def _advance(self, rows: Ints) -> None:
        """Simulate only the worlds in which the robot may touch the vase or the vase is moving."""
        near = distances(self.robots.pose, self.objects[:, -1:])[:, 0] < NEAR
        self.simulated[rows] = (near | ~self.still)[rows]
        gliding = rows[~self.simulated[rows]]
        self.robots.glide(gliding)
        self.age[gliding] += self.age[gliding] != TOUCHED
        if len(gliding) < len(rows):
            self.crew.run(self._simulate, rows[self.simulated[rows]])
        self.robots.refresh()

    def _simulate(self, rows: Sequence[int]) -> None:
        for row in rows:
            data = self.simulators.data[row]
            data.qpos[:3], data.qvel[:3], data.ctrl[:] = (
                self.robots.q[row],
                self.robots.velocity[row],
                self.robots.ctrl[row],
            )
            if self.age[row] != TOUCHED:
                data.qpos[5], data.qvel[5] = self.fall[min(self.age[row], len(self.fall) - 1)]
                self.age[row] = TOUCHED
            mujoco.mj_step(self.simulators.models[row], data, SUBSTEPS)
            self.simulators.forward(row)
            self._take(row)

    def _take(self, row: int) -> None:
        """Copy the state of a world from its simulator."""
        qpos, qvel = self.simulators.qpos[row], self.simulators.qvel[row]
        self.robots.q[row], self.robots.velocity[row] = qpos[:3], qvel[:3]
        self.vase[row] = qpos[3:5]
        self.still[row] = np.abs(qvel[3:]).max() < REST

    def things(self, row: int) -> list[Thing]:
        hazards = [Thing("hazard", (x, y, 0.0)) for x, y in self.hazards[row]]
        x, y, z, *quaternion = self.simulators.data[row].qpos[3:].tolist()
        vase = Thing("vase", (x, y, z), (quaternion[0], quaternion[1], quaternion[2], quaternion[3]))
        return [Thing("goal", (*self.goal_xy[row], 0.0)), *hazards, vase, self.robots.thing(row)]

    def column_names(self) -> list[str]:
        return lidar_columns(*LIDARS)

    def current_positions(self) -> Doubles:
        return self.robots.positions()

    def markers(self, row: int) -> list[Marker]:
        return [Disc("hazard", x, y, HAZARD_RADIUS, costs=True) for x, y in self.hazards[row].tolist()]

    def observe(self) -> Doubles:
        sensed = np.where(self.simulated[:, None], self.simulators.sensed, self.robots.sensed)
        return np.concatenate([sensed, self.lidar(self.robots.pose, self.objects)], axis=1)
