"""The networks of SafeMIL's Appendix E (arXiv:2511.08136), as pytrees of arrays.

Every module works on inputs with any leading axes, so a batch needs no `vmap`. Observations come
standardised and actions in [-1, 1].
"""

import abc
import itertools
import math
from collections.abc import Callable, Sequence

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

# σ ≥ 0.14, so that deterministic demonstrators don't dominate the likelihood.
LOG_STD_MIN, LOG_STD_MAX = -2.0, 2.0


class MLP(eqx.Module):
    """Dense layers with an activation between them."""

    weights: tuple[Float[Array, "inputs outputs"], ...]
    biases: tuple[Float[Array, " outputs"], ...]
    activation: Callable[[Array], Array] = eqx.field(static=True)

    def __init__(self, sizes: Sequence[int], activation: Callable[[Array], Array], *, key: Array):
        """Glorot-uniform weights for layers of `sizes`, the input's width first."""
        pairs = list(itertools.pairwise(sizes))
        counts = [inputs * outputs for inputs, outputs in pairs]
        # One draw for all layers: each draw is a program of its own, which takes time to compile.
        draws = jnp.split(jax.random.uniform(key, (sum(counts),), minval=-1.0), np.cumsum(counts)[:-1])
        limits = [math.sqrt(6 / sum(pair)) for pair in pairs]
        self.weights = tuple(
            limit * draw.reshape(pair) for limit, draw, pair in zip(limits, draws, pairs, strict=True)
        )
        self.biases = tuple(jnp.zeros(outputs) for _, outputs in pairs)
        self.activation = activation

    def __call__(self, x: Float[Array, "*batch inputs"]) -> Float[Array, "*batch outputs"]:
        rows = x.reshape(-1, x.shape[-1])  # one large matrix product instead of many small ones
        for weight, bias in zip(self.weights[:-1], self.biases[:-1], strict=True):
            rows = self.activation(rows @ weight + bias[None, :])
        rows = rows @ self.weights[-1] + self.biases[-1][None, :]
        return rows.reshape(*x.shape[:-1], rows.shape[-1])


class CostNet(eqx.Module):
    """ĉ(s, a) in (0, 1): the cost of taking action a in state s."""

    mlp: MLP

    def __init__(self, observation_size: int, action_size: int, hidden: Sequence[int], *, key: Array):
        self.mlp = MLP([observation_size + action_size, *hidden, 1], jax.nn.elu, key=key)

    def __call__(
        self, observations: Float[Array, "*batch S"], actions: Float[Array, "*batch A"]
    ) -> Float[Array, "*batch"]:
        return jax.nn.sigmoid(self.mlp(jnp.concatenate([observations, actions], axis=-1))[..., 0])


class ScalarNet(eqx.Module):
    """MLP with a scalar output, such as a logit or a value; its inputs are concatenated."""

    mlp: MLP

    def __init__(self, inputs: int, hidden: Sequence[int], *, key: Array):
        self.mlp = MLP([inputs, *hidden, 1], jax.nn.elu, key=key)

    def __call__(self, *inputs: Float[Array, "*batch _"]) -> Float[Array, "*batch"]:
        return self.mlp(jnp.concatenate(inputs, axis=-1))[..., 0]


class Policy(eqx.Module):
    """π(a | s), of actions in [-1, 1]."""

    @abc.abstractmethod
    def log_prob(
        self, observations: Float[Array, "*batch S"], actions: Float[Array, "*batch A"]
    ) -> Float[Array, "*batch"]:
        """log π(a | s)."""

    @abc.abstractmethod
    def mode(self, observations: Float[Array, "*batch S"]) -> Float[Array, "*batch A"]:
        """Deterministic action."""

    @abc.abstractmethod
    def sample(self, observations: Float[Array, "*batch S"], *, key: Array) -> Float[Array, "*batch A"]:
        """Draw an action."""

    def act(
        self, observations: Float[Array, "*batch S"], key: Array | None = None
    ) -> Float[Array, "*batch A"]:
        """Return the mode, or a sample if a key is given."""
        return self.mode(observations) if key is None else self.sample(observations, key=key)


class CategoricalPolicy(Policy):
    """π(a | s) of actions that are choices: A columns, 1 for the choice taken and -1 for the others."""

    mlp: MLP

    def __init__(self, observation_size: int, choices: int, hidden: Sequence[int], *, key: Array):
        self.mlp = MLP([observation_size, *hidden, choices], jax.nn.relu, key=key)

    def log_prob(
        self, observations: Float[Array, "*batch S"], actions: Float[Array, "*batch A"]
    ) -> Float[Array, "*batch"]:
        log_probs = jax.nn.log_softmax(self.mlp(observations))
        return jnp.where(actions > 0, log_probs, 0.0).sum(axis=-1)

    def mode(self, observations: Float[Array, "*batch S"]) -> Float[Array, "*batch A"]:
        """Most likely choice."""
        return _chosen(self.mlp(observations).argmax(axis=-1), self.mlp)

    def sample(self, observations: Float[Array, "*batch S"], *, key: Array) -> Float[Array, "*batch A"]:
        return _chosen(jax.random.categorical(key, self.mlp(observations)), self.mlp)


def _chosen(numbers: Int[Array, "*batch"], mlp: MLP) -> Float[Array, "*batch A"]:
    return 2 * jax.nn.one_hot(numbers, len(mlp.biases[-1])) - 1


class GaussianPolicy(Policy):
    """π(a | s): a mixture of Gaussians with means in [-1, 1] (tanh); samples are clipped to [-1, 1].

    Samples are not squashed: a squashed Gaussian's likelihood is a function of tanh⁻¹(a), in which actions
    near a bound dominate.
    """

    mlp: MLP
    components: int = eqx.field(static=True)

    def __init__(
        self,
        observation_size: int,
        action_size: int,
        hidden: Sequence[int],
        *,
        components: int = 2,
        key: Array,
    ):
        outputs = components * (1 + 2 * action_size)  # a logit, then means and log deviations
        self.mlp = MLP([observation_size, *hidden, outputs], jax.nn.relu, key=key)
        self.components = components

    def mixture(
        self, observations: Float[Array, "*batch S"]
    ) -> tuple[Float[Array, "*batch C"], Float[Array, "*batch C A"], Float[Array, "*batch C A"]]:
        """Log weights, means and log deviations of the components."""
        logits, means, log_stds = self._outputs(observations)
        return jax.nn.log_softmax(logits), jnp.tanh(means), jnp.clip(log_stds, LOG_STD_MIN, LOG_STD_MAX)

    def _outputs(self, observations: Float[Array, "*batch S"]) -> tuple[Array, Array, Array]:
        outputs = self.mlp(observations)
        logits, rest = outputs[..., : self.components], outputs[..., self.components :]
        means, log_stds = jnp.split(rest.reshape(*rest.shape[:-1], self.components, -1), 2, axis=-1)
        return logits, means, log_stds

    def log_prob(
        self, observations: Float[Array, "*batch S"], actions: Float[Array, "*batch A"]
    ) -> Float[Array, "*batch"]:
        """log π(a | s), before samples are clipped."""
        log_weights, means, log_stds = self.mixture(observations)
        standardised = (actions[..., None, :] - means) * jnp.exp(-log_stds)  # (..., C, A)
        gaussians = -0.5 * standardised**2 - log_stds - 0.5 * jnp.log(2 * jnp.pi)
        return jax.nn.logsumexp(log_weights + gaussians.sum(axis=-1), axis=-1)

    def mode(self, observations: Float[Array, "*batch S"]) -> Float[Array, "*batch A"]:
        """Mean of the most likely component: the deterministic action."""
        logits, means, _ = self._outputs(observations)
        heaviest = jnp.argmax(logits, axis=-1)[..., None, None]
        return jnp.tanh(jnp.take_along_axis(means, heaviest, axis=-2)[..., 0, :])

    def sample(self, observations: Float[Array, "*batch S"], *, key: Array) -> Float[Array, "*batch A"]:
        log_weights, means, log_stds = self.mixture(observations)
        key_component, key_noise = jax.random.split(key)
        chosen = jax.random.categorical(key_component, log_weights)[..., None, None]
        mean = jnp.take_along_axis(means, chosen, axis=-2)[..., 0, :]
        std = jnp.exp(jnp.take_along_axis(log_stds, chosen, axis=-2)[..., 0, :])
        return jnp.clip(mean + std * jax.random.normal(key_noise, mean.shape), -1, 1)
