"""A driver of the point robot with seven numbers: it heads for the goal, around what its lidars show.

Of 32 directions it takes the one that leads best to the goal and least into things, and steers so that its
velocity, which lags behind its heading, comes to point there.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]
BINS = 16
REACH = 3.0  # m, of the lidar
DIRECTIONS = np.arange(32) * 2 * np.pi / 32
AHEAD = np.stack([np.cos(DIRECTIONS), np.sin(DIRECTIONS)], axis=1)  # (32, 2)
NUMBERS = ("care", "margin", "view", "pull", "turn", "speed", "brake")
GOAL_SIZE = 0.3  # m, around the goal's place, where a lidar's echo is taken for the goal itself


@dataclass(frozen=True)
class Lidars:
    """Where a task's observation has them, by their first entry."""

    goal: int
    obstacles: Mapping[int, float]  # and how near one may come to their centres, m


LIDARS = {
    "SafetyPointGoal1-v0": Lidars(12, {28: 0.2}),
    "SafetyPointButton1-v0": Lidars(28, {12: 0.2, 44: 0.2, 60: 0.3}),
}


def drive(lidars: Lidars, numbers: Array, observations: Array) -> Array:
    """(n, S) -> (n, 2), by the seven numbers of each row (n, 7), or the same for all (1, 7).

    care: what being blocked weighs against leading to the goal. margin: m, kept beside things. view: m,
    how far ahead things matter. pull: m/s, aimed for. turn: per radian. speed: m/s, not driven beyond.
    brake: how much slower where things are ahead.
    """
    care, margin, view, pull, turn, speed, brake = numbers.T  # (n,) each
    angle, distance = _nearest(observations[:, lidars.goal : lidars.goal + BINS])
    leads = np.cos(DIRECTIONS - angle[:, None])  # (n, 32)
    horizon = np.minimum(view, distance + 0.1)
    blocked = np.zeros_like(leads)
    for first, radius in lidars.obstacles.items():
        echoes = _without_goal(observations[:, first : first + BINS], angle, distance)
        blocked = np.maximum(blocked, _blocked(echoes, radius + margin, horizon))
    best = (leads - care[:, None] * blocked).argmax(axis=1)
    velocity = observations[:, 3:5]
    slower = 1.0 - brake * blocked[np.arange(len(best)), best]
    wanted = (pull * slower)[:, None] * AHEAD[best] - velocity  # (n, 2), in the robot's frame
    throttle = np.clip(5.0 * wanted[:, 0], -1.0, 1.0)
    fast = (np.hypot(velocity[:, 0], velocity[:, 1]) > speed * slower) & (velocity[:, 0] * throttle > 0)
    steer = np.clip(turn * np.arctan2(wanted[:, 1], wanted[:, 0]), -1.0, 1.0)
    return np.stack([np.where(fast, 0.0, throttle), steer], axis=1)


def _angles(echoes: Array) -> Array:
    """Where in its bin a thing is, as its echo spreads to the bins beside; its middle if that is unclear."""
    left, right = np.roll(echoes, -1, axis=1), np.roll(echoes, 1, axis=1)
    share = left / np.maximum(left + right, 1e-9)
    peak = (echoes >= left) & (echoes >= right) & (left + right > 0)
    return (np.arange(BINS) + np.where(peak, share, 0.5)) * 2 * np.pi / BINS


def _nearest(echoes: Array) -> tuple[Array, Array]:
    """Angle and distance of the nearest thing."""
    rows = np.arange(len(echoes))
    nearest = echoes.argmax(axis=1)
    return _angles(echoes)[rows, nearest], REACH * (1.0 - echoes[rows, nearest])


def _without_goal(echoes: Array, angle: Array, distance: Array) -> Array:
    """Echoes but those from the goal's place: the lit button is among the buttons."""
    there = REACH * (1.0 - echoes)
    apart = (
        there**2
        + distance[:, None] ** 2
        - 2 * there * distance[:, None] * np.cos(_angles(echoes) - angle[:, None])
    )
    return np.where(apart < GOAL_SIZE**2, 0.0, echoes)


def _blocked(echoes: Array, radius: Array, horizon: Array) -> Array:
    """(n, 32), from 0 to 1: how much, and how soon, each direction leads into a thing."""
    distance = REACH * (1.0 - echoes)[:, None, :]  # (n, 1, bins)
    apart = _angles(echoes)[:, None, :] - DIRECTIONS[:, None]  # (n, 32, bins)
    ahead, aside = distance * np.cos(apart), distance * np.abs(np.sin(apart))
    hit = np.maximum(0.0, 1.0 - aside / radius[:, None, None])
    soon = np.clip(1.0 - ahead / horizon[:, None, None], 0.0, 1.0) * (ahead > 0)
    found: Array = (hit * soon).max(axis=2)
    return found


@dataclass(frozen=True, eq=False)
class Driver:
    """The seven numbers as a policy; its actions get normal noise and are clipped to [-1, 1]."""

    name: str
    numbers: Array  # (7,)
    deviation: Array  # (2,)
    card: dict[str, Any]

    def act(self, observations: Array, noise: Array) -> Array:
        """(n, S), (n, 2) -> (n, 2); noise is standard normal, or 0 for the most likely action."""
        lidars = LIDARS[self.card["task"]]
        return np.clip(drive(lidars, self.numbers[None], observations) + self.deviation * noise, -1.0, 1.0)
