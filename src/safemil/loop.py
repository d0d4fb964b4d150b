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
from jaxtyping import Array, Bool, Float, Int

from safemil.algorithms import Algorithm
from safemil.algorithms.base import NOT_COMPUTED
from safemil.data.sampling import Dataset
from safemil.errors import InputError

State = Any  # of the algorithm, with a leading axis over seeds
Means = dict[str, tuple[Float[Array, " seeds"], Int[Array, " seeds"]]]  # and how many updates computed each
OnInterval = Callable[[int, State, dict[str, np.ndarray]], None]


class Divergence(ArithmeticError):
    """A loss or a network is no longer finite."""

    def __init__(self, update: int, what: str, before: State):
        super().__init__(f"not finite after update {update}: {what}")
        self.update, self.what = update, what
        self.before = before  # the state before that update, which is finite


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
    until: int | None = None,
    interval: int = 50,
    on_interval: OnInterval = lambda done, state, metrics: None,
) -> State:
    """Run updates `start` to `until`, or to `config.updates`.

    After each interval, `on_interval` is called with the number of updates done, the state and the mean of
    each metric that was computed. A loss or a network that is not finite raises `Divergence`.
    """
    _, keys = seed_keys(seeds)
    end = config.updates if until is None else min(until, config.updates)
    for first in range(start, end, interval):
        updates = np.arange(first, min(first + interval, end), dtype=np.int32)
        before = state
        state, metrics, finite = advance(algorithm, config, state, data, keys, updates)
        if not finite:
            raise _divergence(algorithm, config, before, data, keys, updates)
        means = {name: np.asarray(mean) for name, (mean, count) in metrics.items() if count.any()}
        on_interval(int(updates[-1]) + 1, state, means)
    return state


@partial(jax.jit, static_argnames=("algorithm", "config"))
def advance(
    algorithm: Algorithm, config: Any, states: State, data: Dataset, keys: Array, updates: Array
) -> tuple[State, Means, Bool[Array, ""]]:
    """Run the updates with these numbers in one program; return the states, metrics, and if all is finite."""

    def update(states: State, i: Array) -> tuple[State, dict[str, Array]]:
        def one(state: State, key: Array) -> tuple[State, dict[str, Array]]:
            return algorithm.update(config, state, data, i, jax.random.fold_in(key, i))

        return jax.vmap(one)(states, keys)

    states, metrics = jax.lax.scan(update, states, updates)
    means = {name: _mean(values) for name, values in metrics.items()}
    finite = [*_finite(states).values(), *(jnp.isfinite(mean).all() for mean in _losses(means).values())]
    return states, means, jnp.stack(finite).all()


def _losses(means: Means) -> dict[str, Float[Array, " seeds"]]:
    return {name: mean for name, (mean, _) in means.items() if name.startswith("loss/")}


def _mean(values: Float[Array, "updates seeds"]) -> tuple[Float[Array, " seeds"], Int[Array, " seeds"]]:
    """Mean over the updates that computed a metric, and their number."""
    computed = values != NOT_COMPUTED
    count = computed.sum(axis=0)
    return jnp.where(computed, values, 0).sum(axis=0) / jnp.maximum(count, 1), count


def _finite(states: State) -> dict[str, Bool[Array, ""]]:
    """Whether each part of the states is finite; a single number may be infinite, as one not measured yet."""
    parts: dict[str, list[Array]] = {}
    for path, leaf in jax.tree_util.tree_flatten_with_path(states)[0]:
        if jnp.issubdtype(leaf.dtype, jnp.inexact):
            check = jnp.isfinite if leaf.ndim > 1 else lambda values: ~jnp.isnan(values)
            parts.setdefault(jax.tree_util.keystr(path[:1]).strip(".[]'"), []).append(check(leaf).all())
    return {name: jnp.stack(checks).all() for name, checks in parts.items()}


def _divergence(
    algorithm: Algorithm, config: Any, state: State, data: Dataset, keys: Array, updates: np.ndarray
) -> Divergence:
    """Repeat updates one by one, and find the first that is not finite and what is not finite after it."""
    for update in updates:
        before = state
        state, metrics, finite = advance(algorithm, config, state, data, keys, update[None])
        if not finite or update == updates[-1]:
            break
    wrong = [name for name, mean in _losses(metrics).items() if not np.isfinite(mean).all()]
    wrong += [name for name, part in _finite(state).items() if not part]
    return Divergence(int(update) + 1, ", ".join(wrong), before)


def compact(algorithm: Algorithm, state: State) -> State:
    """Leave out of a state what can be computed from the rest of it and the data."""
    return state if algorithm.compact is None else jax.vmap(algorithm.compact)(state)


@partial(jax.jit, static_argnames=("algorithm", "config", "done"))
def derive(algorithm: Algorithm, config: Any, state: State, data: Dataset, *, done: int) -> State:
    """Compute what `compact` has left out of the state after `done` updates."""
    if algorithm.derive is None:
        return state
    derived = partial(algorithm.derive, config)
    return jax.vmap(lambda one: derived(one, data, done))(state)


def state_arrays(state: State) -> dict[str, np.ndarray]:
    """Flatten the state into named arrays for a checkpoint; empty ones are left out."""
    leaves, _ = jax.tree_util.tree_flatten_with_path(state)
    return {jax.tree_util.keystr(path): np.asarray(leaf) for path, leaf in leaves if leaf.size}


def state_from_arrays(template: State, arrays: dict[str, np.ndarray], *, other: State = None) -> State:
    """Rebuild a state with the structure and shapes of the template from the arrays of a checkpoint.

    An array that is empty in the template is left empty. An axis whose size is another one in the template
    `other` may have any size: it depends on the data.
    """
    leaves, structure = jax.tree_util.tree_flatten_with_path(template)
    others = jax.tree.leaves(template if other is None else other)
    found = []
    for (path, leaf), second in zip(leaves, others, strict=True):
        if not leaf.size:
            found.append(jnp.zeros(leaf.shape, leaf.dtype))
            continue
        name = jax.tree_util.keystr(path)
        sizes = tuple(
            size if size == another else -1 for size, another in zip(leaf.shape, second.shape, strict=True)
        )
        found.append(_checked(name, arrays.get(name), sizes, leaf.dtype))
    return jax.tree_util.tree_unflatten(structure, found)


def _checked(name: str, array: np.ndarray | None, sizes: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
    """Return an array of a checkpoint, or refuse it if its shape or type is another; -1 allows any size."""
    shape = () if array is None else array.shape
    fits = len(shape) == len(sizes) and all(want in (-1, has) for want, has in zip(sizes, shape, strict=True))
    if array is None or not fits or array.dtype != dtype:
        has = "nothing" if array is None else f"{array.dtype} of shape {shape}"
        raise InputError(f"{name} must be {dtype} of shape {sizes}, got {has}.")
    return jnp.asarray(array)
