"""What the tasks say about themselves: names of columns, places, markers and the nearest things."""

import numpy as np
import pytest

from safemil import catalog, rollouts
from safemil.tasks import TASKS
from safemil.tasks.button import LIDARS as BUTTON_LIDARS
from safemil.tasks.goal import LIDARS as GOAL_LIDARS
from safemil.tasks.point import nearest

CIRCLE, GOAL, BUTTON = "SafetyPointCircle2-v0", "SafetyPointGoal1-v0", "SafetyPointButton1-v0"
REACH = 3.0  # m, in both tasks with several lidars


def moved(task, steps=40):
    """Eight worlds after some steps of random driving, and what they see."""
    worlds = rollouts.begin(catalog.task(task), range(8), 1)
    rng = np.random.default_rng(0)
    for _ in range(steps):
        worlds.step(rng.uniform(-1, 1, (8, 2)), np.arange(8))
    return worlds, worlds.observe()


def test_the_circle_is_all_it_takes_to_know_the_place():
    worlds, seen = moved(CIRCLE)
    np.testing.assert_allclose(worlds.positions(seen), worlds.current_positions(), atol=1e-9)


@pytest.mark.parametrize(
    ("task", "lidars", "kind"),
    [(GOAL, GOAL_LIDARS, "goal"), (GOAL, GOAL_LIDARS, "vase"), (BUTTON, BUTTON_LIDARS, "goal")],
)
def test_a_lidar_that_sees_one_thing_says_exactly_where_it_is(task, lidars, kind):
    worlds, seen = moved(task)
    things = {"goal": worlds.goal_xy, "vase": getattr(worlds, "vase", None)}[kind]
    found = nearest(seen, lidars.index(kind), REACH)
    np.testing.assert_allclose(in_the_world(worlds.robots.pose, found), things, atol=1e-9)


def test_of_several_hazards_the_nearest_is_found_to_within_a_bin():
    worlds, seen = moved(GOAL)
    (hazard,) = worlds.nearby
    found = in_the_world(worlds.robots.pose, hazard.offsets(seen))
    distances = np.linalg.norm(worlds.hazards - worlds.current_positions()[:, None], axis=2)
    closest = worlds.hazards[np.arange(8), distances.argmin(axis=1)]
    off = np.linalg.norm(found - closest, axis=1)
    assert (off <= distances.min(axis=1) * 2 * np.pi / 16).all()


def test_nothing_in_reach_is_nowhere():
    assert np.isnan(nearest(np.zeros((1, 60)), 1, REACH)).all()


@pytest.mark.parametrize("name", catalog.BUILT_IN)
def test_every_column_has_a_name(name):
    worlds = catalog.task(name).make(1, 1)
    names = worlds.column_names()
    assert len(names) == len(set(names)) == worlds.observation_size + worlds.action_size


def test_columns_of_the_point_tasks_are_named_after_sensors_and_lidars():
    assert catalog.task(GOAL).make(1, 1).column_names()[12] == "goal lidar at 0°"
    assert catalog.task("SafetySwimmerVelocity-v1").make(1, 1).column_names()[0] == "observation 0"


@pytest.mark.parametrize(
    ("name", "kinds"),
    [
        (CIRCLE, ["ring"]),
        (GOAL, 8 * ["hazard"]),
        (BUTTON, 4 * ["hazard"] + 4 * ["button"] + 4 * ["gremlin"]),
        ("toy:disc", 6 * ["station"] + ["disc"]),
        ("toy:moment", 6 * ["station"] + ["infield", "outer edge"]),
        ("SafetyAntVelocity-v1", []),
    ],
)
def test_markers_say_what_stands_where_and_what_costs(name, kinds):
    worlds = rollouts.begin(catalog.task(name), [3], 1)
    discs = [each for each in worlds.markers(0) if hasattr(each, "radius")]
    assert [each.kind for each in discs] == kinds
    assert {each.kind for each in discs if each.costs} == set(kinds) & {"hazard", "disc", "infield"}
    assert len(worlds.markers(0)) - len(discs) == (4 if name == CIRCLE else 0)


@pytest.mark.parametrize("name", catalog.BUILT_IN)
def test_a_step_inside_a_disc_that_costs_does_cost(name):
    task = catalog.task(name)
    rng = np.random.default_rng(1)
    worlds = rollouts.begin(task, range(4), 1)
    if worlds.current_positions() is None:
        assert name in TASKS
        return

    def act(observations, step):
        return rng.uniform(-1, 1, (4, 2)) * 0.5 + np.array([0.5, 0.0])

    costly = [[each for each in worlds.markers(row) if getattr(each, "costs", False)] for row in range(4)]
    for step in rollouts.steps(worlds, act, 150):
        for row, (x, y) in enumerate(worlds.current_positions()):
            if any(np.hypot(x - each.x, y - each.y) < each.radius for each in costly[row]):
                assert step.outcome.cost[row] == 1


def in_the_world(pose, ahead_and_left):
    ahead, left = ahead_and_left.T
    return np.stack(
        [pose.x + pose.cos * ahead - pose.sin * left, pose.y + pose.sin * ahead + pose.cos * left], axis=1
    )
