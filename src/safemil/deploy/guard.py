"""A guard that watches episodes as they happen, and raises an alarm in a bounded share of calm ones.

The running score of an episode is the CUSUM (Page 1954) of the risk's logit, Sₜ = max(0, Sₜ₋₁ + logit ĉₜ). A
calibrated logit is the log of the density ratio of incident to good steps, so S is the evidence for an
incident that began at the most likely step so far. The threshold is a split conformal quantile of the largest
S of calm episodes: an episode that is exchangeable with them raises an alarm with a probability of at most α.
"""

import base64
import json
import math
import os
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from safemil.arrays import Floats, Ints
from safemil.deploy import storage
from safemil.deploy.model import Model
from safemil.errors import InputError

FORMAT = 1
LEAST_RISK = 1e-6  # and 1 less this is the largest: one step adds or takes away at most 13.8


class Verdict(NamedTuple):
    """What a guard says of a step."""

    risk: float  # ĉ of the step
    score: float  # running score of the episode so far
    alarm: bool  # whether the score has passed the threshold at this step or before
    since: int | None  # step at which it first did, counted from 0
    novelty: float  # distance beyond the range of the training data, in standard deviations


class Advice(NamedTuple):
    """Candidate actions by risk."""

    order: Ints  # numbers of the actions, the least risky first
    risks: Floats  # risk of each action, in the order given


def next_score(score: float, risk: float) -> float:
    """Add one step to a running score.

    >>> next_score(1.0, 0.5)
    1.0
    """
    bounded = min(max(risk, LEAST_RISK), 1 - LEAST_RISK)
    return max(0.0, score + math.log(bounded / (1 - bounded)))


def largest_score(risks: Sequence[float] | Floats) -> float:
    """Largest running score of an episode."""
    score = largest = 0.0
    for risk in np.asarray(risks, np.float64).tolist():
        score = next_score(score, risk)
        largest = max(largest, score)
    return largest


def episodes_needed(alpha: float) -> int:
    """Fewest calm episodes that support a share α of false alarms.

    >>> episodes_needed(0.05)
    19
    """
    return math.ceil(round(1 / alpha - 1, 9))


def conformal_threshold(scores: npt.ArrayLike, alpha: float) -> float:
    """Smallest threshold that a further, exchangeable score exceeds with a probability of at most α.

    It is the k-th smallest of n scores with k = ⌈(n + 1)(1 − α)⌉ (Vovk et al. 2005, Lei et al. 2018).

    >>> conformal_threshold([3.0, 1.0, 2.0, 4.0], alpha=0.2)
    4.0
    """
    if not 0 < alpha < 1:
        raise InputError(f"alpha must lie between 0 and 1, got {alpha:g}.")
    ordered = np.sort(np.asarray(scores, np.float64))
    place = math.ceil(round((len(ordered) + 1) * (1 - alpha), 9))
    if place > len(ordered):
        supported = 1 / (len(ordered) + 1)
        raise InputError(
            f"alpha {alpha:g} needs {episodes_needed(alpha)} calm episodes, got {len(ordered)}; give more, "
            f"or set `alpha=...` to {math.ceil(1000 * supported) / 1000:g} or more."
        )
    return float(ordered[place - 1])


class Guard:
    """Watches one episode at a time: `reset` at its beginning, then `step` with every step."""

    def __init__(self, model: Model, threshold: float, alpha: float, episodes: int, guaranteed: bool = True):
        if not model.learns_cost:
            raise InputError(f"{model.algorithm} learns no cost, which a guard needs; train safemil.")
        self.model = model
        self.threshold = threshold
        self.alpha = alpha  # share of calm episodes in which an alarm may be raised
        self.episodes = episodes  # calm ones that the threshold was set with
        self.guaranteed = guaranteed  # whether somebody gave them, or the evidence alone calls them calm
        self.reset()

    def __repr__(self) -> str:
        return f"Guard({self.model.algorithm}, alpha {self.alpha:g}, {self.episodes} calm episodes)"

    def reset(self) -> None:
        """Begin an episode."""
        self._score, self._steps = 0.0, 0
        self._since: int | None = None

    def step(self, observation: npt.ArrayLike, action: npt.ArrayLike) -> Verdict:
        """Add the step of an observation and the action taken; an alarm stays until `reset`."""
        risk, novelty = self.model.risk(observation, action), self.model.novelty(observation, action)
        self._score = next_score(self._score, risk)
        if self._since is None and self._score > self.threshold:
            self._since = self._steps
        self._steps += 1
        return Verdict(risk, self._score, self._since is not None, self._since, novelty)

    def advise(self, observation: npt.ArrayLike, actions: npt.ArrayLike) -> Advice:
        """Rank candidate actions (N, A), or N choices, for one observation by their risk."""
        count = len(np.asarray(actions))
        repeated = np.repeat(np.asarray(observation, np.float32)[None], count, axis=0)
        risks = self.model.risk(repeated, actions)
        return Advice(np.argsort(risks, kind="stable"), risks)

    def to_json(self, model: bytes) -> str:
        """Encode the guard with its networks, as `storage.to_bytes` encoded them."""
        content = {"alpha": self.alpha, "threshold": self.threshold, "episodes": self.episodes}
        content["guaranteed"] = self.guaranteed
        return json.dumps({"format": FORMAT, **content, "model": base64.b64encode(model).decode()}) + "\n"

    @staticmethod
    def load(path: str | os.PathLike[str]) -> "Guard":
        """Read a file that `safemil guard` wrote; nothing in it is executed."""
        name = os.fspath(path)
        try:
            content: dict[str, Any] = json.loads(storage.read_bytes(path))
            if content["format"] != FORMAT:
                raise ValueError(f"it is of format {content['format']}, not {FORMAT}")
            model = base64.b64decode(content["model"], validate=True)
            numbers = float(content["threshold"]), float(content["alpha"]), int(content["episodes"])
            if not all(map(math.isfinite, numbers)) or not 0 < numbers[1] < 1 or numbers[2] < 1:
                raise ValueError("its threshold, its alpha or its number of episodes can't be right")
            guaranteed = content.get("guaranteed", True) is True
        except InputError:
            raise
        except storage.DAMAGED as error:
            raise InputError(
                f"{name} is not a guard, or is damaged ({error}); write it with `safemil guard`."
            ) from None
        return Guard(Model.from_bytes(model, name), *numbers, guaranteed)
