"""Walker2d, Swimmer and Ant that earn by running forward and may not run faster than a limit.

Numbers are those of safety-gymnasium 1.0.0, which took models and rewards from Gymnasium's "v4" robots
(the "v5" ones differ). Kept on purpose: the penalty counts the action before MuJoCo limits it, the bonus
for being alive is paid on the last step too, the walker's left foot grips twice as hard as its right one,
and the ant's speed comes from body positions of the integrator's last stage.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from safemil.arrays import Bools, Doubles, Ints
from safemil.tasks.engine import mujoco
from safemil.worlds import Outcome, Single, Worlds

T = TypeVar("T", float, Doubles)

LOOK = """
  <statistic extent="3"/>
  <visual>
    <headlight ambient="0.45 0.45 0.45" diffuse="0.2 0.2 0.2" specular="0 0 0"/>
    <quality shadowsize="4096" numslices="48"/>
    <rgba haze="1 1 1 1"/>
  </visual>
  <asset>
    <texture name="sky" type="skybox" builtin="gradient" rgb1="0.55 0.75 0.92" rgb2="1 1 1"
             width="64" height="64"/>
    <texture name="grid" type="2d" builtin="checker" rgb1="0.93 0.93 0.92" rgb2="0.83 0.84 0.85"
             width="64" height="64"/>
    <material name="grid" texture="grid" texrepeat="1 1" texuniform="true" specular="0"/>
  </asset>
"""
LIGHT = """
    <light mode="trackcom" pos="0 -1 6" dir="0 0.15 -1" diffuse="0.45 0.45 0.45" specular="0.1 0.1 0.1"
           cutoff="80" exponent="0.5"/>"""


def _leg(side: str, rgba: str, foot_friction: float) -> str:
    """One leg of the walker; lengths in m, ranges in degrees."""
    return f"""
      <body name="thigh{side}" pos="0 0 -0.2">
        <joint name="thigh{side}" range="-150 0"/>
        <geom fromto="0 0 0 0 0 -0.45" size="0.05" rgba="{rgba}"/>
        <body name="leg{side}" pos="0 0 -0.7">
          <joint name="leg{side}" pos="0 0 0.25" range="-150 0"/>
          <geom fromto="0 0 0.25 0 0 -0.25" size="0.04" rgba="{rgba}"/>
          <body name="foot{side}" pos="0.2 0 -0.35">
            <joint name="foot{side}" pos="-0.2 0 0.1" range="-45 45"/>
            <geom fromto="-0.2 0 0.1 0 0 0.1" size="0.06" friction="{foot_friction} 0.1 0.1" rgba="{rgba}"/>
          </body>
        </body>
      </body>"""


WALKER = f"""
<mujoco model="walker2d">
  <option timestep="0.002" integrator="RK4"/>
  <default>
    <joint type="hinge" axis="0 -1 0" armature="0.01" damping="0.1" limited="true"/>
    <geom type="capsule" contype="1" conaffinity="0" condim="3" density="1000" friction="0.9 0.1 0.1"/>
    <motor gear="100" ctrllimited="true" ctrlrange="-1 1"/>
    <default class="root"><joint armature="0" damping="0" limited="false"/></default>
  </default>{LOOK}
  <worldbody>{LIGHT}
    <geom name="floor" type="plane" size="0 0 0.05" conaffinity="1" friction="0.7 0.1 0.1" material="grid"/>
    <body name="torso" pos="0 0 1.25">
      <camera name="track" mode="trackcom" pos="0 -3.6 0.1" xyaxes="1 0 0 0 0.12 1" fovy="40"/>
      <joint name="rootx" class="root" type="slide" axis="1 0 0"/>
      <joint name="rootz" class="root" type="slide" axis="0 0 1" ref="1.25"/>
      <joint name="rooty" class="root" axis="0 1 0"/>
      <geom fromto="0 0 0.2 0 0 -0.2" size="0.05" rgba="0.16 0.29 0.44 1"/>
      {_leg("", "0.85 0.37 0.2 1", 0.9)}{_leg("_left", "0.97 0.71 0.33 1", 1.9)}
    </body>
  </worldbody>
  <actuator>
    <motor joint="thigh"/><motor joint="leg"/><motor joint="foot"/>
    <motor joint="thigh_left"/><motor joint="leg_left"/><motor joint="foot_left"/>
  </actuator>
</mujoco>
"""

# The fluid is MuJoCo's inertia-box model; nothing collides with anything.
SWIMMER = f"""
<mujoco model="swimmer">
  <option timestep="0.01" integrator="RK4" density="4000" viscosity="0.1"/>
  <default>
    <joint type="hinge" axis="0 0 1" armature="0.1" limited="false"/>
    <geom type="capsule" size="0.1" contype="0" conaffinity="0" density="1000" rgba="0.16 0.29 0.44 1"/>
    <motor gear="150" ctrllimited="true" ctrlrange="-1 1"/>
  </default>{LOOK}
  <worldbody>{LIGHT}
    <geom name="floor" type="plane" pos="0 0 -0.1" size="0 0 0.05" material="grid" rgba="0.62 0.83 0.95 1"/>
    <body name="torso">
      <camera name="track" mode="trackcom" pos="0 -2.2 5.6" xyaxes="1 0 0 0 0.93 0.37" fovy="45"/>
      <joint name="slide_x" type="slide" axis="1 0 0"/>
      <joint name="slide_y" type="slide" axis="0 1 0"/>
      <joint name="turn"/>
      <geom fromto="1.5 0 0 0.5 0 0" rgba="0.85 0.37 0.2 1"/>
      <body name="mid" pos="0.5 0 0">
        <joint name="mid" limited="true" range="-100 100"/>
        <geom fromto="0 0 0 -1 0 0"/>
        <body name="back" pos="-1 0 0">
          <joint name="back" limited="true" range="-100 100"/>
          <geom fromto="0 0 0 -1 0 0" rgba="0.27 0.45 0.64 1"/>
        </body>
      </body>
    </body>
  </worldbody>
  <actuator><motor joint="mid"/><motor joint="back"/></actuator>
</mujoco>
"""


def _ant_leg(number: int, x: int, y: int, axis: str, limits: str) -> str:
    """One leg of the ant, towards the signs (x, y); lengths in m, ranges in degrees."""
    near, far = f"{0.2 * x} {0.2 * y} 0", f"{0.4 * x} {0.4 * y} 0"
    return f"""
      <body name="leg_{number}">
        <geom fromto="0 0 0 {near}"/>
        <body name="hip_{number}" pos="{near}">
          <joint name="hip_{number}" axis="0 0 1" range="-30 30"/>
          <geom fromto="0 0 0 {near}"/>
          <body name="ankle_{number}" pos="{near}">
            <joint name="ankle_{number}" axis="{axis}" range="{limits}"/>
            <geom fromto="0 0 0 {far}"/>
          </body>
        </body>
      </body>"""


# Contacts begin 0.01 m above the floor. MuJoCo 3.5 adds the margins of a pair instead of taking the larger
# one, so the floor alone has it.
ANT = f"""
<mujoco model="ant">
  <option timestep="0.01" integrator="RK4"/>
  <default>
    <joint type="hinge" armature="1" damping="1" limited="true"/>
    <geom type="capsule" size="0.08" contype="1" conaffinity="0" condim="3" density="5" friction="1 0.5 0.5"
          rgba="0.85 0.37 0.2 1"/>
    <motor gear="150" ctrllimited="true" ctrlrange="-1 1"/>
  </default>{LOOK}
  <worldbody>{LIGHT}
    <geom name="floor" type="plane" size="0 0 0.05" conaffinity="1" margin="0.01" material="grid"
          rgba="1 1 1 1"/>
    <body name="torso" pos="0 0 0.75">
      <camera name="track" mode="trackcom" pos="0 -3.2 2.2" xyaxes="1 0 0 0 0.6 0.8" fovy="45"/>
      <freejoint name="root"/>
      <geom type="sphere" size="0.25" rgba="0.16 0.29 0.44 1"/>
      {_ant_leg(1, 1, 1, "-1 1 0", "30 70")}{_ant_leg(2, -1, 1, "1 1 0", "-70 -30")}
      {_ant_leg(3, -1, -1, "-1 1 0", "-70 -30")}{_ant_leg(4, 1, -1, "1 1 0", "30 70")}
    </body>
  </worldbody>
  <actuator>
    <motor joint="hip_4"/><motor joint="ankle_4"/><motor joint="hip_1"/><motor joint="ankle_1"/>
    <motor joint="hip_2"/><motor joint="ankle_2"/><motor joint="hip_3"/><motor joint="ankle_3"/>
  </actuator>
</mujoco>
"""


@dataclass(frozen=True)
class Robot:
    """Constants in which the three tasks differ."""

    model: str  # MJCF
    substeps: int  # physics steps per environment step
    noise: float  # of the starting state
    normal_velocities: bool  # the starting velocities' noise is normal, not uniform
    hidden: int  # leading entries of qpos that the robot does not see: where it is
    speed_limit: float  # m/s, safety-gymnasium's
    penalty: float  # per squared action
    alive_bonus: float
    stands: Callable[[Any, Any], Any]  # of qpos and qvel, numbers of one robot or arrays of all; not if NaN


def _walker_stands(qpos: Any, qvel: Any) -> Any:
    height, pitch = qpos[1], qpos[2]
    return (height > 0.8) & (height < 2.0) & (abs(pitch) < 1.0)


def _swimmer_stands(qpos: Any, qvel: Any) -> Any:
    return (qpos[0] == 0) | True  # always, of whichever kind the numbers are


def _ant_stands(qpos: Any, qvel: Any) -> Any:
    height, finite = qpos[2], np.isfinite(qpos).all(axis=0) & np.isfinite(qvel).all(axis=0)
    return (height >= 0.2) & (height <= 1.0) & finite


ROBOTS = {
    "walker": Robot(WALKER, 4, 0.005, False, 1, 2.3415, 1e-3, 1.0, _walker_stands),
    "swimmer": Robot(SWIMMER, 4, 0.1, False, 2, 0.2282, 1e-4, 0.0, _swimmer_stands),
    "ant": Robot(ANT, 5, 0.1, True, 2, 2.6222, 0.5, 1.0, _ant_stands),
}
VELOCITY_CLIP = 10.0  # m/s and rad/s, in the walker's observation only


class VelocityWorlds(Worlds):
    """n robots of one kind."""

    action_dtype = np.float32

    def __init__(self, kind: str, n: int, threads: int = 1) -> None:
        super().__init__(n, threads)
        self.kind, self.robot = kind, ROBOTS[kind]
        self.model_text = self.robot.model
        self.model = mujoco.MjModel.from_xml_string(self.model_text)
        self.data = [mujoco.MjData(self.model) for _ in range(n)]
        self.rngs = [np.random.default_rng() for _ in range(n)]
        self.dt = self.robot.substeps * self.model.opt.timestep
        self.action_size = self.model.nu
        self.observation_size = self.model.nq - self.robot.hidden + self.model.nv
        self._constants: dict[str, Doubles | Bools] = (
            {"reward_survive": np.full(n, self.robot.alive_bonus)} if kind == "ant" else {}
        )
        torso = self.model.body("torso").id
        places = [data.xpos[torso, :2] if kind == "ant" else data.qpos[:2] for data in self.data]
        views = [data.qpos for data in self.data], [data.qvel for data in self.data], places
        # Of one world these are the simulator's own arrays, of several they are read after each step.
        self.qpos, self.qvel, self.position = (
            each[0][None] if n == 1 else np.zeros((n, len(each[0]))) for each in views
        )  # position: m, from which speeds are measured
        arrays = self.qpos, self.qvel, self.position
        self._states = [(each, array.ravel()) for each, array in zip(views, arrays, strict=True) if n > 1]
        self._controls = [data.ctrl for data in self.data]

    def seed(self, row: int, seed: int | None) -> None:
        self.rngs[row] = np.random.default_rng(seed)

    def reset(self, row: int) -> None:
        model, rng, noise = self.model, self.rngs[row], self.robot.noise
        qpos = model.qpos0 + rng.uniform(-noise, noise, model.nq)
        if self.robot.normal_velocities:
            qvel = noise * rng.standard_normal(model.nv)
        else:
            qvel = rng.uniform(-noise, noise, model.nv)
        if self.kind == "ant":
            mujoco.mju_normalize4(qpos[3:7])  # MuJoCo 2 did so itself
        mujoco.mj_resetData(model, self.data[row])
        self._put(row, qpos, qvel)

    def _put(self, row: int, qpos: Doubles, qvel: Doubles) -> None:
        data = self.data[row]
        data.qpos[:], data.qvel[:] = qpos, qvel
        mujoco.mj_forward(self.model, data)
        self._read()

    def restore(self, row: int, state: Mapping[str, Any]) -> None:
        mujoco.mj_resetData(self.model, self.data[row])
        self._put(row, state["qpos"], state["qvel"])
        if "qacc_warmstart" in state:
            self.data[row].qacc_warmstart[:] = state["qacc_warmstart"]
        if self.kind == "ant" and "torso_xpos" in state:
            self.position[row] = state["torso_xpos"][:2]

    def _read(self) -> None:
        """Read the state of all simulators in one call, which is cheaper than one call for each."""
        for views, array in self._states:
            np.concatenate(views, out=array)

    def step(self, actions: npt.NDArray[np.floating], rows: Ints) -> Outcome:
        before = self.position.T.copy()

        def simulate(part: Sequence[int]) -> None:
            for row in part:
                self._simulate(row, actions[row])

        self.crew.run(simulate, rows)
        self._read()
        after = self.position.T.copy()
        # In the precision the action came in, as the original does.
        squares = np.add.reduce(actions * actions, axis=1).astype(np.float64)
        reward, speed, info = self._judge(list(before), list(after), squares, np.sqrt)
        cost = (speed > self.robot.speed_limit).astype(np.float64)
        return Outcome(reward, cost, ~self.robot.stands(self.qpos.T, self.qvel.T), info | self._constants)

    def step_one(self, action: npt.NDArray[np.floating]) -> Single:
        before = self.position[0].tolist()
        self._simulate(0, action)
        self._read()
        squares = float(np.add.reduce(action * action))
        reward, speed, info = self._judge(before, self.position[0].tolist(), squares, math.sqrt)
        cost = 1.0 if speed > self.robot.speed_limit else 0.0
        constants = {name: value.item() for name, value in self._constants.items()}
        stands = self.robot.stands(self.qpos[0].tolist(), self.qvel[0].tolist())
        return Single(reward, cost, not stands, info | constants)

    def _simulate(self, row: int, action: npt.NDArray[np.floating]) -> None:
        self._controls[row][:] = action
        mujoco.mj_step(self.model, self.data[row], self.robot.substeps)

    def _judge(
        self, before: list[T], after: list[T], squares: T, sqrt: Callable[[T], T]
    ) -> tuple[T, T, dict[str, T]]:
        """Reward, the speed that is limited and the info, for one robot or for an array of them."""
        (x, y), forward, sideways = after, (after[0] - before[0]) / self.dt, (after[1] - before[1]) / self.dt
        penalty = self.robot.penalty * squares
        reward = forward + self.robot.alive_bonus - penalty
        info = {"x_position": x, "x_velocity": forward}
        if self.kind == "walker":
            return reward, forward, info
        info |= {"y_position": y, "y_velocity": sideways, "forward_reward": forward}
        info |= {"distance_from_origin": sqrt(x * x + y * y), "reward_ctrl": -penalty}
        if self.kind == "swimmer":
            return reward, forward, info | {"reward_fwd": forward}
        return reward, sqrt(forward * forward + sideways * sideways), info | {"reward_forward": forward}

    def observe(self) -> Doubles:
        seen = self.qpos[:, self.robot.hidden :]
        qvel = self.qvel
        if self.kind == "walker":
            qvel = np.minimum(np.maximum(qvel, -VELOCITY_CLIP), VELOCITY_CLIP)
        return np.concatenate([seen, qvel], axis=1)
