import numpy as np

from safemil.data import load, read_manifest
from safemil.report.inputs import episode_seeds
from safemil.report.observations import CIRCLE, GOAL
from safemil.report.replay import known_paths, roam


def test_recorded_actions_lead_along_the_recorded_path(goal):
    held = load(goal / "unlabeled")
    seeds = episode_seeds(read_manifest(goal / "unlabeled")["origin"], held)
    found = known_paths(GOAL, held, seeds)
    assert all(each is not None for each in found)
    path, things = found[0]
    assert path.shape == (held.lengths[0], 2)
    assert [thing.kind for thing in things] == ["hazard"] * 8
    assert np.linalg.norm(np.diff(path, axis=0), axis=1).max() < 0.1  # m in a step


def test_a_path_is_not_believed_if_it_shows_other_observations(goal):
    held = load(goal / "unlabeled")
    seeds = episode_seeds(read_manifest(goal / "unlabeled")["origin"], held)
    seeds[1] += 1
    assert [each is None for each in known_paths(GOAL, held, seeds)] == [False, True, False, False]


def test_without_seeds_only_the_circle_task_has_paths(goal):
    held = load(goal / "unlabeled")
    assert known_paths(GOAL, held, None) == [None] * len(held)
    circling = roam(CIRCLE, lambda seen: np.full((len(seen), 2), [0.02, 0.3]), [3])[0]
    (path, things), *_ = known_paths(CIRCLE, circling.trajectories, None)
    np.testing.assert_allclose(path, circling.path, atol=1e-5)
    assert things == []


def test_roaming_from_the_same_seed_begins_at_the_same_place():
    one, two = (roam(GOAL, lambda seen, to=to: np.full((len(seen), 2), to), [5])[0] for to in (0, 1))
    np.testing.assert_array_equal(one.path[0], two.path[0])
    assert one.things == two.things
    assert len(one.costs) == 1000
    assert not np.array_equal(one.path[-1], two.path[-1])
