"""The loop that steps worlds: what it counts and what it records."""

import numpy as np
import pytest

from safemil import catalog, rollouts
from safemil.errors import InputError

WALKER, GOAL = "SafetyWalker2dVelocity-v1", "SafetyPointGoal1-v0"


def limp(observations, step):
    return np.zeros((len(observations), 6))


def test_what_is_counted_is_what_is_recorded():
    counted = rollouts.roll_out(catalog.task(WALKER), limp, [0, 1, 2])
    recorded = rollouts.record(catalog.task(WALKER), limp, [0, 1, 2])
    np.testing.assert_array_equal(counted.lengths, recorded.lengths)
    np.testing.assert_allclose(counted.returns, recorded.rewards.sum(axis=1), rtol=1e-4)
    np.testing.assert_array_equal(counted.costs, recorded.costs.sum(axis=1))
    assert recorded.terminated.all()
    held, truth = recorded.trajectories(), recorded.annotations()
    assert held.lengths.tolist() == counted.lengths.tolist()
    assert len(truth) == held.steps == counted.lengths.sum()


def test_a_recorded_action_is_the_one_that_was_done():
    third = 1 / 3  # which single precision rounds
    task = catalog.task("toy:disc")
    recorded = rollouts.record(task, lambda seen, step: np.full((1, 2), third), [0])
    again = rollouts.record(task, lambda seen, step: recorded.actions[:, step], [0])
    np.testing.assert_array_equal(again.observations, recorded.observations)
    assert recorded.actions[0, 0, 0] == np.float32(third)


def test_the_same_environment_seed_begins_at_the_same_place():
    one, two = (
        rollouts.record(catalog.task(GOAL), lambda seen, step, to=to: np.full((1, 2), to), [5])
        for to in (0, 1)
    )
    np.testing.assert_array_equal(one.positions[0, 0], two.positions[0, 0])
    assert one.markers == two.markers
    assert one.lengths.tolist() == [1000]
    assert not np.array_equal(one.positions[0, -1], two.positions[0, -1])


def test_actions_that_are_no_numbers_end_the_rollout():
    with pytest.raises(InputError, match="finite"):
        rollouts.roll_out(catalog.task("toy:speed"), lambda seen, step: np.full((1, 2), np.nan), [0])
