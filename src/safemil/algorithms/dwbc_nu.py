"""DWBC-NU: tell non-preferred steps from unlabeled ones, then clone what does not look non-preferred.

Discriminator-weighted behaviour cloning: Xu et al. 2022 (arXiv:2207.10050). The negative-unlabeled variant:
SafeMIL (arXiv:2511.08136, Appendix C).

Where SafeMIL is silent: log π enters clipped to [−20, 10] and scaled to [0, 1], as in DWBC's code; the
discriminator learns during all of the training, since that input changes with the policy, and is updated
once every `every` updates. The preferred part of its loss, E_U[−log(1 − d)] − η E_N[−log(1 − d)], can become
negative, although what it estimates can't, and then falls without bound as d learns the non-preferred steps
by heart; `nonnegative` holds it at zero (Kiryo et al. 2017, arXiv:1703.00593). The `paper` preset takes the
formula as printed. `fast` departs from the paper in its learning rates and in how long it trains.
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
from safemil.data.sampling import Dataset, Pile, sample_steps
from safemil.networks import Policy, ScalarNet
from safemil.settings import require_positive, require_within

TITLE = "DWBC-NU"
NEEDS = frozenset({"nonpreferred"})
OURS = frozenset({"every", "nonnegative"})
LOG_PROB_MIN, LOG_PROB_MAX = -20.0, 10.0


@dataclass(frozen=True)
class Config(Cloning):
    updates: int = 10_000  # of policy and discriminator
    batch: int = 256  # steps per policy update
    discriminator_batch: int = 128  # steps of each pile per update of the discriminator
    every: int = 1  # policy updates per update of the discriminator
    eta: float = 0.5  # η, the share of non-preferred steps among the unlabeled ones
    nonnegative: bool = True  # keep the preferred part of the discriminator's loss at 0 or above
    lr_discriminator: float = 1e-3  # learning rate of the discriminator
    lr_policy: float = 1e-3  # learning rate of the policy
    hidden_discriminator: tuple[int, ...] = (256, 256)  # hidden layers of the discriminator

    def __post_init__(self) -> None:
        super().__post_init__()
        require_positive(self, "updates", "batch", "discriminator_batch", "every")
        require_positive(self, "lr_discriminator", "lr_policy")
        require_within(self, "eta", 0, 1)

    @property
    def discriminator_optimiser(self) -> Optimiser:
        return self.optimiser(self.lr_discriminator)

    @property
    def policy_optimiser(self) -> Optimiser:
        return self.decaying_optimiser(self.lr_policy, self.updates)


PRESETS = {
    "fast": Config(),
    "paper": Config(  # Table 2
        updates=1_000_000,
        batch=128,
        nonnegative=False,
        lr_discriminator=1e-5,
        lr_policy=1e-5,
        cosine_decay=False,
    ),
}


class State(NamedTuple):
    discriminator: ScalarNet  # the logit of d(s, a, log π)
    policy: Policy
    discriminator_opt: optax.OptState
    policy_opt: optax.OptState


def init(config: Config, data: Dataset, key: Array) -> State:
    key_discriminator, key_policy = jax.random.split(key)
    sizes = data.unlabeled.observation_size, data.unlabeled.action_size
    discriminator = ScalarNet(sum(sizes) + 1, config.hidden_discriminator, key=key_discriminator)
    policy = config.policy(data, key_policy)
    opts = config.discriminator_optimiser.init(discriminator), config.policy_optimiser.init(policy)
    return State(discriminator, policy, *opts)


def scaled_log_prob(
    policy: Policy, observations: Float[Array, "*batch S"], actions: Float[Array, "*batch A"]
) -> Float[Array, "*batch 1"]:
    """log π(a | s) clipped and scaled to [0, 1], as an input: no gradient flows through it."""
    log_prob = jnp.clip(policy.log_prob(observations, actions), LOG_PROB_MIN, LOG_PROB_MAX)
    return jax.lax.stop_gradient((log_prob - LOG_PROB_MIN) / (LOG_PROB_MAX - LOG_PROB_MIN))[..., None]


def discriminator_loss(
    logits_n: Float[Array, " batch"], logits_u: Float[Array, " batch"], eta: float, nonnegative: bool
) -> Float[Array, ""]:
    """η E_N[−log d] + E_U[−log(1 − d)] − η E_N[−log(1 − d)], with −log(1 − σ(l)) = softplus(l)."""
    as_nonpreferred = eta * jax.nn.softplus(-logits_n).mean()
    as_preferred = jax.nn.softplus(logits_u).mean() - eta * jax.nn.softplus(logits_n).mean()
    if nonnegative:
        as_preferred = jnp.maximum(as_preferred, 0)
    return as_nonpreferred + as_preferred


def update(
    config: Config, state: State, data: Dataset, number: Array, key: Array
) -> tuple[State, dict[str, Float[Array, ""]]]:
    key_discriminator, key_policy = jax.random.split(key)
    state, loss = jax.lax.cond(
        number % config.every == 0,
        lambda: _update_discriminator(config, state, data, key_discriminator),
        lambda: (state, jnp.full((), NOT_COMPUTED)),
    )
    state, metrics = _update_policy(config, state, data, key_policy)
    return state, {"loss/discriminator": loss} | metrics


def _update_discriminator(
    config: Config, state: State, data: Dataset, key: Array
) -> tuple[State, Float[Array, ""]]:
    assert data.nonpreferred is not None
    key_n, key_u = jax.random.split(key)
    inputs_n = _draw(config, state, data.nonpreferred, key_n)
    inputs_u = _draw(config, state, data.unlabeled, key_u)

    def loss(discriminator: ScalarNet) -> Array:
        return discriminator_loss(
            discriminator(*inputs_n), discriminator(*inputs_u), config.eta, config.nonnegative
        )

    discriminator, opt, value = config.discriminator_optimiser.descend(
        loss, state.discriminator, state.discriminator_opt
    )
    return state._replace(discriminator=discriminator, discriminator_opt=opt), value


def _draw(config: Config, state: State, pile: Pile, key: Array) -> tuple[Array, Array, Array]:
    rows = sample_steps(pile, config.discriminator_batch, key)
    steps = pile.observations[rows], pile.actions[rows]
    return *steps, scaled_log_prob(state.policy, *steps)


def _update_policy(
    config: Config, state: State, data: Dataset, key: Array
) -> tuple[State, dict[str, Float[Array, ""]]]:
    rows = sample_steps(data.unlabeled, config.batch, key)
    observations, actions = data.unlabeled.observations[rows], data.unlabeled.actions[rows]
    log_prob = scaled_log_prob(state.policy, observations, actions)
    weights = jax.nn.sigmoid(-state.discriminator(observations, actions, log_prob))  # 1 − d

    state, value = clone_weighted(config, state, observations, actions, weights)
    return state, {"loss/policy": value, "weights/mean": weights.mean()}


def cost(state: State, observations: Array, actions: Array) -> Array:
    """d(s, a, log π): the probability that a step is non-preferred."""
    log_prob = scaled_log_prob(state.policy, observations, actions)
    return jax.nn.sigmoid(state.discriminator(observations, actions, log_prob))
