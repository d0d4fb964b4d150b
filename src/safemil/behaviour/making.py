"""Annotated datasets from the shipped behaviour policies: made on the spot, the same from the same seed."""

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from importlib.metadata import version
from typing import Any, Literal

import numpy as np

import safemil
from safemil import catalog, rollouts
from safemil.arrays import Doubles, Floats
from safemil.behaviour.drivers import Driver, Manner, shipped_drivers
from safemil.behaviour.policy import Policy, shipped
from safemil.data import Annotations, Trajectories
from safemil.errors import InputError
from safemil.progress import Bar, bar
from safemil.rollouts import Recording, Watch, environment_seeds

Behaviour = Literal["policies", "continuum"]
EPISODES = 800  # enough for the paper's piles, which take a quarter of them at most


def make(
    task: str,
    *,
    behaviour: Behaviour = "policies",
    episodes: int = EPISODES,
    seed: int = 0,
    progress: bool = False,
) -> tuple[Trajectories, Annotations, dict[str, Any]]:
    """Make episodes of a task: the episodes, their rewards and costs, a manifest.

    With "policies" they are those of fixed policies; the share on the card of a policy says how many are its
    own, and every other one is without noise. With "continuum" a few drivers share them evenly, and each
    episode draws its own caution and its own amount of noise.
    """
    if behaviour == "continuum":
        return _make_continuum(task, episodes, seed, progress)
    policies = shipped(task)
    shares = share_out(episodes, [policy.card["share"] for policy in policies])
    found = []
    with _bar(task, episodes, progress) as shown:
        for number, (policy, share) in enumerate(zip(policies, shares, strict=True)):
            watch = _watch(shown, task, policy.name, sum(shares[:number]), share)
            found.append(_episodes(task, policy, share, (seed, number), watch))
    trajectories, annotations = _joined(found)
    varied = {"noise": "none in every other episode of a policy, beginning with its first"}
    return trajectories, annotations, _manifest(task, seed, policies, found, varied, trajectories)


def _make_continuum(
    task: str, episodes: int, seed: int, progress: bool
) -> tuple[Trajectories, Annotations, dict[str, Any]]:
    drivers = shipped_drivers(task)
    shares = share_out(episodes, [1.0] * len(drivers))
    found, manners = [], []
    with _bar(task, episodes, progress) as shown:
        for number, (driver, share) in enumerate(zip(drivers, shares, strict=True)):
            watch = _watch(shown, task, driver.network.name, sum(shares[:number]), share)
            recording, manner = _drives(task, driver, share, (seed, number), watch)
            found.append(recording)
            manners.append(manner)
    trajectories, annotations = _joined(found)
    networks = [driver.network for driver in drivers]
    varied = {
        name: np.round(np.concatenate([getattr(manner, name) for manner in manners]), 4).tolist()
        for name in ("caution", "noise")  # of each episode
    }
    return trajectories, annotations, _manifest(task, seed, networks, found, varied, trajectories)


def share_out(episodes: int, shares: list[float]) -> list[int]:
    """Number of episodes for each share: one, and the rest in proportion to the shares.

    >>> share_out(10, [1.0, 1.0, 0.25])
    [4, 4, 2]
    """
    if episodes < len(shares):
        raise InputError(
            f"need at least one episode of each of {len(shares)} policies, asked for {episodes}."
        )
    spare = episodes - len(shares)
    ends = np.rint(np.cumsum(shares) / sum(shares) * spare).astype(int)
    return [1 + int(each) for each in np.diff(ends, prepend=0)]


def recorded_seeds(manifest: Mapping[str, Any]) -> list[int]:
    """Environment seed of each episode of a dataset, from the manifest that `make` gave it."""
    ranges = [policy["episodes"] for policy in manifest["policies"]]
    return [
        each
        for number, (first, end) in enumerate(ranges)
        for each in environment_seeds((manifest["seed"], number), end - first)
    ]


def _episodes(task: str, policy: Policy, n: int, key: tuple[int, int], watch: Watch) -> Recording:
    generator = np.random.default_rng(np.random.SeedSequence(key).spawn(1)[0])
    return record(
        task, policy, environment_seeds(key, n), np.asarray(np.arange(n) % 2, np.float64), generator, watch
    )


def _drives(
    task: str, driver: Driver, n: int, key: tuple[int, int], watch: Watch
) -> tuple[Recording, Manner]:
    drawing, acting = np.random.SeedSequence(key).spawn(2)
    manner = driver.manner(n, catalog.task(task).limit, np.random.default_rng(drawing))
    generator = np.random.default_rng(acting)
    return driver.record(task, manner, environment_seeds(key, n), generator, watch), manner


def _bar(task: str, episodes: int, show: bool) -> AbstractContextManager[Bar]:
    return bar(f"{task}, steps", episodes * catalog.task(task).limit, show=show)


def _watch(shown: Bar, task: str, name: str, before: int, share: int) -> Watch:
    """Tell the bar how far the episodes of one policy are, after so many of others."""
    start = before * catalog.task(task).limit
    return lambda steps: shown.at(start + steps * share, name)


def record(
    task: str,
    policy: Policy,
    seeds: list[int],
    noise: Doubles,
    generator: np.random.Generator,
    watch: Watch = lambda steps: None,
) -> Recording:
    """Record one episode for each seed; `noise` (n,) scales each one's deviation, 0 for the mode."""

    def act(observations: Doubles, step: int) -> Doubles:
        draws = generator.standard_normal((len(seeds), len(policy.deviation))) * noise[:, None]
        return policy.act(observations, draws)

    return rollouts.record(catalog.task(task), act, seeds, watch=watch)


def _joined(found: list[Recording]) -> tuple[Trajectories, Annotations]:
    marks = [each.annotations() for each in found]
    rewards, costs = (
        np.concatenate([getattr(each, name) for each in marks]) for name in ("rewards", "costs")
    )
    return Trajectories.concatenate([each.trajectories() for each in found]), Annotations(rewards, costs)


def _manifest(
    task: str,
    seed: int,
    policies: Sequence[Policy],
    found: list[Recording],
    varied: Mapping[str, Any],
    made: Trajectories,
) -> dict[str, Any]:
    ends = np.cumsum([len(each.lengths) for each in found]).tolist()
    return {
        "task": task,
        "seed": seed,
        "safemil": safemil.__version__,
        "mujoco": version("mujoco"),
        "numpy": version("numpy"),
        "policies": [
            {
                "name": policy.name,
                "sha256": policy.card["sha256"],
                "signal": policy.card["signal"],
                "episodes": [end - len(each.lengths), end],  # from the first to before the second
                "return": _mean_sum(each.rewards),
                "cost": _mean_sum(each.costs),
            }
            for policy, each, end in zip(policies, found, ends, strict=True)
        ],
        **varied,
        "content_hash": made.content_hash(),
    }


def _mean_sum(values: Floats) -> float:
    """Mean over episodes of the sum over steps."""
    return round(float(values.sum(axis=1, dtype=np.float64).astype(np.float32).mean()), 3)
