import numpy as np
import pytest

from safemil.data import Annotations, Trajectories, recorded_actions, scaled_actions
from safemil.errors import InputError


def steps(count: int, **changes: object) -> dict[str, object]:
    return {
        "observations": np.zeros((count, 2)),
        "actions": np.zeros((count, 1)),
        "lengths": [count],
    } | changes


def test_what_is_left_out_has_a_default():
    plain = Trajectories(np.zeros((3, 2)), np.zeros((3, 1)), lengths=[1, 2])
    assert plain.ids.tolist() == [0, 1]
    assert plain.first_steps.tolist() == [0, 0]
    assert not plain.has_final.any()
    assert not plain.terminated.any()
    assert plain.final_observations.shape == (2, 2)
    assert (plain.action_low.tolist(), plain.action_high.tolist()) == ([-1.0], [1.0])


def test_sizes_and_places(walk):
    assert (len(walk), walk.episodes, walk.steps, walk.observation_size, walk.action_size) == (3, 3, 6, 3, 2)
    assert walk.starts.tolist() == [0, 2, 3]
    assert walk.episode_of_step.tolist() == [0, 0, 1, 2, 2, 2]
    assert walk.step_numbers.tolist() == [0, 1, 10, 1, 2, 3]
    assert [len(part) for part in walk.by_episode(np.arange(6))] == [2, 1, 3]
    assert repr(walk) == "Trajectories(3 episodes of 1 to 3 steps, 3 observed, 2 actions)"


def test_arrays_are_copies_that_no_one_can_change():
    mine = np.zeros((3, 2), np.float32)
    held = Trajectories(**steps(3, observations=mine))
    mine[:] = 1
    assert not held.observations.any()
    with pytest.raises(ValueError, match="read-only"):
        held.observations[0] = 1
    assert held.observations.dtype == held.actions.dtype == np.float32
    assert held.observations.flags.c_contiguous


def test_take_keeps_the_order_asked_for_and_everything_about_an_episode(walk):
    taken = walk.take([2, 0])
    assert taken.lengths.tolist() == [3, 2]
    assert taken.ids.tolist() == [5, 7]
    assert taken.first_steps.tolist() == [1, 0]
    assert taken.has_final.tolist() == [True, True]
    np.testing.assert_array_equal(taken.observations, walk.observations[[3, 4, 5, 0, 1]])
    np.testing.assert_array_equal(taken.actions, walk.actions[[3, 4, 5, 0, 1]])
    np.testing.assert_array_equal(taken.final_observations, walk.final_observations[[2, 0]])
    assert walk.take(np.arange(3)).content_hash() == walk.content_hash()


def test_take_refuses_episodes_that_are_not_there(walk):
    with pytest.raises(InputError, match=r"from 0 to 2, got 3 to 3"):
        walk.take([3])
    with pytest.raises(InputError, match="at least one episode"):
        walk.take(np.array([], int))


def test_concatenate_joins_and_numbers_anew_only_if_names_clash(walk):
    parts = [walk.take([0, 1]), walk.take([2])]
    assert Trajectories.concatenate(parts).content_hash() == walk.content_hash()
    assert Trajectories.concatenate(parts).ids.tolist() == [7, 3, 5]
    assert Trajectories.concatenate([walk, walk]).ids.tolist() == [0, 1, 2, 3, 4, 5]


def test_concatenate_refuses_parts_that_differ_in_kind(walk):
    other = Trajectories(np.zeros((1, 4)), np.zeros((1, 2)), [1])
    with pytest.raises(InputError, match=r"equally wide.*\(3, 2\) and \(4, 2\)"):
        Trajectories.concatenate([walk, other])
    other = Trajectories(np.zeros((1, 3)), np.zeros((1, 2)), [1], action_high=5)
    with pytest.raises(InputError, match="same action bounds"):
        Trajectories.concatenate([walk, other])
    with pytest.raises(InputError, match="at least one part"):
        Trajectories.concatenate([])


def test_the_hash_follows_the_content_and_not_the_names(walk):
    renamed = Trajectories.concatenate([walk, walk]).take([0, 1, 2])
    assert renamed.ids.tolist() != walk.ids.tolist()
    assert renamed.content_hash() == walk.content_hash()
    assert walk.take([1, 0, 2]).content_hash() != walk.content_hash()
    # Known value: the hash must not drift between versions, manifests hold it.
    one = Trajectories([[1.0]], [[0.5]], [1])
    assert one.content_hash() == "c46bd253d9b35da4e63454007f457467d01ba9dc7ebb56f60b0f0c179cfbac2d"


def test_zero_has_one_sign():
    assert (
        Trajectories([[-0.0]], [[-0.0]], [1]).content_hash() == Trajectories([[0]], [[0]], [1]).content_hash()
    )


def test_final_observations_without_meaning_are_zero():
    held = Trajectories(
        **steps(2, lengths=[1, 1], final_observations=[[np.nan, 1], [2, 3]], has_final=[False, True])
    )
    assert held.final_observations.tolist() == [[0, 0], [2, 3]]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"actions": np.zeros((2, 1))}, "3 observations and 2 actions; put"),
        ({"lengths": []}, "at least one episode"),
        ({"lengths": [3, 0]}, "episode number 1 has 0 steps"),
        ({"lengths": [2]}, "add up to 2 steps, but there are 3"),
        ({"lengths": [3.0]}, "whole numbers"),
        ({"observations": np.zeros(3)}, "one row per step"),
        ({"observations": np.zeros((3, 0))}, "one row per step"),
        ({"observations": [[1.0], [1.0, 2.0], [1.0]]}, "rows of numbers of one width"),
        ({"observations": [["a"], ["b"], ["c"]]}, "rows of numbers"),
        ({"ids": [1, 2]}, "one entry of `ids` per episode, got 2 for 1"),
        ({"ids": [1.5]}, "whole numbers or of text"),
        ({"ids": [[1], [1, 2]]}, "whole numbers or of text"),
        ({"terminated": [0.5]}, "true and false"),
        ({"has_final": [True]}, "no `final_observations`"),
        ({"final_observations": np.zeros((1, 3))}, "3 wide, the other observations 2"),
        ({"final_observations": np.zeros((2, 2))}, "one entry of `has_final`|per episode, got 2 for 1"),
        ({"action_low": [0, 0]}, "one number or 1"),
        ({"action_low": 1}, r"low < high, got 1 and 1 for action column 0"),
        ({"action_high": np.inf}, "finite with low < high"),
    ],
)
def test_what_does_not_fit_together_is_refused(changes, message):
    with pytest.raises(InputError, match=message):
        Trajectories(**steps(3, **changes))


@pytest.mark.parametrize("value", [np.nan, np.inf, 1e300])
def test_a_number_that_is_none_is_named_with_its_place(value):
    observations = np.zeros((5, 2))
    observations[3, 1] = value
    with pytest.raises(InputError, match=r"column 1 is (nan|inf) at episode late, step 11"):
        Trajectories(observations, np.zeros((5, 1)), [2, 3], ids=["early", "late"], first_steps=[0, 10])
    with pytest.raises(InputError, match=r"actions must be finite.*episode 0, step 1"):
        Trajectories(**steps(2, actions=[[0.0], [np.nan]]))
    with pytest.raises(InputError, match=r"column 0 is (nan|inf) at the end of episode 0"):
        Trajectories(**steps(1, final_observations=[[value, 0.0]]))


def test_actions_outside_the_unit_box_are_refused_and_rounding_is_not():
    with pytest.raises(InputError, match=r"column 0 is 1\.5 at episode 0, step 1; rescale"):
        Trajectories(**steps(2, actions=[[0.0], [1.5]]))
    assert Trajectories(**steps(1, actions=[[1 + 1e-7]])).actions.max() == 1


def test_actions_go_to_the_unit_box_and_back():
    low, high = [0.0, -4.0], [10.0, -2.0]
    scaled = scaled_actions([[0.0, -2.0], [5.0, -3.0]], low, high)
    assert scaled.tolist() == [[-1, 1], [0, 0]]
    assert recorded_actions(scaled, low, high).tolist() == [[0, -2], [5, -3]]
    held = Trajectories(np.zeros((2, 1)), scaled, [2], action_low=low, action_high=high)
    assert held.recorded_actions().tolist() == [[0, -2], [5, -3]]


def test_annotations_add_up_per_episode(marks):
    returns, costs = marks.episode_sums([2, 1, 3])
    assert returns.tolist() == [3, 3, 15]
    assert costs.tolist() == [1, 0, 2]
    assert marks.take([2, 1, 3], [2, 0]).rewards.tolist() == [4, 5, 6, 1, 2]
    assert repr(marks) == "Annotations(6 steps)"


def test_annotations_that_do_not_fit_are_refused(marks):
    with pytest.raises(InputError, match="a cost for each reward, got 1 and 2"):
        Annotations([1, 2], [1])
    with pytest.raises(InputError, match=r"costs must be finite.*is nan at row 1"):
        Annotations([1, 2], [1, np.nan])
    with pytest.raises(InputError, match="5 steps, but 6 steps are annotated"):
        marks.episode_sums([5])


def test_lengths_whose_sum_wraps_around_to_the_number_of_steps_are_refused():
    lengths = np.array([2**63 - 1, 2**63 - 1, 6])
    assert lengths.sum() == 4  # in int64
    with pytest.raises(
        InputError, match="add up to 18446744073709551620 steps, but there are 4 observations"
    ):
        Trajectories(**steps(4, lengths=lengths))
    with pytest.raises(InputError, match="add up to 18446744073709551620 steps, but 4 steps are annotated"):
        Annotations(np.zeros(4), np.zeros(4)).episode_sums(lengths)
    with pytest.raises(
        InputError, match="lengths must be whole numbers that int64 can hold, got 9223372036854775808"
    ):
        Trajectories(**steps(4, lengths=np.array([2**63, 2**63, 4], np.uint64)))


def test_marks_and_column_names_follow_the_episodes():
    names = {"observation_names": ["gap", "speed"], "action_names": ["brake"]}
    marked = Trajectories(np.zeros((3, 2)), np.zeros((3, 1)), [1, 2], marks=[False, True, False], **names)
    assert marked.take([1]).marks.tolist() == [True, False]
    joined = Trajectories.concatenate([marked.take([1]), marked.take([0])])
    assert joined.marks.tolist() == [True, False, False]
    assert joined.observation_names == ("gap", "speed")


def test_marks_are_in_the_content_hash_and_names_are_not():
    plain, named, marked = (
        Trajectories(np.zeros((2, 1)), np.zeros((2, 1)), [2], **extra)
        for extra in ({}, {"observation_names": ["gap"]}, {"marks": [False, True]})
    )
    assert plain.content_hash() == named.content_hash() != marked.content_hash()


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"marks": [True]}, "one entry of `marks` per step, got 1 for 2"),
        ({"marks": [1, 0]}, "marks must be an array of true and false"),
        ({"observation_names": ["a", "b"]}, "need 1 texts in `observation_names`"),
        ({"action_names": "a"}, "need 1 texts in `action_names`"),
    ],
)
def test_marks_and_names_that_do_not_fit_are_refused(given, message):
    with pytest.raises(InputError, match=message):
        Trajectories(np.zeros((2, 1)), np.zeros((2, 1)), [2], **given)


def test_parts_with_other_columns_are_not_joined():
    one, other = (
        Trajectories(np.zeros((1, 1)), np.zeros((1, 1)), [1], observation_names=[name]) for name in "ab"
    )
    with pytest.raises(InputError, match="same columns in the same order"):
        Trajectories.concatenate([one, other])
