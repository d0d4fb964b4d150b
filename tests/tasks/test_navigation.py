"""The quirks of the point tasks that an exact copy must keep."""

import numpy as np
import pytest

from safemil.tasks.button import ButtonWorlds
from safemil.tasks.circle import CircleWorlds
from safemil.tasks.goal import GoalWorlds

ROW = np.arange(1)
STAND = np.zeros((1, 2))


def world(kind, seed=0):
    worlds = kind(1)
    worlds.seed(0, seed)
    worlds.reset(0)
    return worlds


def put_robot(worlds, xy):
    """Move the robot, at rest, to a place."""
    worlds.robots.place(0, np.array(xy), 0.0)
    worlds.robots.refresh()
    if hasattr(worlds, "simulators"):
        simulators = worlds.simulators
        simulators.models[0].body_pos[simulators.agent, :2] = xy
        simulators.data[0].qpos[:3], simulators.data[0].qvel[:3] = 0, 0
        simulators.models[0].body_quat[simulators.agent] = 1, 0, 0, 0


@pytest.mark.parametrize(("speed", "reward"), [(1.0, 0.1 / 1.5), (-1.0, -0.1 / 1.5)])
def test_circling_counter_clockwise_pays(speed, reward):
    # Below the origin, half a metre off the circle, moving along x: the step is too short to matter.
    worlds = world(CircleWorlds)
    put_robot(worlds, (0.0, -1.0))
    worlds.robots.velocity[0] = speed, 0.0, 0.0
    assert worlds.step(STAND, ROW).reward[0] == pytest.approx(reward, rel=0.05)


@pytest.mark.parametrize(("xy", "cost"), [((1.125, 0), 0), ((1.126, 0), 1), ((0, -1.2), 1), ((0, 0.5), 0)])
def test_beyond_a_wall_costs(xy, cost):
    worlds = world(CircleWorlds)
    put_robot(worlds, xy)
    assert worlds.step(STAND, ROW).cost[0] == worlds.step_one(STAND[0]).cost == cost


def test_a_hazard_costs_from_less_than_its_radius_on():
    worlds = world(GoalWorlds)
    worlds.hazards[0] = 9.0
    for distance, cost in ((0.2, 0), (0.19999, 1)):
        worlds.hazards[0, 3] = distance, 0.0
        put_robot(worlds, (0.0, 0.0))
        worlds.vase[0] = 5.0
        outcome = worlds.step(STAND, ROW)
        assert outcome.cost[0] == outcome.info["cost_hazards"][0] == cost


def test_a_met_goal_pays_one_and_is_drawn_anew_at_once():
    worlds = world(GoalWorlds)
    before = worlds.goal_xy[0].copy()
    put_robot(worlds, before + np.array([0.1, 0.0]))
    worlds.set_goal(0, before)
    outcome = worlds.step(STAND, ROW)
    assert outcome.info["goal_met"][0]
    assert outcome.reward[0] == pytest.approx(1.0)
    assert not np.array_equal(worlds.goal_xy[0], before)
    assert worlds.last_distance[0] >= 0.705  # both keepouts
    assert not worlds.step(STAND, ROW).info["goal_met"][0]


def test_every_step_uses_up_one_random_number():
    worlds, rng = world(GoalWorlds, seed=3), np.random.RandomState(3)
    from safemil.tasks.goal import LAYOUT

    LAYOUT.sample(rng)
    rng.random_sample(11)  # rotations
    while not np.array_equal(rng.uniform(-1.195, 1.195, 2), worlds.goal_xy[0]):
        pass
    for _ in range(5):
        worlds.step(STAND, ROW)
    rng.random_sample(5)
    assert worlds.streams.ready(0).random_sample() == rng.random_sample()


def test_a_vase_left_alone_is_where_mujoco_has_it():
    gliding, simulated = world(GoalWorlds), world(GoalWorlds)
    for _ in range(20):
        simulated.still[0] = False
        gliding.step(STAND, ROW), simulated.step(STAND, ROW)
    assert not gliding.simulated[0]
    assert simulated.simulated[0]
    gliding._simulate([0]), simulated._simulate([0])
    expected = simulated.simulators.qpos[0, 3:], simulated.simulators.qvel[0, 3:]
    np.testing.assert_allclose(gliding.simulators.qpos[0, 3:], expected[0], atol=1e-15)
    np.testing.assert_allclose(gliding.simulators.qvel[0, 3:], expected[1], atol=1e-13)


def test_a_pushed_vase_moves_and_comes_to_rest():
    worlds = world(GoalWorlds)
    start = worlds.vase[0].copy()
    put_robot(worlds, start - (0.3, 0.0))
    worlds.goal_xy[0] = 9.0
    for _ in range(60):
        cost = worlds.step(np.array([[1.0, 0.0]]), ROW).info
    assert worlds.vase[0, 0] > start[0] + 0.05
    assert "cost_vases" not in cost
    put_robot(worlds, start - (1.0, 0.0))
    for _ in range(150):
        worlds.step(STAND, ROW)
    assert worlds.still[0]
    assert not worlds.simulated[0]


def test_gremlins_leap_and_hover_and_circle_in_phase():
    worlds = world(ButtonWorlds)
    start = worlds.gremlins[0].copy()
    put_robot(worlds, (5.0, 5.0))
    for _ in range(100):
        worlds.step(STAND, ROW)
    moved = worlds.gremlins[0] - start
    np.testing.assert_allclose(moved, np.tile(moved[0], (4, 1)), atol=1e-3)
    time = 2.0  # s
    np.testing.assert_allclose(moved[0], 0.35 * np.array([np.sin(time), np.cos(time)]), atol=0.04)
    np.testing.assert_allclose(worlds.simulators.qpos[0, [5, 12, 19, 26]], 0.2, atol=0.01)


def press(worlds, button):
    """Step with the robot standing in a button, gremlins and hazards far away."""
    worlds.hazards[0] = 9.0
    put_robot(worlds, worlds.buttons[0, button] - (0.15, 0.0))
    return worlds.step(STAND, ROW)


def test_wrong_buttons_cost_except_for_ten_steps_after_a_right_one():
    worlds = world(ButtonWorlds)
    goal = int(worlds.goal_button[0])
    assert worlds.button_timer[0] == 0
    wrong = press(worlds, (goal + 1) % 4)
    assert wrong.info["cost_buttons"][0] == 1
    met = press(worlds, goal)
    assert met.info["goal_met"][0]
    assert met.reward[0] > 0.9
    assert worlds.button_timer[0] == 10
    assert (worlds.observe()[0, 12:28] == 0).all()
    for _ in range(10):
        wrong = press(worlds, (int(worlds.goal_button[0]) + 1) % 4)
        assert np.isnan(wrong.info["cost_buttons"][0])
    assert (worlds.observe()[0, 12:28] > 0).any()
    assert press(worlds, (int(worlds.goal_button[0]) + 1) % 4).info["cost_buttons"][0] == 1


def test_touching_a_gremlin_costs_and_being_near_does_not():
    worlds = world(ButtonWorlds)
    worlds.hazards[0] = 9.0
    for _ in range(60):
        put_robot(worlds, (5.0, 5.0))
        worlds.step(STAND, ROW)
    put_robot(worlds, worlds.gremlins[0, 0] + (0.35, 0.35))
    assert worlds.step(STAND, ROW).info["cost_gremlins"][0] == 0
    put_robot(worlds, worlds.gremlins[0, 0] + (0.12, 0.0))
    outcome = worlds.step(STAND, ROW)
    assert outcome.info["cost_gremlins"][0] == outcome.cost[0] == 1
