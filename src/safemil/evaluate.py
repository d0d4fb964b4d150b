"""Let policies act: episodes of a task with their returns, costs and lengths.

All seeds of a run go side by side, each through the same episodes: episode i begins from environment seed i
of the list that `seed` stands for, whatever the algorithm. The generated problems of `safemil.toy` are
evaluated in the same way, under the names `toy:speed` and `toy:disc`.
"""

import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from safemil import toy
from safemil.errors import InputError, unknown
from safemil.progress import bar
from safemil.tasks import catalog
from safemil.tasks.worlds import check_actions, cores

if TYPE_CHECKING:
    from safemil.api import Run

Doubles = npt.NDArray[np.float64]
# What every seed does next, from observations (seeds, N, S) and the number of the step to (seeds, N, A).
Act = Callable[[npt.NDArray[np.float32], int], npt.ArrayLike]
Watch = Callable[[int], None]  # is told how many steps have been taken

TOYS = {"toy:speed": "speed", "toy:disc": "disc"}
TOY_SIZES = 4, 2  # observation and action columns
FILE = "evaluation.json"
CURVE_EPISODES = 20  # of each seed, at each point of a learning curve


class Episodes(NamedTuple):
    """What episodes came to, (seeds, episodes) each."""

    returns: Doubles
    costs: Doubles
    lengths: npt.NDArray[np.int64]

    def to_json(self) -> dict[str, Any]:
        return {
            "returns": np.round(self.returns, 6).tolist(),
            "costs": np.round(self.costs, 6).tolist(),
            "lengths": self.lengths.tolist(),
        }


def evaluate(
    run: "Run",
    task: str,
    *,
    episodes: int = 50,
    seed: int = 0,
    stochastic: bool = False,
    threads: int | None = None,
    progress: bool = False,
) -> Episodes:
    """Episodes of every seed of a run; with the policy's mode, or sampled if `stochastic`."""
    check_fits(task, run.observation_size, run.action_size)
    with bar(f"evaluating {run.algorithm}", limit(task), show=progress) as shown:
        act = policy(run, seed if stochastic else None)
        return roll_out(
            task, act, seeds=len(run), episodes=episodes, seed=seed, threads=threads, watch=shown.at
        )


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
    """Episodes of `seeds` policies; one that ends early counts until then."""
    if episodes < 1:
        raise InputError(f"need at least one episode, asked for {episodes}.")
    if seed < 0:
        raise InputError(f"seed must be at least 0, got {seed}.")
    if task in TOYS:
        return _roll_out_toy(task, act, seeds, episodes, seed)
    game = catalog.task(task)
    worlds = game.make(seeds * episodes, min(threads or cores(), seeds * episodes))
    for row, each in enumerate(environment_seeds(seed, episodes) * seeds):
        worlds.seed(row, each)
        worlds.reset(row)
    running = np.arange(worlds.n)
    totals = np.zeros((2, worlds.n))  # returns and costs
    lengths = np.zeros(worlds.n, np.int64)
    for step in range(game.limit):
        observations = np.asarray(worlds.observe(), np.float32).reshape(seeds, episodes, -1)
        actions = np.asarray(act(observations, step), worlds.action_dtype).reshape(worlds.n, -1)
        outcome = worlds.step(check_actions(actions, (worlds.n, worlds.action_size)), running)
        totals[:, running] += outcome.reward[running], outcome.cost[running]
        lengths[running] += 1
        running = running[~outcome.terminated[running]]
        watch(step + 1)
        if not len(running):
            break
    worlds.crew.close()
    shape = seeds, episodes
    return Episodes(totals[0].reshape(shape), totals[1].reshape(shape), lengths.reshape(shape))


def policy(run: "Run", seed: int | None = None) -> Act:
    """What a run does: the mode, or with a `seed` samples."""
    import jax

    if seed is None:
        return lambda observations, step: run.act_each(observations)
    key = jax.random.key(seed)
    return lambda observations, step: run.act_each(observations, key=jax.random.fold_in(key, step))


def random_policy(action_size: int, seed: int = 0) -> Act:
    """Every action equally likely: what a return of 0 is measured by."""
    rng = np.random.default_rng(seed)
    return lambda observations, step: rng.uniform(-1, 1, (*observations.shape[:2], action_size))


def curve(task: str, *, episodes: int = CURVE_EPISODES, seed: int = 0) -> Callable[["Run"], dict[str, Any]]:
    """For `train(evaluate=...)`: mean return and cost of each seed, as metrics of a learning curve."""

    def measure(run: "Run") -> dict[str, Any]:
        found = evaluate(run, task, episodes=episodes, seed=seed)
        return {
            "evaluation/return": found.returns.mean(axis=1),
            "evaluation/cost": found.costs.mean(axis=1),
        }

    return measure


def environment_seeds(seed: int, episodes: int) -> list[int]:
    """Of each episode; more episodes begin with the same ones.

    >>> environment_seeds(0, 3)[:2] == environment_seeds(0, 2)
    True
    """
    return [int(each) for each in np.random.SeedSequence(seed).generate_state(episodes)]


def limit(task: str) -> int:
    """Steps of an episode at most."""
    return toy.STEPS if task in TOYS else catalog.task(task).limit


def sizes(task: str) -> tuple[int, int]:
    """Observation and action columns of a task."""
    if task in TOYS:
        return TOY_SIZES
    if task.removeprefix(f"{catalog.NAMESPACE}/") not in catalog.TASKS:
        raise unknown("task", task, [*catalog.TASKS, *TOYS])
    worlds = catalog.task(task).make(1, 1)
    return worlds.observation_size, worlds.action_size


def check_fits(task: str, observation_size: int, action_size: int) -> None:
    """Refuse a policy whose columns are not the task's."""
    ours, theirs = (observation_size, action_size), sizes(task)
    if ours != theirs:
        raise InputError(
            f"{task} has {theirs[0]} observation and {theirs[1]} action columns, but the run was trained on "
            f"{ours[0]} and {ours[1]}; evaluate it on the task that its data come from."
        )


def save(path: str | os.PathLike[str], run: "Run", task: str, found: Episodes, **options: object) -> None:
    """Write what was found, and how, into the run directory."""
    from importlib.metadata import version

    import safemil
    from safemil.runs import RunDirectory

    RunDirectory(path).write_json(
        FILE,
        {
            "task": task,
            "algorithm": run.algorithm,
            "seeds": list(run.seeds),
            **options,
            "safemil": safemil.__version__,
            "mujoco": version("mujoco"),
            **found.to_json(),
        },
    )


def _roll_out_toy(task: str, act: Act, seeds: int, episodes: int, seed: int) -> Episodes:
    """Seed by seed, since the problems draw new goals as they go: so all seeds see the same starts."""
    rows = []
    for number in range(seeds):
        taken = iter(range(toy.STEPS))

        def walk(world: toy.World, rng: np.random.Generator, n: int = number, steps: Any = taken) -> Doubles:
            everyone = np.repeat(world.observations()[None], seeds, axis=0)
            return np.asarray(np.asarray(act(everyone, next(steps)), np.float64)[n])

        rows.append(toy.rollout(TOYS[task], walk, episodes, np.random.default_rng(seed)))  # type: ignore[arg-type]
    returns, costs = (
        np.stack([values.sum(axis=1, dtype=np.float64) for values in column])
        for column in zip(*((row.goals, row.risky) for row in rows), strict=True)
    )
    return Episodes(returns, costs, np.full((seeds, episodes), toy.STEPS))
