"""What all tests share: strict JAX, a tiny dataset, and small networks."""

import gc
import os
from collections.abc import Iterator
from pathlib import Path

import jax
import numpy as np
import pytest

from safemil.data import Annotations, Trajectories
from safemil.data.sampling import Dataset, Scaler

# A (B,) minus a (B, 1) fails instead of silently becoming a (B, B) loss.
jax.config.update("jax_numpy_rank_promotion", "raise")

# Compiling takes most of the tests' time: small problems are compiled without optimisation, in half the time,
# and other processes, and the next run, find compiled programs in the cache.
FAST_COMPILING = {
    "jax_disable_most_optimizations": True,
    "jax_compilation_cache_dir": str(Path(__file__).parents[1] / ".pytest_cache" / "jax"),
    "jax_persistent_cache_min_compile_time_secs": 0.2,
}
for option, value in FAST_COMPILING.items():
    jax.config.update(option, value)
    os.environ[option.upper()] = str(value)  # for the processes that tests start


# Linux allows a process 65,530 memory mappings, of which a compiled program takes several; XLA crashes
# without any left.
MOST_MAPPINGS = 25_000


@pytest.fixture(autouse=True, scope="module")
def few_mappings() -> Iterator[None]:
    """Drop compiled programs before a process has as many memory mappings as the system allows."""
    yield
    mappings = Path("/proc/self/maps")
    if mappings.exists() and mappings.read_bytes().count(b"\n") > MOST_MAPPINGS:
        jax.clear_caches()
        gc.collect()


@pytest.fixture(scope="module")
def optimised() -> Iterator[None]:
    """Compile as for a user: for modules that train for longer than they compile."""
    jax.config.update("jax_disable_most_optimizations", False)
    del os.environ["JAX_DISABLE_MOST_OPTIMIZATIONS"]
    yield
    jax.config.update("jax_disable_most_optimizations", True)
    os.environ["JAX_DISABLE_MOST_OPTIMIZATIONS"] = "True"


def random_episodes(
    lengths: list[int], *, observation_size: int = 3, action_size: int = 2, seed: int = 0
) -> Trajectories:
    rng = np.random.default_rng(seed)
    steps, episodes = sum(lengths), len(lengths)
    return Trajectories(
        rng.normal(size=(steps, observation_size)),
        rng.uniform(-1, 1, (steps, action_size)),
        lengths,
        final_observations=rng.normal(size=(episodes, observation_size)),
    )


@pytest.fixture(scope="session")
def nonpreferred() -> Trajectories:
    return random_episodes([4, 9, 6], seed=1)


@pytest.fixture(scope="session")
def unlabeled() -> Trajectories:
    return random_episodes([7, 3, 12, 5], seed=2)


@pytest.fixture(scope="session")
def annotations(unlabeled: Trajectories) -> Annotations:
    rng = np.random.default_rng(3)
    return Annotations(rng.uniform(size=unlabeled.steps), rng.integers(0, 2, unlabeled.steps))


@pytest.fixture(scope="session")
def dataset(unlabeled: Trajectories, nonpreferred: Trajectories, annotations: Annotations) -> Dataset:
    return Dataset.of(Scaler.of(unlabeled), unlabeled, nonpreferred, annotations)
