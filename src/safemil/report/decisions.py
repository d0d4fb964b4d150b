"""What the policy would have done in the logged states, without a simulator."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from safemil.api import Run
from safemil.arrays import Bools, Doubles, Floats, Ints
from safemil.attribution import cost_of_rows
from safemil.data import Trajectories
from safemil.data.trajectories import scaled_actions
from safemil.report.moments import RISKY, Good

STEPS = 20_000  # logged steps that are compared, at most
NEIGHBOURS = 4_000  # good states in which the nearest one is sought, at most
BLOCK = 512  # states compared at once: bounds the memory
USUAL = 0.9  # of the good steps differ less from the policy than what is called otherwise
NEAR = 0.95  # of the good states lie nearer to another good one than what is called far


class Line(NamedTuple):
    """Decisions in one kind of steps."""

    kind: str
    steps: int
    otherwise: float  # share of the steps at which the policy acts otherwise than the log
    logged: float  # mean risk of the logged actions
    ours: float  # mean risk of the policy's actions in the same states
    lower: float  # share of the steps at which the policy's action has a risk lower by 0.05 or more
    far: float  # share of the states far from what was cloned


class Decisions(NamedTuple):
    """The policy against the log."""

    lines: list[Line]
    steps: int  # compared
    all_steps: int
    limit: float  # distance of actions, in half of the range of a column, above which they differ; 0: choices
    otherwise: list[Bools]  # each step of each episode in `episodes`
    episodes: list[int]


def compare(
    run: Run, held: Trajectories, risk: Sequence[Floats], good: Good, episodes: Sequence[int]
) -> Decisions:
    """Compare in a sample of the logged steps, and in every step of some episodes."""
    rng = np.random.default_rng(0)
    sample = np.sort(rng.permutation(held.steps)[:STEPS])
    is_good = np.isin(held.episode_of_step, good.episodes)
    distances, ours = _distances(run, held, sample)
    choices = held.action_categories is not None
    among_good = distances[is_good[sample]]
    limit = 0.0 if choices or not len(among_good) else float(np.quantile(among_good, USUAL))
    otherwise = distances > limit
    logged = np.concatenate(risk)[sample].astype(np.float64)
    theirs = np.asarray(cost_of_rows(run.cost, held)(held.observations[sample], ours), np.float64)
    far = _far(held, sample, good, rng)
    lines = [
        _line(kind, rows, otherwise, logged, theirs, far)
        for kind, rows in (
            ("all", np.ones(len(sample), bool)),
            ("good", is_good[sample]),
            ("risky", logged > RISKY),
        )
        if rows.any()
    ]
    shown = [
        _distances(run, held, np.arange(held.starts[each], held.starts[each] + held.lengths[each]))[0] > limit
        for each in episodes
    ]
    return Decisions(lines, len(sample), held.steps, limit, shown, list(episodes))


def _distances(run: Run, held: Trajectories, rows: Ints) -> tuple[Doubles, Floats]:
    """Distance of the policy's actions (scaled) from the logged ones, and the policy's actions.

    It is the largest difference of a column, in half of the column's range; of choices 0 or 2.
    """
    actions = run[0].act_each(held.observations[None, rows])[0]
    scaled = scaled_actions(actions, held.action_low, held.action_high).clip(-1, 1).astype(np.float32)
    if held.action_categories is not None:
        chosen = np.where(np.arange(scaled.shape[1]) == scaled.argmax(axis=1)[:, None], 1, -1)
        scaled = chosen.astype(np.float32)
    return np.abs(scaled - held.actions[rows]).max(axis=1).astype(np.float64), scaled


def _far(held: Trajectories, rows: Ints, good: Good, rng: np.random.Generator) -> Bools:
    """States farther from the nearest good one than good states are from good ones of other episodes."""
    deviation = held.observations.std(axis=0, dtype=np.float64)
    scale = np.where(deviation > 0, deviation, 1.0)
    some = rng.permutation(good.rows)[:NEIGHBOURS]
    states, owner = held.observations[some] / scale, held.episode_of_step[some]
    usual = _nearest(states, owner, states, owner)
    limit = np.quantile(usual[np.isfinite(usual)], NEAR) if np.isfinite(usual).any() else np.inf
    return _nearest(held.observations[rows] / scale, held.episode_of_step[rows], states, owner) > limit


def _nearest(states: Doubles, owner: Ints, others: Doubles, other_owner: Ints) -> Doubles:
    """Distance to the nearest of other states, those of the same episode left out."""
    found = np.empty(len(states))
    squares = (others**2).sum(axis=1)
    for first in range(0, len(states), BLOCK):
        part = states[first : first + BLOCK]
        square = (part**2).sum(axis=1)[:, None] + squares[None, :] - 2 * part @ others.T
        square[owner[first : first + BLOCK, None] == other_owner[None, :]] = np.inf
        found[first : first + BLOCK] = np.sqrt(np.maximum(square.min(axis=1), 0))
    return found


def _line(kind: str, rows: Bools, otherwise: Bools, logged: Doubles, ours: Doubles, far: Bools) -> Line:
    return Line(
        kind,
        int(rows.sum()),
        float(otherwise[rows].mean()),
        float(logged[rows].mean()),
        float(ours[rows].mean()),
        float((ours[rows] < logged[rows] - 0.05).mean()),
        float(far[rows].mean()),
    )
