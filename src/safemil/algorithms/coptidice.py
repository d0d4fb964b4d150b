"""COptiDICE: the constrained reference, which is told the true rewards and costs.

Lee et al. 2022, "COptiDICE: Offline Constrained Reinforcement Learning via Stationary Distribution
Correction Estimation" (arXiv:2204.08957). ν and λ find the visits w·ρ_U of the best policy that keeps to the
cost limit and close to the data; χ and τ bound its cost from above; the policy clones with weights w.

Defaults are those of OSRL (Liu et al. 2024, arXiv:2306.09303), which SafeMIL uses, with these departures:

- The limit on the average cost of a step is `cost_limit` over the mean length of an episode. OSRL compares
  that average with a discounted sum, larger by 1/(1 − γ), which a cost of 0 or 1 a step can never exceed.
- Each step is paired with a first observation s₀ drawn for it, as in the paper, or in `fast` with one that
  four steps share; OSRL finds the first observations among the steps of the batch, where they are rare.
- ν and χ are one network each, as in the paper; OSRL takes the smaller of two.
- Steps whose successor was not recorded are left out.

`fast` was tuned on Swimmer by what its policies do. After 4,000 updates OSRL's α = 0.5 and a critic's rate of
3e-4 had a return of 115 at a cost of 42; α = 0.05, 111 at 26; with a rate of 1e-3 too, 110 at 17. With OSRL's
limit of 10 costs rose to 30 and more at 5,000 updates. With a limit of 1, 3,000 updates and three seeds, they
are 6, 18 and 67 at a rate of 1e-3; 4, 4 and 47 at 3e-3; 4, 4 and 22 at 1e-2. A limit of 0, ε up to 1, a
critic's rate that falls to zero and twice the updates were no better.

The limit holds for the weighted steps, whose cost comes near it or below, and not for the policy cloned
from them: weights leave out the costly steps of reckless episodes and keep their other steps. Where incidents
are like the paper's, costly in a third of their steps, clones of the rest are costly too. On Walker2d and
Ant the preset costs 102 and 28 over five seeds; a reward scale of 0.001 with α = 0.005 and a critic's rate of
1e-3, 118 and 18, and 72 on one seed of Swimmer. 5,000 updates of the policy alone by the mean ν and λ of
3,000 updates before them cost 40 and 58 with seed 0, where the preset costs 71 and 33. In navigation γ = 0.9
was the best of 0.9 to 0.99, with α from 0.005 to 0.5, limits from 0 to 10 and reward scales from 0.01 to 1
(tried on Circle2).
"""

import math
from dataclasses import dataclass
from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float

from safemil.algorithms.cloning import Loss, Optimiser, weighted_bc_loss, weighted_mean
from safemil.data.sampling import Dataset, Transitions, sample_initial, sample_steps, transitions_at
from safemil.networks import Policy, Score
from safemil.settings import require_positive, require_within

NEEDS = frozenset({"annotations"})
LOWEST = -1e30  # a logarithm of nothing that stays finite


@dataclass(frozen=True)
class Config:
    updates: int = 3_000
    batch: int = 256  # steps per update
    initial: int = 64  # first observations per update, shared out among the steps
    cost_limit: float = 1.0  # of an episode
    gamma: float = 0.99
    alpha: float = 0.05  # how much it costs to leave the data
    cost_ub_epsilon: float = 0.01  # ε: how far the data may be from the truth when the cost is bounded
    reward_scale: float = 0.1
    noise: float = 0.1  # on what the policy clones, in deviations of each column
    lr_critic: float = 1e-2
    lr_multiplier: float = 1e-2
    lr_policy: float = 1e-3
    fade: bool = True  # the policy's rate falls to zero until the last update
    weight_decay: float = 0.01
    clip_norm: float = 10.0
    hidden_critic: tuple[int, ...] = (256, 256)
    hidden_policy: tuple[int, ...] = (256, 256)
    loss: Loss = "nll"

    def __post_init__(self) -> None:
        require_positive(self, "updates", "batch", "initial", "alpha", "cost_ub_epsilon", "reward_scale")
        require_positive(self, "lr_critic", "lr_multiplier", "lr_policy", "clip_norm")
        require_within(self, "cost_limit", 0, math.inf)
        require_within(self, "gamma", 0, 1)
        require_within(self, "noise", 0, math.inf)
        require_within(self, "weight_decay", 0, 1)

    @property
    def optimisers(self) -> tuple[Optimiser, Optimiser, Optimiser]:
        """Those of ν and χ, of λ and τ, and of the policy."""
        rest = (self.weight_decay, self.clip_norm)
        multiplier = Optimiser(self.lr_multiplier, 0.0, self.clip_norm)
        return (
            Optimiser(self.lr_critic, *rest),
            multiplier,
            Optimiser(self.lr_policy, *rest, self.updates if self.fade else None),
        )


PRESETS = {
    "fast": Config(),
    "paper": Config(  # OSRL's defaults, and SafeMIL's number of updates
        updates=1_000_000,
        batch=512,
        initial=512,
        cost_limit=10.0,
        alpha=0.5,
        lr_critic=1e-4,
        lr_multiplier=1e-4,
        lr_policy=1e-4,
        fade=False,
    ),
}


class State(NamedTuple):
    nu: Score
    chi: Score
    policy: Policy
    nu_opt: optax.OptState
    chi_opt: optax.OptState
    policy_opt: optax.OptState
    raw_lambda: Float[Array, ""]  # before the softplus that keeps it positive
    raw_tau: Float[Array, ""]
    lambda_opt: optax.OptState
    tau_opt: optax.OptState


def init(config: Config, data: Dataset, key: Array) -> State:
    key_nu, key_chi, key_policy = jax.random.split(key, 3)
    sizes = data.unlabeled.observation_size, data.unlabeled.action_size
    nu = Score(sizes[0], config.hidden_critic, key=key_nu)
    chi = Score(sizes[0], config.hidden_critic, key=key_chi)
    policy = Policy(*sizes, config.hidden_policy, key=key_policy)
    critic, multiplier, cloner = config.optimisers
    one = jnp.ones(())
    return State(
        nu, chi, policy, critic.init(nu), critic.init(chi), cloner.init(policy),
        one, one, multiplier.init(one), multiplier.init(one),
    )  # fmt: skip


def correction(x: Float[Array, " batch"]) -> Float[Array, " batch"]:
    """w = max(0, (f′)⁻¹(x)) of the soft-χ² divergence: eˣ below zero, 1 + x above."""
    return jnp.where(x < 0, jnp.exp(jnp.minimum(x, 0)), 1 + x)


def conjugate(x: Float[Array, " batch"]) -> Float[Array, " batch"]:
    """f*(x) = w x − f(w) at w = `correction(x)`, its slope: eˣ − 1 below zero, x + x²/2 above."""
    return jnp.where(x < 0, jnp.expm1(jnp.minimum(x, 0)), x + x**2 / 2)


def values(
    net: Score,
    initial: Float[Array, "initial S"],
    batch: Transitions,
    gains: Float[Array, " batch"],
    gamma: float,
) -> tuple[Float[Array, " initial"], Float[Array, " batch"]]:
    """ν(s₀), and r + γ ν(s′) − ν(s) where nothing follows an end: one matrix product for all."""
    joined = jnp.concatenate([batch.observations, batch.next_observations, initial])
    now, after, first = jnp.split(net(joined), [len(gains), 2 * len(gains)])
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
    """E[w̃ w c], w̃ ∝ exp(ℓ / τ): the cost of a step when the data are weighed against us."""
    tilt = jax.nn.softmax(jnp.where(known > 0, terms / tau, LOWEST)) * known
    return (tilt * w * costs).sum()


def update(
    config: Config, state: State, data: Dataset, step: Array, key: Array
) -> tuple[State, dict[str, Float[Array, ""]]]:
    assert data.rewards is not None
    assert data.costs is not None
    key_rows, key_initial, key_policy = jax.random.split(key, 3)
    rows = sample_steps(data.unlabeled, config.batch, key_rows)
    batch = transitions_at(data.unlabeled, rows)
    initial = sample_initial(data.unlabeled, config.initial, key_initial)
    rewards, costs = config.reward_scale * data.rewards[rows], data.costs[rows]
    limit = config.cost_limit / data.unlabeled.lengths.mean()

    state, w, metrics = _update_nu(config, state, batch, initial, rewards, costs)
    state, cost, bound_metrics = _update_bound(config, state, batch, initial, w, costs)
    state, multiplier_metrics = _update_lambda(config, state, cost, limit)
    state, policy_metrics = _update_policy(config, state, batch, w, key_policy)
    return state, metrics | bound_metrics | multiplier_metrics | policy_metrics


def _update_nu(
    config: Config, state: State, batch: Transitions, initial: Array, rewards: Array, costs: Array
) -> tuple[State, Float[Array, " batch"], dict[str, Float[Array, ""]]]:
    penalised = rewards - jax.nn.softplus(state.raw_lambda) * costs

    def loss(nu: Score) -> tuple[Array, Array]:
        first, advantages = values(nu, initial, batch, penalised, config.gamma)
        return nu_loss(first, advantages, batch.known, config.gamma, config.alpha), advantages

    (value, advantages), grads = jax.value_and_grad(loss, has_aux=True)(state.nu)
    nu, opt = config.optimisers[0].step(state.nu, grads, state.nu_opt)
    w = correction(advantages / config.alpha) * batch.known
    return state._replace(nu=nu, nu_opt=opt), w, {"loss/nu": value, "weights/mean": w.mean()}


def _update_bound(
    config: Config, state: State, batch: Transitions, initial: Array, w: Array, costs: Array
) -> tuple[State, Float[Array, ""], dict[str, Float[Array, ""]]]:
    def loss(chi: Score, raw_tau: Array) -> tuple[Array, Array]:
        first, flows = values(chi, initial, batch, costs, config.gamma)
        terms = bound_terms(jnp.resize(first, flows.shape), flows, w, config.gamma)
        tau = jax.nn.softplus(raw_tau)
        value = bound_loss(terms, batch.known, tau, config.cost_ub_epsilon)
        return value, bounded_cost(terms, batch.known, tau, w, costs)

    grad = jax.value_and_grad(loss, argnums=(0, 1), has_aux=True)
    (value, cost), (grads_chi, grads_tau) = grad(state.chi, state.raw_tau)
    critic, multiplier, _ = config.optimisers
    chi, chi_opt = critic.step(state.chi, grads_chi, state.chi_opt)
    raw_tau, tau_opt = multiplier.step(state.raw_tau, grads_tau, state.tau_opt)
    metrics = {"loss/chi": value, "tau": jax.nn.softplus(raw_tau)}
    return state._replace(chi=chi, chi_opt=chi_opt, raw_tau=raw_tau, tau_opt=tau_opt), cost, metrics


def _update_lambda(
    config: Config, state: State, cost: Float[Array, ""], limit: Float[Array, ""]
) -> tuple[State, dict[str, Float[Array, ""]]]:
    """A step on λ (limit − cost): λ rises while the bounded cost lies above the limit."""

    def loss(raw_lambda: Array) -> Array:
        return jax.nn.softplus(raw_lambda) * (limit - cost)

    raw_lambda, opt, _ = config.optimisers[1].descend(loss, state.raw_lambda, state.lambda_opt)
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

    def loss(policy: Policy) -> Array:
        return weighted_bc_loss(policy, observations, actions, w, config.loss)

    policy, opt, value = config.optimisers[2].descend(loss, state.policy, state.policy_opt)
    return state._replace(policy=policy, policy_opt=opt), {"loss/policy": value}


def act(state: State, observations: Array, key: Array | None = None) -> Array:
    return state.policy.act(observations, key)
