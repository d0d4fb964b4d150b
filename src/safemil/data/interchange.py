"""What every reader gives and every writer takes."""

import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from safemil.data.trajectories import (
    ROUNDING,
    Annotations,
    Trajectories,
    check_bounds,
    scaled_actions,
)
from safemil.errors import InputError
from safemil.typing import Doubles

Bounds = tuple[npt.ArrayLike, npt.ArrayLike]  # least and greatest action: one number each, or one per column


@dataclass(frozen=True)
class Columns:
    """What the columns of a table are called.

    `observation` and `action` name one column of lists, or several columns of numbers: `"speed,gap"`,
    or `"obs_*"` for all that begin with `obs_`. Left out, they are `observation` or else `obs_*`,
    and `action` or else `act_*`.
    """

    episode: str = "episode"
    step: str = "step"
    observation: str | None = None
    action: str | None = None
    reward: str = "reward"
    cost: str = "cost"
    terminated: str = "terminated"


@dataclass(frozen=True)
class Options:
    """How a file is to be read."""

    columns: Columns = Columns()
    action_bounds: Bounds | None = None


@dataclass(frozen=True)
class Contents:
    """All that a file holds; rewards and costs as found, unchecked until someone asks for them."""

    trajectories: Trajectories
    rewards: npt.NDArray[Any] | None = None  # (steps,)
    costs: npt.NDArray[Any] | None = None  # (steps,)
    names: tuple[str, str] = ("rewards", "costs")  # what the file calls them, or would
    manifest: dict[str, Any] = field(default_factory=dict)  # where they come from, if the file says

    def annotations(self) -> Annotations:
        """Rewards and costs, or an error that says which of them is missing or where one isn't a number."""
        found = []
        for name, values in zip(self.names, (self.rewards, self.costs), strict=True):
            if values is None:
                raise InputError(f'need rewards and costs for this, but there is no "{name}".')
            bad = ~np.isfinite(values)
            if bad.any():
                row = int(np.argmax(bad))
                raise InputError(
                    f'"{name}" must be finite, but is {values[row]} at {self.trajectories.where(row)}.'
                )
            found.append(values)
        return Annotations(*found)


def in_unit_box(
    actions: npt.NDArray[Any], given: Bounds | None, recorded: Bounds | None, names: list[str]
) -> tuple[Doubles, Doubles, Doubles]:
    """Actions scaled to [-1, 1], and the bounds: those given, else those in the file, else -1 and 1."""
    low, high = (_per_column(bound, len(names)) for bound in given or recorded or (-1.0, 1.0))
    check_bounds(low, high)
    scaled = scaled_actions(actions, low, high)
    far = (np.abs(scaled) > 1 + ROUNDING) & np.isfinite(scaled)
    if far.any():
        row, column = (int(i) for i in np.argwhere(far)[0])
        raise InputError(
            f'"{names[column]}" holds {actions[row, column]:g}, outside its bounds '
            f"{low[column]:g} to {high[column]:g}; give those that the log was recorded with: "
            "--action-low and --action-high, or action_bounds=(low, high), one number each or one per column."
        )
    return scaled, low, high


def written_actions(trajectories: Trajectories) -> npt.NDArray[Any]:
    """Actions in the units of the log; as short as can be, since half the files need no scaling."""
    unit = (trajectories.action_low == -1).all() and (trajectories.action_high == 1).all()
    return trajectories.actions if unit else trajectories.recorded_actions()


def listed(names: Iterable[str], most: int = 12) -> str:
    """Names for a message, the first few of many."""
    found = list(names)
    return ", ".join(found[:most]) + (", ..." if len(found) > most else "") or "none"


def bounds_to_json(trajectories: Trajectories) -> str:
    """The recorded bounds as our writers keep them; Python's floats survive JSON exactly."""
    return json.dumps(
        {"action_low": trajectories.action_low.tolist(), "action_high": trajectories.action_high.tolist()}
    )


def bounds_from_json(text: str | bytes) -> Bounds:
    try:
        found = json.loads(text)
        return found["action_low"], found["action_high"]
    except (ValueError, TypeError, KeyError) as error:
        raise InputError(
            f"the recorded action bounds can't be read ({text!r}); write the file anew."
        ) from error


def _per_column(bound: npt.ArrayLike, size: int) -> Doubles:
    try:
        array = np.atleast_1d(np.asarray(bound, np.float64))
        return np.broadcast_to(array, (size,))
    except (TypeError, ValueError) as error:
        raise InputError(
            f"an action bound must be one number or {size}, one per action column; got {bound!r}."
        ) from error
