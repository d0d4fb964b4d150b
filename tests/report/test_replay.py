import numpy as np

from safemil import catalog, rollouts
from safemil.data import load, read_manifest
from safemil.report.inputs import episode_seeds
from safemil.report.replay import known_routes

CIRCLE, GOAL = "SafetyPointCircle2-v0", "SafetyPointGoal1-v0"


def test_recorded_actions_lead_along_the_recorded_path(goal):
    held = load(goal / "unlabeled")
    seeds = episode_seeds(read_manifest(goal / "unlabeled")["origin"], held)
    found = known_routes(GOAL, held, seeds)
    assert all(each is not None for each in found)
    path, markers = found[0]
    assert path.shape == (held.lengths[0], 2)
    assert [each.kind for each in markers] == ["hazard"] * 8
    assert np.linalg.norm(np.diff(path, axis=0), axis=1).max() < 0.1  # m in a step


def test_a_path_is_not_believed_if_it_shows_other_observations(goal):
    held = load(goal / "unlabeled")
    seeds = episode_seeds(read_manifest(goal / "unlabeled")["origin"], held)
    seeds[1] += 1
    assert [each is None for each in known_routes(GOAL, held, seeds)] == [False, True, False, False]


def test_without_seeds_paths_are_known_only_where_observations_tell_them(goal):
    held = load(goal / "unlabeled")
    assert known_routes(GOAL, held, None) == [None] * len(held)
    assert known_routes(None, held, None) == [None] * len(held)
    task = catalog.task(CIRCLE)
    circling = rollouts.record(task, lambda seen, step: np.full((len(seen), 2), [0.02, 0.3]), [3])
    (path, markers), *_ = known_routes(CIRCLE, circling.trajectories(), None)
    np.testing.assert_allclose(path, circling.positions[0], atol=1e-5)
    assert markers == circling.markers[0]
