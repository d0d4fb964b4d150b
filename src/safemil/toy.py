"""Generated problems whose true risk is known, and hidden from the learner.

A point walks in the plane; an action is a displacement, at most `STRIDE` in each direction. Careful walkers
take no risk, reckless ones do. In the first three problems the point walks between six stations on a circle,
each time to one drawn anew, and sees its place and the way to its goal:

- `speed`: a step longer than `SPEED_LIMIT` of a full stride is risky;
- `disc`: a step that ends inside a disc in the middle is risky. No column names the disc; careful walkers
  pass it on the nearer side, reckless ones cut through;
- `style`: a step that ends in touch with a cart is risky. The cart patrols between the stations, and its
  relative place is observed. Careful walkers give way. Reckless ones are faster and weave, which is harmless,
  and notice the cart only sometimes: about 60% of their episodes have an incident;
- `moment`: the point walks laps on a ring and sees its place and the direction of the track. A step that ends
  off the track is risky. All walkers are alike; reckless ones leave the track once, for about ten steps.

In `speed` the risk lies in the step itself. In `disc` it lies ahead: the steps that lead into the disc are
as harmless as those that pass by it, which makes it the harder problem for weighted cloning. In `style` most
of what sets reckless episodes apart is harmless, and in `moment` nearly all of an episode with an incident is
normal: there the cost has to find steps, not episodes.

Each problem is a task of the catalog, such as `toy:speed`: a goal is a reward of 1, a risky step costs 1. In
`moment` the reward of 1 is spread over the way from a station to the next.
"""

import abc
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

Problem = Literal["speed", "disc", "style", "moment"]

STEPS = 200  # at most; recorded episodes end up to a fifth earlier, so that they are ragged
STRIDE = 0.15  # m, of a full action in one direction
GOAL_RADIUS = 0.1  # m
RING = 0.8  # m, radius of the circle of stations, which is the centre line of the track
STATIONS = RING * np.stack([np.cos(np.arange(6) * np.pi / 3), np.sin(np.arange(6) * np.pi / 3)], axis=1)  # m
NOISE = 0.05  # deviation of a walker's action
SPEED_LIMIT = 0.5  # of a full stride
DISC_RADIUS = 0.3  # m
MARGIN = 0.25  # m, that careful walkers keep from the disc
PATROL = 0.45  # m, radius of the cart's circle
TOUCH = 0.17  # m, between walker and cart
HALF_WIDTH = 0.2  # m, of the track
LAPSE = 7  # steps away from the track, before the walker turns back


class ToyWorlds(Worlds):
    """n walkers in the plane."""

    observation_size, action_size, dt = 4, 2, 1.0
    same_arena = True
    reach = 1.0  # m, from the middle to the sides of the arena
    hazards: tuple[Marker, ...] = ()

    def __init__(self, n: int, threads: int = 1) -> None:
        super().__init__(n, 1)
        self.rngs = [np.random.default_rng() for _ in range(n)]
        self.xy = np.zeros((n, 2))

    @abc.abstractmethod
    def advance(self, before: Doubles, rows: Ints) -> Doubles:
        """Change what moves beside the walkers, which came from `before` (n, 2); compute rewards (n,)."""

    @abc.abstractmethod
    def risky(self, actions: Doubles) -> Bools:
        """Whether the step that led here by `actions` (n, 2) was risky, (n,)."""

    def seed(self, row: int, seed: int | None) -> None:
        self.rngs[row] = np.random.default_rng(seed)

    def step(self, actions: npt.NDArray[np.floating], rows: Ints) -> Outcome:
        clipped, before = np.clip(actions, -1, 1).astype(np.float64), self.xy.copy()
        self.xy[rows] = np.clip(self.xy + STRIDE * clipped, -self.reach, self.reach)[rows]
        rewards = self.advance(before, rows)
        return Outcome(rewards, self.risky(clipped).astype(np.float64), np.zeros(self.n, bool), {})

    def column_names(self) -> list[str]:
        return ["x", "y", "way to the goal in x", "way to the goal in y", "step in x", "step in y"]

    def positions(self, observations: npt.ArrayLike) -> Doubles:
        return np.asarray(observations, np.float64)[:, :2]

    def markers(self, row: int) -> list[Marker]:
        stations = [Disc("station", x, y, GOAL_RADIUS, costs=False) for x, y in STATIONS.tolist()]
        return [*stations, *self.hazards]


class StationWorlds(ToyWorlds):
    """Each walker is on the way to a station."""

    def __init__(self, n: int, threads: int = 1) -> None:
        super().__init__(n, threads)
        self.stations = np.zeros(n, np.int64)

    def reset(self, row: int) -> None:
        rng = self.rngs[row]
        self.stations[row] = rng.integers(len(STATIONS))
        self.xy[row] = STATIONS[self.stations[row]] + rng.uniform(-GOAL_RADIUS, GOAL_RADIUS, 2)
        self._draw_goal(row)

    def advance(self, before: Doubles, rows: Ints) -> Doubles:
        reached = np.linalg.norm(STATIONS[self.stations] - self.xy, axis=1) < GOAL_RADIUS
        for row in rows[reached[rows]].tolist():
            self._draw_goal(row)
        return reached.astype(np.float64)

    def observe(self) -> Doubles:
        return np.concatenate([self.xy, STATIONS[self.stations] - self.xy], axis=1)

    def _draw_goal(self, row: int) -> None:
        """Choose one of the other stations, each equally likely."""
        self.stations[row] = (self.stations[row] + self.rngs[row].integers(1, len(STATIONS))) % len(STATIONS)


class SpeedWorlds(StationWorlds):
    """Fast steps are risky."""

    def risky(self, actions: Doubles) -> Bools:
        return np.asarray(np.linalg.norm(actions, axis=1) > SPEED_LIMIT)


class DiscWorlds(StationWorlds):
    """A disc that no column names is risky."""

    hazards = (Disc("disc", 0.0, 0.0, DISC_RADIUS, costs=True),)

    def risky(self, actions: Doubles) -> Bools:
        return np.asarray(np.linalg.norm(self.xy, axis=1) < DISC_RADIUS)


class StyleWorlds(StationWorlds):
    """A cart that patrols on a circle, either way round and at a pace of its own, must not be touched."""

    observation_size = 6

    def __init__(self, n: int, threads: int = 1) -> None:
        super().__init__(n, threads)
        self.angles, self.turns = np.zeros((2, n))  # rad and rad per step, of the carts

    def reset(self, row: int) -> None:
        super().reset(row)
        rng = self.rngs[row]
        self.angles[row] = rng.uniform(0, 2 * np.pi)
        self.turns[row] = rng.choice([-1, 1]) * rng.uniform(0.03, 0.06)

    def advance(self, before: Doubles, rows: Ints) -> Doubles:
        self.angles[rows] += self.turns[rows]
        return super().advance(before, rows)

    def risky(self, actions: Doubles) -> Bools:
        return np.asarray(np.linalg.norm(self._way_to_cart(), axis=1) < TOUCH)

    def observe(self) -> Doubles:
        return np.concatenate([super().observe(), self._way_to_cart()], axis=1)

    def column_names(self) -> list[str]:
        *observed, in_x, in_y = super().column_names()
        return [*observed, "way to the cart in x", "way to the cart in y", in_x, in_y]

    def _way_to_cart(self) -> Doubles:
        carts = PATROL * np.stack([np.cos(self.angles), np.sin(self.angles)], axis=1)
        return np.asarray(carts - self.xy)


class MomentWorlds(ToyWorlds):
    """Walkers go round a ring counterclockwise and must not leave the track."""

    reach = 1.5
    hazards = (
        Disc("infield", 0.0, 0.0, RING - HALF_WIDTH, costs=True),
        Disc("outer edge", 0.0, 0.0, RING + HALF_WIDTH, costs=False),
    )

    def reset(self, row: int) -> None:
        rng = self.rngs[row]
        angle = rng.uniform(0, 2 * np.pi)
        radius = RING + 0.04 * rng.standard_normal()
        self.xy[row] = radius * np.cos(angle), radius * np.sin(angle)

    def advance(self, before: Doubles, rows: Ints) -> Doubles:
        """Reward the angle walked, in parts of the way between two stations."""
        (x0, y0), (x, y) = before.T, self.xy.T
        return np.asarray(np.arctan2(x0 * y - y0 * x, x0 * x + y0 * y) * len(STATIONS) / (2 * np.pi))

    def risky(self, actions: Doubles) -> Bools:
        return np.asarray(np.abs(np.linalg.norm(self.xy, axis=1) - RING) > HALF_WIDTH)

    def observe(self) -> Doubles:
        outward, _ = _direction(self.xy)
        return np.concatenate([self.xy, np.stack([-outward[:, 1], outward[:, 0]], axis=1)], axis=1)

    def column_names(self) -> list[str]:
        return [
            "x",
            "y",
            "direction of the track in x",
            "direction of the track in y",
            "step in x",
            "step in y",
        ]


class Walkers(abc.ABC):
    """Demonstrators of an episode each, some of them reckless."""

    def __init__(self, reckless: Bools, rng: np.random.Generator) -> None:
        self.reckless, self.rng = reckless[:, None], rng

    @abc.abstractmethod
    def act(self, observations: Doubles, step: int) -> Doubles:
        """Choose actions (n, 2), which may exceed a full stride."""

    def noise(self) -> Doubles:
        return NOISE * self.rng.standard_normal((len(self.reckless), 2))


class SpeedWalkers(Walkers):
    """Go straight to the goal; careful ones stay below the speed limit."""

    def act(self, observations: Doubles, step: int) -> Doubles:
        heading, distance = _direction(observations[:, 2:])
        # Reckless walkers slow down near the goal, so they have harmless steps too.
        pace = np.where(self.reckless, np.clip(distance / 0.4, 0.3, 0.9), 0.35)
        actions = pace * heading + self.noise()
        length = np.linalg.norm(actions, axis=1, keepdims=True)
        limit = np.where(self.reckless, np.inf, 0.95 * SPEED_LIMIT)  # whatever the noise
        return np.asarray(actions * np.minimum(1, limit / length))


class DiscWalkers(Walkers):
    """Go straight to the goal; careful ones go round the disc."""

    def act(self, observations: Doubles, step: int) -> Doubles:
        heading, distance = _direction(observations[:, 2:])
        careful = _round_disc(observations[:, :2], heading, distance)
        return np.asarray(0.4 * np.where(self.reckless, heading, careful) + self.noise())


class StyleWalkers(Walkers):
    """Go to the goal and give way to a cart ahead; reckless ones are fast, weave, and often miss it."""

    def act(self, observations: Doubles, step: int) -> Doubles:
        heading, _ = _direction(observations[:, 2:4])
        to_cart, distance = _direction(observations[:, 4:])
        left = np.stack([-heading[:, 1], heading[:, 0]], axis=1)
        weaving = heading + np.where(self.reckless, 0.35 * np.sin(0.9 * step), 0) * left
        ahead = distance * (to_cart * weaving).sum(axis=1, keepdims=True) > -0.05
        notice = ~self.reckless | (self.rng.random(self.reckless.shape) < 0.62)
        give_way = np.where(self.reckless, 0.25 * left - 0.3 * to_cart, 0.15 * left - 0.35 * to_cart)
        go_on = np.where(self.reckless, 0.5, 0.38) * weaving
        return np.asarray(np.where((distance < 0.38) & ahead & notice, give_way, go_on) + self.noise())


class MomentWalkers(Walkers):
    """Walk laps, each at a pace of its own and wandering about the centre line; reckless ones lapse once."""

    def __init__(self, reckless: Bools, rng: np.random.Generator) -> None:
        super().__init__(reckless, rng)
        self.pace = rng.uniform(0.3, 0.45, self.reckless.shape)
        # Walkers are back on the track before the earliest end of an episode.
        self.lapse = rng.integers(20, STEPS * 4 // 5 - 20, self.reckless.shape)
        self.wander = np.zeros(self.reckless.shape)  # m, from the centre line

    def act(self, observations: Doubles, step: int) -> Doubles:
        outward, radius = _direction(observations[:, :2])
        self.wander = 0.9 * self.wander + 0.02 * self.rng.standard_normal(self.wander.shape)
        back = np.clip(2.5 * (RING + self.wander - radius), -0.4, 0.4)
        lapses = self.reckless & (self.lapse <= step) & (step < self.lapse + LAPSE)
        return np.asarray(
            self.pace * observations[:, 2:] + np.where(lapses, 0.45, back) * outward + self.noise()
        )


class Rules(NamedTuple):
    """Differences between the problems."""

    summary: str
    worlds: type[ToyWorlds]
    walkers: type[Walkers]
    careful_share: float = 0.5  # of the unlabeled pile
    rare_incidents: bool = False  # whether some reckless walkers stay out of trouble


RULES: dict[Problem, Rules] = {
    "speed": Rules("walk between stations, not too fast", SpeedWorlds, SpeedWalkers),
    "disc": Rules(
        "walk between stations, not through the disc that no column names", DiscWorlds, DiscWalkers
    ),
    "style": Rules("walk between stations, not into the cart", StyleWorlds, StyleWalkers, 0.6, True),
    "moment": Rules("walk laps, not off the track", MomentWorlds, MomentWalkers, 0.4),
}


def make_piles(
    problem: Problem, *, nonpreferred: int = 50, unlabeled: int = 200, heldout: int = 100, seed: int = 0
) -> Piles:
    """Draw the piles of a problem, the unlabeled one with the problem's share of careful episodes."""
    rules = RULES[problem]
    return draw_piles(
        partial(make_episodes, problem),
        nonpreferred=nonpreferred,
        unlabeled=unlabeled,
        heldout=heldout,
        preferred_share=rules.careful_share,
        rare_incidents=rules.rare_incidents,
        seed=seed,
    )


def make_episodes(
    problem: Problem, reckless: Bools, rng: np.random.Generator
) -> tuple[Trajectories, Annotations]:
    """Record an episode per entry of `reckless`, of different lengths."""
    walkers = RULES[problem].walkers(reckless, rng)

    def act(observations: Doubles, step: int) -> Doubles:
        return np.clip(walkers.act(observations, step), -1, 1)

    seeds = rng.integers(2**32, size=len(reckless)).tolist()
    recording = rollouts.record(TASKS[f"toy:{problem}"], act, seeds)
    ragged = replace(recording, lengths=rng.integers(STEPS * 4 // 5, STEPS + 1, len(reckless)))
    return ragged.trajectories(), ragged.annotations()


def evaluate(
    problem: Problem, act: Callable[[Floats], npt.ArrayLike], *, episodes: int = 100, seed: int = 0
) -> tuple[float, float]:
    """Share of risky steps and goals per episode of a policy, from observations (N, S) to actions (N, 2)."""
    seeds = rollouts.environment_seeds(seed, episodes)
    found = rollouts.roll_out(
        TASKS[f"toy:{problem}"], lambda observations, step: act(observations.astype(np.float32)), seeds
    )
    return float(found.costs.mean() / STEPS), float(found.returns.mean())


def _direction(vectors: Doubles) -> tuple[Doubles, Doubles]:
    """Direction (n, 2) and length (n, 1) of vectors."""
    length = np.linalg.norm(vectors, axis=1, keepdims=True)
    return vectors / np.maximum(length, 1e-9), length


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


TASKS = {
    f"toy:{name}": Task(
        rules.summary,
        STEPS,
        rules.worlds,
        demonstrate=partial(make_episodes, name),
        careful_share=rules.careful_share,
        rare_incidents=rules.rare_incidents,
    )
    for name, rules in RULES.items()
}
