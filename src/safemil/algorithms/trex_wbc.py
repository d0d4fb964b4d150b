"""T-REX-WBC: learn a reward that ranks unlabeled segments above non-preferred ones, then clone by it.

Ranking: T-REX, Brown et al. 2019 (arXiv:1904.06387). Weighted cloning: SafeMIL (arXiv:2511.08136,
Appendix C), where every unlabeled segment is preferred to every non-preferred one.

Where SafeMIL is silent: the reward is the sigmoid of the network, so r(s, a) lies in (0, 1) and is a weight
as it stands; pairs are drawn anew at each update, one segment from each pile. `fast` departs from the paper
in its learning rates and in how long it trains, with a reward that stops learning after `reward_updates`.
"""

from dataclasses import dataclass
from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float

from safemil.algorithms.base import NOT_COMPUTED
from safemil.algorithms.cloning import Cloning, Optimiser, clone_weighted
from safemil.algorithms.cloning import act as act
from safemil.data.sampling import Dataset, Length, Segments, sample_segments, sample_steps
from safemil.networks import Policy, ScalarNet
from safemil.settings import require_positive

TITLE = "T-REX-WBC"
NEEDS = frozenset({"nonpreferred"})
OURS = frozenset({"reward_updates"})


@dataclass(frozen=True)
class Config(Cloning):
    updates: int = 10_000  # of the policy
    reward_updates: int | None = 2_000  # updates after which the reward is fixed; none: it always learns
    length: Length = 5  # steps of a segment, or "full" for whole episodes
    pairs: int = 128  # pairs of segments per update of the reward
    batch: int = 256  # steps per policy update
    lr_reward: float = 1e-3  # learning rate of the reward
    lr_policy: float = 1e-3  # learning rate of the policy
    hidden_reward: tuple[int, ...] = (256, 256)  # hidden layers of the reward

    def __post_init__(self) -> None:
        super().__post_init__()
        require_positive(self, "updates", "reward_updates", "length", "pairs", "batch")
        require_positive(self, "lr_reward", "lr_policy")

    @property
    def reward_optimiser(self) -> Optimiser:
        return self.optimiser(self.lr_reward)

    @property
    def policy_optimiser(self) -> Optimiser:
        return self.decaying_optimiser(self.lr_policy, self.updates)

    @property
    def last_reward_update(self) -> int:
        return self.updates if self.reward_updates is None else self.reward_updates


PRESETS = {
    "fast": Config(),
    "paper": Config(  # Table 2
        updates=1_000_000, reward_updates=None, batch=128, lr_reward=1e-5, lr_policy=1e-5, cosine_decay=False
    ),
}


class State(NamedTuple):
    reward: ScalarNet  # the logit of r(s, a)
    policy: Policy
    reward_opt: optax.OptState
    policy_opt: optax.OptState


def init(config: Config, data: Dataset, key: Array) -> State:
    key_reward, key_policy = jax.random.split(key)
    sizes = data.unlabeled.observation_size, data.unlabeled.action_size
    reward = ScalarNet(sum(sizes), config.hidden_reward, key=key_reward)
    policy = config.policy(data, key_policy)
    opts = config.reward_optimiser.init(reward), config.policy_optimiser.init(policy)
    return State(reward, policy, *opts)


def segment_rewards(reward: ScalarNet, segments: Segments) -> Float[Array, " segments"]:
    """Σ_{(s,a)∈τ} r(s, a)."""
    rewards = jax.nn.sigmoid(reward(segments.observations, segments.actions))  # (segments, H)
    return (rewards * segments.mask).sum(axis=1)


def reward_loss(reward: ScalarNet, unlabeled: Segments, nonpreferred: Segments) -> Float[Array, ""]:
    """−log P(τ_U ≻ τ_N) under the Bradley-Terry model, averaged over pairs of segments."""
    margin = segment_rewards(reward, unlabeled) - segment_rewards(reward, nonpreferred)  # (pairs,)
    return -jax.nn.log_sigmoid(margin).mean()


def update(
    config: Config, state: State, data: Dataset, number: Array, key: Array
) -> tuple[State, dict[str, Float[Array, ""]]]:
    key_reward, key_policy = jax.random.split(key)
    state, loss = jax.lax.cond(
        number < config.last_reward_update,
        lambda: _update_reward(config, state, data, key_reward),
        lambda: (state, jnp.full((), NOT_COMPUTED)),
    )
    state, metrics = _update_policy(config, state, data, key_policy)
    return state, {"loss/reward": loss} | metrics


def _update_reward(config: Config, state: State, data: Dataset, key: Array) -> tuple[State, Float[Array, ""]]:
    assert data.nonpreferred is not None
    key_n, key_u = jax.random.split(key)
    nonpreferred = sample_segments(data.nonpreferred, config.pairs, config.length, key_n)
    unlabeled = sample_segments(data.unlabeled, config.pairs, config.length, key_u)

    def loss(reward: ScalarNet) -> Array:
        return reward_loss(reward, unlabeled, nonpreferred)

    reward, opt, value = config.reward_optimiser.descend(loss, state.reward, state.reward_opt)
    return state._replace(reward=reward, reward_opt=opt), value


def _update_policy(
    config: Config, state: State, data: Dataset, key: Array
) -> tuple[State, dict[str, Float[Array, ""]]]:
    rows = sample_steps(data.unlabeled, config.batch, key)
    observations, actions = data.unlabeled.observations[rows], data.unlabeled.actions[rows]
    rewards = jax.nn.sigmoid(state.reward(observations, actions))

    state, value = clone_weighted(config, state, observations, actions, rewards)
    return state, {"loss/policy": value, "weights/mean": rewards.mean()}


def cost(state: State, observations: Array, actions: Array) -> Array:
    """1 − r(s, a), the lack of reward as a cost."""
    return jax.nn.sigmoid(-state.reward(observations, actions))
