from collections.abc import Callable

import numpy as np
import pytest

from safemil.data import Annotations, Trajectories


@pytest.fixture
def walk() -> Trajectories:
    """Three episodes of 2, 1 and 3 steps; two end with an observation, one was ended by the task."""
    rng = np.random.default_rng(0)
    return Trajectories(
        observations=rng.normal(size=(6, 3)),
        actions=rng.uniform(-1, 1, size=(6, 2)),
        lengths=[2, 1, 3],
        final_observations=rng.normal(size=(3, 3)),
        has_final=[True, False, True],
        terminated=[False, True, False],
        ids=[7, 3, 5],
        first_steps=[0, 10, 1],
    )


@pytest.fixture
def marks() -> Annotations:
    return Annotations(rewards=[1, 2, 3, 4, 5, 6], costs=[0, 1, 0, 0, 1, 1])


@pytest.fixture
def graded() -> Callable[..., tuple[Trajectories, Annotations]]:
    """Episodes of one step with the given returns and costs, each with an observation of its own."""

    def make(returns: list[float], costs: list[float]) -> tuple[Trajectories, Annotations]:
        count = len(returns)
        steps = Trajectories(np.arange(count)[:, None], np.zeros((count, 1)), lengths=np.ones(count, int))
        return steps, Annotations(returns, costs)

    return make
