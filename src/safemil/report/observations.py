"""What the observations of the point tasks say about places.

Their magnetometer gives the heading, and the strongest bin of a lidar the distance to the nearest thing of a
kind (its neighbours give the direction). In SafetyPointCircle2 that is enough to know where the robot is.
"""

import numpy as np
import numpy.typing as npt

from safemil.tasks import button, circle, goal
from safemil.tasks.point import BIN_WIDTH, BINS, MAGNETIC_FIELD, SENSORS

Doubles = npt.NDArray[np.float64]
CIRCLE, GOAL, BUTTON = "SafetyPointCircle2-v0", "SafetyPointGoal1-v0", "SafetyPointButton1-v0"
SENSED = ("accelerometer", "velocimeter", "gyro", "magnetometer")
LIDARS = {  # in the order of the observation
    CIRCLE: ("circle",),
    GOAL: ("goal", "hazard", "vase"),
    BUTTON: ("button", "goal", "hazard", "gremlin"),
}
REACHES = {CIRCLE: circle.REACH, GOAL: goal.REACH, BUTTON: button.REACH}  # m
HAZARD_RADIUS = goal.HAZARD_RADIUS  # m, the same in both tasks


def column_names(task: str | None, observation_size: int, action_size: int) -> list[str]:
    """What the columns of a task are; of data from elsewhere, their numbers."""
    names = [f"observation {i}" for i in range(observation_size)]
    if task in LIDARS and observation_size == SENSORS + BINS * len(LIDARS[task]):
        sensed = [f"{name} {axis}" for name in SENSED for axis in "xyz"]
        seen = [f"{kind} lidar at {360 * i / BINS:g}°" for kind in LIDARS[task] for i in range(BINS)]
        return sensed + seen + ["forward force", "turning speed"]
    return names + [f"action {i}" for i in range(action_size)]


def nearest(task: str, observations: npt.ArrayLike, kind: str) -> Doubles:
    """(steps, 2): how far ahead and how far to the left the nearest thing of a kind is, in m.

    NaN where none is within reach.
    """
    first = SENSORS + BINS * LIDARS[task].index(kind)
    seen = np.asarray(observations, np.float64)[:, first : first + BINS]
    rows, whole = np.arange(len(seen)), seen.argmax(axis=1)
    near = seen[rows, whole]
    after = _share_of_next_bin(near, seen[rows, (whole + 1) % BINS], seen[rows, whole - 1])
    angle, distance = (whole + after) * BIN_WIDTH, (1 - near) * REACHES[task]
    found = np.stack([distance * np.cos(angle), distance * np.sin(angle)], axis=1)
    return np.where(near[:, None] > 0, found, np.nan)


def _share_of_next_bin(near: Doubles, after: Doubles, before: Doubles) -> Doubles:
    """Of the nearest thing; another thing beside it can only make a bin look stronger than it made it."""
    strength = np.maximum(near, 1e-12)
    low, high = 1 - np.minimum(before / strength, 1), np.minimum(after / strength, 1)
    return (low + high) / 2


def circle_positions(observations: npt.ArrayLike) -> Doubles:
    """(steps, 2): where the robot of SafetyPointCircle2 is, in m from the circle's centre, which it sees."""
    observed = np.asarray(observations, np.float64)
    sin, cos = -observed[:, SENSORS - 3 : SENSORS - 1].T / MAGNETIC_FIELD
    ahead, left = nearest(CIRCLE, observed, "circle").T
    return -np.stack([cos * ahead - sin * left, sin * ahead + cos * left], axis=1)
