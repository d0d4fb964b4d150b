"""Columns that make a step risky, by replacing them with the values that good episodes have.

The share of a column in the risk of a step is its Shapley value (Štrumbelj and Kononenko 2014,
doi:10.1007/s10115-013-0679-x): a good step is drawn and turned into the step in question, column by column in
a random order; a column's share is the mean change of ĉ when it is replaced. The shares of a step add up to
its ĉ less the mean ĉ of good steps, also where the columns act together or say the same twice. Orders are
drawn in pairs, one the reverse of the other, which lowers the noise.

`groups` puts moments together whose risk comes from the same columns, on the same side of their good values.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from safemil.arrays import Doubles, Floats, Ints
from safemil.data import Trajectories
from safemil.errors import InputError

Cost = Callable[[Floats, Floats], npt.ArrayLike]  # ĉ (rows,) of observations (rows, S) and actions (rows, A)

MOST = 0.7  # of the positive shares of a moment: columns are named until they have as much
NAMED = 2  # columns of a group
FEW = 0.05  # share of the moments below which a group is joined with those of its first column
ROUNDS = 8  # good steps that each step is compared with; every one serves two orders
ROWS_AT_ONCE = 65_536  # bounds the memory


@dataclass(frozen=True, eq=False)
class Attribution:
    """Shares of the columns in the risk of some steps."""

    names: tuple[str, ...]  # observation columns, then action columns
    shares: Doubles  # (steps, columns); they add up to `risk - expected`
    risk: Doubles  # (steps,) ĉ
    expected: Doubles  # (steps,) mean ĉ of the good steps that each was compared with

    def leading(self) -> Ints:
        """Column with the largest share in each step."""
        return self.shares.argmax(axis=1)

    def overall(self) -> dict[str, float]:
        """Mean share of each column, the highest first."""
        means = self.shares.mean(axis=0)
        return {self.names[i]: float(means[i]) for i in np.argsort(-means, kind="stable")}


class Group(NamedTuple):
    """Moments whose risk comes from the same columns."""

    columns: tuple[int, ...]  # the first one has the largest share
    high: tuple[bool, ...]  # whether each lies above its good values, or below
    members: Ints  # numbers of the moments, the riskiest first


def cost_of_rows(run_cost: Callable[[Trajectories], Sequence[npt.ArrayLike]], like: Trajectories) -> Cost:
    """Turn the cost of trajectories, such as `run.cost`, into one of rows with the columns of `like`."""

    def cost(observations: Floats, actions: Floats) -> npt.ArrayLike:
        rows = Trajectories(
            observations,
            actions,
            [len(observations)],
            action_low=like.action_low,
            action_high=like.action_high,
            observation_names=like.observation_names,
            action_names=like.action_names,
            action_categories=like.action_categories,
        )
        return run_cost(rows)[0]

    return cost


def attribute(
    cost: Cost,
    observations: npt.ArrayLike,
    actions: npt.ArrayLike,
    good: tuple[npt.ArrayLike, npt.ArrayLike],
    names: Sequence[str],
    *,
    together: Sequence[Sequence[int]] = (),
    rounds: int = ROUNDS,
    seed: int = 0,
) -> Attribution:
    """Share of each column in the risk of steps (rows, S) and (rows, A), against `good` steps.

    Columns in one entry of `together`, such as the choices of an action, are replaced at once; their share
    is that of the first.
    """
    steps, background = _columns(observations, actions), _columns(*good)
    width = np.asarray(observations).shape[1]
    if steps.shape[1] != background.shape[1] or steps.shape[1] != len(names):
        raise InputError(
            f"need the same columns in the steps, in the good ones and in the names, got {steps.shape[1]}, "
            f"{background.shape[1]} and {len(names)}."
        )
    if not len(background):
        raise InputError("need good steps to compare with, got none.")
    if rounds < 1:
        raise InputError(f"rounds must be at least 1, got {rounds}.")
    parts = _parts(steps.shape[1], together)
    rng = np.random.default_rng(seed)
    shares = np.zeros(steps.shape)
    expected = np.zeros(len(steps))
    block = max(1, ROWS_AT_ONCE // (2 * len(parts)))
    for first in range(0, len(steps), block):
        rows = slice(first, first + block)
        for _ in range(rounds):
            found, base = _one_round(cost, steps[rows], background, parts, width, rng)
            shares[rows] += found / rounds
            expected[rows] += base / rounds
    risk = shares.sum(axis=1) + expected
    return Attribution(tuple(names), shares, risk, expected)


def _one_round(
    cost: Cost,
    steps: Floats,
    background: Floats,
    parts: Sequence[Sequence[int]],
    width: int,
    rng: np.random.Generator,
) -> tuple[Doubles, Doubles]:
    """Replace the columns of one good step per row in a random order, and in the reverse one."""
    count, n = len(steps), len(parts)
    before = background[rng.integers(len(background), size=count)]
    orders = rng.permuted(np.tile(np.arange(n), (count, 1)), axis=1)  # (rows, parts)
    member = np.zeros((n, steps.shape[1]), bool)
    for number, part in enumerate(parts):
        member[number, list(part)] = True
    shares, base = np.zeros(steps.shape), np.zeros(count)
    heads = [part[0] for part in parts]
    for order in (orders, orders[:, ::-1]):
        mixed = np.empty((n + 1, count, steps.shape[1]), np.float32)
        mixed[0] = before
        for place in range(n):
            mixed[place + 1] = np.where(member[order[:, place]], steps, mixed[place])
        flat = mixed.reshape(-1, steps.shape[1])
        values = np.asarray(cost(flat[:, :width], flat[:, width:]), np.float64).reshape(n + 1, count)
        change = np.diff(values, axis=0).T  # (rows, places)
        by_part = np.zeros((count, n))
        np.put_along_axis(by_part, order, change, axis=1)
        shares[:, heads] += by_part / 2
        base += values[0] / 2
    return shares, base


def _columns(observations: npt.ArrayLike, actions: npt.ArrayLike) -> Floats:
    blocks = [np.asarray(each, np.float32) for each in (observations, actions)]
    if any(each.ndim != 2 for each in blocks) or len(blocks[0]) != len(blocks[1]):
        raise InputError("need a row of observations and a row of actions for each step.")
    return np.concatenate(blocks, axis=1)


def _parts(columns: int, together: Sequence[Sequence[int]]) -> list[list[int]]:
    tied = {column for part in together for column in part}
    return [[*part] for part in together] + [[i] for i in range(columns) if i not in tied]


def groups(found: Attribution, values: npt.ArrayLike, middle: npt.ArrayLike) -> list[Group]:
    """Put like moments together, the largest group first.

    `values` (moments, columns) are those of the moments, `middle` (columns,) a typical good value of each.
    """
    above = np.asarray(values, np.float64) > np.asarray(middle, np.float64)
    keys = [_key(shares, sides) for shares, sides in zip(found.shares, above, strict=True)]
    counts = {key: keys.count(key) for key in keys}
    least = FEW * len(keys)
    keys = [key if counts[key] >= least and counts[key] > 1 else key[:1] for key in keys]
    members: dict[tuple[tuple[int, bool], ...], list[int]] = {}
    for number in np.argsort(-found.risk, kind="stable").tolist():
        members.setdefault(keys[number], []).append(number)
    ordered = sorted(members.items(), key=lambda item: (-len(item[1]), item[0]))
    return [
        Group(tuple(column for column, _ in key), tuple(side for _, side in key), np.array(numbers, np.int64))
        for key, numbers in ordered
    ]


def _key(shares: Doubles, above: npt.NDArray[np.bool_]) -> tuple[tuple[int, bool], ...]:
    """Columns that have most of the positive shares, and on which side of good values each lies."""
    positive = np.maximum(shares, 0)
    order = np.argsort(-positive, kind="stable")[:NAMED]
    enough = np.cumsum(positive[order]) >= MOST * positive.sum()
    count = int(np.argmax(enough)) + 1 if enough.any() else len(order)
    return tuple((int(column), bool(above[column])) for column in order[:count])
