"""Let policies act: episodes of a task, or of an environment, with their returns, costs and lengths.

All seeds of a run go side by side, each through the same episodes: episode i begins from environment seed i
of the list that `seed` stands for, whatever the algorithm.
"""

import os
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from safemil import catalog, environments, rollouts
from safemil.arrays import Doubles, Ints
from safemil.checks import Count, Natural, fit
from safemil.data import Annotations, Trajectories, scaled_actions
from safemil.data.interchange import listed
from safemil.errors import InputError
from safemil.progress import bar
from safemil.rollouts import Act, Episodes, Watch, environment_seeds
from safemil.texts import read_json

if TYPE_CHECKING:
    from safemil.api import Run

FILE = "evaluation.json"
NUMBER = re.compile(
    r"(observation|action|obs|act)s?[ _[]?[0-9]+]?"
)  # a column's name that says its place only
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
    env: Any,
    *,
    episodes: int = 50,
    seed: int = 0,
    stochastic: bool = False,
    cost: environments.Cost = "cost",
    max_steps: int | None = None,
    copies: int = environments.COPIES,
    threads: int | None = None,
    progress: bool = False,
) -> Evaluation:
    """Let every seed of a run act in a task or an environment, with the policy's mode or sampled.

    `env` is the name of a task, a Gymnasium environment, a function that makes one (`copies` of it then go
    side by side), or the id of one. Its observations are a Box, matched by position, or a Dict, by name.
    `cost` is an entry of `info`, or a function of an `environments.Transition`; tasks have their own.
    `max_steps` ends longer episodes.
    """
    _check_episodes(episodes, seed)
    if isinstance(env, str) and is_task(env):
        check_fits(env, run)
        with bar(f"evaluating {run.algorithm}", catalog.task(env).limit, show=progress) as shown:
            act = policy(run, seed if stochastic else None, task=env)
            found = roll_out(
                env, act, seeds=len(run), episodes=episodes, seed=seed, threads=threads, watch=shown.at
            )
        return Evaluation(env, run.algorithm, tuple(run.seeds), seed, stochastic, *found)
    found = _in_environment(run, env, episodes, seed, stochastic, cost, max_steps, copies, progress)
    return Evaluation(environments.name_of(env), run.algorithm, tuple(run.seeds), seed, stochastic, *found)


def _in_environment(
    run: "Run",
    env: Any,
    episodes: int,
    seed: int,
    stochastic: bool,
    cost: environments.Cost,
    max_steps: int | None,
    copies: int,
    progress: bool,
) -> Episodes:
    """Seeds one after another, each in the same episodes."""
    env, name = environments.factory_of(env), environments.name_of(env)
    made = environments.make_copies(env, min(copies, episodes))
    parts = []
    try:
        columns = environments.Columns(made[0])
        with bar(f"evaluating {run.algorithm} in {name}", episodes * len(run), show=progress) as shown:
            for number in range(len(run)):
                act = environments.policy_of(run[number], columns, name, seed if stochastic else None)
                played = environments.play(
                    made,
                    columns,
                    act,
                    environment_seeds(seed, episodes),
                    cost=cost,
                    max_steps=max_steps,
                    watch=lambda done, before=number * episodes: shown.at(before + done),  # type: ignore[misc]
                )
                parts.append(played.episodes)
    finally:
        environments.close_copies(env, made)
    return Episodes(*(np.stack(each) for each in zip(*parts, strict=True)))


def is_task(name: str) -> bool:
    """Whether a name is that of a task of the catalog, or looks like a misspelt one and not like an id."""
    plain = catalog.plain_name(name)
    if plain in catalog.names():
        return True
    return not _is_registered(name)


def _is_registered(name: str) -> bool:
    """Whether Gymnasium knows an id, or is to import the module before its colon."""
    try:
        import gymnasium
    except ImportError:
        return False
    return ":" in name or name in gymnasium.registry


def _check_episodes(episodes: int, seed: int) -> None:
    if episodes < 1:
        raise InputError(f"need at least one episode, asked for {episodes}.")
    if seed < 0:
        raise InputError(f"seed must be at least 0, got {seed}.")


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
    _check_episodes(episodes, seed)
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
        n = len(observations)
        of_seeds = observations[:, observed].astype(np.float32).reshape(len(run), -1, len(observed))
        chosen = run.act_each(of_seeds, key=None if key is None else jax.random.fold_in(key, step))
        return chosen.reshape(n, -1)[:, back]

    return act


def columns_of(run: "Run | Trajectories", task: str) -> tuple[list[int], list[int]]:
    """Numbers of a task's observation and action columns in the order of the run's.

    They are matched by name, or by position where either side has none (`by_position`). A column that the
    task lacks is refused, and so is an action of the task that the run does not choose.
    """
    worlds = catalog.task(task).make(1, 1)
    names, size = worlds.column_names(), worlds.observation_size
    theirs = {"observation": names[:size], "action": names[size:]}
    ours = {"observation": run.observation_names, "action": run.action_names}
    widths = {"observation": run.observation_size, "action": run.action_size}
    faults = []
    for kind, known in theirs.items():
        named = ours[kind]
        if _nameless(named) or _nameless(known):
            if widths[kind] != len(known):
                faults.append(
                    f"{task} has {len(known)} {kind} columns, but the run was trained on {widths[kind]}"
                )
            continue
        told = f"{kind} columns, that the run was trained on: {listed(known)}"
        if missing := [name for name in named or () if name not in known]:
            faults.append(f"{task} has no {listed(missing)} among its {told}")
        if kind == "action" and (left := [name for name in known if name not in (named or ())]):
            faults.append(f"{task} needs the action {listed(left)}, which the run does not choose")
    if faults:
        raise InputError(f"{'; '.join(faults)}; evaluate it on the task that its data come from.")
    observed, acted = (
        [*range(len(known))]
        if _nameless(ours[kind]) or _nameless(known)
        else [known.index(name) for name in ours[kind] or ()]
        for kind, known in theirs.items()
    )
    return observed, acted


def by_position(run: "Run | Trajectories", task: str) -> bool:
    """Whether a run's columns can be matched with those of a task only by position, for lack of names."""
    named = (run.observation_names, run.action_names, catalog.task(task).make(1, 1).column_names())
    return any(map(_nameless, named))


def _nameless(names: Sequence[str] | None) -> bool:
    """Whether names are missing, or only number the columns, as obs_0, obs_1 and so on do."""
    return names is None or all(NUMBER.fullmatch(name) for name in names)


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


def record(
    env: Any,
    policy: "Run | str | Callable[[Any], Any]" = "random",
    *,
    episodes: int = 50,
    seed: int = 0,
    cost: environments.Cost = "cost",
    max_steps: int | None = None,
    observation_names: Sequence[str] | None = None,
    action_names: Sequence[str] | None = None,
    stochastic: bool = False,
    progress: bool = False,
) -> tuple[Trajectories, Annotations]:
    """Record logs of an environment, with rewards and costs apart.

    `policy` is a run (of one seed), "random", or a function of an observation as the environment gives it.
    Columns are named as the observations of a Dict are, else obs_0, obs_1 and so on, or as given.
    """
    _check_episodes(episodes, seed)
    env, name = environments.factory_of(env), environments.name_of(env)
    # A function may remember its episode: it is given one after another, and so are the others alike.
    made = environments.make_copies(env, 1)
    try:
        columns = environments.Columns(made[0])
        act = _acting(policy, columns, name, seed, stochastic=stochastic)
        with bar(f"recording {name}", episodes, show=progress) as shown:
            seeds = environment_seeds(seed, episodes)
            played = environments.play(
                made, columns, act, seeds, cost=cost, max_steps=max_steps, keep=True, watch=shown.at
            )
    finally:
        environments.close_copies(env, made)
    return environments.logs_of(
        played.steps, columns, observation_names=observation_names, action_names=action_names
    )


def _acting(
    policy: Any, columns: environments.Columns, name: str, seed: int, *, stochastic: bool
) -> environments.Act:
    if isinstance(policy, str):
        if policy != "random":
            raise InputError(f'a policy is a run, a function or "random", got "{policy}".')
        return environments.random_policy(columns, seed)
    if hasattr(policy, "act_each"):
        if len(policy) > 1:
            raise InputError(f"this run holds {len(policy)} seeds; choose one: record(env, run[0]).")
        return environments.policy_of(policy, columns, name, seed if stochastic else None)
    return environments.function_policy(policy)


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


def check_fits(task: str, run: "Run | Trajectories") -> None:
    """Refuse a policy whose columns are not the task's, or that chooses where the task takes numbers."""
    if run.action_categories is not None:
        raise InputError(
            f"actions of {task} are numbers, but the run was trained on choices "
            f"({listed(map(str, run.action_categories))}); evaluate it on the task that its data come from."
        )
    columns_of(run, task)


def _mujoco_version() -> str | None:
    try:
        return version("mujoco")
    except PackageNotFoundError:
        return None  # the generated problems do without
