"""Behaviour cloning, shared by all algorithms: the policy's settings, its loss L_π and the optimiser."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, TypeVar

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, Int

from safemil.data.sampling import Dataset, Pile
from safemil.errors import InputError
from safemil.networks import CategoricalPolicy, GaussianPolicy, Policy
from safemil.settings import require_positive, require_within

Loss = Literal["nll", "mse"]
N = TypeVar("N")
TINY = 1e-30  # keeps a division by a sum of weights finite


class Optimiser(NamedTuple):
    """AdamW with gradients clipped by their global norm (SafeMIL, Appendix E)."""

    lr: float
    weight_decay: float
    clip_norm: float
    decay_updates: int | None = None  # cosine decay of the learning rate to 0 over these; none: constant

    def transformation(self) -> optax.GradientTransformation:
        rate = self.lr
        if self.decay_updates is not None:
            rate = optax.cosine_decay_schedule(self.lr, self.decay_updates)
        adamw = optax.adamw(rate, weight_decay=self.weight_decay)
        return optax.chain(optax.clip_by_global_norm(self.clip_norm), adamw)

    def init(self, net: N) -> optax.OptState:
        return self.transformation().init(net)

    def update(self, net: N, grads: N, state: optax.OptState) -> tuple[N, optax.OptState]:
        updates, state = self.transformation().update(grads, state, net)
        return optax.apply_updates(net, updates), state

    def descend(
        self, loss: Callable[[N], Float[Array, ""]], net: N, state: optax.OptState
    ) -> tuple[N, optax.OptState, Float[Array, ""]]:
        """Update by the gradient of `loss`; the value returned is the one before the update."""
        value, grads = jax.value_and_grad(loss)(net)
        return *self.update(net, grads, state), value


@dataclass(frozen=True)
class Cloning:
    """Settings of behaviour cloning, common to all algorithms."""

    cosine_decay: bool = True  # the policy's learning rate decays to 0 by the last update
    weight_decay: float = 0.01  # AdamW's weight decay, of all networks
    clip_norm: float = 10.0  # largest global norm of a gradient
    hidden_policy: tuple[int, ...] = (256, 256)  # hidden layers of the policy
    components: int = 2  # Gaussians in the policy's mixture
    loss: Loss = "nll"  # negative log-likelihood, or squared error of the policy's mode

    def __post_init__(self) -> None:
        require_positive(self, "clip_norm", "components")
        require_within(self, "weight_decay", 0, 1)

    def policy(self, data: Dataset, key: Array) -> Policy:
        """Make the policy that fits the actions: categorical for choices, else a mixture of Gaussians."""
        sizes = data.unlabeled.observation_size, data.unlabeled.action_size
        if not data.unlabeled.discrete:
            return GaussianPolicy(*sizes, self.hidden_policy, components=self.components, key=key)
        if self.loss == "mse":
            raise InputError(
                'the loss "mse" is for actions that are numbers, but these are choices; use "nll".'
            )
        return CategoricalPolicy(*sizes, self.hidden_policy, key=key)

    def decaying_optimiser(self, lr: float, updates: int) -> Optimiser:
        """Optimiser of a policy that is trained for `updates` updates."""
        return self.optimiser(lr)._replace(decay_updates=updates if self.cosine_decay else None)

    def optimiser(self, lr: float) -> Optimiser:
        """Constant-rate optimiser for the other networks."""
        return Optimiser(lr, self.weight_decay, self.clip_norm)


def bc_losses(
    policy: Policy, observations: Float[Array, "*batch S"], actions: Float[Array, "*batch A"], loss: Loss
) -> Float[Array, "*batch"]:
    """Loss L_π(s, a) of each step: negative log-likelihood, or squared error of the mode."""
    if loss == "nll":
        return -policy.log_prob(observations, actions)
    return jnp.square(policy.mode(observations) - actions).sum(axis=-1)


def clone(
    optimiser: Optimiser,
    policy: Policy,
    state: optax.OptState,
    pile: Pile,
    rows: Int[Array, " batch"],
    loss: Loss,
) -> tuple[Policy, optax.OptState, Float[Array, ""]]:
    """Update by the gradient of the cloning loss at `rows`; return the mean loss before the update."""
    observations, actions = pile.observations[rows], pile.actions[rows]

    def mean_loss(policy: Policy) -> Array:
        return bc_losses(policy, observations, actions, loss).mean()

    return optimiser.descend(mean_loss, policy, state)


def weighted_mean(values: Float[Array, "*batch"], weights: Float[Array, "*batch"]) -> Float[Array, ""]:
    """Weighted mean Σ w·x / Σ w; it is 0, not NaN, if all weights are 0."""
    total = jnp.maximum(weights.sum(), TINY)
    return (weights * values).sum() / jax.lax.stop_gradient(total)


def weighted_bc_loss(
    policy: Policy,
    observations: Float[Array, "*batch S"],
    actions: Float[Array, "*batch A"],
    weights: Float[Array, "*batch"],
    loss: Loss,
) -> Float[Array, ""]:
    """Weighted cloning loss E[w L_π(s, a)] / E[w]; no gradient flows through the weights."""
    losses = bc_losses(policy, observations, actions, loss)
    return weighted_mean(losses, jax.lax.stop_gradient(weights))


def clone_weighted(
    config: Any, state: Any, observations: Array, actions: Array, weights: Array
) -> tuple[Any, Float[Array, ""]]:
    """Update by the gradient of the weighted cloning loss; return the new state and the loss before it."""

    def loss(policy: Policy) -> Array:
        return weighted_bc_loss(policy, observations, actions, weights, config.loss)

    policy, opt, value = config.policy_optimiser.descend(loss, state.policy, state.policy_opt)
    return state._replace(policy=policy, policy_opt=opt), value


def act(state: Any, observations: Array, key: Array | None = None) -> Array:
    """Act by the policy of a state: its most likely action, or a sample if there is a key."""
    return state.policy.act(observations, key)
