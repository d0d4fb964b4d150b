"""The networks: what they compute, worked out by hand or integrated numerically."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats

from safemil.networks import MLP, CategoricalPolicy, CostNet, GaussianPolicy


@pytest.fixture(scope="module")
def policy():
    return GaussianPolicy(3, 1, [8], key=jax.random.key(0))


def test_an_mlp_is_matrix_products_with_an_activation_between():
    mlp = MLP([2, 3, 1], jax.nn.relu, key=jax.random.key(0))
    x = jnp.array([[1.0, -2.0]])
    hidden = np.maximum(np.asarray(x) @ np.asarray(mlp.weights[0]), 0)
    np.testing.assert_allclose(mlp(x), hidden @ np.asarray(mlp.weights[1]), rtol=1e-6)


def test_initial_weights_fill_the_glorot_interval():
    mlp = MLP([300, 200, 1], jax.nn.relu, key=jax.random.key(0))
    limit = np.sqrt(6 / 500)
    weights = np.asarray(mlp.weights[0])
    assert np.abs(weights).max() <= limit
    assert scipy.stats.kstest(weights.ravel() / limit, "uniform", args=(-1, 2)).pvalue > 1e-3


def test_leading_axes_do_not_change_a_result():
    cost = CostNet(3, 2, [8], key=jax.random.key(0))
    observations, actions = jnp.ones((4, 5, 3)), jnp.zeros((4, 5, 2))
    np.testing.assert_allclose(
        cost(observations, actions)[2, 3], cost(observations[2, 3], actions[2, 3]), rtol=1e-6
    )


def test_a_cost_lies_between_zero_and_one_however_extreme_the_input():
    cost = CostNet(3, 2, [8], key=jax.random.key(0))
    costs = cost(1e4 * jnp.array([[1.0, -1.0, 1.0], [-1.0, 1.0, -1.0]]), jnp.ones((2, 2)))
    assert ((costs >= 0) & (costs <= 1)).all()


def test_a_categorical_policy_chooses_one_of_its_columns():
    policy = CategoricalPolicy(3, 4, [8], key=jax.random.key(0))
    observations = jax.random.normal(jax.random.key(1), (500, 3))
    choices = 2 * jnp.eye(4) - 1
    each = jnp.stack([policy.log_prob(observations, jnp.tile(one, (500, 1))) for one in choices], axis=-1)
    np.testing.assert_allclose(jnp.exp(each).sum(axis=-1), 1, rtol=1e-5)
    mode = policy.mode(observations)
    np.testing.assert_array_equal(mode.argmax(axis=-1), each.argmax(axis=-1))
    sampled = policy.act(jnp.tile(observations[:1], (4000, 1)), jax.random.key(2))
    for actions in (mode, sampled):
        assert ((actions == 1).sum(axis=-1) == 1).all()
        assert ((actions == -1).sum(axis=-1) == 3).all()
    np.testing.assert_allclose((sampled == 1).mean(axis=0), jnp.exp(each[0]), atol=0.03)


def mass_within(policy, observation, limit):
    """The mixture's mass between ∓limit, from its parameters alone."""
    log_weights, means, log_stds = (np.asarray(part) for part in policy.mixture(observation))
    gaussians = scipy.stats.norm(means[:, 0], np.exp(log_stds[:, 0]))
    return (np.exp(log_weights) * (gaussians.cdf(limit) - gaussians.cdf(-limit))).sum()


def test_action_probabilities_integrate_to_the_mass_of_the_mixture(policy):
    observation = jnp.array([0.3, -1.0, 2.0])
    grid = jnp.linspace(-1, 1, 200_001)
    density = jnp.exp(policy.log_prob(jnp.tile(observation, (len(grid), 1)), grid[:, None]))
    expected = mass_within(policy, observation, 1)
    assert np.trapezoid(density, grid) == pytest.approx(expected, abs=1e-4)


def test_samples_follow_the_log_probability(policy):
    observation = jnp.array([0.3, -1.0, 2.0])
    samples = np.asarray(policy.sample(jnp.tile(observation, (20_000, 1)), key=jax.random.key(1))[:, 0])
    samples = samples[np.abs(samples) < 1]  # the others were clipped
    grid = jnp.linspace(-1, 1, 20_001)
    density = np.exp(policy.log_prob(jnp.tile(observation, (len(grid), 1)), grid[:, None]))
    below = np.concatenate([[0], np.cumsum((density[1:] + density[:-1]) / 2 * np.diff(grid))])
    assert scipy.stats.kstest(samples, lambda x: np.interp(x, grid, below / below[-1])).pvalue > 1e-3


def test_the_mode_is_the_centre_of_the_heaviest_component(policy):
    observation = jnp.array([0.3, -1.0, 2.0])
    log_weights, means, _ = policy.mixture(observation)
    np.testing.assert_allclose(policy.mode(observation), means[jnp.argmax(log_weights)], rtol=1e-6)


def test_saturated_actions_have_a_finite_likelihood_and_gradient(policy):
    def loss(policy):
        return policy.log_prob(jnp.zeros((2, 3)), jnp.array([[-1.0], [1.0]])).sum()

    value, grads = jax.value_and_grad(loss)(policy)
    assert all(jnp.isfinite(leaf).all() for leaf in jax.tree.leaves((value, grads)))


def test_means_and_deviations_keep_their_bounds(policy):
    _, means, log_stds = policy.mixture(1e6 * jnp.ones(3))
    assert (jnp.abs(means) <= 1).all()
    assert ((log_stds >= -2) & (log_stds <= 2)).all()
