"""The training loop of all algorithms: `lax.fori_loop` over updates, `vmap` over seeds.

The random draws of a seed at update i depend on the seed and on i alone, so a run that is stopped and
resumed, or trained beside other seeds, draws the same numbers.
"""

import hashlib
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from safemil.algorithms import Algorithm
from safemil.algorithms.base import NOT_COMPUTED
from safemil.data.sampling import Dataset
from safemil.errors import InputError

State = Any  # of the algorithm, with a leading axis over seeds
Sums = dict[str, tuple[Float[Array, " seeds"], Int[Array, " seeds"]]]  # and how many updates computed each
OnInterval = Callable[[int, State, dict[str, np.ndarray]], None]
OnProgress = Callable[[int], None]  # is told how many updates are done
SECONDS = 1.0  # between two signs of progress


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
    on_progress: OnProgress = lambda done: None,
) -> State:
    """Run updates `start` to `until`, or to `config.updates`.

    After each interval, `on_interval` is called with the number of updates done, the state and the mean of
    each metric that was computed. A loss or a network that is not finite raises `Divergence`. Where an
    interval takes long, it is computed in parts, and `on_progress` is called after each.
    """
    _, keys = seed_keys(seeds)
    end = config.updates if until is None else min(until, config.updates)
    pace, nothing = _Pace(interval), no_metrics(algorithm, config, state, data, keys)
    for first in range(start, end, interval):
        last, done, sums = min(first + interval, end), first, nothing
        while done < last:
            before, count = state, pace.next(last - done)
            state, sums, finite = advance(algorithm, config, state, data, keys, done, count, sums)
            if not finite:
                raise _divergence(algorithm, config, before, data, keys, done, count)
            done += count
            pace.ran(count)
            on_progress(done)
        on_interval(done, state, means(sums))
    return state


class _Pace:
    """Chooses how many updates to run at once: as many as take `SECONDS`, at most an interval."""

    def __init__(self, interval: int):
        self.interval, self.calls, self.size = interval, 0, 1
        self.began = time.monotonic()

    def next(self, left: int) -> int:
        self.began = time.monotonic()
        return min(self.size, left)

    def ran(self, count: int) -> None:
        self.calls += 1
        if self.calls > 1:  # the first call compiles
            each = (time.monotonic() - self.began) / count
            self.size = max(1, min(self.interval, int(SECONDS / max(each, 1e-9))))


@partial(jax.jit, static_argnames=("algorithm", "config"))
def advance(
    algorithm: Algorithm,
    config: Any,
    states: State,
    data: Dataset,
    keys: Array,
    first: Int[Array, ""] | int,
    count: Int[Array, ""] | int,
    sums: Sums,
) -> tuple[State, Sums, Bool[Array, ""]]:
    """Run `count` updates from number `first` on; return states, sums of the metrics, and if all is finite.

    One program serves every count. Sums are added up one update at a time, so that they don't depend on how
    an interval is divided.
    """

    def update(i: Array, carried: tuple[State, Sums]) -> tuple[State, Sums]:
        states, sums = carried
        states, metrics = _update(algorithm, config, states, data, keys, i)
        return states, {name: _add(sums[name], values) for name, values in metrics.items()}

    first = jnp.asarray(first, jnp.int32)
    states, sums = jax.lax.fori_loop(first, first + count, update, (states, sums))
    finite = [*_finite(states).values(), *(jnp.isfinite(each).all() for each in _losses(sums).values())]
    return states, sums, jnp.stack(finite).all()


@partial(jax.jit, static_argnames=("algorithm", "config"))  # traced once for its shapes and for `advance`
def _update(
    algorithm: Algorithm, config: Any, states: State, data: Dataset, keys: Array, i: Array
) -> tuple[State, dict[str, Float[Array, " seeds"]]]:
    def one(state: State, key: Array) -> tuple[State, dict[str, Array]]:
        return algorithm.update(config, state, data, i, jax.random.fold_in(key, i))

    return jax.vmap(one)(states, keys)


def no_metrics(algorithm: Algorithm, config: Any, states: State, data: Dataset, keys: Array) -> Sums:
    """Sums of no update, with the names of the algorithm's metrics."""
    step = partial(_update, algorithm, config)
    _, metrics = jax.eval_shape(step, states, data, keys, jnp.zeros((), jnp.int32))
    return {
        name: (jnp.zeros(each.shape, each.dtype), jnp.zeros(each.shape, jnp.int32))
        for name, each in metrics.items()
    }


def _add(
    sums: tuple[Float[Array, " seeds"], Int[Array, " seeds"]], values: Float[Array, " seeds"]
) -> tuple[Float[Array, " seeds"], Int[Array, " seeds"]]:
    computed = values != NOT_COMPUTED
    return sums[0] + jnp.where(computed, values, 0), sums[1] + computed


def means(sums: Sums) -> dict[str, np.ndarray]:
    """Mean of each metric over the updates that computed it; without those that none did."""
    found = {name: (np.asarray(total), np.asarray(count)) for name, (total, count) in sums.items()}
    return {
        name: total / np.maximum(count, 1).astype(total.dtype)
        for name, (total, count) in found.items()
        if count.any()
    }


def _losses(sums: Sums) -> dict[str, Float[Array, " seeds"]]:
    return {name: total for name, (total, _) in sums.items() if name.startswith("loss/")}


def _finite(states: State) -> dict[str, Bool[Array, ""]]:
    """Whether each part of the states is finite; a single number may be infinite, as one not measured yet."""
    parts: dict[str, list[Array]] = {}
    for path, leaf in jax.tree_util.tree_flatten_with_path(states)[0]:
        if jnp.issubdtype(leaf.dtype, jnp.inexact):
            check = jnp.isfinite if leaf.ndim > 1 else lambda values: ~jnp.isnan(values)
            parts.setdefault(jax.tree_util.keystr(path[:1]).strip(".[]'"), []).append(check(leaf).all())
    return {name: jnp.stack(checks).all() for name, checks in parts.items()}


def _divergence(
    algorithm: Algorithm, config: Any, state: State, data: Dataset, keys: Array, first: int, count: int
) -> Divergence:
    """Repeat updates one by one, and find the first that is not finite and what is not finite after it."""
    for update in range(first, first + count):
        before, sums = state, no_metrics(algorithm, config, state, data, keys)
        state, sums, finite = advance(algorithm, config, state, data, keys, update, 1, sums)
        if not finite:
            break
    wrong = [name for name, total in _losses(sums).items() if not np.isfinite(total).all()]
    wrong += [name for name, part in _finite(state).items() if not part]
    return Divergence(update + 1, ", ".join(wrong), before)


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


def with_networks(state: State, trained: State, name: str) -> State:
    """Put the networks of a trained state into one that has not been trained.

    They are the Equinox modules that the state holds directly. What depends on the data or on the progress of
    training, such as weights of episodes and moments of an optimiser, stays as it is, and so do networks
    further inside, which judge episodes that they did not see. A trained state of one seed serves all.
    """
    leaves, structure = jax.tree.flatten(state, is_leaf=lambda node: node is not state)
    others = jax.tree.leaves(trained, is_leaf=lambda node: node is not trained)
    if len(leaves) != len(others) or not any(isinstance(leaf, eqx.Module) for leaf in leaves):
        raise InputError(
            f"{name} can't start from a run: its state holds no networks of Equinox, or others than the "
            "run's; leave out `init_from=...`."
        )
    found = [
        _taken(mine, theirs, name) if isinstance(mine, eqx.Module) else mine
        for mine, theirs in zip(leaves, others, strict=True)
    ]
    return jax.tree.unflatten(structure, found)


def _taken(mine: eqx.Module, theirs: Any, name: str) -> Any:
    shapes = [
        [
            (jax.tree_util.keystr(path), leaf.shape[1:])
            for path, leaf in jax.tree_util.tree_leaves_with_path(each)
        ]
        for each in (mine, theirs)
    ]
    if shapes[0] != shapes[1]:
        raise InputError(
            f"the {type(mine).__name__} of the run to start from has other layers; train {name} with the "
            "settings of that run (see its config.toml)."
        )
    return jax.tree.map(lambda leaf, new: jnp.broadcast_to(new, leaf.shape), mine, theirs)


def digest(state: State) -> str:
    """SHA-256 of all arrays of a state."""
    found = hashlib.sha256()
    for name, array in state_arrays(state).items():
        found.update(f"{name} {array.dtype} {array.shape}".encode())
        found.update(np.ascontiguousarray(array).tobytes())
    return found.hexdigest()


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
