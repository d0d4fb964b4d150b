"""Rollouts: the loop that steps the worlds of a task, and what is counted or recorded of it."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from safemil.arrays import Bools, Doubles, Floats, Ints
from safemil.data import Annotations, Trajectories
from safemil.worlds import Marker, Outcome, Task, Worlds, check_actions, cores

Act = Callable[
    [Doubles, int], npt.ArrayLike
]  # from observations (n, S) and the step's number to actions (n, A)
Watch = Callable[[int], None]  # is told how many steps have been taken


class Step(NamedTuple):
    """One time step of n episodes."""

    number: int
    rows: Ints  # episodes that took the step; the others have ended
    outcome: Outcome
    observations: Doubles  # (n, S), after the step


class Episodes(NamedTuple):
    """Return, cost and length of each episode, (n,) each, or (seeds, episodes) where several seeds act."""

    returns: Doubles
    costs: Doubles
    lengths: Ints

    def to_json(self) -> dict[str, Any]:
        return {
            "returns": np.round(self.returns, 6).tolist(),
            "costs": np.round(self.costs, 6).tolist(),
            "lengths": self.lengths.tolist(),
        }


@dataclass(frozen=True, eq=False)
class Recording:
    """Every step of n episodes, each padded with zeros to the longest."""

    observations: Floats  # (n, T + 1, S), the last one after the last action
    actions: Floats  # (n, T, A)
    rewards: Floats  # (n, T)
    costs: Floats  # (n, T)
    lengths: Ints  # (n,)
    terminated: Bools  # (n,)
    positions: Doubles | None  # (n, T, 2), None in tasks without an arena
    markers: list[list[Marker]]  # of each episode

    def trajectories(self) -> Trajectories:
        kept = self._kept()
        return Trajectories(
            self.observations[:, :-1][kept],
            self.actions[kept],
            self.lengths,
            final_observations=self.observations[np.arange(len(self.lengths)), self.lengths],
            terminated=self.terminated,
        )

    def annotations(self) -> Annotations:
        return Annotations(self.rewards[self._kept()], self.costs[self._kept()])

    def _kept(self) -> Bools:
        return np.arange(self.actions.shape[1]) < self.lengths[:, None]  # (n, T)


def environment_seeds(entropy: int | Sequence[int], episodes: int) -> list[int]:
    """One environment seed per episode; more episodes begin with the same ones.

    >>> environment_seeds(0, 3)[:2] == environment_seeds(0, 2)
    True
    """
    return [int(each) for each in np.random.SeedSequence(entropy).generate_state(episodes)]


def begin(task: Task, seeds: Sequence[int], threads: int | None = None) -> Worlds:
    """Worlds at the start of an episode, one for each environment seed."""
    worlds = task.make(len(seeds), min(threads or cores(), len(seeds)))
    for row, seed in enumerate(seeds):
        worlds.seed(row, seed)
        worlds.reset(row)
    return worlds


def steps(worlds: Worlds, act: Act, limit: int) -> Iterator[Step]:
    """Let `act` choose and the worlds step, until all episodes have ended or `limit` steps are taken."""
    rows, observations = np.arange(worlds.n), worlds.observe()
    shape = worlds.n, worlds.action_size
    try:
        for number in range(limit):
            actions = np.asarray(act(observations, number), worlds.action_dtype)
            outcome = worlds.step(check_actions(actions, shape), rows)
            observations = worlds.observe()
            yield Step(number, rows, outcome, observations)
            rows = rows[~outcome.terminated[rows]]
            if not len(rows):
                return
    finally:
        worlds.close()


def roll_out(
    task: Task,
    act: Act,
    seeds: Sequence[int],
    *,
    threads: int | None = None,
    watch: Watch = lambda steps: None,
) -> Episodes:
    """Count one episode for each environment seed."""
    worlds = begin(task, seeds, threads)
    totals, lengths = np.zeros((2, worlds.n)), np.zeros(worlds.n, np.int64)
    for number, rows, outcome, _ in steps(worlds, act, task.limit):
        totals[:, rows] += outcome.reward[rows], outcome.cost[rows]
        lengths[rows] += 1
        watch(number + 1)
    return Episodes(totals[0], totals[1], lengths)


def record(task: Task, act: Act, seeds: Sequence[int], *, watch: Watch = lambda steps: None) -> Recording:
    """Record one episode for each environment seed."""
    worlds = begin(task, seeds)
    n, limit = worlds.n, task.limit
    markers, places = [worlds.markers(row) for row in range(n)], worlds.current_positions()
    positions = None if places is None else np.zeros((n, limit, 2))
    seen = np.zeros((n, limit + 1, worlds.observation_size), np.float32)
    done = np.zeros((n, limit, worlds.action_size), np.float32)
    rewards, costs = np.zeros((n, limit), np.float32), np.zeros((n, limit), np.float32)
    lengths, terminated = np.zeros(n, np.int64), np.zeros(n, bool)
    seen[:, 0] = worlds.observe()

    def recorded(observations: Doubles, number: int) -> Floats:
        if positions is not None:
            positions[:, number] = worlds.current_positions()
        done[:, number] = act(observations, number)
        return done[:, number]  # in single precision, so that the recorded action is the one that is done

    for number, rows, outcome, observations in steps(worlds, recorded, limit):
        seen[rows, number + 1] = observations[rows]
        rewards[rows, number], costs[rows, number] = outcome.reward[rows], outcome.cost[rows]
        terminated[rows] = outcome.terminated[rows]
        lengths[rows] += 1
        watch(number + 1)
    end = int(lengths.max())
    return Recording(
        seen[:, : end + 1],
        done[:, :end],
        rewards[:, :end],
        costs[:, :end],
        lengths,
        terminated,
        None if positions is None else positions[:, :end],
        markers,
    )
