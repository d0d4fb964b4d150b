import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from safemil.errors import InputError
from safemil.tasks import button, circle, goal
from safemil.tasks.layout import Layout, Slot, _square_limit, slots


def draw_singly(rng, things):
    """The rule, one draw at a time."""
    while True:
        places: list[np.ndarray] = []
        for thing in things:
            for _ in range(100):
                place = np.array(
                    [rng.uniform(low, high) for low, high in zip(thing.low, thing.high, strict=True)]
                )
                if all(np.sqrt(np.sum(np.square(place - p))) >= k + thing.keepout for p, k in places):
                    places.append((place, thing.keepout))
                    break
            else:
                break
        if len(places) == len(things):
            return np.array([place for place, _ in places])


@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 2**32 - 1))
def test_blocks_give_the_places_of_single_draws_and_leave_the_stream_there(seed):
    things = slots(1.5, [(1, 0.4), (3, 0.2), (4, 0.35)])
    rng, twin = np.random.RandomState(seed), np.random.RandomState(seed)
    np.testing.assert_array_equal(Layout(things, crowd=4).sample(rng), draw_singly(twin, things))
    assert rng.random_sample() == twin.random_sample()
    np.testing.assert_array_equal(Layout(things).sample(rng), draw_singly(twin, things))


@pytest.mark.parametrize("task", [button, goal, circle])
def test_all_things_keep_their_distance(task):
    places = task.LAYOUT.sample(np.random.RandomState(0))
    assert places.shape == (task.LAYOUT.size, 2)
    for index, limits in enumerate(task.LAYOUT._limits):
        assert (np.square(places[:index] - places[index]).sum(axis=1) >= np.array(limits) - 1e-15).all()


@given(distance=st.floats(1e-3, 10))
def test_the_limit_on_squares_is_exactly_the_limit_on_roots(distance):
    limit = _square_limit(distance)
    assert np.sqrt(limit) >= distance > np.sqrt(np.nextafter(limit, 0))


def test_an_impossible_layout_is_given_up():
    with pytest.raises(InputError, match="another seed"):
        Layout([Slot((0, 0), (1, 1), 2.0)] * 2).sample(np.random.RandomState(0))
