"""SafeDICE: weigh unlabeled steps by how often a policy without the non-preferred behaviour would visit them.

Jang et al. 2023, "SafeDICE: Offline Safe Imitation Learning with Non-Preferred Demonstrations", as described
by SafeMIL (arXiv:2511.08136, Appendix C). A discriminator c tells non-preferred from unlabeled steps. If a
share α of the unlabeled visits is non-preferred, ρ_U = α ρ_N + (1 − α) ρ_P, then c gives the log ratio of ρ_P
to ρ_U, a reward; ν turns it into weights that agree with the flow from state to state.

With c = σ(l) the log ratio is log(1 − α eˡ) − log(1 − α), which needs no division. It exists where α eˡ < 1,
the same as (1 + α)c < 1. As in SafeDICE, α is the largest that is admissible for all unlabeled steps,
min e⁻ˡ, less a margin; it is found by a pass over the pile every `refresh` updates, and where the
discriminator has moved since, α eˡ is held at 1 − MARGIN.

Departs from SafeMIL's text: A_ν = r + γ ν(s′) − ν(s) as in SafeDICE (the text drops ν(s)), with ν(s′) = 0
where the task ended the episode. Steps whose successor was not recorded are left out. The gradient penalty
is on the logit, as in SafeDICE's code. `fast` departs from the paper in its learning rates and in how long
it trains, with a discriminator that stops learning after `cost_updates`.
"""

import math
from dataclasses import dataclass
from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float

from safemil.algorithms.base import NOT_COMPUTED
from safemil.algorithms.cloning import Cloning, Optimiser, clone_weighted
from safemil.algorithms.cloning import act as act
from safemil.data.sampling import (
    Dataset,
    Pile,
    Transitions,
    map_steps,
    sample_initial,
    sample_steps,
    transitions_at,
)
from safemil.networks import Policy, ScalarNet
from safemil.settings import require_positive, require_within

TITLE = "SafeDICE"
NEEDS = frozenset({"nonpreferred"})
OURS = frozenset({"cost_updates", "refresh"})
MARGIN = 1e-5  # the log ratio of the riskiest step is about log MARGIN instead of minus infinity
LOWEST = -1e30  # finite stand-in for log 0


@dataclass(frozen=True)
class Config(Cloning):
    updates: int = 10_000  # of ν and the policy
    cost_updates: int | None = 2_000  # updates after which the discriminator is fixed; none: it always learns
    cost_batch: int = 128  # steps of each pile per update of the discriminator
    batch: int = 256  # steps per update of ν and of the policy
    gamma: float = 0.99  # discount
    alpha: float | None = None  # α, the share of non-preferred steps; none: the largest admissible
    refresh: int = 500  # updates between two searches for the largest admissible α
    gradient_penalty: float = 10.0  # weight of the penalty on the discriminator's gradient
    lr_cost: float = 1e-3  # learning rate of the discriminator
    lr_nu: float = 3e-4  # learning rate of ν
    lr_policy: float = 1e-3  # learning rate of the policy
    hidden_cost: tuple[int, ...] = (256, 256)  # hidden layers of the discriminator
    hidden_nu: tuple[int, ...] = (256, 256)  # hidden layers of ν

    def __post_init__(self) -> None:
        super().__post_init__()
        require_positive(self, "updates", "cost_updates", "cost_batch", "batch", "alpha", "refresh")
        require_positive(self, "lr_cost", "lr_nu", "lr_policy")
        require_within(self, "gamma", 0, 1)
        require_within(self, "alpha", 0, 1 - MARGIN)
        require_within(self, "gradient_penalty", 0, math.inf)

    @property
    def cost_optimiser(self) -> Optimiser:
        return self.optimiser(self.lr_cost)

    @property
    def nu_optimiser(self) -> Optimiser:
        return self.optimiser(self.lr_nu)

    @property
    def policy_optimiser(self) -> Optimiser:
        return self.decaying_optimiser(self.lr_policy, self.updates)

    @property
    def last_cost_update(self) -> int:
        return self.updates if self.cost_updates is None else self.cost_updates


PRESETS = {
    "fast": Config(),
    "paper": Config(  # Table 2
        updates=1_000_000,
        cost_updates=None,
        batch=128,
        lr_cost=1e-5,
        lr_nu=1e-5,
        lr_policy=1e-5,
        cosine_decay=False,
    ),
}


class State(NamedTuple):
    cost: ScalarNet  # the logit of c(s, a)
    nu: ScalarNet
    policy: Policy
    cost_opt: optax.OptState
    nu_opt: optax.OptState
    policy_opt: optax.OptState
    log_alpha: Float[Array, ""]


def init(config: Config, data: Dataset, key: Array) -> State:
    key_cost, key_nu, key_policy = jax.random.split(key, 3)
    sizes = data.unlabeled.observation_size, data.unlabeled.action_size
    cost = ScalarNet(sum(sizes), config.hidden_cost, key=key_cost)
    nu = ScalarNet(sizes[0], config.hidden_nu, key=key_nu)
    policy = config.policy(data, key_policy)
    return State(
        cost, nu, policy, config.cost_optimiser.init(cost), config.nu_optimiser.init(nu),
        config.policy_optimiser.init(policy),
        log_alpha=jnp.log(jnp.float32(1.0 if config.alpha is None else config.alpha)),
    )  # fmt: skip


def gradient_penalty(cost: ScalarNet, inputs: Float[Array, "batch SA"]) -> Float[Array, ""]:
    """E[(‖∇l‖ − 1)²] at the inputs."""
    slopes = jax.grad(lambda x: cost(x).sum())(inputs)  # (batch, S + A)
    norms = jnp.sqrt(jnp.square(slopes).sum(axis=1) + MARGIN**2)  # the root has no slope at zero
    return jnp.square(norms - 1).mean()


def cost_loss(
    cost: ScalarNet,
    inputs_n: Float[Array, "batch SA"],
    inputs_u: Float[Array, "batch SA"],
    shares: Float[Array, "batch 1"],
    penalty: float,
) -> Float[Array, ""]:
    """−E_N[log c] − E_U[log(1 − c)], and a penalty between the piles and within the unlabeled one."""
    classified = jax.nn.softplus(-cost(inputs_n)).mean() + jax.nn.softplus(cost(inputs_u)).mean()
    between = shares * inputs_n + (1 - shares) * inputs_u
    within = shares * jnp.roll(inputs_u, 1, axis=0) + (1 - shares) * inputs_u
    return classified + penalty * gradient_penalty(cost, jnp.concatenate([between, within]))


def largest_log_alpha(cost: ScalarNet, pile: Pile) -> Float[Array, ""]:
    """log of the largest α below 1 with (1 + α)c < 1 for all steps of the pile."""
    return jnp.minimum(-map_steps(cost, pile).max(), 0) + jnp.log1p(-MARGIN)


def log_ratio(logits: Float[Array, " batch"], log_alpha: Float[Array, ""]) -> Float[Array, " batch"]:
    """r_α = log[(1 − (1 + α)c) / ((1 − α)(1 − c))] = log(1 − α eˡ) − log(1 − α)."""
    excluded = jnp.minimum(log_alpha + logits, jnp.log1p(-MARGIN))  # log(α eˡ)
    return jnp.log1p(-jnp.exp(excluded)) - jnp.log1p(-jnp.exp(log_alpha))


def residuals(
    value: ScalarNet, transitions: Transitions, rewards: Float[Array, " batch"], gamma: float
) -> Float[Array, " batch"]:
    """r + γ ν(s′) − ν(s), where nothing follows the end of an episode that its task ended."""
    both = jnp.stack([transitions.observations, transitions.next_observations])  # one matrix product for both
    now, after = value(both)
    return rewards + gamma * transitions.continues * after - now


def nu_loss(
    initial: Float[Array, " batch"],
    advantages: Float[Array, " batch"],
    known: Float[Array, " batch"],
    gamma: float,
) -> Float[Array, ""]:
    """(1 − γ) E[ν(s₀)] + log E_U[exp A_ν], over the steps whose successor is known."""
    logs = jnp.where(known > 0, advantages, LOWEST)
    log_mean = jax.nn.logsumexp(logs) - jnp.log(jnp.maximum(known.sum(), 1))
    return (1 - gamma) * initial.mean() + log_mean


def visit_weights(advantages: Float[Array, " batch"], batch: Transitions) -> Float[Array, " batch"]:
    """w_ν = exp A_ν, divided by its sum over the batch so that it can't overflow."""
    return jax.nn.softmax(jnp.where(batch.known > 0, advantages, LOWEST)) * batch.known


def update(
    config: Config, state: State, data: Dataset, number: Array, key: Array
) -> tuple[State, dict[str, Float[Array, ""]]]:
    key_cost, key_policy = jax.random.split(key)
    state, loss = jax.lax.cond(
        number < config.last_cost_update,
        lambda: _update_cost(config, state, data, key_cost),
        lambda: (state, jnp.full((), NOT_COMPUTED)),
    )
    state = _refresh_alpha(config, state, data, number)
    state, metrics = _update_nu_and_policy(config, state, data, key_policy)
    return state, {"loss/cost": loss, "alpha": jnp.exp(state.log_alpha)} | metrics


def _update_cost(config: Config, state: State, data: Dataset, key: Array) -> tuple[State, Float[Array, ""]]:
    assert data.nonpreferred is not None
    key_n, key_u, key_shares = jax.random.split(key, 3)
    inputs_n = _draw(config, data.nonpreferred, key_n)
    inputs_u = _draw(config, data.unlabeled, key_u)
    shares = jax.random.uniform(key_shares, (config.cost_batch, 1))

    def loss(cost: ScalarNet) -> Array:
        return cost_loss(cost, inputs_n, inputs_u, shares, config.gradient_penalty)

    cost, opt, value = config.cost_optimiser.descend(loss, state.cost, state.cost_opt)
    return state._replace(cost=cost, cost_opt=opt), value


def _draw(config: Config, pile: Pile, key: Array) -> Float[Array, "batch SA"]:
    rows = sample_steps(pile, config.cost_batch, key)
    return jnp.concatenate([pile.observations[rows], pile.actions[rows]], axis=1)


def _refresh_alpha(config: Config, state: State, data: Dataset, number: Array) -> State:
    """Search for α when due: once more after the discriminator has stopped learning, then no more."""
    if config.alpha is not None:
        return state
    due = (number % config.refresh == 0) & (number < config.last_cost_update + config.refresh)
    log_alpha = jax.lax.cond(
        due, lambda: largest_log_alpha(state.cost, data.unlabeled), lambda: state.log_alpha
    )
    return state._replace(log_alpha=log_alpha)


def _update_nu_and_policy(
    config: Config, state: State, data: Dataset, key: Array
) -> tuple[State, dict[str, Float[Array, ""]]]:
    key_rows, key_initial = jax.random.split(key)
    batch = transitions_at(data.unlabeled, sample_steps(data.unlabeled, config.batch, key_rows))
    initial = sample_initial(data.unlabeled, config.batch, key_initial)
    rewards = log_ratio(state.cost(batch.observations, batch.actions), state.log_alpha)

    def loss(nu: ScalarNet) -> tuple[Array, Array]:
        advantages = residuals(nu, batch, rewards, config.gamma)
        return nu_loss(nu(initial), advantages, batch.known, config.gamma), advantages

    (value, advantages), grads = jax.value_and_grad(loss, has_aux=True)(state.nu)
    nu, nu_opt = config.nu_optimiser.update(state.nu, grads, state.nu_opt)
    weights = visit_weights(advantages, batch)

    state = state._replace(nu=nu, nu_opt=nu_opt)
    state, cloning_loss = clone_weighted(config, state, batch.observations, batch.actions, weights)
    return state, {"loss/nu": value, "loss/policy": cloning_loss, "log_ratio/mean": rewards.mean()}


def cost(state: State, observations: Array, actions: Array) -> Array:
    """c(s, a): the probability that a step is from the non-preferred pile, were both piles equally large."""
    return jax.nn.sigmoid(state.cost(observations, actions))
