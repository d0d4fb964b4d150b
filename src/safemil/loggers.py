"""Loggers of training: TensorBoard, Weights & Biases, Trackio, or a function of the user's own.

All write on this machine unless their own environment variables say otherwise. A package is imported only
when its logger is asked for.
"""

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from safemil.errors import InputError, unknown
from safemil.extras import require_extra

OnLog = Callable[[int, Mapping[str, Any]], None]  # from the update and its line of metrics.jsonl
PROJECT = "safemil"  # in Weights & Biases and Trackio


class Logger(Protocol):
    """What is told of a training, in this order."""

    def settings(self, values: Mapping[str, Any]) -> None:
        """Take note of the algorithm, the seeds and every setting."""

    def metrics(self, update: int, values: Mapping[str, float]) -> None:
        """Log the metrics of an interval, evaluation included."""

    def end(self, last: Mapping[str, float]) -> None:
        """Write the table of last values, and close; it is empty if training was stopped."""


def scalars(line: Mapping[str, Any], seeds: Sequence[int]) -> dict[str, float]:
    """Name each number of a line of metrics, by its seed if there are several; empty ones are left out.

    >>> scalars({"update": 50, "loss/policy": [0.5, None]}, [3, 4])
    {'loss/policy/seed-3': 0.5}
    """
    found: dict[str, float] = {}
    for name, values in line.items():
        if name == "update":
            continue
        each = values if isinstance(values, list) else [values]
        names = [f"{name}/seed-{seed}" for seed in seeds] if len(each) > 1 else [name]
        found |= {key: float(value) for key, value in zip(names, each, strict=True) if value is not None}
    return found


def markdown(values: Mapping[str, Any]) -> str:
    """Table of names and values in Markdown."""
    return "\n".join(
        ["| name | value |", "|---|---|", *(f"| {name} | {value} |" for name, value in values.items())]
    )


class TensorBoard:
    """Event files in the folder `tensorboard` of the run."""

    def __init__(self, folder: Path):
        require_extra("tensorboard", "logging to TensorBoard")
        from tensorboardX import SummaryWriter

        self._writer = SummaryWriter(str(folder / "tensorboard"))

    def settings(self, values: Mapping[str, Any]) -> None:
        self._writer.add_text("settings", markdown(values))

    def metrics(self, update: int, values: Mapping[str, float]) -> None:
        for name, value in values.items():
            self._writer.add_scalar(name, value, update)

    def end(self, last: Mapping[str, float]) -> None:
        if last:
            self._writer.add_text("last-values", markdown(last))
        self._writer.close()


class WandB:
    """A run of Weights & Biases in the run folder; offline unless WANDB_MODE says otherwise."""

    def __init__(self, folder: Path):
        require_extra("wandb", "logging to Weights & Biases")
        import wandb

        self._wandb = wandb
        self._run = wandb.init(
            project=os.environ.get("WANDB_PROJECT", PROJECT),
            name=folder.resolve().name,
            dir=str(folder),
            mode=os.environ.get("WANDB_MODE", "offline"),
            settings=wandb.Settings(silent=True),
        )

    def settings(self, values: Mapping[str, Any]) -> None:
        self._run.config.update(dict(values))

    def metrics(self, update: int, values: Mapping[str, float]) -> None:
        self._run.log(dict(values), step=update)

    def end(self, last: Mapping[str, float]) -> None:
        if last:
            table = self._wandb.Table(columns=["name", "value"], data=[[*each] for each in last.items()])
            self._run.log({"last values": table})
        self._run.finish()


class Trackio:
    """A run of Trackio, in its own folder on this machine (TRACKIO_DIR)."""

    def __init__(self, folder: Path):
        require_extra("trackio", "logging to Trackio")
        import trackio

        self._trackio, self._name, self._update = trackio, folder.resolve().name, 0

    def settings(self, values: Mapping[str, Any]) -> None:
        self._trackio.init(project=PROJECT, name=self._name, config=dict(values), resume="allow", embed=False)

    def metrics(self, update: int, values: Mapping[str, float]) -> None:
        self._update = update
        self._trackio.log(dict(values), step=update)

    def end(self, last: Mapping[str, float]) -> None:
        if last:
            self._trackio.log({f"last/{name}": value for name, value in last.items()}, step=self._update)
        self._trackio.finish()


LOGGERS: dict[str, Callable[[Path], Logger]] = {
    "tensorboard": TensorBoard,
    "wandb": WandB,
    "trackio": Trackio,
}


def check(names: Sequence[str | OnLog], out: Path | None) -> None:
    """Refuse unknown loggers, and those that write where there is no folder, before anything is done."""
    if isinstance(names, str):
        raise InputError(f'loggers are a list, as in loggers=["{names}"].')
    for name in names:
        if callable(name):
            continue
        if name not in LOGGERS:
            raise unknown("logger", name, LOGGERS)
        require_extra(name, f"logging to {name}")
        if out is None:
            raise InputError(f'the logger "{name}" belongs to a run folder; give `out=...`.')


class Loggers:
    """All loggers of a training."""

    def __init__(self, asked: Sequence[str | OnLog], seeds: Sequence[int]):
        self._asked, self._seeds = asked, seeds
        self._open: list[Logger] = []
        self._last: dict[str, float] = {}

    def begin(self, folder: Path | None, described: Mapping[str, Any]) -> None:
        """Open them; `described` has algorithm, seeds and settings."""
        flat = {name: value for name, value in described.items() if name != "settings"} | described[
            "settings"
        ]
        for name in self._asked:
            if isinstance(name, str) and folder is not None:
                logger = LOGGERS[name](folder)
                self._open.append(logger)
                logger.settings({key: _plain(value) for key, value in flat.items()})

    def log(self, line: Mapping[str, Any]) -> None:
        """Log a line of metrics."""
        found = scalars(line, self._seeds)
        self._last |= found
        for logger in self._open:
            logger.metrics(line["update"], found)
        for each in self._asked:
            if callable(each):
                each(line["update"], {name: value for name, value in line.items() if name != "update"})

    def end(self, *, finished: bool) -> None:
        """Close all, with the last value of each metric if training came to its end."""
        while self._open:
            self._open.pop().end(self._last if finished else {})


def _plain(value: Any) -> Any:
    """A value that every logger can store."""
    return list(value) if isinstance(value, tuple | range) else value
