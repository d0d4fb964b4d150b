"""Risk of many files of logs: a file of risks per file, by workers that run without JAX.

A scorer is a pure function from the content of a file to the bytes of its risks; which process runs it, and
how often, changes nothing. Finished files are skipped, so that the same command goes on when it was stopped.
"""

import base64
import contextlib
import hashlib
import io
import json
import multiprocessing
import os
import signal
import threading
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from functools import lru_cache
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from rich.table import Table

from safemil.data import Trajectories
from safemil.data.converting import ScatteredError, tables_of
from safemil.data.formats import File, describes_itself, log_files, open_part, read, read_columns
from safemil.data.interchange import Contents, Options, Paths, Unreadable
from safemil.data.table import from_parts
from safemil.deploy import Model
from safemil.errors import InputError, shortened, unknown
from safemil.extras import require_extra
from safemil.files import atomic_file
from safemil.locks import Claim
from safemil.progress import bar
from safemil.schema import Schema
from safemil.scoring import Costs, key_columns, risk_table

SUFFIX = ".parquet"
SUMMARY = b"safemil risk"  # key of a file's metadata
KEPT = 20  # riskiest episodes of a file in its summary
FAULTS = 5  # in a summary
TRIES = 3  # of a file whose worker died
POLL = 1.0  # seconds between two looks at files that another process has claimed


@dataclass(frozen=True)
class Scorer:
    """Networks of a run, the columns that it was trained on, and how its logs were read."""

    models: tuple[Model, ...]  # one per seed
    schema: Schema
    options: Options
    digest: str

    @staticmethod
    @lru_cache(maxsize=2)
    def of(content: bytes) -> "Scorer":
        """Decode what `encode` made; a worker does it once."""
        found = json.loads(content)
        models = tuple(Model.from_bytes(base64.b64decode(each), "the run") for each in found["models"])
        options = Options.from_dict(found["options"])
        return Scorer(models, Schema.from_json(found["schema"]), options, hashlib.sha256(content).hexdigest())

    def table(self, contents: Contents, log: pa.Table | None) -> tuple[pa.Table, list[dict[str, Any]]]:
        """Risk and novelty of each step beside its episode and step, and what sums up each episode."""
        held = self.schema.match(contents.trajectories)
        costs, novelty = self.costs(held), self.schema.novelty(held)
        episodes = [
            {
                "episode": str(name),
                "steps": len(risk),
                "risk": round(float(risk.mean()), 6),
                "high": round(float((risk > 0.5).mean()), 6),
                "untrusted": bool(far),
            }
            for name, risk, far in zip(held.ids.tolist(), costs, novelty.untrusted(), strict=True)
        ]
        return risk_table(contents, costs, novelty.deviations, log), episodes

    def costs(self, held: Trajectories) -> Costs:
        """ĉ of each step, the mean over seeds, one array per episode."""
        actions: Any = held.recorded_actions()
        categories = self.models[0].action_categories
        if categories is not None:
            actions = np.asarray(categories)[actions.argmax(axis=1)]
        risks = [model.risk(held.observations, actions) for model in self.models]
        mean = np.mean(risks, axis=0).astype(np.float32)
        if not np.isfinite(mean).all():
            where = held.where(int(np.argmin(np.isfinite(mean))))
            raise InputError(f"the learned cost is not finite at {where}; its training has diverged.")
        return held.by_episode(mean)


def encode(models: Sequence[bytes], schema: Schema, options: Options) -> bytes:
    """Encode networks in the small form, with columns and options, for the workers."""
    content = {
        "models": [base64.b64encode(each).decode() for each in models],
        "schema": schema.to_json(),
        "options": options.to_dict(),
    }
    return json.dumps(content, sort_keys=True).encode()


def prepare(run: Path, options: Options) -> bytes:
    """Encode a run for the workers, in a process of its own: the one that starts them never loads JAX."""
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
        return pool.submit(_encoded, run, options).result()


def _encoded(run: Path, options: Options) -> bytes:
    from safemil.api import Run
    from safemil.export import encoded

    trained = Run.load(run)
    if not trained.learns_cost:
        raise InputError(f"{trained.algorithm} learns no cost; train safemil to get one.")
    how = replace(options.over(trained.reading or Options()), lenient=True)
    return encode([encoded(trained[i]) for i in range(len(trained))], trained.schema, how)


def score_file(content: bytes, path: str, label: str) -> bytes:
    """Read a file of logs, and return the Parquet file of its risks: the work of one task."""
    scorer = Scorer.of(content)
    file = File(Path(path), path, label)
    with warnings.catch_warnings(record=True) as noted:
        warnings.simplefilter("always")
        try:
            return _scored(scorer, _pieces(file, scorer.options), noted)
        except ScatteredError:
            return _scored(scorer, _whole(file, scorer.options), noted)


def _scored(
    scorer: Scorer,
    pieces: Iterator[tuple[Contents | Unreadable, pa.Table | None]],
    noted: list[warnings.WarningMessage],
) -> bytes:
    buffer, writer = io.BytesIO(), None
    episodes: list[dict[str, Any]] = []
    faults: list[str] = []
    passed = 0
    for contents, log in pieces:
        if isinstance(contents, Unreadable):
            faults.append(str(contents))
            continue
        table, found = scorer.table(contents, log)
        episodes += found
        faults += contents.faults
        passed += (contents.declared or len(found)) - len(found)
        if writer is None:
            writer = pq.ParquetWriter(buffer, table.schema, compression="zstd")
        writer.write_table(table.cast(writer.schema))
    if writer is None:
        raise InputError(f"no episode can be read: {shortened('; '.join(faults) or 'it is empty')}")
    summary = {
        "run": scorer.digest,
        "episodes": len(episodes),
        "steps": sum(each["steps"] for each in episodes),
        "passed_over": passed,
        "untrusted": sum(each["untrusted"] for each in episodes),
        "faults": faults[:FAULTS],
        "notes": sorted({str(each.message) for each in noted})[:FAULTS],
        "riskiest": sorted(episodes, key=lambda each: (-each["risk"], each["episode"]))[:KEPT],
    }
    writer.add_key_value_metadata({SUMMARY.decode(): json.dumps(summary, ensure_ascii=False)})
    writer.close()
    return buffer.getvalue()


def _pieces(file: File, options: Options) -> Iterator[tuple[Contents | Unreadable, pa.Table | None]]:
    """Episodes of a file, with the rows of a table that they come from; a Parquet file is read in pieces."""
    if file.path.suffix != SUFFIX or describes_itself(file.path, options):
        yield from _whole(file, options)
        return
    for part, _, _ in tables_of(open_part(file), file, options):
        if options.columns.episode not in part.columns:
            yield from _whole(file, options)
            return
        try:
            contents = from_parts([part], options)
        except Unreadable as error:
            yield error, None
            continue
        keys = [name for name in key_columns(contents) if name in part.columns]
        yield contents, part.load(keys, ()).whole(keys)


def _whole(file: File, options: Options) -> Iterator[tuple[Contents | Unreadable, pa.Table | None]]:
    plain = describes_itself(file.path, options)
    contents = read(file.path, Options(lenient=True) if plain else options)
    yield contents, read_columns(file.path, key_columns(contents))


class Task(NamedTuple):
    """A file of logs and the file of its risks."""

    path: str
    label: str
    out: Path


class Outcome(NamedTuple):
    """What has become of all files."""

    summaries: dict[str, dict[str, Any]]  # by label
    failures: dict[str, str]
    skipped: int  # files whose risks were there before

    def lines(self) -> list[str]:
        """What was read, what was passed over and why, and which files failed."""
        total = {
            name: sum(each[name] for each in self.summaries.values())
            for name in ("episodes", "steps", "passed_over", "untrusted")
        }
        before = f", {self.skipped} of them before" if self.skipped else ""
        found = [
            f"{total['episodes']:,} episodes of {total['steps']:,} steps in {len(self.summaries)} files are "
            f"scored{before}; {total['passed_over']:,} episodes were passed over for their faults.",
            f"In {total['untrusted']:,} episodes the risk should not be trusted: they are unlike the "
            "training data.",
        ]
        for label, each in self.summaries.items():
            found += [f"{label}: passed over: {fault}" for fault in each["faults"]]
            found += [f"{label}: {note}" for note in each["notes"]]
        return found + [f"{label}: failed: {reason}" for label, reason in self.failures.items()]

    def riskiest_table(self, top: int) -> Table:
        """Make a table of the riskiest episodes of all files."""
        table = Table("file", "episode", "steps", "mean risk", "steps above ½", box=None)
        every = [(label, each) for label, found in self.summaries.items() for each in found["riskiest"]]
        for label, each in sorted(every, key=lambda pair: -pair[1]["risk"])[:top]:
            table.add_row(
                label,
                each["episode"],
                str(each["steps"]),
                f"{each['risk']:.3f}",
                f"{each['high']:.0%}",
            )
        return table


class _Work:
    """Files that are to be scored; one at a time is claimed, so that two processes never do the same."""

    def __init__(self, tasks: Sequence[Task], done: Callable[[], None], *, redo: bool):
        self._waiting, self._done, self._redo = list(tasks), done, redo
        self._claims: dict[str, Claim] = {}
        self.elsewhere: list[Task] = []  # that another process has claimed
        self.failures: dict[str, str] = {}

    def next(self) -> Task | None:
        """Claim the next file; None if all are done or claimed."""
        while self._waiting:
            task = self._waiting.pop(0)
            if task.label in self._claims:  # it is tried again
                return task
            claim = Claim.on(task.out)
            if claim is None:
                self.elsewhere.append(task)
            elif not self._redo and _summary(task.out) is not None:  # another process has just finished it
                claim.release()
                self._done()
            else:
                self._claims[task.label] = claim
                return task
        return None

    def again(self, task: Task) -> None:
        self._waiting.insert(0, task)

    def write(self, task: Task, risks: bytes) -> None:
        with atomic_file(task.out) as file:
            file.write_bytes(risks)
        self._end(task)

    def fail(self, task: Task, reason: str) -> None:
        self.failures[task.label] = reason
        self._end(task)

    def _end(self, task: Task) -> None:
        self._claims.pop(task.label).release()
        self._done()

    def release(self) -> None:
        for claim in self._claims.values():
            claim.release()


def score_files(
    content: bytes,
    paths: Paths,
    out: Path,
    *,
    engine: str = "local",
    workers: int | None = None,
    overwrite: bool = False,
    progress: bool = True,
) -> Outcome:
    """Write the risks of every file that a path stands for into `out`, under the same folders.

    A file that is there is skipped, unless another run made it. Two such calls on one folder share the work.
    """
    if engine not in ENGINES:
        raise unknown("engine", engine, ENGINES)
    if workers is not None and workers < 1:
        raise InputError(f"need 1 worker or more, got {workers}.")
    digest = hashlib.sha256(content).hexdigest()
    tasks = [_task(file, out) for file in log_files(paths)]
    found = {task.label: None if overwrite else _summary(task.out) for task in tasks}
    failures = {
        task.label: f"{task.out} was made with another run; give another folder, or `overwrite=True`"
        for task in tasks
        if (noted := found[task.label]) is not None and noted.get("run") != digest
    }
    waiting = [task for task in tasks if found[task.label] is None]
    skipped = count = len(tasks) - len(waiting) - len(failures)
    with bar("scoring", len(tasks), start=count, show=progress) as shown:

        def done() -> None:
            nonlocal count
            count += 1
            shown.at(count)

        redo = overwrite
        while waiting:
            work = _Work(waiting, done, redo=redo)
            try:
                ENGINES[engine](content, work, workers)
            finally:
                work.release()
            failures |= work.failures
            waiting, redo = work.elsewhere, False
            if waiting:
                time.sleep(POLL)
    summaries = {
        task.label: noted
        for task in tasks
        if task.label not in failures and (noted := _summary(task.out)) is not None
    }
    return Outcome(summaries, failures, skipped)


class _Worker:
    """A process that scores one file after the other, the pipe to it, and its file."""

    def __init__(self, content: bytes):
        context = multiprocessing.get_context("spawn")
        self.pipe, theirs = context.Pipe()
        self.process = context.Process(target=_work, args=(theirs,), daemon=True)
        self.process.start()
        theirs.close()
        self.task: Task | None = None
        self._send(content)

    def begin(self, task: Task) -> None:
        self.task = task
        self._send((task.path, task.label))

    def _send(self, what: Any) -> None:
        with contextlib.suppress(OSError):  # a worker that has died is noticed when its outcome is read
            self.pipe.send(what)

    def outcome(self) -> tuple[bytes, str] | None:
        """Receive risks or a reason; None if the worker has died."""
        try:
            risks, reason = self.pipe.recv()
            return risks, reason
        except (EOFError, OSError):
            return None

    def end(self) -> None:
        self.pipe.close()
        self.process.kill()
        self.process.join()


def _work(pipe: Connection) -> None:
    """Score files until the pipe closes: the main function of a worker."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent handles Ctrl-C and ends its workers
    threading.Thread(target=_end_with_parent, daemon=True).start()
    with contextlib.suppress(EOFError):
        content = pipe.recv()
        while True:
            pipe.send(outcome(content, *pipe.recv()))


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def outcome(content: bytes, path: str, label: str) -> tuple[bytes, str]:
    """Risks of a file, or else the reason why there are none."""
    try:
        return score_file(content, path, label), ""
    except (InputError, OSError) as error:
        return b"", str(error)
    except Exception:  # what is wrong with one file must not stop the others
        return b"", traceback.format_exc()


def _local(content: bytes, work: _Work, workers: int | None) -> None:
    """Score files in spawned processes; if one dies, its file is tried again by another."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    tries, crew = Counter[str](), list[_Worker]()
    with _one_thread_each():
        try:
            while True:
                while len(crew) < (workers or cores) and (task := work.next()) is not None:
                    crew.append(_Worker(content))
                    crew[-1].begin(task)
                    tries[task.label] += 1
                if not crew:
                    return
                for pipe in wait([worker.pipe for worker in crew]):
                    worker = next(each for each in crew if each.pipe is pipe)
                    _finish(worker, crew, work, tries)
        finally:
            for worker in crew:
                worker.end()


def _finish(worker: _Worker, crew: list[_Worker], work: _Work, tries: Counter[str]) -> None:
    """Write what a worker has made, and give it the next file; let a dead one go."""
    task, found = worker.task, worker.outcome()
    assert task is not None
    if found is not None:
        _deliver(work, task, found)
    elif tries[task.label] < TRIES:
        work.again(task)
    else:
        work.fail(task, f"its worker died {TRIES} times (exit code {worker.process.exitcode})")
    following = None if found is None else work.next()
    if following is None:
        crew.remove(worker)
        worker.end()
    else:
        worker.begin(following)
        tries[following.label] += 1


@contextlib.contextmanager
def _one_thread_each() -> Iterator[None]:
    """Let every worker compute on one thread: NumPy reads these when a worker starts."""
    names = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
    before = {name: os.environ.get(name) for name in names}
    os.environ.update(dict.fromkeys(names, "1"))
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def _ray(content: bytes, work: _Work, workers: int | None) -> None:
    """Score files as Ray tasks, here or on a cluster (`RAY_ADDRESS`) that can read the same paths."""
    require_extra("ray", "the Ray engine")
    import ray

    mine = None if os.environ.get("RAY_ADDRESS") else workers  # a cluster decides its own number of workers
    ray.init(num_cpus=mine, include_dashboard=False, log_to_driver=False, logging_level="ERROR")
    try:
        scorer = ray.put(content)
        remote = ray.remote(num_cpus=1, max_retries=TRIES - 1)(outcome)
        most = 2 * max(1, int(ray.cluster_resources().get("CPU", 1)))
        pending: dict[Any, Task] = {}
        task = work.next()
        while task is not None or pending:
            while task is not None and len(pending) < most:
                pending[remote.remote(scorer, task.path, task.label)] = task
                task = work.next()
            for each in ray.wait(list(pending))[0]:
                done = pending.pop(each)
                try:
                    _deliver(work, done, ray.get(each))
                except ray.exceptions.RayError as error:
                    work.fail(done, str(error))
    finally:
        ray.shutdown()


def _deliver(work: _Work, task: Task, found: tuple[bytes, str]) -> None:
    risks, reason = found
    if reason:
        work.fail(task, reason)
    else:
        work.write(task, risks)


ENGINES: dict[str, Callable[[bytes, _Work, int | None], None]] = {"local": _local, "ray": _ray}


def _task(file: File, out: Path) -> Task:
    name = file.label if file.label.endswith(SUFFIX) else f"{file.label}{SUFFIX}"
    return Task(str(file.path.resolve()), file.label, out / name)


def _summary(path: Path) -> dict[str, Any] | None:
    """What a file of risks says of itself; None if there is none, or something else."""
    with contextlib.suppress(OSError, ValueError, KeyError, pa.ArrowException):
        found = json.loads((pq.read_metadata(path).metadata or {})[SUMMARY])
        return found if isinstance(found, dict) else None
    return None
