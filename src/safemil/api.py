"""The Python interface: `train` makes a `Run`, which computes costs and actions."""

import contextlib
import copy
import dataclasses
import os
import platform
import subprocess
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any, Literal, NamedTuple, overload

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt

import safemil
from safemil import ahead, loop
from safemil.algorithms import Algorithm, find, of_config
from safemil.arrays import Floats
from safemil.data import Annotations, Trajectories, shared_episodes
from safemil.data.formats import read_like
from safemil.data.interchange import Options, Paths
from safemil.data.sampling import ROWS_AT_ONCE, Dataset, Pile, Scaler
from safemil.data.sources import Episodes
from safemil.data.trajectories import recorded_actions
from safemil.errors import DivergedError, InputError, InputWarning, NoEvidenceError, unknown
from safemil.evidence import FILE as EVIDENCE
from safemil.evidence import Evidence, assess
from safemil.labels import FILE as LABELS
from safemil.labels import Labels, Sorted, joined
from safemil.loggers import Loggers, OnLog
from safemil.loggers import check as check_loggers
from safemil.ownership import is_free
from safemil.progress import Bar, bar
from safemil.runs import CONFIG, MANIFEST, Checkpoint, RunDirectory
from safemil.schema import KNOWN_GOOD, PILE, Novelty, Schema, all_choices, matched
from safemil.settings import complete, resolve

HASH = "_sha256"  # ending of the names of content hashes in the manifest
RETRAIN = "its training has diverged: train again with smaller learning rates."


class CostSpread(NamedTuple):
    """ĉ of every step and how far seeds disagree on it, one array per episode."""

    mean: list[Floats]
    deviation: list[Floats]  # standard deviation over the seeds


class HeldoutRisks(NamedTuple):
    """Risk of every step by networks that did not see its episode, one array per episode."""

    incidents: list[Floats]
    unlabeled: list[Floats]
    good: npt.NDArray[np.bool_]  # (unlabeled episodes,) those that the evidence calls good


class Run:
    """A trained cost and policy, of one seed or several.

    With several seeds, `run[i]` is the run of one of them; `cost` is their mean, and `act` needs one of them.
    """

    def __init__(
        self,
        algorithm: str | ModuleType | Algorithm,
        config: Any,
        seeds: Sequence[int],
        state: Any,
        scaler: Scaler,
        schema: Schema,
        metrics: list[dict[str, Any]],
        path: Path | None = None,
        evidence: Evidence | None = None,
    ):
        self._algorithm = find(algorithm)
        self.config = config
        self.seeds = tuple(seeds)
        self.metrics = metrics
        self.path = path
        self.evidence = evidence  # of the first seed; None where the algorithm holds no episodes out
        self._ahead: ahead.Ahead | None = None  # see `learn_ahead`
        self._state = state  # every array with a leading axis over seeds
        self._scaler = scaler
        self._schema = schema

    @property
    def algorithm(self) -> str:
        """Name of the algorithm."""
        return self._algorithm.name

    @property
    def learns_cost(self) -> bool:
        """Whether the algorithm learns a cost, so that `cost` can be called."""
        return self._algorithm.cost is not None

    @property
    def schema(self) -> Schema:
        """Columns of the training data: names, bounds and ranges."""
        return self._schema

    @property
    def observation_size(self) -> int:
        return self._schema.observation_size

    @property
    def action_size(self) -> int:
        return self._schema.action_size

    @property
    def observation_names(self) -> tuple[str, ...] | None:
        """Names of the observation columns, in the order of `act`; None if the training data had none."""
        return self._schema.observation_names

    @property
    def action_names(self) -> tuple[str, ...] | None:
        """Names of the action columns, in the order in which `act` returns them."""
        return self._schema.action_names

    @property
    def action_bounds(self) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
        """Lowest and highest action of each column, in the units of the log."""
        return self._schema.action_low, self._schema.action_high

    @property
    def action_categories(self) -> tuple[str, ...] | tuple[int, ...] | None:
        """Actions that the policy chooses from, as logged; None if actions are numbers."""
        return self._schema.choices

    def __repr__(self) -> str:
        where = f" in {self.path}" if self.path else ""
        return f"Run({self.algorithm}, seeds {list(self.seeds)}, {self.config.updates} updates{where})"

    def __len__(self) -> int:
        return len(self.seeds)

    def __getitem__(self, index: int) -> "Run":
        """Return the run of one seed."""
        if not -len(self) <= index < len(self):
            raise IndexError(f"this run holds {len(self)} seeds, asked for number {index}")
        index %= len(self)
        state = jax.tree.map(lambda leaf: leaf[index : index + 1], self._state)
        metrics = [
            {
                name: value[index : index + 1] if isinstance(value, list) else value
                for name, value in line.items()
            }
            for line in self.metrics
        ]
        run = Run(
            self._algorithm,
            self.config,
            [self.seeds[index]],
            state,
            self._scaler,
            self._schema,
            metrics,
            self.path,
            self.evidence,
        )
        if len(self) == 1:
            run._ahead = self._ahead
        return run

    def of_seed(self, seed: int | None = None) -> "Run":
        """Return the run of one seed by its number; of the first seed if none is given."""
        if seed is None:
            return self[0]
        if seed not in self.seeds:
            raise InputError(f"this run was trained with the seeds {list(self.seeds)}, not with seed {seed}.")
        return self[self.seeds.index(seed)]

    @property
    def reading(self) -> Options | None:
        """How the training data were read, with the names of columns; None if they were no table."""
        return self._schema.reading

    def read(self, paths: Paths) -> Trajectories:
        """Read other logs as the training data were read: with their columns, fills and action bounds."""
        return self.match(read_like(paths, self.reading or Options()).trajectories)

    def match(self, trajectories: Trajectories) -> Trajectories:
        """Put columns into the order of the training data, by name; further columns are left out.

        Where the run or the data have no names, columns are matched by position, with a warning if only one
        of them has names. A missing column and other action bounds are errors.
        """
        return self._schema.match(trajectories)

    @property
    def labels(self) -> Labels | None:
        """Judgements that the run was trained with, from its folder; None without any."""
        found = self.path and self.path / LABELS
        return Labels.load(found) if found and found.exists() else None

    def sorted_by_labels(self, unlabeled: Trajectories) -> Sorted:
        """Sort unlabeled episodes by the labels of training; without any, all of them stay unlabeled."""
        if self.labels is None:
            return Sorted(unlabeled, None, None)
        return self.labels.split(unlabeled, move_fine="preferred" in self._algorithm.ACCEPTS)

    @overload
    def cost(self, trajectories: Trajectories, *, spread: Literal[False] = False) -> list[Floats]: ...

    @overload
    def cost(self, trajectories: Trajectories, *, spread: Literal[True]) -> CostSpread: ...

    def cost(self, trajectories: Trajectories, *, spread: bool = False) -> list[Floats] | CostSpread:
        """Compute ĉ(s, a) in (0, 1) of every step, one array per episode; the mean over seeds if several.

        With `spread`, the standard deviation over the seeds comes too. Columns are matched as `match` does.
        """
        if not self.learns_cost:
            raise InputError(f"{self.algorithm} learns no cost; train safemil to get one.")
        if spread and len(self) == 1:
            raise InputError(
                "the spread over seeds needs two or more of them, this run has one; train with `seeds=3`."
            )
        trajectories = self._schema.match(trajectories)
        blocks = [
            np.asarray(_cost(self._algorithm, self._state, self._scaler, *_padded(trajectories, first)))
            for first in range(0, trajectories.steps, ROWS_AT_ONCE)
        ]
        costs, deviations = np.concatenate(blocks, axis=1)[:, : trajectories.steps]
        if not np.isfinite(costs).all():
            where = trajectories.where(int(np.argmin(np.isfinite(costs))))
            raise InputError(f"the learned cost is not finite at {where}; {RETRAIN}")
        means = trajectories.by_episode(costs)
        return CostSpread(means, trajectories.by_episode(deviations)) if spread else means

    def learn_ahead(self, logs: Trajectories, *, horizon: float = 10.0) -> None:
        """Learn the risk of what follows a step, for `risk_ahead`, from logs such as those of training.

        It is the discounted mean of the costs to come, of which `horizon` steps count on average. A run with
        a folder keeps it there.
        """
        if not horizon > 1:
            raise InputError(f"the horizon must be more than one step, got {horizon:g}.")
        logs = self._schema.match(logs)
        costs = np.concatenate(self.cost(logs))
        self._ahead = ahead.fit(logs, costs, self._scaler, horizon=float(horizon), seed=self.seeds[0])
        if self.path is not None and RunDirectory(self.path).read_config()["seeds"] == [*self.seeds]:
            arrays = loop.state_arrays({"ahead": self._ahead, "update": self._last_update()})
            RunDirectory(self.path).save_ahead(arrays)

    def risk_ahead(self, trajectories: Trajectories) -> list[npt.NDArray[np.float32]]:
        """Compute the risk of what follows every step, in (0, 1), one array per episode.

        Columns are matched as `match` does. `learn_ahead` has to be called once before.
        """
        if self._ahead is None:
            raise InputError(
                "this run has not learned the risk of what follows; call `run.learn_ahead(logs)` with the "
                "logs of training."
            )
        trajectories = self._schema.match(trajectories)
        risks = np.asarray(ahead.over(self._ahead, Pile.of(trajectories, self._scaler)))
        return trajectories.by_episode(risks)

    @property
    def learned_ahead(self) -> bool:
        """Whether `risk_ahead` can be called."""
        return self._ahead is not None

    def _last_update(self) -> np.ndarray:
        return np.asarray(self.metrics[-1]["update"] if self.metrics else self.config.updates, np.int32)

    def _restore_ahead(self, arrays: dict[str, np.ndarray] | None) -> None:
        """Take what `learn_ahead` kept, unless the run has been trained further since."""
        size = self.observation_size + self.action_size
        template = {
            "ahead": jax.eval_shape(lambda: ahead.untrained(size, 1.0, jax.random.key(0))),
            "update": self._last_update(),
        }
        if arrays is None:
            return
        try:
            found = loop.state_from_arrays(template, arrays)
        except InputError as error:
            raise InputError(f"{self.path}: {error} Delete ahead.safetensors, and learn it again.") from None
        if int(found["update"]) == int(self._last_update()):
            self._ahead = found["ahead"]

    def heldout_risks(self, unlabeled: Trajectories, nonpreferred: Trajectories) -> HeldoutRisks:
        """Compute risks of the training data, of every step by networks that did not see its episode.

        The piles are those of training, in their order. Where an algorithm has no such networks, it says so.
        """
        unlabeled, nonpreferred = self.match(unlabeled), self.match(nonpreferred)
        data = Dataset.of(self._scaler, unlabeled, nonpreferred=nonpreferred)
        state = jax.tree.map(lambda leaf: leaf[0], self._state)
        risks_of = self._algorithm.heldout_risks
        found = risks_of and risks_of(self.config, state, data)
        if found is None:
            raise InputError(
                f"{self.algorithm} with these settings judges no episodes that it held out; give calm ones."
            )
        incidents, others, good = (np.asarray(each) for each in found)
        return HeldoutRisks(nonpreferred.by_episode(incidents), unlabeled.by_episode(others), good)

    def novelty(self, trajectories: Trajectories) -> Novelty:
        """Compute how far every step lies from the training data, columns matched as `match` does.

        `share` is the share of columns beyond the range seen in training, `deviations` the largest distance
        beyond it in standard deviations of the column: 0 for a step within the range. `untrusted()` tells
        the episodes in which over 5% of the steps lie more than one deviation out.
        """
        return self._schema.novelty(self._schema.match(trajectories))

    def act(self, observation: npt.ArrayLike | Mapping[str, Any], *, key: jax.Array | None = None) -> Any:
        """Compute the action for an observation: an array (A,) in the units of the log, or a choice.

        The observation is an array (S,) in the order of `observation_names`, or a mapping from these names to
        numbers: `run.act({"speed": 21.0, "gap": 30.0})`. A batch is an array (N, S), or a mapping to arrays
        of N numbers, and gives an array of N actions. The action is the policy's mode, or a sample if a `key`
        is given. An observation far beyond the range of the training data is warned of.
        """
        if len(self) > 1:
            raise InputError(f"this run holds {len(self)} seeds; choose one: run[0].act(observation).")
        observations = self._observations(observation)
        self._schema.warn_if_far(observations.reshape(-1, self.observation_size))
        actions = self.act_each(observations[None], key=key)[0]
        if not np.isfinite(actions).all():
            raise InputError(f"the policy's action is not finite; {RETRAIN}")
        choices = self._schema.choices
        if choices is None:
            return actions
        return np.asarray(choices)[actions.argmax(axis=-1)] if actions.ndim > 1 else choices[actions.argmax()]

    def _observations(self, observation: npt.ArrayLike | Mapping[str, Any]) -> npt.NDArray[np.float32]:
        if isinstance(observation, Mapping):
            found = self._schema.observations(observation)
        else:
            found = np.asarray(observation, np.float32)
        if found.ndim not in (1, 2):
            raise InputError(f"an observation is (S,) or a batch of them (N, S), got shape {found.shape}.")
        if found.shape[-1] != self.observation_size:
            raise InputError(
                f"this run was trained on {self.observation_size} observation columns, got {found.shape[-1]}."
            )
        bad = ~np.isfinite(found).reshape(-1, self.observation_size).all(axis=0)
        if bad.any():
            name = self._schema.column_names[int(np.argmax(bad))]
            raise InputError(f"the observation must be finite, got NaN or infinity in {name}.")
        return found

    def act_each(
        self, observations: npt.NDArray[np.float32], *, key: jax.Array | None = None
    ) -> npt.NDArray[np.float64]:
        """Compute the actions of every seed for a batch of its own: from (seeds, N, S) to (seeds, N, A)."""
        keys = None if key is None else jax.random.split(key, len(self))
        actions = _act_each(self._algorithm, self._state, self._scaler, observations, keys)
        return recorded_actions(np.asarray(actions), *self.action_bounds)

    def forward(self, observation: jax.Array, taken: jax.Array) -> dict[str, jax.Array]:
        """Compute action, novelty and risk of rows in the units of the log; the last two of the action taken.

        A pure function of arrays, without checks, that `safemil.export` traces.
        """
        schema = self._schema
        bounds = schema.action_low / 2, schema.action_high / 2
        middle, half, low, high, deviation = (
            jnp.asarray(each, jnp.float32)[None, :]
            for each in (
                bounds[1] + bounds[0],
                bounds[1] - bounds[0],
                schema.low,
                schema.high,
                schema.deviation,
            )
        )
        state = jax.tree.map(lambda leaf: leaf[0], self._state)
        scaled, actions = self._scaler(observation), (taken - middle) / half
        columns = jnp.concatenate([observation, actions], axis=1)
        outside = jnp.maximum(jnp.maximum(low - columns, columns - high), 0) / deviation
        outputs = {
            "action": middle + half * self._algorithm.act(state, scaled),
            "novelty": outside.max(axis=1),
        }
        if self._algorithm.cost is not None:
            outputs["risk"] = self._algorithm.cost(state, scaled, jnp.clip(actions, -1, 1))
        return outputs

    def save(self, path: str | os.PathLike[str], *, overwrite: bool = False) -> None:
        """Write the run into a folder, as `train` does with `out`."""
        _check_findable(self._algorithm)
        directory = RunDirectory(path)
        directory.create(self._described(), self._manifest({}), overwrite=overwrite)
        try:
            for line in self.metrics:
                directory.append_metrics(line)
            directory.save_checkpoint(self._checkpoint(self.config.updates, self._state))
            if self.evidence is not None:
                self.evidence.save(directory.path)
        finally:
            directory.unlock()
        self.path = directory.path

    @staticmethod
    def load(path: str | os.PathLike[str]) -> "Run":
        """Read a run folder; nothing in it is executed."""
        directory = RunDirectory(path)
        config, schema = directory.read_config(), _schema_of(directory)
        checkpoint = directory.latest_checkpoint()
        if checkpoint is None:
            raise InputError(f"{path} has no intact checkpoint; train it with `resume=True`.")
        algorithm = find(config["algorithm"])
        settings = _settings_of(directory, algorithm, config)
        scaler = _empty_scaler(schema.observation_size)
        run = Run(algorithm, settings, config["seeds"], None, scaler, schema, [])
        columns = schema.observation_size, schema.action_size, schema.action_categories is not None
        run._restore(directory, checkpoint, Dataset.empty(*columns), Dataset.empty(*columns, episodes=2))
        run.metrics, run.path = directory.read_metrics(), directory.path
        if (directory.path / EVIDENCE).exists():
            run.evidence = Evidence.load(directory.path)
        run._restore_ahead(directory.read_ahead())
        return run

    def _described(self) -> dict[str, Any]:
        settings = dataclasses.asdict(self.config)
        return {"algorithm": self.algorithm, "seeds": list(self.seeds), "settings": settings}

    def _manifest(self, extra: Mapping[str, object]) -> dict[str, object]:
        return {
            "safemil": safemil.__version__,
            "python": platform.python_version(),
            "jax": jax.__version__,
            "numpy": np.__version__,
            "machine": platform.machine(),
            "git": _git_state(),
            "columns": self._schema.to_json(),
            **extra,
        }

    def _initial(self, data: Dataset) -> Any:
        return loop.init(self._algorithm, self.config, data, self.seeds)

    def _compact_initial(self, data: Dataset) -> Any:
        return loop.compact(self._algorithm, self._initial(data))

    def _checkpoint(self, update: int, state: Any) -> Checkpoint:
        compact = loop.compact(self._algorithm, state)
        return Checkpoint(update, loop.state_arrays({"state": compact, "scaler": self._scaler}))

    def _restore(
        self, directory: RunDirectory, checkpoint: Checkpoint, data: Dataset, other: Dataset | None = None
    ) -> None:
        """Take the state from a checkpoint, which must have the shapes that the data ask for, or both do."""
        template, second = (
            {"scaler": self._scaler, "state": jax.eval_shape(partial(self._compact_initial, each))}
            for each in (data, other or data)
        )
        try:
            restored = loop.state_from_arrays(template, checkpoint.arrays, other=second)
        except InputError as error:
            raise InputError(f"the checkpoint of {directory.path} is damaged: {error} Train again.") from None
        self._state, self._scaler = restored["state"], restored["scaler"]


def train(
    algorithm: Any,
    *,
    unlabeled: Episodes,
    nonpreferred: Trajectories | None = None,
    preferred: Trajectories | None = None,
    labels: Labels | str | os.PathLike[str] | None = None,
    annotations: Annotations | None = None,
    preset: str | None = None,
    seed: int = 0,
    seeds: int = 1,
    out: str | os.PathLike[str] | None = None,
    resume: bool = False,
    overwrite: bool = False,
    log_every: int = 50,
    checkpoint_seconds: float = 30.0,
    progress: bool = True,
    evaluate: Callable[[Run], Mapping[str, npt.ArrayLike]] | None = None,
    evaluate_every: int = 1000,
    strict: bool = False,
    device_gb: float = 1.0,
    loggers: Sequence[str | OnLog] = (),
    on_log: OnLog | None = None,
    init_from: Run | str | os.PathLike[str] | None = None,
    **settings: object,
) -> Run:
    """Train an algorithm on two piles of episodes.

    `algorithm` is a name such as "safemil", the module of an algorithm, or the `Config` of one. Settings come
    from its `preset` ("fast" if left out) or from the `Config`; further keywords change single settings.

    `seeds` runs, numbered from `seed` on, train side by side in one program. With `out` the run is written to
    a folder while it trains: after an interruption, the same call with `resume=True` continues it and gives
    the result that an uninterrupted run would have given.

    `preferred` are episodes that somebody has looked at and found good, if there are any; those that are
    among the unlabeled ones too are taken out there. `labels` are a reviewer's judgements of unlabeled
    episodes, or the file that a report downloads: incidents move to the non-preferred pile, fine ones to the
    preferred one if the algorithm has use for it. `annotations` are true rewards and costs of the
    unlabeled pile, for the algorithms that need them. `evaluate` is called every `evaluate_every` updates
    and at the end; the values of each seed that it returns are added to the metrics. It does not change
    training.
    With `strict`, a `NoEvidenceError` stops training before a policy is cloned if the evidence is "none".

    Unlabeled episodes of more than `device_gb` gigabytes stay on the host, and those of a store in shards in
    its files: only the steps of an update are copied to the device. The draws are the same.

    `loggers` are "tensorboard", "wandb" or "trackio"; `on_log(update, metrics)` is called with every line of
    metrics. `init_from` is a run, or its folder, whose networks, normaliser and columns training starts from;
    networks that judge held-out episodes start anew all the same. With `resume`, `updates` may be raised.
    """
    found, config = configure(algorithm, preset, settings)
    functions = (*loggers, on_log) if on_log is not None and not isinstance(loggers, str) else loggers
    check_loggers(functions, None if out is None else Path(out))
    parent = None if init_from is None else _parent(init_from, found, seeds)
    judged_after = found.judged_after and found.judged_after(config)
    if strict and judged_after is None:
        raise InputError(f"{found.name} with these settings measures no evidence; leave out `strict=True`.")
    _check_loop_options(seed, seeds, log_every, evaluate_every)
    if out is not None:
        _check_findable(found)
        if resume and not is_free(Path(out)):
            unlabeled = _resumed_columns(_schema_of(RunDirectory(out)), unlabeled)
    if isinstance(unlabeled, Trajectories):
        if parent is not None:
            unlabeled = parent.match(unlabeled)
        unlabeled = all_choices(all_choices(unlabeled, nonpreferred), preferred)
    elif parent is not None or labels is not None:
        raise InputError(
            "`init_from` and `labels` need episodes in memory, but these stay in the files of a store; read "
            "them with `safemil.data.load`."
        )
    judged = None if labels is None else labels if isinstance(labels, Labels) else Labels.load(labels)
    if judged is not None and isinstance(unlabeled, Trajectories):
        if annotations is not None:
            raise InputError(
                "true rewards and costs are of every episode; leave out `labels=...` beside them."
            )
        sorted_out = judged.split(unlabeled, move_fine="preferred" in found.ACCEPTS)
        nonpreferred, preferred = _with_judged(sorted_out, unlabeled, nonpreferred, preferred)
        unlabeled = sorted_out.unlabeled
    nonpreferred = _fitting(found, unlabeled, nonpreferred, annotations)
    preferred = _known_good(found, unlabeled, nonpreferred, preferred)
    offered = {"nonpreferred": nonpreferred, "preferred": preferred, "annotations": annotations}
    needed: dict[str, Any] = {
        name: value
        for name, value in offered.items()
        if value is not None and name in found.NEEDS | found.ACCEPTS
    }
    hashes = _hashes(unlabeled, **needed)
    unlabeled = _without(preferred, unlabeled)
    scaler = Scaler.of(unlabeled) if parent is None else parent._scaler
    size = 4 * unlabeled.steps * (unlabeled.observation_size + unlabeled.action_size)
    data = Dataset.of(scaler, unlabeled, **needed, on_host=size > device_gb * 1e9)
    others = [needed[name] for name in ("nonpreferred", "preferred") if name in needed]
    schema = Schema.of(unlabeled, others, scaler.deviation)
    if parent is not None:
        schema = schema.widened(parent._schema)
    run = Run(found, config, range(seed, seed + seeds), None, scaler, schema, [])
    run._state = run._initial(data)
    if parent is not None:
        run._state = loop.with_networks(run._state, parent._state, found.name)
        hashes["init_from_sha256"] = loop.digest(parent._state)
    logged = Loggers(functions, run.seeds)
    recorder = _Recorder(run, hashes, checkpoint_seconds, evaluate, evaluate_every, logged)
    finished = False
    try:
        if out is not None:
            recorder.open(RunDirectory(out), data, resume=resume, overwrite=overwrite)
        if judged is not None and run.path is not None:
            judged.save(run.path / LABELS)
        logged.begin(run.path, run._described())
        if strict:
            recorder.fit(data, interval=log_every, progress=progress, until=judged_after)
            _require_evidence(_evidence(run, data, unlabeled, nonpreferred), run.path)
        recorder.fit(data, interval=log_every, progress=progress)
        run.evidence = _evidence(run, data, unlabeled, nonpreferred)
        if run.evidence is not None and run.path is not None:
            run.evidence.save(run.path)
        finished = True
    finally:
        logged.end(finished=finished)
        recorder.close()
    return run


def _resumed_columns(schema: Schema, unlabeled: Episodes) -> Episodes:
    """Put columns into the order that the run has; those of a store in its files must be in it."""
    if isinstance(unlabeled, Trajectories):
        return schema.match(unlabeled)
    for kind in ("observation_names", "action_names", "action_categories"):
        if getattr(schema, kind) != getattr(unlabeled, kind):
            raise InputError(
                f"the run was begun with other data: `{kind}` is {getattr(schema, kind)} there and "
                f"{getattr(unlabeled, kind)} here; resume with the same."
            )
    return unlabeled


def _parent(given: Run | str | os.PathLike[str], algorithm: Algorithm, seeds: int) -> Run:
    """Run to start from, with one seed or as many as are asked for."""
    parent = given if isinstance(given, Run) else Run.load(given)
    if parent.algorithm != algorithm.name:
        raise InputError(
            f"init_from is a run of {parent.algorithm}, not of {algorithm.name}; train the same algorithm."
        )
    if len(parent) not in (1, seeds):
        raise InputError(
            f"init_from holds {len(parent)} seeds, but {seeds} are trained; choose one, as in "
            "init_from=run[0], or train as many."
        )
    return parent


def configure(algorithm: Any, preset: str | None, settings: Mapping[str, object]) -> tuple[Algorithm, Any]:
    """Find an algorithm and its settings, from the same arguments as `train`."""
    if dataclasses.is_dataclass(algorithm) and not isinstance(algorithm, Algorithm | type):
        if preset is not None:
            raise InputError(f'a Config has a value for every setting; leave out the preset "{preset}".')
        return of_config(algorithm), resolve(algorithm, settings)
    found, name = find(algorithm), preset or "fast"
    if name not in found.PRESETS:
        raise unknown("preset", name, found.PRESETS)
    return found, resolve(found.PRESETS[name], settings)


class _Recorder:
    """Records training in memory, and in a run folder if there is one."""

    def __init__(
        self,
        run: Run,
        hashes: dict[str, object],
        checkpoint_seconds: float,
        evaluate: Callable[[Run], Mapping[str, npt.ArrayLike]] | None,
        evaluate_every: int,
        loggers: Loggers,
    ):
        self.run = run
        self.loggers = loggers
        self.hashes = hashes
        self.evaluate = evaluate
        self.evaluate_every = evaluate_every
        self.checkpoint_seconds = checkpoint_seconds
        self.directory: RunDirectory | None = None
        self.update = 0
        self.saved_update = -1
        self.saved_at = time.monotonic()
        self.started = time.monotonic()
        self.earlier_seconds = 0.0

    def open(self, directory: RunDirectory, data: Dataset, *, resume: bool, overwrite: bool) -> None:
        self.directory = directory
        if resume and not is_free(directory.path):
            self._continue(directory, data)
        else:
            manifest = self.run._manifest(self.hashes)
            directory.create(self.run._described(), manifest, overwrite=overwrite)
        self.run.path = directory.path

    def close(self) -> None:
        if self.directory is not None:
            self.directory.unlock()

    def _continue(self, directory: RunDirectory, data: Dataset) -> None:
        earlier = self._check_same(directory)
        directory.lock()
        if earlier != self.run.config.updates:
            self._raise_updates(directory, earlier)
        checkpoint = directory.latest_checkpoint()
        if checkpoint is not None:
            self.run._restore(directory, checkpoint, data)
            self.run._state = loop.derive(
                self.run._algorithm, self.run.config, self.run._state, data, done=checkpoint.update
            )
            self.update = self.saved_update = checkpoint.update
        directory.truncate_metrics(self.update)
        directory.write_manifest(self.run._manifest(self.hashes))
        self.run.metrics = directory.read_metrics()
        self.earlier_seconds = self.run.metrics[-1]["seconds"] if self.run.metrics else 0.0

    def _raise_updates(self, directory: RunDirectory, earlier: int) -> None:
        """Note the new number of updates, and say what it does to a learning rate that decays."""
        directory.write_config(self.run._described())
        if getattr(self.run.config, "cosine_decay", False):
            updates = self.run.config.updates
            warnings.warn(
                f"{directory.path} goes on to {updates:,} updates instead of {earlier:,}; the policy's "
                "learning rate, which decays to 0 by the last update, rises again, so the result is not that "
                f"of a run begun with {updates:,}.",
                InputWarning,
                stacklevel=5,
            )

    def _check_same(self, directory: RunDirectory) -> int:
        """Refuse other settings and data; only `updates` may be raised. Return the updates noted so far."""
        config, manifest = directory.read_config(), directory.read_manifest()
        same = config["algorithm"] == self.run.algorithm and config["seeds"] == list(self.run.seeds)
        begun = _settings_of(directory, self.run._algorithm, config)
        ours = dataclasses.asdict(self.run.config)
        if not same or dataclasses.asdict(begun) | {"updates": ours["updates"]} != ours:
            raise InputError(
                f"{directory.path} was begun with other settings (see its {CONFIG}); "
                "resume it with those, or choose another folder. Only `updates` may be raised."
            )
        if ours["updates"] < begun.updates:
            raise InputError(
                f"{directory.path} was begun with {begun.updates:,} updates, which can only be raised, got "
                f"{ours['updates']:,}; train into another folder."
            )
        noted = {name for name in manifest if name.endswith(HASH)}
        for name in sorted(noted | {*self.hashes}):
            if manifest.get(name) != self.hashes.get(name):
                raise InputError(
                    f"{directory.path} was begun with other data ({name} differs); resume with the same."
                )
        return int(begun.updates)

    def fit(self, data: Dataset, *, interval: int, progress: bool, until: int | None = None) -> None:
        run = self.run
        with bar(f"training {run.algorithm}", run.config.updates, start=self.update, show=progress) as shown:
            record = partial(self._record, shown)
            try:
                loop.fit(
                    run._algorithm, run.config, data, run.seeds, run._state,
                    start=self.update, until=until, interval=interval, on_interval=record,
                    on_progress=lambda done: shown.at(done, self._losses()),
                )  # fmt: skip
            except KeyboardInterrupt:
                self._save()
                raise
            except loop.Divergence as stopped:
                raise self._diverged(stopped) from None
        self._save()
        if self.directory is not None:
            manifest = run._manifest({**self.hashes, "seconds": self._seconds()})
            self.directory.write_manifest(manifest)

    def _diverged(self, stopped: loop.Divergence) -> DivergedError:
        """Keep the last finite state, and say what happened."""
        self.run._state, self.update = stopped.before, stopped.update - 1
        self._save()
        kept = f"; the state before it is in {self.run.path}" if self.run.path else ""
        return DivergedError(f"training diverged: {stopped}{kept}. Train again with smaller learning rates.")

    def _record(self, shown: Bar, done: int, state: Any, metrics: dict[str, npt.NDArray[np.float32]]) -> None:
        line: dict[str, Any] = {"update": done, "seconds": round(self._seconds(), 2)}
        for name, values in metrics.items():
            line[name] = [float(value) if np.isfinite(value) else None for value in values]
        every = self.evaluate_every
        if done // every > self.update // every or done == self.run.config.updates:
            line |= self._evaluated(state)
        if self.directory is not None:
            self.directory.append_metrics(line)
        self.run.metrics.append(line)
        self.run._state, self.update = state, done
        self.loggers.log(line)
        shown.at(done, self._losses())
        if time.monotonic() - self.saved_at > self.checkpoint_seconds:
            self._save()

    def _losses(self) -> str:
        """Losses of the last line of metrics, the mean over seeds."""
        last = self.run.metrics[-1] if self.run.metrics else {}
        losses = {name.removeprefix("loss/"): each for name, each in last.items() if "loss/" in name}
        return "  ".join(f"{name} {np.mean(each):.3f}" for name, each in losses.items() if None not in each)

    def _evaluated(self, state: Any) -> dict[str, Any]:
        """Call `evaluate`; its time is not counted as training."""
        if self.evaluate is None:
            return {}
        began = time.monotonic()
        now = copy.copy(self.run)  # the run itself keeps its last recorded state, if this is interrupted
        now._state = state
        found = {name: np.asarray(values).tolist() for name, values in self.evaluate(now).items()}
        self.started += time.monotonic() - began
        return found

    def _save(self) -> None:
        if self.directory is not None and self.update > self.saved_update:
            self.directory.save_checkpoint(self.run._checkpoint(self.update, self.run._state))
            self.saved_update, self.saved_at = self.update, time.monotonic()

    def _seconds(self) -> float:
        return self.earlier_seconds + time.monotonic() - self.started


@partial(jax.jit, static_argnames="algorithm")
def _cost(
    algorithm: Algorithm, state: Any, scaler: Scaler, observations: jax.Array, actions: jax.Array
) -> jax.Array:
    """Mean and standard deviation over the seeds, (2, steps); of one seed, the deviation is 0."""
    assert algorithm.cost is not None
    costs = jax.vmap(algorithm.cost, (0, None, None))(state, scaler(observations), actions)  # (seeds, steps)
    return jnp.stack([costs.mean(axis=0), costs.std(axis=0, ddof=min(len(costs) - 1, 1))])


@partial(jax.jit, static_argnames="algorithm")
def _act_each(
    algorithm: Algorithm,
    state: Any,
    scaler: Scaler,
    observations: npt.NDArray[np.float32],
    keys: jax.Array | None,
) -> jax.Array:
    return jax.vmap(algorithm.act)(state, scaler(jnp.asarray(observations)), keys)


def _padded(
    trajectories: Trajectories, first: int
) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.float32]]:
    """Cut out a block of steps, padded with zeros so that every block has the same compiled shape."""
    blocks = []
    for values in (trajectories.observations, trajectories.actions):
        block = np.zeros((ROWS_AT_ONCE, values.shape[1]), np.float32)
        rows = values[first : first + ROWS_AT_ONCE]
        block[: len(rows)] = rows
        blocks.append(block)
    return blocks[0], blocks[1]


def _evidence(
    run: Run, data: Dataset, unlabeled: Episodes, nonpreferred: Trajectories | None
) -> Evidence | None:
    """Evidence of the first seed, where the algorithm judges episodes that it held out."""
    judge = run._algorithm.judgements
    if judge is None or nonpreferred is None:
        return None
    state = jax.tree.map(lambda leaf: leaf[0], run._state)
    found = {
        name: np.asarray(each) for name, each in jax.jit(partial(judge, run.config))(state, data).items()
    }
    if not found:
        return None
    names = run._schema.column_names
    share = float(found["aggregate"])
    return assess(
        incident_scores=found["incident_scores"],
        unlabeled_scores=found["unlabeled_scores"],
        preferred_scores=found["preferred_scores"],
        tried=int(found["tried"]),
        look_alikes=(float(found["alike_auc"]), float(found["alike_p"]), bool(found["rare"])),
        votes=found["votes"],
        nonpreferred=nonpreferred,
        unlabeled=unlabeled,
        kept=found["kept"],
        aggregate="mean" if share == 1 else f"highest {share:.0%}",
        step_probabilities=(found["incident_probabilities"], found["good_probabilities"]),
        importance=dict(zip(names, found["importance"].tolist(), strict=True)),
        names=names,
    )


def _require_evidence(evidence: Evidence | None, path: Path | None) -> None:
    """Stop strict training without evidence; it stays in the run folder."""
    if evidence is None or evidence.grade != "none":
        return
    if path is not None:
        evidence.save(path)
    raise NoEvidenceError(
        f"no policy was cloned: {' '.join(evidence.lines()[1:3])} Mark more incidents, or train without "
        "`strict=True`."
    )


def _check_loop_options(seed: int, seeds: int, log_every: int, evaluate_every: int) -> None:
    checks = ("seed", seed, 0), ("seeds", seeds, 1), ("log_every", log_every, 1)
    for name, value, least in (*checks, ("evaluate_every", evaluate_every, 1)):
        if value < least:
            raise InputError(f"{name} must be at least {least}, got {value}.")
    if seed + seeds > 2**31:
        raise InputError(f"seeds must lie below 2^31, got {seed}.")


def _settings_of(directory: RunDirectory, algorithm: Algorithm, config: Mapping[str, Any]) -> Any:
    """Read the settings of a run; each has to be there, since a default may differ between versions."""
    try:
        return complete(algorithm.Config, config["settings"])
    except InputError as error:
        raise InputError(
            f"{directory.path / CONFIG} does not fit this version of {algorithm.name}: {error} Train again, "
            "or use the version of safemil that wrote the run."
        ) from None


def _schema_of(directory: RunDirectory) -> Schema:
    """Read the columns that a run was trained on."""
    try:
        return Schema.from_json(directory.read_manifest()["columns"])
    except (KeyError, TypeError, ValueError) as error:
        raise InputError(
            f"{directory.path / MANIFEST} is damaged ({error}); train again, or restore the file."
        ) from None


def _check_findable(algorithm: Algorithm) -> None:
    """Refuse to write a run whose algorithm can't be found by its name when the run is loaded."""
    with contextlib.suppress(InputError):
        if find(algorithm.name) is algorithm:
            return
    raise InputError(
        f'a run is loaded by the name of its algorithm, but no installed package offers "{algorithm.name}" '
        "in the entry-point group safemil.algorithms; add it there, or train without a folder."
    )


def _fitting(
    algorithm: Algorithm,
    unlabeled: Episodes,
    nonpreferred: Trajectories | None,
    annotations: Annotations | None,
) -> Trajectories | None:
    """Check that the piles fit together; return the non-preferred one, its columns in the unlabeled order."""
    name = algorithm.name
    if "nonpreferred" in algorithm.NEEDS and nonpreferred is None:
        raise InputError(f"{name} learns from non-preferred episodes too; give them as `nonpreferred=...`.")
    if "annotations" in algorithm.NEEDS and annotations is None:
        raise InputError(f"{name} needs true rewards and costs; give unlabeled data that records them.")
    if annotations is not None and len(annotations) != unlabeled.steps:
        raise InputError(
            f"need one annotation per unlabeled step ({unlabeled.steps}), got {len(annotations)}."
        )
    if nonpreferred is None:
        return None
    nonpreferred = matched(nonpreferred, unlabeled, PILE)
    shared = shared_episodes(nonpreferred, unlabeled)
    if len(shared):
        warnings.warn(
            f"{len(shared)} episodes are in both piles (first: {nonpreferred.ids[shared[0]]}); "
            "they contradict each other: take them out of one.",
            InputWarning,
            stacklevel=3,
        )
    return nonpreferred


def _known_good(
    algorithm: Algorithm,
    unlabeled: Episodes,
    nonpreferred: Trajectories | None,
    preferred: Trajectories | None,
) -> Trajectories | None:
    """Check that known good episodes fit; return them with their columns in the unlabeled order."""
    if preferred is None:
        return None
    if "preferred" not in algorithm.ACCEPTS:
        raise InputError(
            f"{algorithm.name} has no use for known good episodes; leave out `preferred=...`, or add them to "
            "the unlabeled ones."
        )
    preferred = matched(preferred, unlabeled, KNOWN_GOOD)
    shared = [] if nonpreferred is None else shared_episodes(preferred, nonpreferred).tolist()
    if shared:
        raise InputError(
            f"{len(shared)} of the {len(preferred)} preferred episodes are non-preferred too (first: "
            f"{preferred.ids[shared[0]]}); take them out of one pile."
        )
    return preferred


def _with_judged(
    sorted_out: Sorted,
    unlabeled: Trajectories,
    nonpreferred: Trajectories | None,
    preferred: Trajectories | None,
) -> tuple[Trajectories | None, Trajectories | None]:
    """Add the judged episodes to the pile of their kind."""
    if nonpreferred is not None and sorted_out.incidents is not None:
        nonpreferred = matched(nonpreferred, unlabeled, PILE)
    if preferred is not None and sorted_out.fine is not None:
        preferred = matched(preferred, unlabeled, KNOWN_GOOD)
    return joined(nonpreferred, sorted_out.incidents), joined(preferred, sorted_out.fine)


def _without(preferred: Trajectories | None, unlabeled: Episodes) -> Episodes:
    """Unlabeled episodes that are not among those known to be good."""
    if preferred is None or not isinstance(unlabeled, Trajectories):
        return unlabeled
    known = shared_episodes(unlabeled, preferred)
    others = np.setdiff1d(np.arange(len(unlabeled)), known)
    if not len(others):
        raise InputError("every unlabeled episode is preferred; give some that nobody has marked.")
    return unlabeled.take(others) if len(known) else unlabeled


def _hashes(unlabeled: Episodes, **others: Trajectories | Annotations) -> dict[str, object]:
    piles: dict[str, Any] = {"unlabeled": unlabeled, **others}
    return {f"{name}{HASH}": pile.content_hash() for name, pile in piles.items()}


def _empty_scaler(size: int) -> Scaler:
    return Scaler(jnp.zeros(size), jnp.ones(size))


def _git_state() -> str | None:
    """Return the commit of the checkout that this package runs from, if it is one."""
    root = Path(__file__).parents[2]
    if not (root / ".git").exists():  # installed: a repository around it would be somebody else's
        return None
    # Without optional locks: a run that is killed must not leave a locked repository behind.
    options = ("--always", "--dirty", "--abbrev=12")
    command = ["git", "--no-optional-locks", "-C", str(root), "describe", *options]
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=5, check=True).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return None
