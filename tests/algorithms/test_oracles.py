"""The two oracles, which are told the true costs: BC-Preferred and BC-True-Cost."""

import jax
import jax.numpy as jnp
import numpy as np
from generated import speed

from safemil import loop
from safemil.algorithms import bc_preferred, bc_true_cost, safemil
from safemil.data.sampling import episode_sums, sample_steps_of


def initial(algorithm, config):
    return jax.tree.map(lambda leaf: leaf[0], loop.init(algorithm, config, speed().data, [0]))


def test_the_preferred_episodes_are_those_of_careful_walkers():
    state = initial(bc_preferred, bc_preferred.Config(hidden_policy=(4,)))
    np.testing.assert_array_equal(state.preferred, ~speed().reckless)


def test_a_cost_limit_decides_where_it_is_given():
    costs = jnp.array([0.0, 5.0, 10.0, 80.0])
    for limit, expected in ((None, [1, 1, 0, 0]), (10.0, [1, 1, 1, 0]), (0.0, [1, 0, 0, 0])):
        config = bc_preferred.Config(cost_limit=limit)
        np.testing.assert_array_equal(bc_preferred.preferred(config, costs), expected)


def test_the_cheapest_episode_is_preferred_even_above_the_limit():
    chosen = bc_preferred.preferred(bc_preferred.Config(cost_limit=1.0), jnp.array([7.0, 3.0]))
    np.testing.assert_array_equal(chosen, [False, True])


def test_only_steps_of_preferred_episodes_are_drawn():
    pile, careful = speed().data.unlabeled, jnp.asarray(~speed().reckless)
    rows = np.asarray(sample_steps_of(pile, careful, 20_000, jax.random.key(0)))
    episode = np.searchsorted(pile.starts, rows, side="right") - 1
    assert not speed().reckless[episode].any()
    assert len(np.unique(rows)) > 0.9 * pile.lengths[careful].sum()


def test_true_weights_are_those_of_safemil_with_the_truth_for_a_cost():
    data, config = speed().data, bc_true_cost.Config(hidden_policy=(4,), weighting="transition")
    weights = initial(bc_true_cost, config).weights
    np.testing.assert_array_equal(weights.each, 1 - np.asarray(data.costs))
    np.testing.assert_allclose(weights.cumulative[-1], weights.each.sum(), rtol=1e-5)


def test_weights_of_whole_episodes_favour_careful_walkers():
    data, config = speed().data, bc_true_cost.Config(hidden_policy=(4,), weighting="episode")
    state = initial(bc_true_cost, config)
    means = episode_sums(state.weights.each, data.unlabeled) / data.unlabeled.lengths
    np.testing.assert_array_equal(means[~speed().reckless], 1)
    assert means[speed().reckless].max() < 0.1


def test_the_default_scheme_keeps_the_careful_walkers_and_no_other():
    state = initial(bc_true_cost, bc_true_cost.Config(hidden_policy=(4,)))
    np.testing.assert_array_equal(state.weights.kept, ~speed().reckless)
    np.testing.assert_allclose(state.weights.effective, (~speed().reckless).mean(), atol=0.05)


def test_the_scheme_is_handed_to_safemil_as_set():
    scheme = bc_true_cost.Config(weighting="threshold", threshold=2.0, gamma=0.9).scheme
    assert (scheme.weighting, scheme.threshold, scheme.gamma) == ("threshold", 2.0, 0.9)
    assert isinstance(scheme, safemil.Config)
