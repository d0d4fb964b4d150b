"""Gymnasium environments of any kind: their columns, and episodes of a policy in them.

Observations are a Box, or a Dict of boxes whose names are those of the columns; actions are a Box or
Discrete. With a factory, several copies go side by side, so that a policy computes their actions in one call.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from safemil.arrays import Doubles, Floats
from safemil.data.interchange import listed
from safemil.data.trajectories import Annotations, Trajectories, scaled_actions
from safemil.errors import InputError
from safemil.rollouts import Episodes, Watch

if TYPE_CHECKING:
    import gymnasium

Env = Any  # a gymnasium.Env, whose types of observations and actions differ
Factory = Callable[[], Env]
COPIES = 16  # that a factory is asked for: a policy's call costs much the same for one row and for many


class Transition(NamedTuple):
    """A step of an environment, as Gymnasium gives it."""

    observation: Any
    action: Any
    reward: float
    next_observation: Any
    terminated: bool
    truncated: bool
    info: dict[str, Any]


Cost = str | Callable[[Transition], float]  # an entry of `info`, or a function of the step
Act = Callable[
    [Floats, list[Any]], npt.ArrayLike
]  # from rows, and as observed, to rows of actions or choices


class Columns:
    """Columns of an environment: how its observations and actions become rows of numbers and back."""

    def __init__(self, env: Env):
        from gymnasium import spaces

        seen, done = env.observation_space, env.action_space
        self.named = isinstance(seen, spaces.Dict)
        parts = dict(seen.spaces) if isinstance(seen, spaces.Dict) else {"obs": seen}
        for name, part in parts.items():
            if not isinstance(part, spaces.Box):
                what = f'"{name}" of the observations' if self.named else "the observation space"
                raise InputError(f"{what} must be a Box, got {part}; wrap the environment so that it is one.")
        self.parts = {name: int(np.prod(np.asarray(part.shape))) for name, part in parts.items()}
        self.observation_names = tuple(
            name if self.named and size == 1 else f"{name}_{number}"
            for name, size in self.parts.items()
            for number in range(size)
        )
        self.first_choice: int | None = None
        if isinstance(done, spaces.Discrete):
            self.first_choice, self.action_size = int(done.start), int(done.n)
            self.low, self.high = -np.ones(self.action_size), np.ones(self.action_size)
        elif isinstance(done, spaces.Box):
            self.shape, self.dtype = done.shape, done.dtype
            self.low, self.high = (np.asarray(each, np.float64).ravel() for each in (done.low, done.high))
            self.action_size = len(self.low)
        else:
            raise InputError(f"the action space must be a Box or Discrete, got {done}; wrap the environment.")

    @property
    def choices(self) -> tuple[int, ...] | None:
        """Numbers that a Discrete action space chooses from; None if actions are numbers of a Box."""
        first = self.first_choice
        return None if first is None else tuple(range(first, first + self.action_size))

    def row(self, observation: Any) -> Floats:
        """Columns of an observation (S,); NaN is an error that names the column."""
        parts = [observation[name] for name in self.parts] if self.named else [observation]
        found = np.concatenate([np.asarray(part, np.float32).ravel() for part in parts])
        if not np.isfinite(found).all():
            name = self.observation_names[int(np.argmin(np.isfinite(found)))]
            raise InputError(f"the environment's observation must be finite, got NaN or infinity in {name}.")
        return found

    def action(self, chosen: Any) -> Any:
        """Action of the environment from a row (A,) or a choice; NaN and unknown choices are errors."""
        if self.choices is not None:
            number = np.asarray(chosen).item()
            if number not in self.choices:
                raise InputError(
                    f"the action must be one of {listed(map(str, self.choices))}, got {chosen!r}."
                )
            return int(number)
        found = np.asarray(chosen, np.float64)
        if found.size != self.action_size:
            raise InputError(f"an action has {self.action_size} numbers, got shape {found.shape}.")
        if not np.isfinite(found).all():
            raise InputError("the policy's action must be finite, got NaN or infinity.")
        return (
            found.reshape(self.shape)
            .clip(self.low.reshape(self.shape), self.high.reshape(self.shape))
            .astype(self.dtype)
        )


def fit(run: Any, columns: Columns, name: str) -> list[int]:
    """Places of the run's observation columns among those of an environment, or say what does not fit.

    Named observations (Dict) are matched by name and may be more than the run's, others by position.
    """
    _check_actions(run, columns, name)
    theirs, size = columns.observation_names, run.observation_size
    if columns.named and run.observation_names is not None:
        missing = [each for each in run.observation_names if each not in theirs]
        if missing:
            raise InputError(
                f"{name} observes no {listed(missing)}, which the run was trained on; "
                f"it observes {listed(theirs)}."
            )
        return [theirs.index(each) for each in run.observation_names]
    if len(theirs) != size:
        raise InputError(
            f"{name} has {len(theirs)} observation columns, but the run was trained on {size}; evaluate "
            "it in the environment that its data come from."
        )
    return [*range(size)]


def _check_actions(run: Any, columns: Columns, name: str) -> None:
    if (run.action_categories is None) != (columns.choices is None):
        kinds = {True: "numbers", False: "choices"}
        raise InputError(
            f"actions of {name} are {kinds[columns.choices is None]}, but the run was trained on "
            f"{kinds[run.action_categories is None]}; evaluate it in the environment that its data come from."
        )
    if columns.choices is not None:
        unknown = [each for each in run.action_categories if _number(each) not in columns.choices]
        if unknown:
            raise InputError(
                f"{name} takes the actions {listed(map(str, columns.choices))}, but the run chooses from "
                f"{listed(map(str, run.action_categories))} too; write the logs with these numbers, or wrap "
                "the environment so that its actions are those of the logs."
            )
        return
    low, high = run.action_bounds
    if run.action_size != columns.action_size:
        raise InputError(
            f"{name} has {columns.action_size} action columns, but the run was trained on {run.action_size}."
        )
    slack = 1e-4 * np.maximum(high - low, 1e-9)
    if (low < columns.low - slack).any() or (high > columns.high + slack).any():
        raise InputError(
            f"the run's actions go from {_spell(low)} to {_spell(high)}, but those of {name} from "
            f"{_spell(columns.low)} to {_spell(columns.high)}; read the logs with the bounds of the "
            "environment, or wrap it so that it takes the units of the logs."
        )


def _number(choice: str | int) -> int | None:
    return int(choice) if str(choice).lstrip("-").isdigit() else None


def _spell(values: Doubles) -> str:
    return ", ".join(f"{value:g}" for value in values)


def policy_of(run: Any, columns: Columns, name: str, seed: int | None = None) -> Act:
    """Actions of a run of one seed in an environment: the mode, or with a `seed` samples."""
    import jax

    observed, calls, width = fit(run, columns, name), 0, 0
    key = None if seed is None else jax.random.key(seed)

    def act(rows: Floats, observations: list[Any]) -> npt.ArrayLike:
        nonlocal calls, width
        calls, width = calls + 1, max(width, len(rows))
        padded = np.zeros(
            (1, width, len(observed)), np.float32
        )  # of one width, so that one program serves all
        padded[0, : len(rows)] = rows[:, observed]
        found = run.act_each(padded, key=None if key is None else jax.random.fold_in(key, calls))[
            0, : len(rows)
        ]
        if run.action_categories is None:
            return np.asarray(found)
        return np.array([_number(run.action_categories[each]) for each in found.argmax(axis=1)])

    return act


def random_policy(columns: Columns, seed: int) -> Act:
    """Actions drawn uniformly within the bounds, or among the choices."""
    rng = np.random.default_rng(seed)
    if columns.first_choice is not None:
        first, count = columns.first_choice, columns.action_size
        return lambda rows, observations: first + rng.integers(count, size=len(rows))
    require_bounds(columns)
    return lambda rows, observations: rng.uniform(columns.low, columns.high, (len(rows), columns.action_size))


def require_bounds(columns: Columns) -> None:
    """Refuse actions without bounds, which can't be scaled."""
    if not (np.isfinite(columns.low).all() and np.isfinite(columns.high).all()):
        raise InputError(
            "the environment's action space has no bounds; wrap it in gymnasium.wrappers.RescaleAction or "
            "another wrapper that gives it finite ones."
        )


def function_policy(function: Callable[[Any], Any]) -> Act:
    """Actions of a function of a single observation, as the environment gives it."""
    return lambda rows, observations: [function(each) for each in observations]


class Played(NamedTuple):
    """Episodes, and all of their steps where these were recorded."""

    episodes: Episodes
    steps: "list[Steps]"


class Steps:
    """Steps of one episode."""

    def __init__(self) -> None:
        self.rows: list[Floats] = []  # one more than there are actions, when the episode has ended
        self.actions: list[Any] = []
        self.rewards: list[float] = []
        self.costs: list[float] = []
        self.terminated = False


def make_copies(env: Env | Factory, count: int) -> list[Env]:
    """An environment itself, or `count` copies from its factory."""
    if not isinstance(env, type) and hasattr(env, "reset") and hasattr(env, "step"):
        return [env]
    if not callable(env):
        raise InputError(f"need a Gymnasium environment, a factory of one or an id, got {env!r}.")
    first = env()
    if not (hasattr(first, "reset") and hasattr(first, "step")):
        raise InputError(f"the factory must return a Gymnasium environment, got {type(first).__name__}.")
    return [first, *(env() for _ in range(count - 1))]


def close_copies(env: Env | Factory, copies: Sequence[Env]) -> None:
    """Close the copies that a factory made; an environment that was given is left open."""
    for each in copies:
        if each is not env:
            each.close()


def play(
    copies: Sequence[Env],
    columns: Columns,
    act: Act,
    seeds: Sequence[int],
    *,
    cost: Cost = "cost",
    max_steps: int | None = None,
    keep: bool = False,
    watch: Watch = lambda episodes: None,
) -> Played:
    """Let a policy act for one episode from each environment seed, in several copies side by side."""
    returns, costs, lengths = np.zeros(len(seeds)), np.zeros(len(seeds)), np.zeros(len(seeds), np.int64)
    kept = [Steps() for _ in seeds] if keep else []
    waiting: Iterator[int] = iter(range(len(seeds)))
    active: dict[int, tuple[int, Any]] = {}  # by copy: the episode's number and its last observation
    finished = 0

    def begin(copy: int) -> None:
        number = next(waiting, None)
        active.pop(copy, None)
        if number is not None:
            active[copy] = number, copies[copy].reset(seed=seeds[number])[0]

    for copy in range(min(len(copies), len(seeds))):
        begin(copy)
    while active:
        running = [*active]
        rows = np.stack([_row(columns, *active[copy], lengths) for copy in running])
        chosen = np.asarray(act(rows, [active[copy][1] for copy in running]))
        if len(chosen) != len(running):
            raise InputError(
                f"the policy must give {len(running)} actions for as many observations, got {len(chosen)}."
            )
        for copy, row, choice in zip(running, rows, chosen, strict=True):
            number, before = active[copy]
            action = columns.action(choice)
            after, reward, terminated, truncated, info = copies[copy].step(action)
            step = Transition(before, action, float(reward), after, bool(terminated), bool(truncated), info)
            paid = _cost(cost, step)
            if not (np.isfinite(step.reward) and np.isfinite(paid)):
                raise InputError(
                    f"reward and cost must be finite, got {step.reward} and {paid} at step {lengths[number]} "
                    f"of the episode with seed {seeds[number]}."
                )
            returns[number] += step.reward
            costs[number] += paid
            lengths[number] += 1
            ended = step.terminated or step.truncated or lengths[number] == max_steps
            if keep:
                _keep(kept[number], columns, step, row, paid, ended=ended)
            if ended:
                finished += 1
                watch(finished)
                begin(copy)
            else:
                active[copy] = number, after
    return Played(Episodes(returns, costs, lengths), kept)


def _row(columns: Columns, number: int, observation: Any, lengths: npt.NDArray[np.int64]) -> Floats:
    try:
        return columns.row(observation)
    except InputError as error:
        raise InputError(f"{error} It was observed at step {lengths[number]} of episode {number}.") from None


def _cost(cost: Cost, step: Transition) -> float:
    if callable(cost):
        return float(cost(step))
    if cost not in step.info:
        known = listed(map(str, step.info)) if step.info else "nothing"
        raise InputError(
            f'the environment gives no cost: its info has no "{cost}" but {known}; name another entry by '
            "`cost=...`, or give a function of the transition."
        )
    return float(step.info[cost])


def _keep(steps: Steps, columns: Columns, step: Transition, row: Floats, paid: float, *, ended: bool) -> None:
    steps.rows.append(row)
    steps.actions.append(step.action)
    steps.rewards.append(step.reward)
    steps.costs.append(paid)
    if ended:
        steps.rows.append(columns.row(step.next_observation))
        steps.terminated = step.terminated


def logs_of(
    steps: Sequence[Steps],
    columns: Columns,
    *,
    observation_names: Sequence[str] | None = None,
    action_names: Sequence[str] | None = None,
) -> tuple[Trajectories, Annotations]:
    """Logs of recorded episodes, with their columns' names; rewards and costs stand apart."""
    names = tuple(observation_names or columns.observation_names)
    size, choices = len(columns.observation_names), columns.choices
    if len(names) != size:
        raise InputError(f"need {size} names of observation columns, got {len(names)}.")
    width = 1 if choices is not None else columns.action_size
    acted = tuple(action_names or (["action"] if choices is not None else [f"act_{i}" for i in range(width)]))
    if len(acted) != width:
        raise InputError(f"need {width} names of action columns, got {len(acted)}.")
    actions = np.concatenate([np.asarray(each.actions).reshape(len(each.actions), -1) for each in steps])
    low, high = columns.low, columns.high
    if choices is None:
        require_bounds(columns)
        scaled: npt.ArrayLike = np.clip(scaled_actions(actions, low, high), -1, 1)
    else:
        scaled = np.where(actions == np.asarray(choices), 1.0, -1.0)
        acted = tuple(f"{acted[0]}={choice}" for choice in choices)
    logs = Trajectories(
        np.concatenate([each.rows[:-1] for each in steps]),
        scaled,
        [len(each.actions) for each in steps],
        final_observations=np.stack([each.rows[-1] for each in steps]),
        terminated=[each.terminated for each in steps],
        action_low=low,
        action_high=high,
        observation_names=names,
        action_names=acted,
        action_categories=None if choices is None else [str(choice) for choice in choices],
    )
    truth = Annotations(
        np.concatenate([each.rewards for each in steps]), np.concatenate([each.costs for each in steps])
    )
    return logs, truth


def name_of(env: Env | Factory | str) -> str:
    """Name of an environment for results: its id, or that of its factory or class."""
    if isinstance(env, str):
        return env
    spec = getattr(env, "spec", None)
    if spec is not None:
        return str(spec.id)
    return str(getattr(env, "__qualname__", type(env).__name__))


def factory_of(env: "gymnasium.Env[Any, Any] | Factory | str") -> Env | Factory:
    """An environment or factory as it is, or a factory of the id that is given."""
    if not isinstance(env, str):
        return env
    import gymnasium

    def make() -> Env:
        try:
            return gymnasium.make(env)
        except (gymnasium.error.Error, ImportError) as error:
            raise InputError(f'Gymnasium can\'t make "{env}": {error}') from None

    return make
