import math

import numpy as np
import pytest

from safemil.tasks.engine import mujoco
from safemil.tasks.point import Lidar, Pose, Robots, model_xml, turned


def simulate(xy, rotation, actions):
    """(steps, 15): velocities and sensors by MuJoCo."""
    model = mujoco.MjModel.from_xml_string(model_xml())
    model.body_pos[1, :2], model.body_quat[1] = xy, turned(rotation)
    data, rows = mujoco.MjData(model), []
    for action in actions:
        data.ctrl[:] = action
        mujoco.mj_step(model, data, 10)
        mujoco.mj_forward(model, data)
        rows.append([*data.qpos, *data.sensordata])
    return np.array(rows)


@pytest.mark.parametrize("n", [1, 3])
def test_the_closed_form_is_what_mujoco_computes(n):
    # Turning at full speed keeps the servo saturated; elsewhere it multiplies rounding errors.
    actions = np.array([[1.0, 1.0], [0.03, 1.0], [-1.0, 1.0], [0.5, 1.0]])
    robots, rows = Robots(n), np.arange(n)
    robots.place(n - 1, np.array([0.3, -0.2]), 1.1)
    for action, expected in zip(actions, simulate((0.3, -0.2), 1.1, actions), strict=True):
        robots.act(np.tile(action, (n, 1)), rows)
        robots.glide(rows)
        robots.refresh()
        found = np.concatenate([robots.q[n - 1], robots.sensed[n - 1]])
        np.testing.assert_allclose(found, expected, atol=1e-10)


def test_one_robot_moves_exactly_as_in_a_batch():
    rng = np.random.default_rng(0)
    batch, lone = Robots(7), Robots(1)
    for row in range(7):
        batch.place(row, rng.uniform(-1, 1, 2), rng.uniform(0, 6))
    lone.place(0, batch.start[4], batch.rotation[4])
    for _ in range(200):
        actions = rng.uniform(-1, 1, (7, 2))
        batch.act(actions, np.arange(7)), lone.act(actions[4:5], np.arange(1))
        batch.glide(np.arange(7)), lone.glide(np.arange(1))
        batch.refresh(), lone.refresh()
        np.testing.assert_array_equal(batch.q[4], lone.q[0])
        np.testing.assert_array_equal(batch.sensed[4], lone.sensed[0])
        np.testing.assert_array_equal(np.array(batch.pose)[:, 4], np.array(lone.pose)[:, 0])


def test_any_throttle_from_a_twentieth_on_is_full():
    robots = Robots(2)
    robots.act(np.array([[0.05, 0.0], [1.0, 0.0]]), np.arange(2))
    robots.glide(np.arange(2))
    np.testing.assert_array_equal(robots.q[0], robots.q[1])
    assert robots.q[0, 0] > 0


def test_terminal_speed_is_one_and_a_half_metres_per_second():
    robots = Robots(1)
    robots.act(np.array([[1.0, 0.0]]), np.arange(1))
    for _ in range(400):
        robots.glide(np.arange(1))
    assert robots.velocity[0, 0] == pytest.approx(0.3 * 0.05 / 0.01, rel=1e-6)


def pose(x=0.0, y=0.0, heading=0.0):
    return Pose(*(np.array([v]) for v in (x, y, math.cos(heading), math.sin(heading))))


def test_lidar_shows_an_object_in_its_bin_and_weaker_beside():
    # 1.5 m away of 3 is a strength of 1/2; 30 degrees are a third into the second bin of 22.5.
    angle = math.radians(30)
    seen = Lidar(1, [0], 3.0)(pose(), 1.5 * np.array([[[math.cos(angle), math.sin(angle)]]]))[0]
    expected = np.zeros(16)
    expected[[1, 2, 0]] = 0.5, 0.5 * 1 / 3, 0.5 * 2 / 3
    np.testing.assert_allclose(seen, expected, atol=1e-12)


def test_lidar_turns_with_the_robot_and_ends_at_its_reach():
    seen = Lidar(1, [0, 1], 3.0)(pose(1.0, 1.0, math.pi / 2), np.array([[[1.0, 2.5], [4.5, 1.0]]]))[0]
    assert seen[0] == pytest.approx(0.5)  # straight ahead
    assert (seen[16:] == 0).all()  # 3.5 m away


def test_lidar_keeps_the_nearest_in_each_bin():
    seen = Lidar(1, [0, 0], 3.0)(pose(), np.array([[[2.0, 0.1], [1.0, 0.1]]]))[0]
    assert seen[0] == pytest.approx(1 - math.hypot(1.0, 0.1) / 3)


def test_lidar_wraps_around_behind_the_first_bin():
    # Just right of ahead: the last bin, and the first beside it.
    seen = Lidar(1, [0], 3.0)(pose(), np.array([[[1.5, -1e-9]]]))[0]
    assert seen[15] == pytest.approx(0.5)
    assert seen[0] == pytest.approx(0.5)
    np.testing.assert_allclose(Lidar(1, [0], 3.0)(pose(), np.array([[[1.5, -1e-18]]]))[0].max(), 0.5)
