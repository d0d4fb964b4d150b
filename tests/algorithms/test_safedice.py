import jax
import jax.numpy as jnp
import numpy as np
import pytest
from generated import ranking, share_of_risky_steps, speed, trained
from jax.test_util import check_grads

from safemil.algorithms import safedice
from safemil.algorithms.safedice import (
    MARGIN,
    Config,
    cost_loss,
    gradient_penalty,
    largest_log_alpha,
    log_ratio,
    nu_loss,
    visit_weights,
)
from safemil.data.sampling import transitions_at
from safemil.errors import InputError
from safemil.networks import ScalarNet


@pytest.fixture(scope="module")
def state(optimised):
    return trained(
        "safedice",
        updates=2000,
        cost_updates=1000,
        refresh=100,
        gradient_penalty=1.0,  # the limit of `speed` is sharper than a slope of one
        lr_cost=3e-3,
        hidden_cost=(64, 64),
        hidden_nu=(64, 64),
        hidden_policy=(64, 64),
        lr_nu=1e-3,
        lr_policy=1e-3,
    )


def constant(logit):
    """A discriminator that says the same of every step of `speed`."""
    weights_or_bias = ScalarNet(6, (), key=jax.random.key(0))
    return jax.tree.map(lambda leaf: jnp.full_like(leaf, logit * (leaf.ndim == 1)), weights_or_bias)


def test_the_log_ratio_is_the_formula_of_the_paper():
    alpha, c = 0.4, np.array([0.05, 0.3, 0.5, 0.7])
    expected = np.log((1 - (1 + alpha) * c) / ((1 - alpha) * (1 - c)))
    logits = jnp.asarray(np.log(c / (1 - c)), jnp.float32)
    np.testing.assert_allclose(log_ratio(logits, jnp.log(alpha)), expected, rtol=1e-4, atol=1e-6)


def test_an_inadmissible_step_gets_a_low_but_finite_ratio():
    ratios = log_ratio(jnp.array([3.0, 500.0]), jnp.log(0.4))  # (1 + α)c > 1
    np.testing.assert_allclose(ratios, np.log(MARGIN) - np.log(0.6), rtol=1e-2)


@pytest.mark.parametrize("logit", [-3.0, 0.5, 4.0, 200.0])
def test_alpha_is_the_largest_that_is_admissible_for_all_steps(logit):
    log_alpha = float(jax.jit(largest_log_alpha)(constant(logit), speed().data.unlabeled))
    expected = min(np.exp(-logit), 1)
    np.testing.assert_allclose(log_alpha, np.log(expected), atol=2 * MARGIN)
    assert log_alpha < np.log(expected)  # so that (1 + α)c < 1, and α < 1


def test_the_penalty_of_a_linear_discriminator_is_that_of_its_weights():
    net = ScalarNet(3, (), key=jax.random.key(0))
    norm = np.linalg.norm(net.mlp.weights[0])
    np.testing.assert_allclose(gradient_penalty(net, jnp.ones((5, 3))), (norm - 1) ** 2, rtol=1e-4)


def test_a_flat_discriminator_has_a_penalty_of_one_and_a_finite_slope():
    flat = jax.tree.map(jnp.zeros_like, ScalarNet(3, (4,), key=jax.random.key(0)))
    value, slopes = jax.jit(jax.value_and_grad(gradient_penalty))(flat, jnp.ones((5, 3)))
    np.testing.assert_allclose(value, 1, rtol=1e-3)
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(slopes))


def test_the_slopes_of_the_losses_are_those_of_finite_differences():
    key_net, key_inputs, key_shares = jax.random.split(jax.random.key(0), 3)
    inputs = jax.random.normal(key_inputs, (2, 8, 3))
    shares = jax.random.uniform(key_shares, (8, 1))
    net = ScalarNet(3, (4,), key=key_net)

    def discriminator(net):
        return cost_loss(net, inputs[0], inputs[1], shares, 10.0)

    def value(net):
        return nu_loss(net(inputs[0]), 0.9 * net(inputs[1]) - net(inputs[0]), jnp.ones(8), 0.9)

    check_grads(jax.jit(discriminator), (net,), 1, ["rev"], atol=1e-2, rtol=1e-2, eps=1e-2)
    check_grads(jax.jit(value), (net,), 1, ["rev"], atol=1e-3, rtol=1e-2, eps=1e-2)


def test_the_loss_of_nu_is_a_log_mean_exp_over_the_known_steps():
    advantages = jnp.log(jnp.array([1.0, 3.0, 100.0]))
    value = nu_loss(jnp.array([5.0, 7.0]), advantages, jnp.array([1.0, 1.0, 0.0]), 0.9)
    np.testing.assert_allclose(value, 0.1 * 6 + np.log(2), rtol=1e-6)


def test_weights_are_exp_of_the_advantage_and_zero_where_the_successor_is_unknown():
    batch = transitions_at(speed().data.unlabeled, jnp.arange(3))._replace(known=jnp.array([1.0, 1.0, 0.0]))
    weights = visit_weights(jnp.array([500.0, 500.0 + np.log(3), 900.0]), batch)
    np.testing.assert_allclose(weights, [0.25, 0.75, 0], rtol=1e-4)


def test_it_finds_the_risky_steps_and_avoids_most_of_them(state):
    assert ranking("safedice", state) > 0.85
    assert 0 < np.exp(state.log_alpha) < 1
    risky, goals = share_of_risky_steps("safedice", state)
    assert risky < 0.09  # plain BC: 0.12
    assert goals > 5


def test_the_paper_preset_is_table_2():
    config = safedice.PRESETS["paper"]
    assert (config.updates, config.batch, config.cost_batch) == (1_000_000, 128, 128)
    assert (config.gamma, config.gradient_penalty) == (0.99, 10)
    assert config.lr_cost == config.lr_nu == config.lr_policy == 1e-5
    assert config.hidden_cost == config.hidden_policy == (256, 256)


def test_a_share_of_one_is_refused():
    with pytest.raises(InputError, match="alpha must lie in"):
        Config(alpha=1.0)
