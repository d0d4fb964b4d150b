"""What the methods share: the policy's settings, the loss L_π of cloning and the optimiser of Appendix E."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, NamedTuple, TypeVar

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, Int

from safemil.data.sampling import Dataset, Pile
from safemil.networks import Policy
from safemil.settings import require_positive, require_within

Loss = Literal["nll", "mse"]
N = TypeVar("N")
TINY = 1e-30  # keeps a division by a sum of weights finite


class Optimiser(NamedTuple):
    """AdamW behind a clip of the global norm."""

    lr: float
    weight_decay: float
    clip_norm: float
    fade: int | None = None  # steps in which the rate falls to zero along half a cosine; none: it stays

    def transformation(self) -> optax.GradientTransformation:
        rate = self.lr if self.fade is None else optax.cosine_decay_schedule(self.lr, self.fade)
        adamw = optax.adamw(rate, weight_decay=self.weight_decay)
        return optax.chain(optax.clip_by_global_norm(self.clip_norm), adamw)

    def init(self, net: N) -> optax.OptState:
        return self.transformation().init(net)

    def step(self, net: N, grads: N, state: optax.OptState) -> tuple[N, optax.OptState]:
        updates, state = self.transformation().update(grads, state, net)
        return optax.apply_updates(net, updates), state

    def descend(
        self, loss: Callable[[N], Float[Array, ""]], net: N, state: optax.OptState
    ) -> tuple[N, optax.OptState, Float[Array, ""]]:
        """A step down `loss`, and its value before the step."""
        value, grads = jax.value_and_grad(loss)(net)
        return *self.step(net, grads, state), value


@dataclass(frozen=True)
class Cloning:
    """The settings that a policy is cloned with, whatever it is told to clone."""

    fade: bool = True  # the policy's rate falls to zero until the last update
    weight_decay: float = 0.01
    clip_norm: float = 10.0
    hidden_policy: tuple[int, ...] = (256, 256)
    components: int = 2  # Gaussians in the mixture that the policy is
    loss: Loss = "nll"

    def __post_init__(self) -> None:
        require_positive(self, "clip_norm", "components")
        require_within(self, "weight_decay", 0, 1)

    def policy(self, data: Dataset, key: Array) -> Policy:
        sizes = data.unlabeled.observation_size, data.unlabeled.action_size
        return Policy(*sizes, self.hidden_policy, components=self.components, key=key)

    def cloner(self, lr: float, updates: int) -> Optimiser:
        """The policy's optimiser, for so many updates."""
        return self.optimiser(lr)._replace(fade=updates if self.fade else None)

    def optimiser(self, lr: float) -> Optimiser:
        """That of a network beside it, whose rate stays."""
        return Optimiser(lr, self.weight_decay, self.clip_norm)


def bc_losses(
    policy: Policy, observations: Float[Array, "*batch S"], actions: Float[Array, "*batch A"], loss: Loss
) -> Float[Array, "*batch"]:
    """L_π(s, a): the negative log-likelihood, or the squared error of the mode."""
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
    """A step towards the actions at `rows` of a pile, and the mean loss before it."""
    observations, actions = pile.observations[rows], pile.actions[rows]

    def mean_loss(policy: Policy) -> Array:
        return bc_losses(policy, observations, actions, loss).mean()

    return optimiser.descend(mean_loss, policy, state)


def weighted_mean(values: Float[Array, "*batch"], weights: Float[Array, "*batch"]) -> Float[Array, ""]:
    """Σ w·x / Σ w: weights need not sum to one, and a scale common to all of them does not matter.

    The sum is kept above zero, so that a batch in which nothing carries weight gives 0 and no NaN.
    """
    total = jnp.maximum(weights.sum(), TINY)
    return (weights * values).sum() / jax.lax.stop_gradient(total)


def weighted_bc_loss(
    policy: Policy,
    observations: Float[Array, "*batch S"],
    actions: Float[Array, "*batch A"],
    weights: Float[Array, "*batch"],
    loss: Loss,
) -> Float[Array, ""]:
    """E[w L_π(s, a)] / E[w]; the weights are taken as given."""
    losses = bc_losses(policy, observations, actions, loss)
    return weighted_mean(losses, jax.lax.stop_gradient(weights))
