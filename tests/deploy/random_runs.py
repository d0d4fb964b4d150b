"""Runs with random weights: what export and deployment compute, without the time that training takes."""

import jax
import numpy as np

from safemil import loop
from safemil.algorithms import find
from safemil.api import Run
from safemil.data import Trajectories
from safemil.data.sampling import Dataset, Scaler
from safemil.schema import Schema


def random_run(name: str, logs: Trajectories, seeds: int = 1) -> Run:
    """A run of the default settings, as if it had been trained on the logs."""
    algorithm = find(name)
    config = algorithm.PRESETS["fast"]
    data = Dataset.empty(logs.observation_size, logs.action_size, logs.action_categories is not None)
    shapes = jax.eval_shape(lambda: loop.init(algorithm, config, data, range(seeds)))
    rng = np.random.default_rng(0)

    def fill(leaf: jax.ShapeDtypeStruct) -> jax.Array:
        scale = 0.5 if leaf.ndim < 3 else leaf.shape[-2] ** -0.5
        return jax.numpy.asarray(scale * rng.normal(size=leaf.shape), leaf.dtype)

    state = jax.tree.map(fill, shapes)
    scaler = Scaler.of(logs)
    schema = Schema.of(logs, [], scaler.deviation)
    return Run(algorithm, config, range(seeds), state, scaler, schema, [])
