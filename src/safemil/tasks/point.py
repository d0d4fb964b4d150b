"""The world of the three point tasks: its robot, what it senses, and where things are put.

A ball with an arrow slides over a plane, driven by a forward force and a turning servo. Lengths are in m.
Numbers are those of safety-gymnasium 1.0.0. Kept on purpose: the forces saturate at a twentieth of the
action's range, the slides act in the frame the robot started in, and every step uses up one random number.
"""

import copy
import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

from safemil.arrays import Doubles, Ints
from safemil.errors import InputError
from safemil.tasks.engine import mujoco
from safemil.worlds import Nearby

T = TypeVar("T", float, Doubles)

TIMESTEP = 0.002  # s
SUBSTEPS = 10  # physics steps per environment step
DT = SUBSTEPS * TIMESTEP  # s
HEIGHT = 0.1  # m, of the robot's centre and of its radius
SENSED = ("accelerometer", "velocimeter", "gyro", "magnetometer")
SENSORS = 3 * len(SENSED)  # columns
ROBOT_GEOMS = ("agent", "pointarrow")

BALL_MASS = 4 / 3 * math.pi * HEIGHT**3  # kg, density 1
ARROW_MASS = 0.001  # kg, a cube with half sizes of 0.05
MASS = BALL_MASS + ARROW_MASS
MOMENT = 0.1 * ARROW_MASS  # kg m, the arrow sits 0.1 ahead of the centre
INERTIA = 0.4 * BALL_MASS * 0.01 + ARROW_MASS * 0.02 / 12 + ARROW_MASS * 0.01  # kg m^2 about the centre
SLIDE_DAMPING = 0.01  # N s/m
TURN_DAMPING = 0.005  # N m s/rad
GEAR = 0.3  # of both actuators
FORCE_LIMIT = 0.05  # before the gear
GRAVITY = 9.81  # m/s^2, which the accelerometer feels
MAGNETIC_FIELD = 0.5  # towards -y


def model_xml(bodies: str = "", rest: str = "") -> str:
    """The MJCF of plane and robot, with what a task adds to it."""
    return f"""
<mujoco>
  <option timestep="{TIMESTEP}"/>
  <default><geom condim="6" density="1" friction="1 0.005 0.0001"/></default>
  <worldbody>
    <geom name="floor" type="plane" size="3.5 3.5 0.1"/>
    <body name="agent" pos="0 0 {HEIGHT}">
      <joint name="x" type="slide" axis="1 0 0" damping="{SLIDE_DAMPING}"/>
      <joint name="y" type="slide" axis="0 1 0" damping="{SLIDE_DAMPING}"/>
      <joint name="z" type="hinge" axis="0 0 1" damping="{TURN_DAMPING}"/>
      <geom name="agent" type="sphere" size="{HEIGHT}" friction="1 0.01 0.01"/>
      <geom name="pointarrow" type="box" pos="0.1 0 0" size="0.05 0.05 0.05"/>
      <site name="agent"/>
    </body>{bodies}
  </worldbody>
  <actuator>
    <motor site="agent" gear="{GEAR} 0 0 0 0 0" ctrllimited="true" ctrlrange="-1 1"
           forcelimited="true" forcerange="-{FORCE_LIMIT} {FORCE_LIMIT}"/>
    <velocity joint="z" gear="{GEAR}" kv="1" ctrllimited="true" ctrlrange="-1 1"
              forcelimited="true" forcerange="-{FORCE_LIMIT} {FORCE_LIMIT}"/>
  </actuator>
  <sensor>
    <accelerometer site="agent"/><velocimeter site="agent"/><gyro site="agent"/><magnetometer site="agent"/>
  </sensor>{rest}
</mujoco>"""


def turned(rotation: float) -> tuple[float, float, float, float]:
    """The quaternion of a rotation about z.

    Normalised as MuJoCo 2's compiler did: its last bit decides whether a box that stands on the floor
    is held back by it.
    """
    w, z = math.cos(rotation / 2), math.sin(rotation / 2)
    norm = math.sqrt(w * w + z * z)
    return w / norm, 0.0, 0.0, z / norm


class Thing(NamedTuple):
    """Something to be drawn."""

    kind: str
    position: tuple[float, float, float]
    quaternion: tuple[float, float, float, float] = (1.0, 0.0, 0.0, 0.0)


class Pose(NamedTuple):
    """Places and headings of the robots, one entry each."""

    x: Doubles
    y: Doubles
    cos: Doubles  # of the heading
    sin: Doubles


class Robots:
    """n robots: displacement and turn since the start, in the frame of the start.

    `pose` and `sensed` (n, 12) belong to the last `refresh`; the second is right where nothing is touched.
    """

    def __init__(self, n: int) -> None:
        self.n = n
        self.start, self.rotation = np.zeros((n, 2)), np.zeros(n)  # m, rad
        self.frame = np.zeros((n, 2))  # cosine and sine of the rotation
        self.q, self.velocity, self.ctrl = np.zeros((n, 3)), np.zeros((n, 3)), np.zeros((n, 2))
        self.refresh()

    def place(self, row: int, xy: Doubles, rotation: float) -> None:
        """Put a robot down, at rest."""
        self.start[row], self.rotation[row] = xy, rotation
        self.frame[row] = np.cos(rotation), np.sin(rotation)
        self.q[row], self.velocity[row], self.ctrl[row] = 0.0, 0.0, 0.0

    def act(self, actions: npt.NDArray[np.floating], rows: Ints) -> None:
        self.ctrl[rows] = np.minimum(np.maximum(actions[rows], -1.0), 1.0)

    def glide(self, rows: Ints) -> None:
        """One environment step of robots that touch nothing, in closed form."""
        if len(rows) == 1:
            row = int(rows[0])
            q, velocity, ctrl = (state[row].tolist() for state in (self.q, self.velocity, self.ctrl))
            self.q[row], self.velocity[row] = _glide(q, velocity, ctrl, _sin, _cos, _limit)
        elif len(rows):
            q, velocity, ctrl = (list(state[rows].T.copy()) for state in (self.q, self.velocity, self.ctrl))
            moved = _glide(q, velocity, ctrl, np.sin, np.cos, _limit_all)
            self.q[rows], self.velocity[rows] = np.stack(moved[0], axis=1), np.stack(moved[1], axis=1)

    def glide_alone(self, action: npt.NDArray[np.floating]) -> tuple[float, float, float, float]:
        """Same as `act`, `glide` and `refresh` for a single robot, but faster; return its pose as floats."""
        ctrl = [min(max(value, -1.0), 1.0) for value in action.tolist()]
        q, velocity = _glide(self.q[0].tolist(), self.velocity[0].tolist(), ctrl, _sin, _cos, _limit)
        self.q[0], self.velocity[0], self.ctrl[0] = q, velocity, ctrl
        start, frame = self.start[0].tolist(), self.frame[0].tolist()
        pose, sensed = _sense(start, frame, q, velocity, ctrl, _sin, _cos, _limit)
        self.pose, self.sensed = Pose(*np.array(pose)[:, None]), np.array([sensed])
        return pose

    def positions(self) -> Doubles:
        """Positions, (n, 2)."""
        return np.stack([self.pose.x, self.pose.y], axis=1)

    def thing(self, row: int) -> Thing:
        """A robot as something to be drawn."""
        turn = self.rotation[row] + self.q[row, 2]
        return Thing("robot", (self.pose.x[row], self.pose.y[row], HEIGHT), turned(turn))

    def refresh(self) -> None:
        """Recompute pose and sensor readings."""
        states = (self.start, self.frame, self.q, self.velocity, self.ctrl)
        if self.n == 1:
            start, frame, q, velocity, ctrl = (state[0].tolist() for state in states)
            pose, sensed = _sense(start, frame, q, velocity, ctrl, _sin, _cos, _limit)
            self.pose, self.sensed = Pose(*np.array(pose)[:, None]), np.array([sensed])
        else:
            start, frame, q, velocity, ctrl = (list(state.T.copy()) for state in states)
            places, senses = _sense(start, frame, q, velocity, ctrl, np.sin, np.cos, _limit_all)
            self.pose, self.sensed = Pose(*places), np.stack(np.broadcast_arrays(*senses), axis=1)


def _sin(x: float) -> float:
    return float(np.sin(x))  # not math.sin: its last bit may differ from the batch's


def _cos(x: float) -> float:
    return float(np.cos(x))


def _limit(x: float) -> float:
    return -FORCE_LIMIT if x < -FORCE_LIMIT else FORCE_LIMIT if x > FORCE_LIMIT else x


def _limit_all(x: Doubles) -> Doubles:
    return np.minimum(np.maximum(x, -FORCE_LIMIT), FORCE_LIMIT)


class Body(NamedTuple):
    """Inertia of the robot: mass, inertia about the centre of mass, and how drag couples into turning."""

    mass: float
    inertia: float
    drag: float


def _body(damping_time: float) -> Body:
    """Inertia with implicit damping over a time t: M + t D in place of M; t = 0 is the plain robot."""
    mass = MASS + damping_time * SLIDE_DAMPING
    inertia = INERTIA + damping_time * TURN_DAMPING - MOMENT * MOMENT / mass
    return Body(mass, inertia, SLIDE_DAMPING * MOMENT / mass)


BODY, DAMPED_BODY = _body(0.0), _body(TIMESTEP)


def _glide(
    q: Sequence[T],
    velocity: Sequence[T],
    ctrl: Sequence[T],
    sin: Callable[[T], T],
    cos: Callable[[T], T],
    limit: Callable[[T], T],
) -> tuple[tuple[T, T, T], tuple[T, T, T]]:
    """Semi-implicit Euler with implicit damping, as MuJoCo does it, on floats or on arrays."""
    (x, y, turn), (u, v, spin), (forward, servo) = q, velocity, ctrl
    force = GEAR * limit(forward)
    for _ in range(SUBSTEPS):
        torque = GEAR * limit(servo - GEAR * spin)
        ax, ay, turning = _acceleration(DAMPED_BODY, cos(turn), sin(turn), u, v, spin, force, torque)
        u, v, spin = u + TIMESTEP * ax, v + TIMESTEP * ay, spin + TIMESTEP * turning
        x, y, turn = x + TIMESTEP * u, y + TIMESTEP * v, turn + TIMESTEP * spin
    return (x, y, turn), (u, v, spin)


def _acceleration(body: Body, cos: T, sin: T, u: T, v: T, spin: T, force: T, torque: T) -> tuple[T, T, T]:
    """Solve M a = f for acceleration and turning, in the starting frame.

    M = [[m, 0, -b sin], [0, m, b cos], [-b sin, b cos, J]], f = (g cos - d u, g sin - d v, torque - D spin)
    with g = force + b spin^2. The turning comes first, since g drops out of its equation.
    """
    mass, inertia, drag = body
    along = force + MOMENT * spin * spin
    turning = (torque - TURN_DAMPING * spin + drag * (cos * v - sin * u)) / inertia
    swing = MOMENT * turning
    ax = (along * cos - SLIDE_DAMPING * u + swing * sin) / mass
    ay = (along * sin - SLIDE_DAMPING * v - swing * cos) / mass
    return ax, ay, turning


def _sense(
    start: Sequence[T],
    frame: Sequence[T],
    q: Sequence[T],
    velocity: Sequence[T],
    ctrl: Sequence[T],
    sin: Callable[[T], T],
    cos: Callable[[T], T],
    limit: Callable[[T], T],
) -> tuple[tuple[T, T, T, T], tuple[T | float, ...]]:
    """Pose, and accelerometer, velocimeter, gyro and magnetometer in the robot's own frame."""
    (x, y, turn), (u, v, spin), (forward, servo), (frame_cos, frame_sin) = q, velocity, ctrl, frame
    c, s = cos(turn), sin(turn)
    force, torque = GEAR * limit(forward), GEAR * limit(servo - GEAR * spin)
    ax, ay, _ = _acceleration(BODY, c, s, u, v, spin, force, torque)
    heading_cos, heading_sin = frame_cos * c - frame_sin * s, frame_sin * c + frame_cos * s
    world_x, world_y = start[0] + frame_cos * x - frame_sin * y, start[1] + frame_sin * x + frame_cos * y
    ahead, left, fast, sideways = c * ax + s * ay, c * ay - s * ax, c * u + s * v, c * v - s * u
    field_x, field_y = -MAGNETIC_FIELD * heading_sin, -MAGNETIC_FIELD * heading_cos
    sensed = (ahead, left, GRAVITY, fast, sideways, 0.0, 0.0, 0.0, spin, field_x, field_y, 0.0)
    return (world_x, world_y, heading_cos, heading_sin), sensed


BINS = 16
BIN_WIDTH = 2 * math.pi / BINS  # rad
BESIDE = np.array([[(k + shift) % BINS for k in range(BINS + 1)] for shift in (0, 1, -1)])


class Lidar:
    """Nearness of objects of each kind by direction: 16 bins per kind, counter-clockwise from ahead.

    Each object shows in the bin of its direction, and weaker in the two beside it, the more the closer its
    direction is to them.
    """

    def __init__(self, n: int, kinds: Sequence[int], reach: float) -> None:
        self.reach = reach  # m
        self._shape = n, (max(kinds) + 1) * BINS
        self._kind_bins = [kind * BINS for kind in kinds]
        self._first_bins = np.array(self._kind_bins) + np.arange(n)[:, None] * self._shape[1]
        self._strength = np.empty((3, n, len(kinds)))

    def __call__(self, pose: Pose, objects: Doubles) -> Doubles:
        """Readings (n, 16 per kind) of objects (n, K, 2)."""
        return self._look(pose, objects) if len(objects) > 1 else self._look_alone(pose, objects)

    def _look_alone(self, pose: Pose, objects: Doubles) -> Doubles:
        """Same as `_look` for a single robot, but faster, on floats."""
        x, y, cos, sin = (value.item() for value in pose)
        near, lefts, aheads = [], [], []
        for object_x, object_y in objects[0].tolist():
            dx, dy = object_x - x, object_y - y
            ahead, left = cos * dx + sin * dy, cos * dy - sin * dx
            near.append(max(0.0, 1.0 - math.sqrt(ahead * ahead + left * left) / self.reach))
            lefts.append(left)
            aheads.append(ahead)
        seen = [0.0] * self._shape[1]
        angles = (np.arctan2(lefts, aheads) % (2 * math.pi) / BIN_WIDTH).tolist()
        for first, strength, angle in zip(self._kind_bins, near, angles, strict=True):
            whole = int(angle)
            after = (angle - whole) * strength
            for shift, value in ((0, strength), (1, after), (-1, strength - after)):
                place = first + (whole + shift) % BINS
                if value > seen[place]:
                    seen[place] = value
        return np.array([seen])

    def _look(self, pose: Pose, objects: Doubles) -> Doubles:
        dx, dy = objects[:, :, 0] - pose.x[:, None], objects[:, :, 1] - pose.y[:, None]
        cos, sin = pose.cos[:, None], pose.sin[:, None]
        ahead, left = cos * dx + sin * dy, cos * dy - sin * dx
        near, after, before = self._strength
        np.maximum(0.0, 1.0 - np.sqrt(ahead * ahead + left * left) / self.reach, out=near)
        angle = np.arctan2(left, ahead) % (2 * math.pi) / BIN_WIDTH
        whole = angle.astype(np.int64)
        np.multiply(angle - whole, near, out=after)
        np.subtract(near, after, out=before)
        seen = np.zeros(self._shape)
        bins = BESIDE[:, whole] + self._first_bins
        np.maximum.at(seen.ravel(), bins.ravel(), self._strength.ravel())
        return seen


def lidar_columns(*lidars: str) -> list[str]:
    """Names of the columns of a task whose lidars see these kinds of things."""
    sensed = [f"{name} {axis}" for name in SENSED for axis in "xyz"]
    seen = [f"{kind} lidar at {360 * i / BINS:g}°" for kind in lidars for i in range(BINS)]
    return [*sensed, *seen, "forward force", "turning speed"]


def nearby(lidars: Sequence[str], kind: str, reach: float, radius: float, inside: str) -> Nearby:
    """Nearest thing of a kind, as the lidars show it."""
    return Nearby(kind, radius, inside, partial(nearest, lidar=lidars.index(kind), reach=reach))


def nearest(observations: npt.ArrayLike, lidar: int, reach: float) -> Doubles:
    """Distance in m ahead and to the left of the nearest thing that a lidar shows, (steps, 2).

    The strongest bin gives the distance and its neighbours the direction; NaN where nothing is within reach.
    """
    first = SENSORS + BINS * lidar
    seen = np.asarray(observations, np.float64)[:, first : first + BINS]
    rows, whole = np.arange(len(seen)), seen.argmax(axis=1)
    near = seen[rows, whole]
    after = _share_of_next_bin(near, seen[rows, (whole + 1) % BINS], seen[rows, whole - 1])
    angle, distance = (whole + after) * BIN_WIDTH, (1 - near) * reach
    found = np.stack([distance * np.cos(angle), distance * np.sin(angle)], axis=1)
    return np.where(near[:, None] > 0, found, np.nan)


def _share_of_next_bin(near: Doubles, after: Doubles, before: Doubles) -> Doubles:
    """Position of the nearest thing between its bin and the next, 0 to 1.

    Another thing beside it can only strengthen a bin, so each neighbour bounds the share.
    """
    strength = np.maximum(near, 1e-12)
    low, high = 1 - np.minimum(before / strength, 1), np.minimum(after / strength, 1)
    return (low + high) / 2


def distances(pose: Pose, objects: Doubles) -> Doubles:
    """Distances (n, K) from each robot to its objects (n, K, 2)."""
    dx, dy = objects[:, :, 0] - pose.x[:, None], objects[:, :, 1] - pose.y[:, None]
    return np.sqrt(dx * dx + dy * dy)


class Simulators:
    """One MuJoCo model and its data per world; the models differ in where things stand."""

    def __init__(self, xml: str, n: int) -> None:
        template = mujoco.MjModel.from_xml_string(xml)
        self.models = [copy.copy(template) for _ in range(n)]
        self.data = [mujoco.MjData(model) for model in self.models]
        self.agent = template.body("agent").id
        self.qpos, self.qvel = np.zeros((n, template.nq)), np.zeros((n, template.nv))
        self.sensed = np.zeros((n, SENSORS))
        self._views = [(d.qpos, d.qvel, d.sensordata) for d in self.data]

    def place(self, row: int, xy: Doubles, rotation: float) -> None:
        """Reset the simulation, with the robot's starting frame at this place."""
        model, data = self.models[row], self.data[row]
        model.body_pos[self.agent, :2] = xy
        model.body_quat[self.agent] = turned(rotation)
        mujoco.mj_resetData(model, data)

    def forward(self, row: int) -> None:
        """Recompute what depends on the state, and read it."""
        mujoco.mj_forward(self.models[row], self.data[row])
        self.qpos[row], self.qvel[row], self.sensed[row] = self._views[row]

    def restore(self, row: int, state: Mapping[str, Any]) -> None:
        """Put a world into a recorded state."""
        data = self.data[row]
        data.qpos[:], data.qvel[:], data.time = state["qpos"], state["qvel"], float(state["time"])
        self.forward(row)
        if "qacc_warmstart" in state:
            data.qacc_warmstart[:] = state["qacc_warmstart"]


class Streams:
    """The random streams of n worlds; a step's one number is drawn only when another draw follows."""

    def __init__(self, n: int) -> None:
        self.rngs = [np.random.RandomState() for _ in range(n)]
        self.due = np.zeros(n, np.int64)

    def seed(self, row: int, seed: int | None) -> None:
        if seed is not None and not 0 <= seed < 2**32:
            raise InputError(f"need a seed from 0 to 2^32 - 1 for the point tasks, got {seed}.")
        self.rngs[row], self.due[row] = np.random.RandomState(seed), 0

    def ready(self, row: int) -> np.random.RandomState:
        """Return the stream of a world after the draws that are due."""
        self.rngs[row].random_sample(int(self.due[row]))
        self.due[row] = 0
        return self.rngs[row]
