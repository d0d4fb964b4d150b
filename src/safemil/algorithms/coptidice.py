"""COptiDICE: the constrained reference, which is told the true rewards and costs.

Lee et al. 2022, "COptiDICE: Offline Constrained Reinforcement Learning via Stationary Distribution
Correction Estimation" (arXiv:2204.08957). ν and λ find the visits w·ρ_U of the best policy that keeps to the
cost limit and close to the data; χ and τ bound its cost from above; the policy clones with weights w.

Defaults are those of OSRL (Liu et al. 2024, arXiv:2306.09303), which SafeMIL uses, with these departures:

- The limit on the average cost of a step is `cost_limit` over the mean length of an episode. OSRL compares
  that average with a discounted sum, larger by 1/(1 − γ), which a cost of 0 or 1 a step can never exceed.
- Each step is paired with a first observation s₀ drawn for it, as in the paper, or shares one with others
  (`initial`); OSRL finds the first observations among the steps of the batch, where they are rare.
- ν and χ are one network each, as in the paper; OSRL takes the smaller of two.
- Steps whose successor was not recorded are left out.

`paper` weights steps, as Lee et al. and OSRL do. `fast` weights whole episodes: each is one decision, all
start in one state with an empty observation, and nothing follows them. Then ν is a number, and
w = (f′)⁻¹((r̄ − λ c̄ − ν) / α) for the means r̄ and c̄ of an episode's rewards and costs.
docs/baselines.md says why, and what else was tried.
"""

import math
from dataclasses import dataclass
from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, Int

from safemil.algorithms.cloning import Cloning, Optimiser, clone_weighted, weighted_mean
from safemil.algorithms.cloning import act as act
from safemil.data.sampling import (
    Dataset,
    Pile,
    Transitions,
    episode_at,
    episode_sums,
    sample_initial,
    sample_steps,
    transitions_at,
)
from safemil.errors import InputError
from safemil.networks import Policy, ScalarNet
from safemil.settings import require_positive, require_within

Decisions = Literal["steps", "episodes"]  # what is weighted
TITLE = "COptiDICE"
NEEDS = frozenset({"annotations"})
OURS = frozenset({"decisions", "initial"})
LOWEST = -1e30  # finite stand-in for log 0


@dataclass(frozen=True)
class Config(Cloning):
    updates: int = 10_000  # of all networks
    batch: int = 256  # steps per update
    decisions: Decisions = "episodes"  # what is weighted
    initial: int = 64  # first observations per update, shared among steps; unused for episodes
    gamma: float = 0.99  # discount between steps
    cost_limit: float = 0.1  # largest mean cost of an episode
    alpha: float = 0.05  # weight of the divergence from the data
    cost_ub_epsilon: float = 0.01  # ε: divergence from the data that the bound on the cost allows for
    reward_scale: float = 0.1  # factor on the rewards
    noise: float = 0.0  # noise on cloned steps, in standard deviations of each column
    lr_critic: float = 1e-2  # learning rate of ν and χ
    lr_multiplier: float = 1e-2  # learning rate of λ and τ
    lr_policy: float = 1e-3  # learning rate of the policy
    hidden_critic: tuple[int, ...] = (256, 256)  # hidden layers of ν and χ

    def __post_init__(self) -> None:
        super().__post_init__()
        require_positive(self, "updates", "batch", "initial", "alpha", "cost_ub_epsilon", "reward_scale")
        require_positive(self, "lr_critic", "lr_multiplier", "lr_policy")
        require_within(self, "cost_limit", 0, math.inf)
        require_within(self, "gamma", 0, 1)
        require_within(self, "noise", 0, math.inf)

    @property
    def discount(self) -> float:
        """Discount between decisions; an episode as one decision has no successor."""
        return self.gamma if self.decisions == "steps" else 0.0

    @property
    def critic_optimiser(self) -> Optimiser:
        return self.optimiser(self.lr_critic)

    @property
    def multiplier_optimiser(self) -> Optimiser:
        return self.optimiser(self.lr_multiplier)._replace(weight_decay=0.0)

    @property
    def policy_optimiser(self) -> Optimiser:
        return self.decaying_optimiser(self.lr_policy, self.updates)


PRESETS = {
    "fast": Config(),
    "paper": Config(  # OSRL's defaults, and SafeMIL's number of updates
        updates=1_000_000,
        batch=512,
        initial=512,
        decisions="steps",
        cost_limit=10.0,
        alpha=0.5,
        noise=0.1,
        lr_critic=1e-4,
        lr_multiplier=1e-4,
        lr_policy=1e-4,
        cosine_decay=False,
    ),
}


class State(NamedTuple):
    nu: ScalarNet
    chi: ScalarNet
    policy: Policy
    nu_opt: optax.OptState
    chi_opt: optax.OptState
    policy_opt: optax.OptState
    raw_lambda: Float[Array, ""]  # before the softplus that keeps it positive
    raw_tau: Float[Array, ""]
    lambda_opt: optax.OptState
    tau_opt: optax.OptState


def init(config: Config, data: Dataset, key: Array) -> State:
    if data.unlabeled.discrete and config.noise > 0:
        raise InputError("coptidice adds noise to actions, but these are choices; set noise=0.")
    key_nu, key_chi, key_policy = jax.random.split(key, 3)
    sizes = data.unlabeled.observation_size, data.unlabeled.action_size
    nu = ScalarNet(sizes[0], config.hidden_critic, key=key_nu)
    chi = ScalarNet(sizes[0], config.hidden_critic, key=key_chi)
    policy = config.policy(data, key_policy)
    critic, multiplier = config.critic_optimiser, config.multiplier_optimiser
    one = jnp.ones(())
    return State(
        nu, chi, policy, critic.init(nu), critic.init(chi), config.policy_optimiser.init(policy),
        one, one, multiplier.init(one), multiplier.init(one),
    )  # fmt: skip


def correction(x: Float[Array, " batch"]) -> Float[Array, " batch"]:
    """w = max(0, (f′)⁻¹(x)) of the soft-χ² divergence: eˣ below zero, 1 + x above."""
    return jnp.where(x < 0, jnp.exp(jnp.minimum(x, 0)), 1 + x)


def conjugate(x: Float[Array, " batch"]) -> Float[Array, " batch"]:
    """f*(x) = w x − f(w) at w = `correction(x)`, its slope: eˣ − 1 below zero, x + x²/2 above."""
    return jnp.where(x < 0, jnp.expm1(jnp.minimum(x, 0)), x + x**2 / 2)


def values(
    net: ScalarNet,
    initial: Float[Array, "initial S"],
    batch: Transitions,
    gains: Float[Array, " batch"],
    gamma: float,
) -> tuple[Float[Array, " initial"], Float[Array, " batch"]]:
    """ν(s₀), and r + γ ν(s′) − ν(s) where nothing follows an end: one matrix product for all."""
    joined = jnp.concatenate([batch.observations, batch.next_observations, initial])
    seen = len(batch.observations)
    now, after, first = jnp.split(net(joined), [seen, 2 * seen])
    return first, gains + gamma * batch.continues * after - now


def nu_loss(
    initial: Float[Array, " initial"],
    advantages: Float[Array, " batch"],
    known: Float[Array, " batch"],
    gamma: float,
    alpha: float,
) -> Float[Array, ""]:
    """(1 − γ) E[ν(s₀)] + E[w e − α f(w)] at the best w, with e = r − λc + γ ν(s′) − ν(s)."""
    return (1 - gamma) * initial.mean() + alpha * weighted_mean(conjugate(advantages / alpha), known)


def bound_terms(
    initial: Float[Array, " batch"], flows: Float[Array, " batch"], w: Float[Array, " batch"], gamma: float
) -> Float[Array, " batch"]:
    """ℓ = (1 − γ) χ(s₀) + w (c + γ χ(s′) − χ(s))."""
    return (1 - gamma) * initial + w * flows


def bound_loss(
    terms: Float[Array, " batch"], known: Float[Array, " batch"], tau: Float[Array, ""], epsilon: float
) -> Float[Array, ""]:
    """τ log E[exp(ℓ / τ)] + τ ε: at its lowest, the largest mean of ℓ within a divergence ε of the data."""
    logs = jnp.where(known > 0, terms / tau, LOWEST)
    log_mean = jax.nn.logsumexp(logs) - jnp.log(jnp.maximum(known.sum(), 1))
    return tau * (jnp.where(known.sum() > 0, log_mean, 0) + epsilon)


def bounded_cost(
    terms: Float[Array, " batch"],
    known: Float[Array, " batch"],
    tau: Float[Array, ""],
    w: Float[Array, " batch"],
    costs: Float[Array, " batch"],
) -> Float[Array, ""]:
    """E[w̃ w c], w̃ ∝ exp(ℓ / τ): the worst-case (tilted) cost of a step."""
    tilt = jax.nn.softmax(jnp.where(known > 0, terms / tau, LOWEST)) * known
    return (tilt * w * costs).sum()


def update(
    config: Config, state: State, data: Dataset, number: Array, key: Array
) -> tuple[State, dict[str, Float[Array, ""]]]:
    assert data.rewards is not None
    assert data.costs is not None
    key_rows, key_initial, key_policy = jax.random.split(key, 3)
    rows = sample_steps(data.unlabeled, config.batch, key_rows)
    batch = transitions_at(data.unlabeled, rows)
    if config.decisions == "steps":
        decided, rewards, costs = batch, data.rewards[rows], data.costs[rows]
        initial = sample_initial(data.unlabeled, config.initial, key_initial)
    else:
        decided, rewards, costs = episodes_of(data.unlabeled, rows, data.rewards, data.costs)
        initial = decided.observations
    limit = config.cost_limit / data.unlabeled.lengths.mean()

    state, w, metrics = _update_nu(config, state, decided, initial, config.reward_scale * rewards, costs)
    state, cost, bound_metrics = _update_bound(config, state, decided, initial, w, costs)
    state, multiplier_metrics = _update_lambda(config, state, cost, limit)
    state, policy_metrics = _update_policy(config, state, batch, w, key_policy)
    return state, metrics | bound_metrics | multiplier_metrics | policy_metrics


def episodes_of(
    pile: Pile, rows: Int[Array, " batch"], rewards: Array, costs: Array
) -> tuple[Transitions, Float[Array, " batch"], Float[Array, " batch"]]:
    """The steps' episodes as one decision each, with the mean reward and mean cost of their steps.

    They all begin in one state, in which nothing is seen, and nothing follows them.
    """
    episode = episode_at(pile, rows)
    gains, harms = (episode_sums(each, pile)[episode] / pile.lengths[episode] for each in (rewards, costs))
    nothing = jnp.zeros((1, pile.observation_size))
    whole = Transitions(nothing, pile.actions[rows], nothing, jnp.zeros_like(gains), jnp.ones_like(gains))
    return whole, gains, harms


def _update_nu(
    config: Config, state: State, batch: Transitions, initial: Array, rewards: Array, costs: Array
) -> tuple[State, Float[Array, " batch"], dict[str, Float[Array, ""]]]:
    penalised = rewards - jax.nn.softplus(state.raw_lambda) * costs

    def loss(nu: ScalarNet) -> tuple[Array, Array]:
        first, advantages = values(nu, initial, batch, penalised, config.discount)
        return nu_loss(first, advantages, batch.known, config.discount, config.alpha), advantages

    (value, advantages), grads = jax.value_and_grad(loss, has_aux=True)(state.nu)
    nu, opt = config.critic_optimiser.update(state.nu, grads, state.nu_opt)
    w = correction(advantages / config.alpha) * batch.known
    return state._replace(nu=nu, nu_opt=opt), w, {"loss/nu": value, "weights/mean": w.mean()}


def _update_bound(
    config: Config, state: State, batch: Transitions, initial: Array, w: Array, costs: Array
) -> tuple[State, Float[Array, ""], dict[str, Float[Array, ""]]]:
    def loss(chi: ScalarNet, raw_tau: Array) -> tuple[Array, Array]:
        first, flows = values(chi, initial, batch, costs, config.discount)
        terms = bound_terms(jnp.resize(first, flows.shape), flows, w, config.discount)
        tau = jax.nn.softplus(raw_tau)
        value = bound_loss(terms, batch.known, tau, config.cost_ub_epsilon)
        return value, bounded_cost(terms, batch.known, tau, w, costs)

    grad = jax.value_and_grad(loss, argnums=(0, 1), has_aux=True)
    (value, cost), (grads_chi, grads_tau) = grad(state.chi, state.raw_tau)
    chi, chi_opt = config.critic_optimiser.update(state.chi, grads_chi, state.chi_opt)
    raw_tau, tau_opt = config.multiplier_optimiser.update(state.raw_tau, grads_tau, state.tau_opt)
    metrics = {"loss/chi": value, "tau": jax.nn.softplus(raw_tau)}
    return state._replace(chi=chi, chi_opt=chi_opt, raw_tau=raw_tau, tau_opt=tau_opt), cost, metrics


def _update_lambda(
    config: Config, state: State, cost: Float[Array, ""], limit: Float[Array, ""]
) -> tuple[State, dict[str, Float[Array, ""]]]:
    """Update λ by the gradient of λ (limit − cost): λ rises while the bounded cost lies above the limit."""

    def loss(raw_lambda: Array) -> Array:
        return jax.nn.softplus(raw_lambda) * (limit - cost)

    raw_lambda, opt, _ = config.multiplier_optimiser.descend(loss, state.raw_lambda, state.lambda_opt)
    metrics = {"lambda": jax.nn.softplus(raw_lambda), "cost/bound": cost, "cost/limit": limit}
    return state._replace(raw_lambda=raw_lambda, lambda_opt=opt), metrics


def _update_policy(
    config: Config, state: State, batch: Transitions, w: Float[Array, " batch"], key: Array
) -> tuple[State, dict[str, Float[Array, ""]]]:
    observations, actions = batch.observations, batch.actions
    if config.noise > 0:
        key_observations, key_actions = jax.random.split(key)
        observations += config.noise * jax.random.normal(key_observations, observations.shape)
        spread = config.noise * actions.std(axis=0, keepdims=True)
        actions += spread * jax.random.normal(key_actions, actions.shape)

    state, value = clone_weighted(config, state, observations, actions, w)
    return state, {"loss/policy": value}
