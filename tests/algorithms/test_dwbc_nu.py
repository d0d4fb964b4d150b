import jax
import jax.numpy as jnp
import numpy as np
import pytest
from generated import ranking, share_of_risky_steps, trained
from jax.test_util import check_grads

from safemil.algorithms import dwbc_nu
from safemil.algorithms.dwbc_nu import Config, discriminator_loss, scaled_log_prob
from safemil.errors import InputError
from safemil.networks import GaussianPolicy, ScalarNet


@pytest.fixture(scope="module")
def state(optimised):
    return trained(
        "dwbc-nu", updates=600, hidden_discriminator=(64, 64), hidden_policy=(64, 64), lr_policy=3e-3
    )


def test_an_undecided_discriminator_has_a_loss_of_log_two():
    zeros = jnp.zeros(4)
    np.testing.assert_allclose(discriminator_loss(zeros, zeros, 0.5, True), np.log(2), rtol=1e-6)


def test_the_loss_as_printed_is_linear_in_what_it_says_of_nonpreferred_steps():
    # −log σ(l) + log(1 − σ(l)) = −l, so the loss is E_U[softplus(l)] − η E_N[l].
    value = discriminator_loss(jnp.array([10.0, 30.0]), jnp.array([0.0, 0.0]), 0.5, False)
    np.testing.assert_allclose(value, np.log(2) - 0.5 * 20, rtol=1e-6)


def test_the_nonnegative_loss_does_not_fall_below_zero():
    value = discriminator_loss(jnp.array([50.0]), jnp.array([-50.0]), 0.5, True)
    assert 0 <= value < 1e-6
    assert discriminator_loss(jnp.array([50.0]), jnp.array([-50.0]), 0.5, False) < -20


def test_a_badly_wrong_discriminator_has_a_finite_loss_and_slope():
    value, slopes = jax.value_and_grad(lambda x: discriminator_loss(x, -x, 0.5, True))(jnp.array([-1e4]))
    assert np.isfinite(value)
    assert np.isfinite(slopes).all()


@pytest.mark.parametrize("nonnegative", [True, False])
def test_the_slopes_of_the_loss_are_those_of_finite_differences(nonnegative):
    key_net, key_inputs = jax.random.split(jax.random.key(0))
    inputs = jax.random.normal(key_inputs, (2, 8, 3))

    def loss(net):
        return discriminator_loss(net(inputs[0]), net(inputs[1]), 0.5, nonnegative)

    check_grads(jax.jit(loss), (ScalarNet(3, (4,), key=key_net),), 1, ["rev"], atol=1e-3, rtol=1e-2, eps=1e-2)


def test_log_prob_enters_between_zero_and_one_without_a_slope():
    policy = GaussianPolicy(3, 2, (4,), key=jax.random.key(0))
    observations, actions = 1e3 * jnp.ones((5, 3)), jnp.linspace(-1, 1, 10).reshape(5, 2)

    @jax.jit
    def value_and_slopes(policy):
        value = scaled_log_prob(policy, observations, actions)
        return value, jax.grad(lambda policy: scaled_log_prob(policy, observations, actions).sum())(policy)

    value, slopes = value_and_slopes(policy)
    assert value.shape == (5, 1)
    assert ((value >= 0) & (value <= 1)).all()
    assert all((leaf == 0).all() for leaf in jax.tree.leaves(slopes))


def test_it_finds_the_risky_steps_and_walks_without_them(state):
    assert ranking("dwbc-nu", state) > 0.9
    risky, goals = share_of_risky_steps("dwbc-nu", state)
    assert risky < 0.06  # plain BC: 0.12
    assert goals > 5


def test_the_paper_preset_is_table_2():
    config = dwbc_nu.PRESETS["paper"]
    assert (config.updates, config.batch, config.eta, config.weight_decay) == (1_000_000, 128, 0.5, 0.01)
    assert config.lr_discriminator == config.lr_policy == 1e-5
    assert config.hidden_discriminator == config.hidden_policy == (256, 256)


def test_a_share_above_one_is_refused():
    with pytest.raises(InputError, match="eta must lie in"):
        Config(eta=1.5)
