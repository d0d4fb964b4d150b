"""The training loop of all algorithms: `lax.scan` over updates, `vmap` over seeds.

The random draws of a seed at update i depend on the seed and on i alone, so a run that is stopped and
resumed, or trained beside other seeds, draws the same numbers.
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

State = Any  # of the algorithm, with a leading axis over seeds
OnInterval = Callable[[int, State, dict[str, np.ndarray]], None]


def seed_keys(seeds: Sequence[int]) -> tuple[Array, Array]:
    """Make two keys for each seed: one for its initial weights and one for its updates."""
    pairs = jax.vmap(lambda seed: jax.random.split(jax.random.key(seed)))(jnp.asarray(seeds))
    return pairs[:, 0], pairs[:, 1]


def init(algorithm: Algorithm, config: Any, data: Dataset, seeds: Sequence[int]) -> State:
    """Make the state before the first update."""
    keys, _ = seed_keys(seeds)
    return _init(algorithm, config, data, keys)


@partial(jax.jit, static_argnames=("algorithm", "config"))
def _init(algorithm: Algorithm, config: Any, data: Dataset, keys: Array) -> State:
    # The data are an argument, since the compiler takes minutes to fold constants of their size.
    states = jax.vmap(lambda key: algorithm.init(config, data, key))(keys)
    # Without weak types, so that a state read from a checkpoint runs the same compiled program.
    return jax.tree.map(lambda leaf: leaf.astype(leaf.dtype), states)


def fit(
    algorithm: Algorithm,
    config: Any,
    data: Dataset,
    seeds: Sequence[int],
    state: State,
    *,
    start: int = 0,
    interval: int = 50,
    on_interval: OnInterval = lambda done, state, metrics: None,
) -> State:
    """Run updates `start` to `config.updates`.

    After each interval, `on_interval` is called with the number of updates done, the state and mean metrics.
    """
    _, keys = seed_keys(seeds)
    for first in range(start, config.updates, interval):
        updates = np.arange(first, min(first + interval, config.updates), dtype=np.int32)
        state, metrics = advance(algorithm, config, state, data, keys, updates)
        on_interval(int(updates[-1]) + 1, state, {name: np.asarray(value) for name, value in metrics.items()})
    return state


@partial(jax.jit, static_argnames=("algorithm", "config"))
def advance(
    algorithm: Algorithm, config: Any, states: State, data: Dataset, keys: Array, updates: Array
) -> tuple[State, dict[str, Float[Array, " seeds"]]]:
    """Run the updates with these numbers in one program; return the states and the mean metrics."""

    def update(states: State, i: Array) -> tuple[State, dict[str, Array]]:
        def one(state: State, key: Array) -> tuple[State, dict[str, Array]]:
            return algorithm.update(config, state, data, i, jax.random.fold_in(key, i))

        return jax.vmap(one)(states, keys)

    states, metrics = jax.lax.scan(update, states, updates)
    # A metric that an update does not compute is NaN, and left out of the mean.
    return states, {name: jnp.nanmean(values, axis=0) for name, values in metrics.items()}


def state_arrays(state: State) -> dict[str, np.ndarray]:
    """Flatten the state into named arrays for a checkpoint."""
    leaves, _ = jax.tree_util.tree_flatten_with_path(state)
    return {jax.tree_util.keystr(path): np.asarray(leaf) for path, leaf in leaves}


def state_from_arrays(template: State, arrays: dict[str, np.ndarray]) -> State:
    """Rebuild a state with the structure of the template from the arrays of a checkpoint."""
    leaves, structure = jax.tree_util.tree_flatten_with_path(template)
    return jax.tree_util.tree_unflatten(
        structure, [jnp.asarray(arrays[jax.tree_util.keystr(path)]) for path, _ in leaves]
    )
