import numpy as np
import pytest

from safemil.report.observations import BUTTON, CIRCLE, GOAL, circle_positions, column_names, nearest
from safemil.tasks import catalog


def moved(task, steps=40):
    """Eight worlds after some steps of random driving, and what they see."""
    worlds = catalog.task(task).make(8, 1)
    rng = np.random.default_rng(0)
    for row in range(8):
        worlds.seed(row, row)
        worlds.reset(row)
    for _ in range(steps):
        worlds.step(rng.uniform(-1, 1, (8, 2)), np.arange(8))
    return worlds, worlds.observe()


def test_the_circle_is_all_it_takes_to_know_the_place():
    worlds, seen = moved(CIRCLE)
    pose = worlds.robots.pose
    np.testing.assert_allclose(circle_positions(seen), np.stack([pose.x, pose.y], 1), atol=1e-9)


@pytest.mark.parametrize(("task", "kind"), [(GOAL, "goal"), (GOAL, "vase"), (BUTTON, "goal")])
def test_a_lidar_that_sees_one_thing_says_exactly_where_it_is(task, kind):
    worlds, seen = moved(task)
    things = {"goal": worlds.goal_xy, "vase": getattr(worlds, "vase", None)}[kind]
    np.testing.assert_allclose(in_the_world(worlds.robots.pose, nearest(task, seen, kind)), things, atol=1e-9)


def test_of_several_hazards_the_nearest_is_found_to_within_a_bin():
    worlds, seen = moved(GOAL)
    found = in_the_world(worlds.robots.pose, nearest(GOAL, seen, "hazard"))
    offsets = worlds.hazards - np.stack([worlds.robots.pose.x, worlds.robots.pose.y], 1)[:, None]
    distances = np.linalg.norm(offsets, axis=2)
    closest = worlds.hazards[np.arange(8), distances.argmin(axis=1)]
    off = np.linalg.norm(found - closest, axis=1)
    assert (off <= distances.min(axis=1) * 2 * np.pi / 16).all()


def test_nothing_in_reach_is_nowhere():
    assert np.isnan(nearest(GOAL, np.zeros((1, 60)), "hazard")).all()


def test_columns_have_names_where_the_task_is_known_and_numbers_elsewhere():
    assert column_names(GOAL, 60, 2)[12] == "goal lidar at 0°"
    assert column_names(None, 2, 1) == ["observation 0", "observation 1", "action 0"]
    assert column_names(GOAL, 2, 1)[0] == "observation 0"  # some other data that are called so


def in_the_world(pose, ahead_and_left):
    ahead, left = ahead_and_left.T
    return np.stack(
        [pose.x + pose.cos * ahead - pose.sin * left, pose.y + pose.sin * ahead + pose.cos * left], axis=1
    )
