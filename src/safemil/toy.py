"""Generated problems whose true risk is known, and hidden from the learner.

A point walks in the plane between six stations on a circle, each time to one drawn anew; an action is a
displacement, at most `STRIDE` in each direction. It sees where it is and where its goal lies. Careful
walkers take no risk, reckless ones do:

- `speed`: a step longer than `SPEED_LIMIT` of a full stride is risky;
- `disc`: a step that ends inside a disc in the middle is risky. No column names the disc; careful walkers
  pass it on the nearer side, reckless ones cut through.

In `speed` the risk lies in the step itself. In `disc` it lies ahead: the steps that lead into the disc are
as harmless as those that pass by it, which makes it the harder problem for weighted cloning.
"""

from collections.abc import Callable
from typing import Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from safemil.data import Annotations, Trajectories

Problem = Literal["speed", "disc"]
Floats = npt.NDArray[np.float64]
Walker = Callable[["World", np.random.Generator], Floats]  # what each walker does next, (walkers, 2)

STEPS = 200  # at most; recorded episodes end up to a fifth earlier, so that they are ragged
STRIDE = 0.15  # m, of a full action in one direction
GOAL_RADIUS = 0.1  # m
STATIONS = 0.8 * np.stack([np.cos(np.arange(6) * np.pi / 3), np.sin(np.arange(6) * np.pi / 3)], axis=1)  # m
SPEED_LIMIT = 0.5  # of a full stride
DISC_RADIUS = 0.3  # m
MARGIN = 0.25  # m, that careful walkers keep from the disc
NOISE = 0.05  # deviation of a walker's action


class World(NamedTuple):
    """Many walkers, each on the way to a station."""

    positions: Floats  # (walkers, 2)
    stations: npt.NDArray[np.int64]  # (walkers,)

    @property
    def goals(self) -> Floats:
        return np.asarray(STATIONS[self.stations])

    def observations(self) -> npt.NDArray[np.float32]:
        """Position, then the way to the goal: (walkers, 4)."""
        return np.concatenate([self.positions, self.goals - self.positions], axis=1, dtype=np.float32)


class Piles(NamedTuple):
    """What a learner is given, and held-out episodes with the truth to judge it by."""

    nonpreferred: Trajectories
    unlabeled: Trajectories
    heldout: Trajectories
    heldout_truth: Annotations
    heldout_reckless: npt.NDArray[np.bool_]  # (episodes,)
    careful: Trajectories  # the careful part of `unlabeled`: what an oracle would clone


def make_piles(
    problem: Problem, *, nonpreferred: int = 50, unlabeled: int = 200, heldout: int = 100, seed: int = 0
) -> Piles:
    """Reckless episodes in one pile, half careful and half reckless ones in the two others."""
    rng = np.random.default_rng(seed)
    bad, _ = make_episodes(problem, np.ones(nonpreferred, bool), rng)
    mixed = rng.permutation(unlabeled) < unlabeled // 2
    logs, _ = make_episodes(problem, mixed, rng)
    reckless = rng.permutation(heldout) < heldout // 2
    unseen, truth = make_episodes(problem, reckless, rng)
    return Piles(bad, logs, unseen, truth, reckless, logs.take(np.flatnonzero(~mixed)))


def make_episodes(
    problem: Problem, reckless: npt.NDArray[np.bool_], rng: np.random.Generator
) -> tuple[Trajectories, Annotations]:
    """An episode per entry of `reckless`, of different lengths; rewards are goals, costs are risky steps."""

    def walk(world: World, rng: np.random.Generator) -> Floats:
        return _walk(problem, world, reckless, rng)

    recorded = rollout(problem, walk, len(reckless), rng)
    lengths = rng.integers(STEPS * 4 // 5, STEPS + 1, len(reckless))
    kept = np.arange(STEPS)[None, :] < lengths[:, None]  # (episodes, STEPS)
    after = np.concatenate([recorded.observations, recorded.final_observations[:, None]], axis=1)
    trajectories = Trajectories(
        recorded.observations[kept],
        recorded.actions[kept],
        lengths,
        final_observations=after[np.arange(len(lengths)), lengths],
    )
    return trajectories, Annotations(recorded.goals[kept], recorded.risky[kept])


class Rollout(NamedTuple):
    """Whole episodes of many walkers: (walkers, STEPS, ...)."""

    observations: npt.NDArray[np.float32]
    actions: Floats
    goals: npt.NDArray[np.bool_]  # whether the step reached a goal
    risky: npt.NDArray[np.bool_]
    final_observations: npt.NDArray[np.float32]  # (walkers, 4)


def rollout(problem: Problem, walk: Walker, walkers: int, rng: np.random.Generator) -> Rollout:
    """Let `walkers` of them go for an episode each."""
    start = rng.integers(len(STATIONS), size=walkers)
    positions = STATIONS[start] + rng.uniform(-GOAL_RADIUS, GOAL_RADIUS, (walkers, 2))
    world = World(positions, _another(start, rng))
    steps = []
    for _ in range(STEPS):
        observations = world.observations()
        actions = np.clip(walk(world, rng), -1, 1)
        world, goals, risky = _step(problem, world, actions, rng)
        steps.append((observations, actions, goals, risky))
    observed, acted, reached, risked = (np.stack(column, axis=1) for column in zip(*steps, strict=True))
    return Rollout(observed, acted, reached, risked, world.observations())


def evaluate(
    problem: Problem,
    act: Callable[[npt.NDArray[np.float32]], npt.ArrayLike],
    *,
    episodes: int = 100,
    seed: int = 0,
) -> tuple[float, float]:
    """Share of risky steps and goals per episode of a policy, from observations (N, 4) to actions (N, 2)."""

    def walk(world: World, rng: np.random.Generator) -> Floats:
        return np.asarray(act(world.observations()), np.float64)

    recorded = rollout(problem, walk, episodes, np.random.default_rng(seed))
    return float(recorded.risky.mean()), float(recorded.goals.sum() / episodes)


def _step(
    problem: Problem, world: World, actions: Floats, rng: np.random.Generator
) -> tuple[World, npt.NDArray[np.bool_], npt.NDArray[np.bool_]]:
    positions = np.clip(world.positions + STRIDE * actions, -1, 1)
    reached = np.linalg.norm(world.goals - positions, axis=1) < GOAL_RADIUS
    stations = np.where(reached, _another(world.stations, rng), world.stations)
    if problem == "speed":
        risky = np.linalg.norm(actions, axis=1) > SPEED_LIMIT
    else:
        risky = np.linalg.norm(positions, axis=1) < DISC_RADIUS
    return World(positions, stations), reached, risky


def _another(stations: npt.NDArray[np.int64], rng: np.random.Generator) -> npt.NDArray[np.int64]:
    """One of the other stations, each equally likely."""
    return (stations + rng.integers(1, len(STATIONS), len(stations))) % len(STATIONS)


def _walk(
    problem: Problem, world: World, reckless: npt.NDArray[np.bool_], rng: np.random.Generator
) -> Floats:
    """Straight to the goal; careful walkers slowly (`speed`) or round the disc (`disc`)."""
    way = world.goals - world.positions
    distance = np.linalg.norm(way, axis=1, keepdims=True)
    pace = np.full_like(distance, 0.4)
    if problem == "speed":
        # Reckless walkers slow down near the goal, so they have harmless steps too.
        pace = np.where(reckless[:, None], np.clip(distance / 0.4, 0.3, 0.9), 0.35)
    heading = way / np.maximum(distance, 1e-9)
    if problem == "disc":
        heading = np.where(reckless[:, None], heading, _round_disc(world.positions, heading, distance))
    actions = pace * heading + NOISE * rng.standard_normal(heading.shape)
    if problem == "speed":  # noise never takes a careful walker over the limit
        length = np.linalg.norm(actions, axis=1, keepdims=True)
        limit = np.where(reckless[:, None], np.inf, 0.95 * SPEED_LIMIT)
        actions = actions * np.minimum(1, limit / length)
    return actions


def _round_disc(positions: Floats, heading: Floats, distance: Floats) -> Floats:
    """The heading, or where that comes too close to the disc, the tangent to pass it on the nearer side."""
    ring = DISC_RADIUS + MARGIN
    along = np.clip(-(positions * heading).sum(axis=1, keepdims=True), 0, distance)  # to the closest approach
    closest = np.linalg.norm(positions + along * heading, axis=1, keepdims=True)
    radius = np.maximum(np.linalg.norm(positions, axis=1, keepdims=True), 1e-9)
    outward = positions / radius
    sideways = np.stack([outward[:, 1], -outward[:, 0]], axis=1)
    sideways = np.where((sideways * heading).sum(axis=1, keepdims=True) >= 0, sideways, -sideways)
    sine = np.clip(ring / radius, 0, 1)
    inside = np.maximum(ring / radius - 1, 0)  # walkers whom noise took into the ring drift out of it
    tangent = -outward * np.sqrt(1 - sine**2) + sideways * sine + 5 * inside * outward
    tangent = tangent / np.linalg.norm(tangent, axis=1, keepdims=True)
    return np.where(closest < ring, tangent, heading)
