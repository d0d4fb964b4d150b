import jax
import jax.numpy as jnp
import numpy as np
import pytest

from safemil.data.sampling import Pile, Scaler, episode_sums, sample_initial, transitions_at


@pytest.fixture
def pile(walk):
    return Pile.of(walk, Scaler.of(walk))


def test_a_step_is_followed_by_the_next_or_by_the_final_observation(pile):
    # Episodes of 2, 1 and 3 steps; the second has no final observation, but its task ended it.
    batch = transitions_at(pile, jnp.arange(6))
    followers = [pile.observations[i] for i in (1, 4, 5)]
    np.testing.assert_array_equal(batch.next_observations[jnp.array([0, 3, 4])], followers)
    np.testing.assert_array_equal(batch.next_observations[1], pile.final_observations[0])
    np.testing.assert_array_equal(batch.next_observations[5], pile.final_observations[2])
    np.testing.assert_array_equal(batch.continues, [1, 1, 0, 1, 1, 1])
    np.testing.assert_array_equal(batch.known, 1)
    np.testing.assert_array_equal(batch.actions, pile.actions)


def test_an_episode_cut_off_without_a_final_observation_has_an_unknown_end(pile):
    cut = jax.tree.map(lambda leaf: leaf, pile)
    cut = Pile(**{**vars(cut), "has_final": jnp.zeros(3, bool)})
    np.testing.assert_array_equal(transitions_at(cut, jnp.arange(6)).known, [1, 0, 1, 1, 1, 0])


def test_initial_observations_are_first_ones(pile):
    firsts = np.asarray(pile.observations[pile.starts])
    drawn = np.asarray(sample_initial(pile, 100, jax.random.key(0)))
    assert {tuple(row) for row in drawn} == {tuple(row) for row in firsts}


def test_sums_are_taken_episode_by_episode(pile):
    np.testing.assert_array_equal(episode_sums(jnp.array([1.0, 2, 3, 4, 5, 6]), pile), [3, 3, 15])
