"""Where the risk is, and which columns drive it: in the riskiest moments, and in steps of episodes."""

import base64
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from safemil.api import Run
from safemil.arrays import Doubles, Floats, Ints
from safemil.attribution import ROUNDS, Attribution, Group, attribute, cost_of_rows, groups
from safemil.data import Trajectories
from safemil.data.trajectories import recorded_actions
from safemil.progress import bar
from safemil.report.extreme_segments import telling

MOMENTS = 200  # riskiest episodes whose riskiest moment is explained
DETAILED = 40  # listed episodes whose columns can be stepped through
EXPLAINED = 24  # steps of such an episode that are explained
SHOWN = 8  # columns whose values are shown
POINTS = 300  # values of a column in an episode, at most
GOOD_STEPS = 20_000  # good steps that others are compared with, at most
BLOCK = 256  # steps between two updates of the progress bar
MANY_COLUMNS = 20  # with more, fewer rounds
NAMED = 4  # columns named for a step
RISKY = 0.5  # a moment below this risk needs no reason
MIDDLE = (5.0, 50.0, 95.0)  # percentiles of good steps


@dataclass(frozen=True, eq=False)
class Good:
    """Steps of the episodes with the lowest risk."""

    episodes: Ints
    rows: Ints  # a sample of their steps, as rows of the pile
    low: Doubles  # (columns,) in the units of the log; the middle 90% of the steps
    middle: Doubles
    high: Doubles


class Reason(NamedTuple):
    """A column that drives the risk of a group of moments."""

    name: str
    side: str  # low or high
    low: float  # middle 90% of its values there
    high: float
    good_low: float
    good_high: float


class Kind(NamedTuple):
    """A group of like moments, and an example."""

    size: int
    reasons: list[Reason]
    episode: int  # number in the pile
    name: str
    step: int  # row within the episode
    label: str  # of that step
    risk: float


@dataclass(frozen=True, eq=False)
class Moments:
    """The riskiest moment of each of the riskiest episodes, explained."""

    columns: list[str]
    good: Good
    peaks: Ints  # row within its episode of the riskiest moment of every episode
    explained: Ints  # numbers of the episodes whose moment is explained, the riskiest first
    found: Attribution  # of these moments
    important: Ints  # columns, the one with the largest mean share first
    kinds: list[Kind]


def find(
    run: Run,
    held: Trajectories,
    risk: Sequence[Floats],
    order: Ints,
    kept: int,
    length: int,
    columns: Sequence[str],
    *,
    progress: bool,
) -> Moments:
    """Explain the riskiest moments; `order` has the riskiest episodes first, `kept` counts good ones."""
    names = named(held, columns)
    good = _good(held, order[::-1][: max(kept, 1)])
    smooth = [smoothed(each, length) for each in risk]
    peaks = np.array([telling(each) for each in smooth])
    highest = np.array([each.max() for each in smooth])
    explained = order[:MOMENTS]
    if (highest[explained] > RISKY).any():
        explained = explained[highest[explained] > RISKY]
    rows = held.starts[explained] + peaks[explained]
    found = explain(run, held, rows, good, names, progress=progress)
    shares = found.shares.mean(axis=0)
    there = values_at(held, rows)
    kinds = [
        _kind(each, found, there, good, held, explained, peaks) for each in groups(found, there, good.middle)
    ]
    return Moments(names, good, peaks, explained, found, np.argsort(-shares, kind="stable"), kinds)


def values_at(held: Trajectories, rows: Ints) -> Floats:
    """Values of all columns in rows of the pile, in the units of the log."""
    actions = recorded_actions(held.actions[rows], held.action_low, held.action_high)
    return np.concatenate([held.observations[rows], actions.astype(np.float32)], axis=1)


def named(held: Trajectories, columns: Sequence[str]) -> list[str]:
    """Names of the columns; all columns of a choice bear the name of the action."""
    if held.action_categories is None:
        return [*columns]
    return [*columns[: held.observation_size], *(f"action {each}" for each in held.action_categories)]


def smoothed(values: Floats, length: int) -> Doubles:
    """Means over `length` steps around each step; at the ends over those that there are.

    >>> smoothed(np.array([0, 0, 3, 0, 0], np.float32), 3).tolist()
    [0.0, 1.0, 1.0, 1.0, 0.0]
    """
    before, after = (length - 1) // 2, length // 2
    total = np.concatenate([[0.0], np.cumsum(values, dtype=np.float64)])
    places = np.arange(len(values))
    first, last = np.maximum(places - before, 0), np.minimum(places + after + 1, len(values))
    return np.asarray((total[last] - total[first]) / (last - first))


def explain(
    run: Run, held: Trajectories, rows: Ints, good: Good, names: Sequence[str], *, progress: bool
) -> Attribution:
    """Share of each column in the risk of rows of the pile."""
    cost = cost_of_rows(run.cost, held)
    choice = range(held.observation_size, held.observation_size + held.action_size)
    together = [] if held.action_categories is None else [choice]
    rounds = rounds_for(len(names))
    background = held.observations[good.rows], held.actions[good.rows]
    parts = []
    with bar("finding columns that drive the risk, steps", len(rows), show=progress) as shown:
        for first in range(0, len(rows), BLOCK):
            some = rows[first : first + BLOCK]
            steps = held.observations[some], held.actions[some]
            parts.append(
                attribute(cost, *steps, background, names, together=together, rounds=rounds, seed=first)
            )
            shown.at(first + len(some))
    shares, risk, expected = (
        np.concatenate([getattr(part, name) for part in parts]) for name in ("shares", "risk", "expected")
    )
    return Attribution(tuple(names), shares, risk, expected)


def rounds_for(columns: int) -> int:
    """Good steps that each step is compared with."""
    return ROUNDS if columns <= MANY_COLUMNS else ROUNDS // 2


def _good(held: Trajectories, episodes: Ints) -> Good:
    rows = np.flatnonzero(np.isin(held.episode_of_step, episodes))
    some = np.sort(np.random.default_rng(0).permutation(rows)[:GOOD_STEPS])
    low, middle, high = np.percentile(values_at(held, some), MIDDLE, axis=0)
    return Good(np.sort(episodes), some, low, middle, high)


def _kind(
    group: Group,
    found: Attribution,
    values: Floats,
    good: Good,
    held: Trajectories,
    explained: Ints,
    peaks: Ints,
) -> Kind:
    there = values[group.members]
    reasons = []
    for column, high in zip(group.columns, group.high, strict=True):
        low_value, _, high_value = np.percentile(there[:, column], MIDDLE)
        ends = float(low_value), float(high_value), float(good.low[column]), float(good.high[column])
        reasons.append(Reason(found.names[column], "high" if high else "low", *ends))
    first = int(group.members[0])
    episode = int(explained[first])
    step = int(peaks[episode])
    return Kind(
        len(group.members),
        reasons,
        episode,
        str(held.ids[episode]),
        step,
        str(int(held.first_steps[episode]) + step),
        float(found.risk[first]),
    )


def content(
    run: Run,
    held: Trajectories,
    risk: Sequence[Floats],
    moments: Moments,
    numbers: Sequence[int],
    *,
    progress: bool,
) -> dict[str, Any]:
    """Data with which the page shows columns and reasons of some episodes, by their numbers in the pile."""
    shown = [int(i) for i in moments.important[:SHOWN]]
    low, high = ranges(held)
    picked = [_explained_steps(risk[number], int(moments.peaks[number])) for number in numbers]
    rows = [held.starts[number] + steps for number, steps in zip(numbers, picked, strict=True)]
    found = explain(run, held, np.concatenate(rows), moments.good, moments.columns, progress=progress)
    ends = np.cumsum([len(each) for each in rows])
    details = {}
    for number, steps, shares in zip(numbers, picked, np.split(found.shares, ends[:-1]), strict=True):
        first, length = int(held.starts[number]), int(held.lengths[number])
        every = -(-length // POINTS)
        there = values_at(held, np.arange(first, first + length, every))[:, shown]
        details[str(number)] = {
            "every": every,
            "values": [_packed(there[:, i], low[c], high[c]) for i, c in enumerate(shown)],
            "reasons": [_reasons(int(step), each) for step, each in zip(steps, shares, strict=True)],
        }
    return {
        "names": moments.columns,
        "shown": shown,
        "low": [_rounded(low[c]) for c in shown],
        "high": [_rounded(high[c]) for c in shown],
        "good": [[_rounded(moments.good.low[c]), _rounded(moments.good.high[c])] for c in shown],
        "details": details,
    }


def ranges(held: Trajectories) -> tuple[Doubles, Doubles]:
    """Least and greatest value of each column, in the units of the log."""
    ends = [
        recorded_actions(each[None], held.action_low, held.action_high)[0]
        for each in (held.actions.min(axis=0), held.actions.max(axis=0))
    ]
    low, high = held.observations.min(axis=0), held.observations.max(axis=0)
    return np.concatenate([low, ends[0]]), np.concatenate([high, ends[1]])


def _explained_steps(risk: Floats, peak: int) -> Ints:
    """The riskiest step of each of some windows, and the most telling one."""
    windows = np.array_split(np.arange(len(risk)), min(EXPLAINED, len(risk)))
    return np.unique([*(int(each[risk[each].argmax()]) for each in windows), peak])


def _reasons(step: int, shares: Doubles) -> list[Any]:
    """Step, and the columns with the largest shares in hundredths, raising or lowering the risk."""
    order = np.argsort(-np.abs(shares), kind="stable")[:NAMED]
    return [step, [[int(i), round(100 * float(shares[i]))] for i in order if abs(shares[i]) >= 0.005]]


def _packed(values: Floats, low: float, high: float) -> str:
    """Encode values as whole numbers of two bytes between the ends of their column."""
    span = high - low if high > low else 1.0
    whole = np.rint((values.astype(np.float64) - low) / span * 65535).astype("<u2")
    return base64.b64encode(whole.tobytes()).decode()


def _rounded(value: float) -> float:
    return float(f"{float(value):.5g}")
