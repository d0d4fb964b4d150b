import jax
import jax.numpy as jnp
import numpy as np
import pytest
from generated import share_of_risky_steps, speed, trained
from jax.test_util import check_grads

from safemil.algorithms import coptidice
from safemil.algorithms.coptidice import (
    bound_loss,
    bound_terms,
    bounded_cost,
    conjugate,
    correction,
    episodes_of,
    nu_loss,
    values,
)
from safemil.data import Trajectories
from safemil.data.sampling import Pile, Scaler
from safemil.networks import ScalarNet

ONES = jnp.ones(4)


@pytest.fixture(scope="module", params=["steps", "episodes"])
def state(request, optimised):
    return trained(
        "coptidice",
        updates=1000,
        decisions=request.param,
        cost_limit=2.0,
        hidden_critic=(64, 64),
        hidden_policy=(64, 64),
        lr_critic=1e-3,
        lr_policy=3e-3,
    )


def soft_chi(w):
    """f of the paper's appendix: w log w − w + 1 below one, (w − 1)²/2 above."""
    return np.where(w < 1, w * np.log(np.maximum(w, 1e-30)) - w + 1, (w - 1) ** 2 / 2)


def test_the_correction_is_exponential_below_zero_and_linear_above():
    np.testing.assert_allclose(correction(jnp.array([-1.0, 0.0, 2.0])), [np.exp(-1), 1, 3], rtol=1e-6)
    np.testing.assert_array_equal(correction(jnp.array([-1e9])), [0])


def test_the_conjugate_is_the_best_value_over_corrections():
    x = jnp.array([-3.0, -0.5, 0.0, 0.7, 4.0])
    w = np.asarray(correction(x))
    np.testing.assert_allclose(conjugate(x), w * np.asarray(x) - soft_chi(w), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(jax.vmap(jax.grad(conjugate))(x), w, rtol=1e-6)
    for other in (0.9 * w, 1.1 * w):
        assert (conjugate(x) >= other * np.asarray(x) - soft_chi(other) - 1e-6).all()


def test_the_loss_of_nu_leaves_out_steps_without_a_successor():
    value = nu_loss(jnp.array([2.0, 4.0]), jnp.array([1.0, 1e6]), jnp.array([1.0, 0.0]), 0.9, 0.5)
    np.testing.assert_allclose(value, 0.1 * 3 + 0.5 * (2 + 2), rtol=1e-6)  # f*(1 / 0.5) = 2 + 2²/2


def test_an_episode_is_weighed_by_its_mean_reward_and_cost_and_by_nothing_seen():
    walk = Trajectories(np.arange(12.0).reshape(6, 2), np.zeros((6, 1)), lengths=[2, 1, 3])
    pile, rows = Pile.of(walk, Scaler.of(walk)), jnp.array([5, 0, 2])
    rewards, costs = jnp.array([1.0, 2, 3, 4, 5, 9]), jnp.array([0.0, 1, 0, 0, 1, 1])
    whole, gains, harms = episodes_of(pile, rows, rewards, costs)
    np.testing.assert_allclose(gains, [6, 1.5, 3])
    np.testing.assert_allclose(harms, [2 / 3, 0.5, 0], rtol=1e-6)
    np.testing.assert_array_equal(whole.continues, 0)
    np.testing.assert_array_equal(whole.known, 1)
    net = ScalarNet(2, (4,), key=jax.random.key(0))
    first, advantages = values(net, whole.observations, whole, gains, 0.0)
    np.testing.assert_allclose(advantages, gains - net(jnp.zeros((1, 2))), rtol=1e-6)
    assert first.shape == (1,)


def test_equal_terms_are_bounded_by_themselves_and_epsilon():
    value = bound_loss(jnp.full(4, 3.0), ONES, jnp.array(0.2), 0.01)
    np.testing.assert_allclose(value, 3 + 0.2 * 0.01, rtol=1e-6)


def test_tau_falls_while_the_tilted_data_are_within_epsilon():
    # The slope of the bound in τ is ε − KL of the tilted weights from uniform ones.
    terms, tau = jnp.array([0.0, np.log(3.0)]), jnp.array(1.0)
    slope = jax.grad(lambda tau: bound_loss(terms, jnp.ones(2), tau, 0.01))(tau)
    divergence = 0.25 * np.log(0.5) + 0.75 * np.log(1.5)
    np.testing.assert_allclose(slope, 0.01 - divergence, rtol=1e-5)


def test_the_bounded_cost_weighs_costly_steps_more():
    costs, w = jnp.array([0.0, 1.0, 0.0, 1.0]), 2 * ONES
    even = bounded_cost(jnp.zeros(4), ONES, jnp.array(1.0), w, costs)
    np.testing.assert_allclose(even, 1.0)  # the mean of w c
    tilted = bounded_cost(jnp.log(jnp.array([1.0, 3.0, 1.0, 3.0])), ONES, jnp.array(1.0), w, costs)
    np.testing.assert_allclose(tilted, 2 * 0.75, rtol=1e-6)


def test_huge_terms_stay_finite():
    terms = jnp.array([1e8, -1e8, 0.0, 3.0])
    assert np.isfinite(bound_loss(terms, ONES, jnp.array(1e-3), 0.01))
    assert np.isfinite(bound_loss(terms, 0 * ONES, jnp.array(1e-3), 0.01))
    assert bounded_cost(terms, 0 * ONES, jnp.array(1e-3), ONES, ONES) == 0


def test_the_slopes_of_the_losses_are_those_of_finite_differences():
    key_net, key_inputs = jax.random.split(jax.random.key(0))
    first, now, after = jax.random.normal(key_inputs, (3, 8, 3))
    net, known = ScalarNet(3, (4,), key=key_net), jnp.ones(8)

    def nu(net):
        return nu_loss(net(first), 0.9 * net(after) - net(now), known, 0.9, 0.5)

    def chi(net, tau):
        terms = bound_terms(net(first), 0.9 * net(after) - net(now), known, 0.9)
        return bound_loss(terms, known, tau, 0.01)

    check_grads(jax.jit(nu), (net,), 1, ["rev"], atol=1e-3, rtol=1e-2, eps=1e-2)
    check_grads(jax.jit(chi), (net, jnp.array(0.5)), 1, ["rev"], atol=1e-3, rtol=1e-2, eps=1e-2)


def test_lambda_rises_above_the_limit_and_falls_below_it(state):
    config, limit = coptidice.Config(), jnp.array(0.1)
    for cost, rises in ((0.5, True), (0.0, False)):
        moved, _ = coptidice._update_lambda(
            config, state._replace(lambda_opt=config.multiplier_optimiser.init(state.raw_lambda)), cost, limit
        )
        assert (moved.raw_lambda > state.raw_lambda) == rises


def test_it_walks_to_goals_within_the_limit(state):
    risky, goals = share_of_risky_steps("coptidice", state)
    mean_length = float(speed().data.unlabeled.lengths.mean())
    assert risky * mean_length < 2.0
    assert goals > 5
