"""The shipped drivers: networks that take caution as an input, and how that input varies.

Each episode draws its own caution from a continuous range, and its own amount of noise. During the episode
the caution wanders: after a random number of steps it is drawn anew, around that of the episode. So whether
an episode is preferred is an outcome: every driver, and most of its range, has good and bad episodes.
"""

from dataclasses import dataclass
from functools import cache
from importlib import resources
from pathlib import Path
from typing import NamedTuple

import numpy as np

from safemil import catalog, rollouts
from safemil.arrays import Doubles
from safemil.behaviour.policy import Policy, load_policy
from safemil.errors import InputError
from safemil.rollouts import Recording, Watch

SHIPPED = Path(str(resources.files("safemil.behaviour") / "networks"))


@dataclass(frozen=True)
class Habits:
    """How the network's last input, and the noise in the actions, vary between and within episodes."""

    input: str  # what it is, such as "target speed, m/s"
    reckless: float  # its value at caution 0
    cautious: float  # and at caution 1
    wander: float  # how far caution strays from the episode's, to both sides
    stretch: float  # mean steps until it is drawn anew
    noise: float  # mean over episodes, in units of the network's deviation


class Manner(NamedTuple):
    """How n episodes are driven."""

    caution: Doubles  # (n,), from 0 to 1
    noise: Doubles  # (n,), in units of the network's deviation
    inputs: Doubles  # (n, T), the network's last input at each step


@dataclass(frozen=True, eq=False)
class Driver:
    network: Policy
    habits: Habits

    def manner(self, episodes: int, steps: int, generator: np.random.Generator) -> Manner:
        """Draw how each episode is driven."""
        habits = self.habits
        caution = generator.random(episodes)
        noise = habits.noise * generator.exponential(size=episodes)
        begins = generator.random((episodes, steps)) < 1 / habits.stretch
        begins[:, 0] = True
        strays = habits.wander * generator.uniform(-1.0, 1.0, (episodes, steps))
        last_begin = np.maximum.accumulate(np.where(begins, np.arange(steps), 0), axis=1)
        momentary = caution[:, None] + np.take_along_axis(strays, last_begin, axis=1)
        inputs = habits.reckless + (habits.cautious - habits.reckless) * momentary
        return Manner(caution, noise, inputs)

    def record(
        self,
        task: str,
        manner: Manner,
        seeds: list[int],
        generator: np.random.Generator,
        watch: Watch = lambda steps: None,
    ) -> Recording:
        """Record one episode for each environment seed."""

        def act(observations: Doubles, step: int) -> Doubles:
            draws = generator.standard_normal((len(seeds), len(self.network.deviation)))
            seen = np.concatenate([observations, manner.inputs[:, step, None]], axis=1)
            return self.network.act(seen, draws * manner.noise[:, None])

        return rollouts.record(catalog.task(task), act, seeds, watch=watch)


def load_driver(path: Path) -> Driver:
    """Read a driver from its network's file and the card beside it."""
    network = load_policy(path)
    return Driver(network, Habits(**network.card["habits"]))


@cache
def shipped_drivers(task: str) -> tuple[Driver, ...]:
    """All drivers of a task, in the order of their names."""
    catalog.task(task)
    found = tuple(load_driver(path) for path in sorted((SHIPPED / task).glob("*.safetensors")))
    if not found:
        have = [name for name in catalog.names() if any((SHIPPED / name).glob("*.safetensors"))]
        raise InputError(
            f"no drivers are shipped for {task}; there are some for: {', '.join(have) or 'none'}."
        )
    return found
