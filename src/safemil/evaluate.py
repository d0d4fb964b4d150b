"""Let policies act: episodes of a task with their returns, costs and lengths.

All seeds of a run go side by side, each through the same episodes: episode i begins from environment seed i
of the list that `seed` stands for, whatever the algorithm.
"""

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from safemil import catalog, rollouts
from safemil.arrays import Doubles, Ints
from safemil.checks import Count, Natural, fit
from safemil.data import Trajectories, scaled_actions
from safemil.data.interchange import listed
from safemil.errors import InputError
from safemil.progress import bar
from safemil.rollouts import Act, Episodes, Watch, environment_seeds
from safemil.texts import read_json

if TYPE_CHECKING:
    from safemil.api import Run

FILE = "evaluation.json"
CURVE_EPISODES = 20  # of each seed, at each point of a learning curve


@dataclass(frozen=True)
class _Noted:
    """Content of evaluation.json that is read again."""

    task: str
    algorithm: str
    seeds: list[Natural]
    seed: Natural
    stochastic: bool
    returns: list[list[float]]
    costs: list[list[float]]
    lengths: list[list[Count]]


@dataclass(frozen=True, eq=False)
class Evaluation:
    """Return, cost and length of each episode of a run's seeds, (seeds, episodes) each, and how they came."""

    task: str
    algorithm: str
    seeds: tuple[int, ...]
    seed: int  # chooses the episodes
    stochastic: bool
    returns: Doubles
    costs: Doubles
    lengths: Ints

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write it into a run folder."""
        import safemil
        from safemil.runs import RunDirectory

        content = {
            "task": self.task,
            "algorithm": self.algorithm,
            "seeds": list(self.seeds),
            "episodes": self.costs.shape[1],
            "seed": self.seed,
            "stochastic": self.stochastic,
            "safemil": safemil.__version__,
            "mujoco": _mujoco_version(),
        }
        episodes = Episodes(self.returns, self.costs, self.lengths)
        RunDirectory(path).write_json(FILE, content | episodes.to_json())

    @staticmethod
    def load(path: str | os.PathLike[str]) -> "Evaluation | None":
        """Read it from a run folder; None if the run was not evaluated."""
        file = Path(path) / FILE
        if not file.exists():
            return None
        try:
            noted: _Noted = fit("", read_json(file), _Noted, extra=True)
            shapes = {np.shape(each) for each in (noted.returns, noted.costs, noted.lengths)}
            if len(shapes) != 1 or shapes.pop()[:1] != (len(noted.seeds),):
                raise InputError(
                    "it does not hold one return, cost and length for each episode of each seed."
                )
        except (InputError, ValueError) as error:
            raise InputError(f"{file} is damaged ({error}); evaluate the run again.") from None
        return Evaluation(
            noted.task,
            noted.algorithm,
            tuple(noted.seeds),
            noted.seed,
            noted.stochastic,
            np.asarray(noted.returns, np.float64),
            np.asarray(noted.costs, np.float64),
            np.asarray(noted.lengths, np.int64),
        )


def evaluate(
    run: "Run",
    task: str,
    *,
    episodes: int = 50,
    seed: int = 0,
    stochastic: bool = False,
    threads: int | None = None,
    progress: bool = False,
) -> Evaluation:
    """Let every seed of a run act; with the policy's mode, or sampled if `stochastic`."""
    check_fits(task, run.observation_size, run.action_size, run.action_categories)
    with bar(f"evaluating {run.algorithm}", catalog.task(task).limit, show=progress) as shown:
        act = policy(run, seed if stochastic else None, task=task)
        found = roll_out(
            task, act, seeds=len(run), episodes=episodes, seed=seed, threads=threads, watch=shown.at
        )
    return Evaluation(task, run.algorithm, tuple(run.seeds), seed, stochastic, *found)


def roll_out(
    task: str,
    act: Act,
    *,
    seeds: int = 1,
    episodes: int = 50,
    seed: int = 0,
    threads: int | None = None,
    watch: Watch = lambda steps: None,
) -> Episodes:
    """Let `seeds` policies act in the same episodes; `act` has the rows of the first policy first."""
    if episodes < 1:
        raise InputError(f"need at least one episode, asked for {episodes}.")
    if seed < 0:
        raise InputError(f"seed must be at least 0, got {seed}.")
    rows = environment_seeds(seed, episodes) * seeds
    returns, costs, lengths = rollouts.roll_out(catalog.task(task), act, rows, threads=threads, watch=watch)
    shape = seeds, episodes
    return Episodes(returns.reshape(shape), costs.reshape(shape), lengths.reshape(shape))


def policy(run: "Run", seed: int | None = None, *, task: str) -> Act:
    """Actions of all seeds of a run in a task: the mode, or with a `seed` samples."""
    import jax

    key = None if seed is None else jax.random.key(seed)
    observed, acted = columns_of(run, task)
    back = np.argsort(acted)

    def act(observations: Doubles, step: int) -> Doubles:
        n, columns = observations.shape
        of_seeds = observations[:, observed].astype(np.float32).reshape(len(run), -1, columns)
        chosen = run.act_each(of_seeds, key=None if key is None else jax.random.fold_in(key, step))
        return chosen.reshape(n, -1)[:, back]

    return act


def columns_of(run: "Run", task: str) -> tuple[list[int], list[int]]:
    """Numbers of a task's observation and action columns in the order of the run's.

    They are matched by name if the run's names are those of the task, else by position.
    """
    worlds = catalog.task(task).make(1, 1)
    names, size = worlds.column_names(), worlds.observation_size
    pairs = (run.observation_names, names[:size]), (run.action_names, names[size:])
    observed, acted = (
        [theirs.index(name) for name in ours] if ours and {*ours} == {*theirs} else [*range(len(theirs))]
        for ours, theirs in pairs
    )
    return observed, acted


def as_logged(run: "Run", task: str, episodes: Trajectories) -> Trajectories:
    """Episodes of a task with the columns of the run's data: their order, names and action bounds."""
    observed, acted = columns_of(run, task)
    low, high = run.action_bounds
    actions = scaled_actions(episodes.recorded_actions()[:, acted], low, high)
    return Trajectories(
        episodes.observations[:, observed],
        np.clip(actions, -1, 1),
        episodes.lengths,
        action_low=low,
        action_high=high,
        observation_names=run.observation_names,
        action_names=run.action_names,
    )


def random_policy(action_size: int, seed: int = 0) -> Act:
    """Draw every action uniformly: the policy whose normalised return is 0."""
    rng = np.random.default_rng(seed)
    return lambda observations, step: rng.uniform(-1, 1, (len(observations), action_size))


def curve(task: str, *, episodes: int = CURVE_EPISODES, seed: int = 0) -> Callable[["Run"], dict[str, Any]]:
    """Mean return and cost of each seed as metrics of a learning curve, for `train(evaluate=...)`."""

    def measure(run: "Run") -> dict[str, Any]:
        found = evaluate(run, task, episodes=episodes, seed=seed)
        return {
            "evaluation/return": found.returns.mean(axis=1),
            "evaluation/cost": found.costs.mean(axis=1),
        }

    return measure


def sizes(task: str) -> tuple[int, int]:
    """Number of observation and of action columns of a task."""
    worlds = catalog.task(task).make(1, 1)
    return worlds.observation_size, worlds.action_size


def check_fits(
    task: str, observation_size: int, action_size: int, choices: Sequence[str | int] | None = None
) -> None:
    """Refuse a policy whose columns are not the task's, or that chooses where the task takes numbers."""
    if choices is not None:
        raise InputError(
            f"actions of {task} are numbers, but the run was trained on choices "
            f"({listed(map(str, choices))}); evaluate it on the task that its data come from."
        )
    ours, theirs = (observation_size, action_size), sizes(task)
    if ours != theirs:
        raise InputError(
            f"{task} has {theirs[0]} observation and {theirs[1]} action columns, but the run was trained on "
            f"{ours[0]} and {ours[1]}; evaluate it on the task that its data come from."
        )


def _mujoco_version() -> str | None:
    try:
        return version("mujoco")
    except PackageNotFoundError:
        return None  # the generated problems do without
