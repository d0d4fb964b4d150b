"""Annotated datasets from the shipped behaviour policies: made on the spot, the same from the same seed."""

from collections.abc import Mapping
from importlib.metadata import version
from typing import Any

import numpy as np

import safemil
from safemil.behaviour.policy import Policy, shipped
from safemil.behaviour.rollouts import Episodes, roll_out
from safemil.data import Annotations, Trajectories
from safemil.errors import InputError
from safemil.progress import Bar, bar
from safemil.tasks import catalog

EPISODES = 800  # enough for the paper's piles, which take a quarter of them at most


def make(
    task: str, *, episodes: int = EPISODES, seed: int = 0, progress: bool = False
) -> tuple[Trajectories, Annotations, dict[str, Any]]:
    """Episodes of all shipped policies of a task, their rewards and costs, and where they come from.

    Policies have episodes as their cards' shares say; every other one is without noise.
    """
    policies = shipped(task)
    if episodes < len(policies):
        raise InputError(
            f"need at least one episode of each of {len(policies)} policies, asked for {episodes}."
        )
    shares = share_out(episodes, [policy.card["share"] for policy in policies])
    found, limit = [], catalog.task(task).limit
    with bar(f"{task}, steps", episodes * limit, show=progress) as shown:
        for number, (policy, share) in enumerate(zip(policies, shares, strict=True)):
            watch = _Watch(shown, sum(shares[:number]) * limit, policy.name)
            found.append(_episodes(task, policy, share, (seed, number), watch))
    trajectories, annotations = _joined(found)
    return trajectories, annotations, _manifest(task, seed, policies, found, trajectories)


def share_out(episodes: int, shares: list[float]) -> list[int]:
    """One episode each, and the rest in proportion to the shares.

    >>> share_out(10, [1.0, 1.0, 0.25])
    [4, 4, 2]
    """
    spare = episodes - len(shares)
    ends = np.rint(np.cumsum(shares) / sum(shares) * spare).astype(int)
    return [1 + int(each) for each in np.diff(ends, prepend=0)]


def environment_seeds(seed: int, number: int, episodes: int) -> list[int]:
    """That the episodes of a dataset's policy begin from; `number` counts the policies."""
    return [int(each) for each in np.random.SeedSequence((seed, number)).generate_state(episodes)]


def recorded_seeds(manifest: Mapping[str, Any]) -> list[int]:
    """The environment seed of each episode of a dataset, from what `make` noted about it."""
    ranges = [policy["episodes"] for policy in manifest["policies"]]
    return [
        each
        for number, (first, end) in enumerate(ranges)
        for each in environment_seeds(manifest["seed"], number, end - first)
    ]


class _Watch:
    """Counts steps on a bar; an episode that ends early counts as whole once its policy is done."""

    def __init__(self, shown: Bar, done: int, name: str) -> None:
        self.shown, self.done, self.name = shown, done, name

    def __call__(self, running: int) -> None:
        self.done += running
        self.shown.at(self.done, self.name)


def _episodes(task: str, policy: Policy, n: int, key: tuple[int, int], watch: _Watch) -> Episodes:
    noise = np.asarray(np.arange(n) % 2, np.float64)
    generator = np.random.default_rng(np.random.SeedSequence(key).spawn(1)[0])
    return roll_out(task, policy, environment_seeds(*key, n), noise, generator, watch)


def _joined(found: list[Episodes]) -> tuple[Trajectories, Annotations]:
    kept = [np.arange(each.actions.shape[1]) < each.lengths[:, None] for each in found]  # (n, T)

    def rows(name: str) -> np.ndarray[Any, Any]:
        """A field's steps, end to end."""
        fields = ((getattr(each, name), keep) for each, keep in zip(found, kept, strict=True))
        return np.concatenate([field[:, : keep.shape[1]][keep] for field, keep in fields])

    lengths = np.concatenate([each.lengths for each in found])
    finals = [each.observations[np.arange(len(each.lengths)), each.lengths] for each in found]
    trajectories = Trajectories(
        rows("observations"),
        rows("actions"),
        lengths,
        final_observations=np.concatenate(finals),
        terminated=np.concatenate([each.terminated for each in found]),
    )
    return trajectories, Annotations(rows("rewards"), rows("costs"))


def _manifest(
    task: str, seed: int, policies: tuple[Policy, ...], found: list[Episodes], made: Trajectories
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
                "return": round(float(each.returns.mean()), 3),
                "cost": round(float(each.total_costs.mean()), 3),
            }
            for policy, each, end in zip(policies, found, ends, strict=True)
        ],
        "noise": "none in every other episode of a policy, beginning with its first",
        "content_hash": made.content_hash(),
    }
