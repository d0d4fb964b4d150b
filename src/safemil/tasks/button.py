"""SafetyPointButton1: press the one of four buttons that is lit, keeping clear of the others, of hazards
and of gremlins, boxes that circle their places.

Numbers are those of safety-gymnasium 1.0.0. Kept on purpose: a place for a goal is laid out and never used,
the next button may be the same one, wrong buttons are free and unseen for ten steps after a right one, and
gremlins leap 0.35 m at the start of an episode, hover, and cost only when touched.
"""

import functools
from collections.abc import Mapping, Sequence
from math import cos, sin
from typing import Any

import numpy as np
import numpy.typing as npt

from safemil.arrays import Doubles, Ints
from safemil.tasks.engine import mujoco
from safemil.tasks.layout import Layout, slots
from safemil.tasks.point import (
    DT,
    ROBOT_GEOMS,
    SENSORS,
    SUBSTEPS,
    TIMESTEP,
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
from safemil.worlds import Disc, Marker, Outcome, Worlds

BUTTONS = HAZARDS = GREMLINS = 4
EXTENT = 1.5  # m, half the side of the square in which everything starts
KEEPOUTS = [
    (1, 0.4),
    (BUTTONS, 0.2),
    (1, 0.4),
    (HAZARDS, 0.18),
    (GREMLINS, 0.4),
]  # m; robot first, goal third
LAYOUT = Layout(slots(EXTENT, KEEPOUTS), crowd=GREMLINS)
GOAL_REWARD = 1.0
HAZARD_RADIUS = 0.2  # m
BUTTON_RADIUS = 0.1  # m
BUTTON_PAUSE = 10  # steps for which wrong buttons are free after a right one
REACH = 3.0  # m, of the lidar
GREMLIN_TRAVEL = 0.35  # m, radius of their circles; their angular speed is 1 rad/s
GREMLIN_HEIGHT = 0.1  # m, of the centre, standing on the floor
LIDARS = ("button", "goal", "hazard", "gremlin")
KINDS = BUTTONS * [0] + [1] + HAZARDS * [2] + GREMLINS * [3]  # the lidar that sees each object
NEARBY = (
    nearby(LIDARS, "hazard", REACH, HAZARD_RADIUS, "a step costs"),
    nearby(LIDARS, "gremlin", REACH, 0.2, "robot and gremlin touch"),
)
NEAR = 0.45  # m, farther centres never touch

# Until MuJoCo 2.3 the rotational part of a weld was scaled by the translational inertia. For a box of this
# size and mass the square root of their ratio restores that.
TORQUE_SCALE = np.sqrt(150)

STATE = mujoco.mjtState.mjSTATE_FULLPHYSICS.value
INPUTS = mujoco.mjtState.mjSTATE_CTRL.value | mujoco.mjtState.mjSTATE_MOCAP_POS.value


def _model() -> str:
    button = """
    <body name="button{0}" pos="{0} 0 0.1"><geom name="button{0}" type="sphere" size="0.1"/></body>"""
    gremlin = """
    <body name="gremlin{0}"><freejoint/>
      <geom name="gremlin{0}" type="box" size="0.1 0.1 0.1" density="0.001"/></body>"""
    weld = '<weld body1="carousel" body2="gremlin{0}" solref="0.02 1.5" torquescale="' + f'{TORQUE_SCALE}"/>'
    bodies = "".join(button.format(i) for i in range(BUTTONS)) + "".join(
        gremlin.format(i) for i in range(GREMLINS)
    )
    welds = "".join(weld.format(i) for i in range(GREMLINS))
    return model_xml(bodies + '<body name="carousel" mocap="true"/>', f"<equality>{welds}</equality>")


@functools.lru_cache(maxsize=4096)
def _carousel(time: float) -> Doubles:
    """Positions (SUBSTEPS, 3) of the mocap body that carries the gremlins, from `time` on."""
    places = np.full((SUBSTEPS, 3), GREMLIN_HEIGHT)
    for place in places:
        place[:2] = GREMLIN_TRAVEL * sin(time), GREMLIN_TRAVEL * cos(time)
        time += TIMESTEP
    return places


class ButtonWorlds(Worlds):
    observation_size = SENSORS + 4 * 16
    action_size = 2
    dt = DT
    nearby = NEARBY

    def __init__(self, n: int, threads: int = 1) -> None:
        super().__init__(n, threads)
        self.streams, self.robots, self.simulators = Streams(n), Robots(n), Simulators(_model(), n)
        self.objects = np.zeros((n, len(KINDS), 2))  # buttons, the lit one again, hazards, gremlins
        self.buttons, self.goal_xy = self.objects[:, :4], self.objects[:, 4]
        self.hazards, self.gremlins = self.objects[:, 5:9], self.objects[:, 9:]
        self.goal_button, self.button_timer = np.zeros(n, np.int64), np.zeros(n, np.int64)
        self.lidar = Lidar(n, KINDS, REACH)
        self.last_distance = np.zeros(n)  # m, to the goal button, before the step
        self.touched = np.zeros((n, BUTTONS + GREMLINS), np.int64)  # contacts of the robot with each
        model = self.simulators.models[0]
        self._physics = mujoco.rollout.Rollout(nthread=0)  # on the calling thread
        self._states = np.zeros((n, 1, mujoco.mj_stateSize(model, STATE)))
        self._inputs = np.zeros((n, 1, SUBSTEPS, mujoco.mj_stateSize(model, INPUTS)))
        self._robot = [model.geom(name).id for name in ROBOT_GEOMS]
        names = [f"button{i}" for i in range(BUTTONS)] + [f"gremlin{i}" for i in range(GREMLINS)]
        self._button_bodies = [model.body(name).id for name in names[:BUTTONS]]
        self._touchable, self._geoms = [model.geom(name).id for name in names], model.ngeom

    def seed(self, row: int, seed: int | None) -> None:
        self.streams.seed(row, seed)

    def reset(self, row: int) -> None:
        rng = self.streams.ready(row)
        places = LAYOUT.sample(rng)
        rotations = rng.uniform(0, 2 * np.pi, LAYOUT.size)
        self.place(row, places[0], rotations[0], places[1:5], places[6:10], places[10:], rotations[10:])
        self.set_goal(row, int(rng.choice(BUTTONS)), 0)

    def place(
        self,
        row: int,
        robot: Doubles,
        rotation: float,
        buttons: Doubles,
        hazards: Doubles,
        gremlins: Doubles,
        gremlin_rotations: Doubles,
    ) -> None:
        """Lay out a world, at rest."""
        self.robots.place(row, robot, rotation)
        self.simulators.place(row, robot, rotation)
        model, data = self.simulators.models[row], self.simulators.data[row]
        poses = [(*xy, GREMLIN_HEIGHT, *turned(r)) for xy, r in zip(gremlins, gremlin_rotations, strict=True)]
        data.qpos[3:] = np.ravel(poses)
        model.eq_data[:, 3:10] = poses  # held so by the carousel, which starts at the origin
        model.body_pos[self._button_bodies, :2] = buttons
        self.buttons[row], self.hazards[row] = buttons, hazards
        self.simulators.forward(row)
        self._take(row)
        self.robots.refresh()

    def restore(self, row: int, state: Mapping[str, Any]) -> None:
        robot, rotation = state["reset_agent_xy"], float(state["reset_agent_rot"])
        gremlins, gremlin_rotations = state["reset_gremlins_xy"], state["reset_gremlins_rot"]
        buttons, hazards = state["reset_buttons_xy"], state["reset_hazards_xy"]
        self.place(row, robot, rotation, buttons, hazards, gremlins, gremlin_rotations)
        self.simulators.data[row].mocap_pos[0] = state["mocap_pos"][0]
        self.simulators.restore(row, state)
        self._take(row)
        self.robots.refresh()
        self.restore_goal(row, state)

    def restore_goal(self, row: int, state: Mapping[str, Any]) -> None:
        self.set_goal(row, int(state["goal_button"]), int(state["button_timer"]))

    def places(self, row: int) -> dict[str, Any]:
        robot = {"agent_xy": self.robots.start[row], "agent_rot": self.robots.rotation[row]}
        things = {
            "buttons_xy": self.buttons[row],
            "hazards_xy": self.hazards[row],
            "gremlins_xy": self.gremlins[row],
        }
        return {**robot, **things, "goal_xy": self.goal_xy[row], "goal_button": self.goal_button[row]}

    def _take(self, row: int) -> None:
        """Copy the state of a world from its simulator."""
        qpos, qvel = self.simulators.qpos[row], self.simulators.qvel[row]
        self.robots.q[row], self.robots.velocity[row] = qpos[:3], qvel[:3]
        self.gremlins[row] = qpos[3:].reshape(GREMLINS, 7)[:, :2]

    def set_goal(self, row: int, button: int, timer: int) -> None:
        self.goal_button[row], self.button_timer[row] = button, timer
        self.goal_xy[row] = self.buttons[row, button]
        self.last_distance[row] = distances(self.robots.pose, self.objects[:, 4:5])[row, 0]

    def step(self, actions: npt.NDArray[np.floating], rows: Ints) -> Outcome:
        self.robots.act(actions, rows)
        self.streams.due[rows] += 1
        self.crew.run(self._simulate, rows)
        self.robots.refresh()
        distance = distances(self.robots.pose, self.objects)
        self._touch(rows, distance)
        met = self.touched[np.arange(self.n), self.goal_button] > 0
        reward = self.last_distance - distance[:, 4] + GOAL_REWARD * met
        costs = self._costs(distance)
        self.last_distance[rows] = distance[rows, 4]
        self.button_timer[rows] = np.maximum(self.button_timer[rows] - 1, 0)
        for row in rows[met[rows]].tolist():
            self.set_goal(row, int(self.streams.ready(row).choice(BUTTONS)), BUTTON_PAUSE)
        return Outcome(reward, costs["cost_sum"], np.zeros(self.n, bool), {**costs, "goal_met": met})

    def _simulate(self, rows: Sequence[int]) -> None:
        """Simulate each world in one call, which releases the interpreter's lock."""
        for row in rows:
            model, data = self.simulators.models[row], self.simulators.data[row]
            state, inputs = self._states[row], self._inputs[row]
            mujoco.mj_getState(model, data, state[0], STATE)
            inputs[0, :, :2], inputs[0, :, 2:] = self.robots.ctrl[row], _carousel(data.time)
            self._physics.rollout(
                [model],
                [data],
                state,
                inputs,
                control_spec=INPUTS,
                initial_warmstart=data.qacc_warmstart[None],
                nstep=SUBSTEPS,
                skip_checks=True,
            )
            self.simulators.forward(row)
            self._take(row)

    def _touch(self, rows: Ints, distance: Doubles) -> None:
        """Count the contacts between the robot and each button and gremlin."""
        near = np.minimum(distance[:, :4], distance[:, 9:]).min(axis=1) < NEAR
        self.touched[rows] = 0
        for row in rows[near[rows]].tolist():
            geoms = self.simulators.data[row].contact.geom  # (contacts, 2)
            other = geoms[:, ::-1][(geoms == self._robot[0]) | (geoms == self._robot[1])]
            self.touched[row] = np.bincount(other, minlength=self._geoms)[self._touchable]

    def _costs(self, distance: Doubles) -> dict[str, Doubles]:
        wrong = self.touched[:, :BUTTONS].copy()
        wrong[np.arange(self.n), self.goal_button] = 0
        paused = self.button_timer > 0
        pressed = (wrong.max(axis=1) > 0) & ~paused
        caught = self.touched[:, BUTTONS:].max(axis=1) > 0
        burnt = distance[:, 5:9].min(axis=1) < HAZARD_RADIUS
        return {
            "cost_buttons": np.where(paused, np.nan, pressed),
            "cost_gremlins": caught.astype(np.float64),
            "cost_hazards": burnt.astype(np.float64),
            "cost_sum": (pressed | caught | burnt).astype(np.float64),
        }

    def things(self, row: int) -> list[Thing]:
        lit = self.goal_button[row]
        buttons = [
            Thing("lit button" if index == lit else "button", (x, y, 0.1))
            for index, (x, y) in enumerate(self.buttons[row])
        ]
        hazards = [Thing("hazard", (x, y, 0.0)) for x, y in self.hazards[row]]
        poses = self.simulators.qpos[row, 3:].reshape(GREMLINS, 7).tolist()
        gremlins = [Thing("gremlin", (x, y, z), (a, b, c, d)) for x, y, z, a, b, c, d in poses]
        return [*hazards, *buttons, *gremlins, self.robots.thing(row)]

    def column_names(self) -> list[str]:
        return lidar_columns(*LIDARS)

    def current_positions(self) -> Doubles:
        return self.robots.positions()

    def markers(self, row: int) -> list[Marker]:
        kinds = (
            ("hazard", self.hazards, HAZARD_RADIUS),
            ("button", self.buttons, BUTTON_RADIUS),
            ("gremlin", self.gremlins, GREMLIN_TRAVEL),  # the circle it moves on
        )
        return [
            Disc(kind, x, y, radius, costs=kind == "hazard")
            for kind, places, radius in kinds
            for x, y in places[row].tolist()
        ]

    def observe(self) -> Doubles:
        seen = self.lidar(self.robots.pose, self.objects)
        seen[self.button_timer > 0, :16] = 0.0
        return np.concatenate([self.simulators.sensed, seen], axis=1)
