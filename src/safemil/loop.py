"""The only loop: `lax.scan` over updates, `vmap` over seeds, whatever the algorithm.

A seed's randomness at update i is a function of the seed and of i alone, so a run that is stopped and
resumed, or trained beside other seeds, draws what it would have drawn anyway.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from safemil.algorithms import Algorithm
from safemil.data.sampling import Dataset

State = Any  # the algorithm's own, with a leading axis over seeds
OnInterval = Callable[[int, State, dict[str, np.ndarray]], None]


def seed_keys(seeds: Sequence[int]) -> tuple[Array, Array]:
    """For each seed, a key for its initial weights and one for its updates."""
    pairs = jax.vmap(lambda seed: jax.random.split(jax.random.key(seed)))(jnp.asarray(seeds))
    return pairs[:, 0], pairs[:, 1]


def init(algorithm: Algorithm, config: Any, data: Dataset, seeds: Sequence[int]) -> State:
    """The state before the first update."""
    keys, _ = seed_keys(seeds)
    return _init(algorithm, config, data, keys)


@partial(jax.jit, static_argnames=("algorithm", "config"))
def _init(algorithm: Algorithm, config: Any, data: Dataset, keys: Array) -> State:
    # The data are an argument: as constants the compiler would work through them, which takes minutes.
    return jax.vmap(lambda key: algorithm.init(config, data, key))(keys)


def fit(
    algorithm: Algorithm,
    config: Any,
    data: Dataset,
    seeds: Sequence[int],
    state: State,
    *,
    start: int = 0,
    interval: int = 50,
    on_interval: OnInterval = lambda step, state, metrics: None,
) -> State:
    """Run updates `start` to `config.updates`; `on_interval` sees state and mean metrics after each chunk."""
    _, keys = seed_keys(seeds)
    for first in range(start, config.updates, interval):
        steps = np.arange(first, min(first + interval, config.updates), dtype=np.int32)
        state, metrics = advance(algorithm, config, state, data, keys, steps)
        on_interval(int(steps[-1]) + 1, state, {name: np.asarray(value) for name, value in metrics.items()})
    return state


@partial(jax.jit, static_argnames=("algorithm", "config"))
def advance(
    algorithm: Algorithm, config: Any, states: State, data: Dataset, keys: Array, steps: Array
) -> tuple[State, dict[str, Float[Array, " seeds"]]]:
    """The updates of these numbers, in one program: the states after them and the metrics' means."""

    def step(states: State, i: Array) -> tuple[State, dict[str, Array]]:
        def one(state: State, key: Array) -> tuple[State, dict[str, Array]]:
            return algorithm.update(config, state, data, i, jax.random.fold_in(key, i))

        return jax.vmap(one)(states, keys)

    states, metrics = jax.lax.scan(step, states, steps)
    # A metric that an update does not compute is NaN there and left out of the mean.
    return states, {name: jnp.nanmean(values, axis=0) for name, values in metrics.items()}


def state_arrays(state: State) -> dict[str, np.ndarray]:
    """The state as named arrays, ready for a checkpoint."""
    leaves, _ = jax.tree_util.tree_flatten_with_path(state)
    return {jax.tree_util.keystr(path): np.asarray(leaf) for path, leaf in leaves}


def state_from_arrays(template: State, arrays: dict[str, np.ndarray]) -> State:
    """The state of the template's structure with the arrays' values."""
    leaves, structure = jax.tree_util.tree_flatten_with_path(template)
    return jax.tree_util.tree_unflatten(
        structure, [jnp.asarray(arrays[jax.tree_util.keystr(path)]) for path, _ in leaves]
    )
