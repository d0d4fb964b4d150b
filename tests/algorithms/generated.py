"""A small generated problem with known risk, and how to train a method on it once."""

from functools import cache
from typing import Any, NamedTuple

import jax
import numpy as np

from safemil import loop, toy
from safemil.algorithms import find
from safemil.data import Annotations, Trajectories
from safemil.data.sampling import Dataset, Scaler


class Problem(NamedTuple):
    scaler: Scaler
    data: Dataset
    reckless: np.ndarray  # (episodes,) of the unlabeled pile
    unseen: Trajectories
    truth: Annotations  # of the unseen episodes


@cache
def speed() -> Problem:
    """Walkers some of whom take steps that are too long; half of the unlabeled ones do."""
    rng = np.random.default_rng(0)
    bad, _ = toy.make_episodes("speed", np.ones(20, bool), rng)
    reckless = np.arange(60) % 2 == 0
    logs, marks = toy.make_episodes("speed", reckless, rng)
    unseen, truth = toy.make_episodes("speed", np.arange(20) % 2 == 0, rng)
    scaler = Scaler.of(logs)
    return Problem(scaler, Dataset.of(scaler, logs, bad, marks), reckless, unseen, truth)


def trained(name: str, **settings: object) -> Any:
    """The state of a method after a short training on `speed`."""
    algorithm, data = find(name), speed().data
    config = type(algorithm.PRESETS["fast"])(**settings)
    states = loop.init(algorithm, config, data, [0])
    states = loop.fit(algorithm, config, data, [0], states, interval=config.updates)
    return jax.tree.map(lambda leaf: leaf[0], states)


def share_of_risky_steps(name: str, state: Any) -> tuple[float, float]:
    """Share of risky steps, and goals per episode, when the policy walks by itself."""
    act = jax.jit(lambda observations: find(name).act(state, speed().scaler(observations)))
    return toy.evaluate("speed", act, episodes=50)


def ranking(name: str, state: Any) -> float:
    """How often a risky unseen step is given the higher cost of a risky and a harmless one."""
    observations = speed().scaler(np.asarray(speed().unseen.observations))
    cost = find(name).cost
    assert cost is not None
    costs = np.asarray(cost(state, observations, np.asarray(speed().unseen.actions)))
    risky = np.asarray(speed().truth.costs) > 0
    ranks = np.argsort(np.argsort(costs))[risky]
    return float((ranks.mean() - (len(ranks) - 1) / 2) / (~risky).sum())
