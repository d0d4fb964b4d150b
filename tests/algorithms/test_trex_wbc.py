import jax
import jax.numpy as jnp
import numpy as np
import pytest
from generated import ranking, share_of_risky_steps, trained
from jax.test_util import check_grads

from safemil.algorithms import trex_wbc
from safemil.algorithms.trex_wbc import reward_loss, segment_rewards
from safemil.data.sampling import Segments
from safemil.networks import ScalarNet


@pytest.fixture(scope="module")
def state(optimised):
    return trained(
        "trex-wbc",
        updates=1000,
        reward_updates=300,
        hidden_reward=(64, 64),
        hidden_policy=(64, 64),
        lr_policy=3e-3,
    )


@pytest.fixture
def reward():
    return ScalarNet(3, (4,), key=jax.random.key(0))


def segments(key, mask):
    mask = jnp.asarray(mask, jnp.float32)
    observations = jax.random.normal(jax.random.key(key), (*mask.shape, 2))
    return Segments(observations, observations[..., :1], mask, jnp.zeros(mask.shape, int))


def test_identical_segments_give_a_loss_of_log_two(reward):
    same = segments(0, np.ones((4, 5)))
    np.testing.assert_allclose(reward_loss(reward, same, same), np.log(2), rtol=1e-6)


def test_a_reward_of_one_half_everywhere_counts_the_real_steps(reward):
    flat = jax.tree.map(jnp.zeros_like, reward)  # σ(0) = 1/2
    longer, shorter = segments(0, [[1, 1, 1]]), segments(1, [[1, 0, 0]])
    np.testing.assert_allclose(segment_rewards(flat, longer), [1.5])
    np.testing.assert_allclose(reward_loss(flat, longer, shorter), np.log1p(np.exp(-1.0)), rtol=1e-6)


def test_the_slopes_of_the_loss_are_those_of_finite_differences(reward):
    unlabeled, nonpreferred = segments(0, np.ones((6, 5))), segments(1, np.ones((6, 5)))

    def loss(net):
        return reward_loss(net, unlabeled, nonpreferred)

    check_grads(jax.jit(loss), (reward,), 1, ["rev"], atol=1e-3, rtol=1e-2, eps=1e-2)


def test_it_finds_the_risky_steps_and_walks_without_them(state):
    assert ranking("trex-wbc", state) > 0.9
    risky, goals = share_of_risky_steps("trex-wbc", state)
    assert risky < 0.09  # plain BC with 1,500 updates and two layers of 64: 0.28
    assert goals > 5


def test_the_paper_preset_is_table_2():
    config = trex_wbc.PRESETS["paper"]
    assert (config.updates, config.batch, config.length) == (1_000_000, 128, 5)
    assert config.last_reward_update == config.updates
    assert config.lr_reward == config.lr_policy == 1e-5
    assert config.hidden_reward == config.hidden_policy == (256, 256)
