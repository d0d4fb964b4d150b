import json

import numpy as np
import pytest

from safemil.data import Annotations, Trajectories, describe, shared_episodes


@pytest.fixture
def noise():
    rng = np.random.default_rng(0)
    return rng.normal(size=(600, 3)), rng.uniform(-1, 1, size=(600, 2))


def reasons(observations, actions, lengths):
    found = describe(Trajectories(observations, actions, lengths)).suspicious
    return {each.episode: each.reason for each in found}


def test_the_figures_are_those_of_the_arrays(walk, marks):
    found = describe(walk, marks)
    assert (found.episodes, found.steps, found.observation_size, found.action_size) == (3, 6, 3, 2)
    assert (found.lengths.low, found.lengths.median, found.lengths.high) == (1, 2, 3)
    assert (found.final_observations, found.terminated) == (2, 1)
    assert [column.name for column in found.columns][2:4] == ["observation 2", "action 0"]
    column = walk.observations[:, 1].astype(float)
    assert found.columns[1].mean == pytest.approx(column.mean())
    assert found.columns[1].deviation == pytest.approx(column.std())
    assert (found.columns[1].low, found.columns[1].high) == (column.min(), column.max())
    assert (found.returns.high, found.costs.mean) == (15, 1)
    assert found.content_hash == walk.content_hash()
    assert describe(walk).returns is None


def test_a_description_survives_json(walk, marks):
    found = describe(walk, marks).as_dict()
    assert json.loads(json.dumps(found))["lengths"] == found["lengths"]


def test_constant_and_equal_columns_are_named(noise):
    observations, actions = noise
    observations[:, 0] = 4
    observations[:, 2] = actions[:, 1]
    found = describe(Trajectories(observations, actions, [600]))
    assert found.constant == ("observation 0",)
    assert found.duplicate == (("observation 2", "action 1"),)


def test_ordinary_episodes_arouse_no_suspicion(noise):
    assert not reasons(*noise, lengths=[200] * 3)


def test_a_rare_sensor_is_no_outlier(noise):
    observations, actions = noise
    observations[:, 0] = 0
    observations[50::200, 0] = 1  # 14 deviations from the mean, but once in every episode
    assert not reasons(observations, actions, [200] * 3)


def test_an_episode_far_shorter_than_the_others_is_named(noise):
    assert reasons(*noise, lengths=[5, 195, 200, 200]) == {0: "only 5 steps long, the median is 197.5"}


def test_twins_are_named(noise):
    observations, actions = noise
    observations[200:400], actions[200:400] = observations[:200], actions[:200]
    assert reasons(observations, actions, [200] * 3) == {1: "identical to episode 0"}


def test_frozen_observations_are_named(noise):
    observations, actions = noise
    observations[250:400] = observations[250]
    found = reasons(observations, actions, [200] * 3)
    assert found == {1: "74% of its observations repeat the one before"}


@pytest.mark.parametrize(("value", "reason"), [(1, "at its bounds"), (-1, "at its bounds"), (0, "is zero")])
def test_actions_that_say_nothing_are_named(value, reason, noise):
    observations, actions = noise
    actions[400:] = value
    assert reason in reasons(observations, actions, [200] * 3)[2]


def test_a_value_far_from_all_others_is_named(noise):
    observations, actions = noise
    observations[300, 1] = 1000
    assert reasons(observations, actions, [200] * 3) == {1: "observation 1 is 24 deviations from its mean"}


def test_shared_episodes_are_found_by_content(walk):
    other = Trajectories.concatenate([walk.take([2]), walk.take([0])])
    assert shared_episodes(walk, other).tolist() == [0, 2]
    assert shared_episodes(walk.take([1]), other).tolist() == []


def test_annotations_of_other_episodes_are_refused(walk):
    with pytest.raises(ValueError, match="6 steps, but 2 steps are annotated"):
        describe(walk, Annotations([1, 2], [0, 0]))


def test_an_episode_that_is_shared_several_times_counts_once(walk):
    five, ten = (walk.take([1] * count) for count in (5, 10))
    assert shared_episodes(five, ten).tolist() == [0, 1, 2, 3, 4]
