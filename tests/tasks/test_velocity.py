import numpy as np
import pytest

from safemil.tasks.engine import mujoco
from safemil.tasks.velocity import ROBOTS, VelocityWorlds

ROW = np.arange(1)
MASSES = {  # kg, TASKS of safety-gymnasium 1.0.0
    "walker": [0, 3.66519, 4.05789, 2.78136, 3.16673, 4.05789, 2.78136, 3.16673],
    "swimmer": [0, 35.6047, 35.6047, 35.6047],
    "ant": [0, 0.327249, *(4 * [0.0391578, 0.0391578, 0.0675922])],
}


def world(kind, seed=0):
    worlds = VelocityWorlds(kind, 1)
    worlds.seed(0, seed)
    worlds.reset(0)
    return worlds


@pytest.mark.parametrize("kind", ROBOTS)
def test_models_weigh_what_the_originals_weigh(kind):
    np.testing.assert_allclose(world(kind).model.body_mass, MASSES[kind], rtol=1e-5)


def test_the_walkers_left_foot_grips_harder():
    model = world("walker").model
    friction = {
        model.body(b).name: model.geom_friction[model.body_geomadr[b], 0] for b in range(1, model.nbody)
    }
    assert friction.pop("foot_left") == 1.9
    assert set(friction.values()) == {0.9}


def test_the_ants_motors_start_with_the_fourth_leg():
    model = world("ant").model
    driven = [mujoco.mj_id2name(model, mujoco.mjtObj.mjOBJ_JOINT, j) for j, _ in model.actuator_trnid]
    assert driven == [f"{joint}_{leg}" for leg in (4, 1, 2, 3) for joint in ("hip", "ankle")]


def run_at(worlds, speed):
    """Step a robot whose velocity along x was set."""
    data = worlds.data[0]
    state = {"qpos": data.qpos.copy(), "qvel": np.zeros(worlds.model.nv)}
    state["qvel"][0] = speed
    worlds.restore(0, state)
    return worlds.step(np.zeros((1, worlds.action_size)), ROW)


@pytest.mark.parametrize(
    ("kind", "speed", "cost"),
    [
        ("walker", 3.5, 1),
        ("walker", 1.5, 0),
        ("walker", -3.5, 0),
        ("swimmer", -2, 0),
        ("ant", 4, 1),
        ("ant", -4, 1),
    ],
)
def test_speed_costs_forward_and_for_the_ant_in_any_direction(kind, speed, cost):
    assert run_at(world(kind), speed).cost[0] == cost


def test_the_penalty_counts_the_action_as_it_came():
    wild, tame = world("ant"), world("ant")
    difference = tame.step(np.ones((1, 8)), ROW).reward - wild.step(np.full((1, 8), 2.0), ROW).reward
    assert difference[0] == pytest.approx(0.5 * 8 * (4 - 1))


def test_single_precision_actions_are_squared_in_single_precision():
    action = np.random.default_rng(0).uniform(-1, 1, (1, 6)).astype(np.float32)
    found = world("walker").step(action, ROW)
    expected = world("walker").step(action.astype(np.float64), ROW)
    expected_penalty = 1e-3 * float((action[0] * action[0]).sum())
    double_penalty = 1e-3 * float(np.square(action.astype(np.float64)).sum())
    assert found.reward[0] - expected.reward[0] == pytest.approx(double_penalty - expected_penalty, abs=1e-15)


def test_being_alive_pays_on_the_last_step_too():
    worlds = world("walker")
    qpos = worlds.qpos[0].copy()
    qpos[2] = 1.5  # rad, lying
    worlds.restore(0, {"qpos": qpos, "qvel": np.zeros(9)})
    outcome = worlds.step(np.zeros((1, 6)), ROW)
    assert outcome.terminated[0]
    assert outcome.reward[0] == pytest.approx(outcome.info["x_velocity"][0] + 1)


@pytest.mark.parametrize(
    ("height", "pitch", "fell"), [(0.8, 0, True), (0.81, 0, False), (2, 0, True), (1, -1, True)]
)
def test_the_walkers_bounds_are_strict(height, pitch, fell):
    qpos, qvel = [0.0, height, pitch, *6 * [0.0]], 9 * [0.0]
    assert ROBOTS["walker"].stands(qpos, qvel) != fell
    assert ROBOTS["walker"].stands(np.array([qpos]).T, np.array([qvel]).T) != fell


@pytest.mark.parametrize(
    ("height", "fell"), [(0.2, False), (1.0, False), (0.199, True), (1.01, True), (np.nan, True)]
)
def test_the_ants_bounds_are_not(height, fell):
    qpos, qvel = [0.0, 0.0, height, *12 * [0.0]], 14 * [0.0]
    assert ROBOTS["ant"].stands(qpos, qvel) != fell
    assert ROBOTS["ant"].stands(np.array([qpos]).T, np.array([qvel]).T) != fell


def test_an_ant_that_is_nowhere_has_fallen():
    assert not ROBOTS["ant"].stands([0.0, 0.0, 0.5, *12 * [0.0]], [*13 * [0.0], np.inf])


def test_the_walker_sees_clipped_velocities():
    worlds = world("walker")
    worlds.restore(0, {"qpos": worlds.qpos[0].copy(), "qvel": np.linspace(-20, 20, 9)})
    np.testing.assert_allclose(worlds.observe()[0, 8:], np.clip(np.linspace(-20, 20, 9), -10, 10))
    np.testing.assert_allclose(worlds.qvel[0], np.linspace(-20, 20, 9))


def test_the_ants_speed_is_that_of_the_integrators_last_stage():
    worlds = world("ant", seed=2)
    for _ in range(3):
        outcome = worlds.step(np.ones((1, 8)), ROW)
    assert outcome.info["x_position"][0] == worlds.data[0].xpos[1, 0]
    assert outcome.info["x_position"][0] != worlds.qpos[0, 0]


def test_the_ant_starts_with_a_unit_quaternion():
    assert np.linalg.norm(world("ant").observe()[0, 1:5]) == pytest.approx(1, abs=1e-15)
