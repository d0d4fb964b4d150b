"""Generated problems whose true risk is known, and hidden from the learner.

A point walks in the plane between six stations on a circle, each time to one drawn anew; an action is a
displacement, at most `STRIDE` in each direction. It sees its place and the way to its goal. Careful walkers
take no risk, reckless ones do:

- `speed`: a step longer than `SPEED_LIMIT` of a full stride is risky;
- `disc`: a step that ends inside a disc in the middle is risky. No column names the disc; careful walkers
  pass it on the nearer side, reckless ones cut through.

In `speed` the risk lies in the step itself. In `disc` it lies ahead: the steps that lead into the disc are
as harmless as those that pass by it, which makes it the harder problem for weighted cloning.

Each problem is a task of the catalog, `toy:speed` and `toy:disc`: a goal is a reward of 1, a risky step
costs 1.
"""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from safemil import rollouts
from safemil.arrays import Bools, Doubles, Floats, Ints
from safemil.data import Annotations, Trajectories
from safemil.data.piles import Piles, draw_piles
from safemil.worlds import Disc, Marker, Outcome, Task, Worlds

Problem = Literal["speed", "disc"]

STEPS = 200  # at most; recorded episodes end up to a fifth earlier, so that they are ragged
STRIDE = 0.15  # m, of a full action in one direction
GOAL_RADIUS = 0.1  # m
STATIONS = 0.8 * np.stack([np.cos(np.arange(6) * np.pi / 3), np.sin(np.arange(6) * np.pi / 3)], axis=1)  # m
SPEED_LIMIT = 0.5  # of a full stride
DISC_RADIUS = 0.3  # m
MARGIN = 0.25  # m, that careful walkers keep from the disc
NOISE = 0.05  # deviation of a walker's action


class Rules(NamedTuple):
    """Differences between the problems."""

    summary: str
    risky: Callable[[Doubles, Doubles], Bools]  # from places after the step and actions, (n, 2) each
    # Actions of walkers, from their observations (n, 4) and from who is reckless (n,).
    walk: Callable[[Doubles, Bools, np.random.Generator], Doubles]
    markers: tuple[Marker, ...] = ()


class ToyWorlds(Worlds):
    """n walkers, each on the way to a station."""

    observation_size, action_size, dt = 4, 2, 1.0
    same_arena = True

    def __init__(self, problem: Problem, n: int, threads: int = 1) -> None:
        super().__init__(n, 1)
        self.rules = RULES[problem]
        self.rngs = [np.random.default_rng() for _ in range(n)]
        self.xy, self.stations = np.zeros((n, 2)), np.zeros(n, np.int64)

    def seed(self, row: int, seed: int | None) -> None:
        self.rngs[row] = np.random.default_rng(seed)

    def reset(self, row: int) -> None:
        rng = self.rngs[row]
        self.stations[row] = rng.integers(len(STATIONS))
        self.xy[row] = STATIONS[self.stations[row]] + rng.uniform(-GOAL_RADIUS, GOAL_RADIUS, 2)
        self._draw_goal(row)

    def step(self, actions: npt.NDArray[np.floating], rows: Ints) -> Outcome:
        clipped = np.clip(actions, -1, 1).astype(np.float64)
        self.xy[rows] = np.clip(self.xy + STRIDE * clipped, -1, 1)[rows]
        reached = np.linalg.norm(STATIONS[self.stations] - self.xy, axis=1) < GOAL_RADIUS
        for row in rows[reached[rows]].tolist():
            self._draw_goal(row)
        risky = self.rules.risky(self.xy, clipped)
        return Outcome(reached.astype(np.float64), risky.astype(np.float64), np.zeros(self.n, bool), {})

    def observe(self) -> Doubles:
        return np.concatenate([self.xy, STATIONS[self.stations] - self.xy], axis=1)

    def column_names(self) -> list[str]:
        return ["x", "y", "way to the goal in x", "way to the goal in y", "step in x", "step in y"]

    def positions(self, observations: npt.ArrayLike) -> Doubles:
        return np.asarray(observations, np.float64)[:, :2]

    def markers(self, row: int) -> list[Marker]:
        stations = [Disc("station", x, y, GOAL_RADIUS, costs=False) for x, y in STATIONS.tolist()]
        return [*stations, *self.rules.markers]

    def _draw_goal(self, row: int) -> None:
        """Choose one of the other stations, each equally likely."""
        self.stations[row] = (self.stations[row] + self.rngs[row].integers(1, len(STATIONS))) % len(STATIONS)


def make_piles(
    problem: Problem, *, nonpreferred: int = 50, unlabeled: int = 200, heldout: int = 100, seed: int = 0
) -> Piles:
    """Reckless episodes in one pile, half careful and half reckless ones in the two others."""
    sizes = {"nonpreferred": nonpreferred, "unlabeled": unlabeled, "heldout": heldout}
    return draw_piles(partial(make_episodes, problem), **sizes, seed=seed)


def make_episodes(
    problem: Problem, reckless: Bools, rng: np.random.Generator
) -> tuple[Trajectories, Annotations]:
    """Record an episode per entry of `reckless`, of different lengths."""

    def act(observations: Doubles, step: int) -> Doubles:
        return np.clip(RULES[problem].walk(observations, reckless, rng), -1, 1)

    seeds = rng.integers(2**32, size=len(reckless)).tolist()
    recording = rollouts.record(TASKS[f"toy:{problem}"], act, seeds)
    ragged = replace(recording, lengths=rng.integers(STEPS * 4 // 5, STEPS + 1, len(reckless)))
    return ragged.trajectories(), ragged.annotations()


def evaluate(
    problem: Problem, act: Callable[[Floats], npt.ArrayLike], *, episodes: int = 100, seed: int = 0
) -> tuple[float, float]:
    """Share of risky steps and goals per episode of a policy, from observations (N, 4) to actions (N, 2)."""
    seeds = rollouts.environment_seeds(seed, episodes)
    found = rollouts.roll_out(
        TASKS[f"toy:{problem}"], lambda observations, step: act(observations.astype(np.float32)), seeds
    )
    return float(found.costs.mean() / STEPS), float(found.returns.mean())


def _fast(places: Doubles, actions: Doubles) -> Bools:
    return np.asarray(np.linalg.norm(actions, axis=1) > SPEED_LIMIT)


def _inside(places: Doubles, actions: Doubles) -> Bools:
    return np.asarray(np.linalg.norm(places, axis=1) < DISC_RADIUS)


def _walk_slowly(observations: Doubles, reckless: Bools, rng: np.random.Generator) -> Doubles:
    """Go straight to the goal; careful walkers stay below the speed limit."""
    heading, distance = _way(observations)
    # Reckless walkers slow down near the goal, so they have harmless steps too.
    pace = np.where(reckless[:, None], np.clip(distance / 0.4, 0.3, 0.9), 0.35)
    actions = pace * heading + NOISE * rng.standard_normal(heading.shape)
    length = np.linalg.norm(actions, axis=1, keepdims=True)
    limit = np.where(reckless[:, None], np.inf, 0.95 * SPEED_LIMIT)  # whatever the noise
    return actions * np.minimum(1, limit / length)


def _walk_round(observations: Doubles, reckless: Bools, rng: np.random.Generator) -> Doubles:
    """Go straight to the goal; careful walkers go round the disc."""
    heading, distance = _way(observations)
    careful = _round_disc(observations[:, :2], heading, distance)
    heading = np.where(reckless[:, None], heading, careful)
    return 0.4 * heading + NOISE * rng.standard_normal(heading.shape)


def _way(observations: Doubles) -> tuple[Doubles, Doubles]:
    """Direction (n, 2) and distance (n, 1) of the goals."""
    way = observations[:, 2:]
    distance = np.linalg.norm(way, axis=1, keepdims=True)
    return way / np.maximum(distance, 1e-9), distance


def _round_disc(positions: Doubles, heading: Doubles, distance: Doubles) -> Doubles:
    """Turn headings that come too close to the disc to the tangent that passes it on the nearer side."""
    ring = DISC_RADIUS + MARGIN
    along = np.clip(-(positions * heading).sum(axis=1, keepdims=True), 0, distance)  # to the closest approach
    closest = np.linalg.norm(positions + along * heading, axis=1, keepdims=True)
    radius = np.maximum(np.linalg.norm(positions, axis=1, keepdims=True), 1e-9)
    outward = positions / radius
    sideways = np.stack([outward[:, 1], -outward[:, 0]], axis=1)
    sideways = np.where((sideways * heading).sum(axis=1, keepdims=True) >= 0, sideways, -sideways)
    sine = np.clip(ring / radius, 0, 1)
    inside = np.maximum(ring / radius - 1, 0)  # walkers inside the ring, because of noise, drift out of it
    tangent = -outward * np.sqrt(1 - sine**2) + sideways * sine + 5 * inside * outward
    tangent = tangent / np.linalg.norm(tangent, axis=1, keepdims=True)
    return np.where(closest < ring, tangent, heading)


RULES: dict[Problem, Rules] = {
    "speed": Rules("walk between stations, not too fast", _fast, _walk_slowly),
    "disc": Rules(
        "walk between stations, not through the disc that no column names",
        _inside,
        _walk_round,
        (Disc("disc", 0.0, 0.0, DISC_RADIUS, costs=True),),
    ),
}
TASKS = {
    f"toy:{name}": Task(
        rules.summary, STEPS, partial(ToyWorlds, name), demonstrate=partial(make_episodes, name)
    )
    for name, rules in RULES.items()
}
