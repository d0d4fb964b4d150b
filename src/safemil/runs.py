"""The run directory: config, manifest, metrics and checkpoints, each there whole or not at all.

```
config.toml     every setting as resolved     manifest.json   versions, dataset hashes, sizes, wall time
metrics.jsonl   one line per interval          checkpoints/    NUMBER.safetensors + NUMBER.json, the last two
data.json       where the piles were read from, as seen from here, and how
```
"""

import hashlib
import json
import os
import shutil
import tomllib
import warnings
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load, save

from safemil.errors import InputError, InputWarning
from safemil.files import atomic_file
from safemil.settings import to_toml

SOURCES = "data.json"
KEPT = 2  # checkpoints: one may be damaged, the one before it is then used


class Checkpoint(NamedTuple):
    step: int
    arrays: dict[str, np.ndarray]


class RunDirectory:
    """One training run on disk. Nothing in it is ever executed, so a stranger's run is safe to load."""

    def __init__(self, path: str | os.PathLike[str]):
        self.path = Path(path)

    @property
    def checkpoints(self) -> Path:
        return self.path / "checkpoints"

    @property
    def metrics_file(self) -> Path:
        return self.path / "metrics.jsonl"

    def create(self, *, resume: bool = False, overwrite: bool = False) -> None:
        """Make the folder, or refuse one that holds something unless told what to do with it."""
        if self.path.exists() and not self.path.is_dir():
            raise InputError(f"{self.path} is a file; a run needs a folder.")
        if self.path.is_dir() and any(self.path.iterdir()) and not resume:
            if not overwrite:
                raise InputError(
                    f"{self.path} is not empty; choose another folder, or go on with --resume, "
                    f"or start anew with --overwrite."
                )
            if not (self.path / "config.toml").exists():
                raise InputError(
                    f"{self.path} is not a run, so --overwrite won't empty it; choose another folder."
                )
            shutil.rmtree(self.path)
        self.checkpoints.mkdir(parents=True, exist_ok=True)

    def write_config(self, header: Mapping[str, object], settings: Mapping[str, object]) -> None:
        with atomic_file(self.path / "config.toml") as file:
            file.write_text(f"{to_toml(header)}\n[settings]\n{to_toml(settings)}")

    def read_config(self) -> dict[str, Any]:
        path = self.path / "config.toml"
        if not path.exists():
            raise InputError(
                f"{self.path} is not a run: it holds no config.toml; give the folder that train wrote."
            )
        try:
            return tomllib.loads(path.read_text())
        except tomllib.TOMLDecodeError as error:
            raise InputError(f"{path} is damaged ({error}); train again, or restore the file.") from None

    def write_manifest(self, manifest: Mapping[str, object]) -> None:
        self.write_json("manifest.json", manifest)

    def read_manifest(self) -> dict[str, Any]:
        return self._read_json("manifest.json")

    def _read_json(self, name: str) -> dict[str, Any]:
        path = self.path / name
        try:
            content: dict[str, Any] = json.loads(path.read_text())
        except FileNotFoundError:
            raise InputError(f"{self.path} is not a run: it holds no {name}.") from None
        except json.JSONDecodeError as error:
            raise InputError(f"{path} is damaged ({error}); train again, or restore the file.") from None
        return content

    def note_sources(self, paths: Mapping[str, Path], reading: Mapping[str, object]) -> None:
        """Keep where the piles were read from; relative, so that a project can move as a whole."""
        here = self.path.resolve()
        seen = {name: os.path.relpath(path.resolve(), here) for name, path in paths.items()}
        self.write_json(SOURCES, {"paths": seen, "reading": reading})

    def read_sources(self) -> tuple[dict[str, Path], dict[str, Any]]:
        """What `note_sources` kept: paths by pile, and how they were read; nothing if it kept nothing."""
        if not (self.path / SOURCES).exists():
            return {}, {}
        noted = self._read_json(SOURCES)
        try:
            return {name: self.path / path for name, path in noted["paths"].items()}, dict(noted["reading"])
        except (KeyError, TypeError, AttributeError, ValueError):
            raise InputError(f"{self.path / SOURCES} is damaged; delete it and name the piles.") from None

    def write_json(self, name: str, content: Mapping[str, object]) -> Path:
        path = self.path / name
        with atomic_file(path) as file:
            file.write_text(json.dumps(content, indent=2) + "\n")
        return path

    def append_metrics(self, line: Mapping[str, object]) -> None:
        with open(self.metrics_file, "a") as file:
            file.write(json.dumps(line) + "\n")

    def read_metrics(self) -> list[dict[str, Any]]:
        """Every whole line; a line cut off by a kill is left out."""
        if not self.metrics_file.exists():
            return []
        lines = self.metrics_file.read_text().split("\n")[:-1]  # what follows the last newline is not whole
        return [json.loads(line) for line in lines]

    def truncate_metrics(self, step: int) -> None:
        """Forget what was written after `step`: it will be written again."""
        kept = [line for line in self.read_metrics() if line["step"] <= step]
        with atomic_file(self.metrics_file) as file:
            file.write_text("".join(json.dumps(line) + "\n" for line in kept))

    def save_checkpoint(self, checkpoint: Checkpoint) -> None:
        """The arrays, then the JSON that vouches for them: without it a checkpoint does not exist."""
        name = self.checkpoints / f"{checkpoint.step:09d}"
        content = save(checkpoint.arrays)
        with atomic_file(name.with_suffix(".safetensors")) as file:
            file.write_bytes(content)
        digest = hashlib.sha256(content).hexdigest()
        with atomic_file(name.with_suffix(".json")) as file:
            file.write_text(json.dumps({"step": checkpoint.step, "sha256": digest}))
        for old in sorted(self.checkpoints.glob("*.json"))[:-KEPT]:
            old.unlink()
            old.with_suffix(".safetensors").unlink(missing_ok=True)

    def latest_checkpoint(self) -> Checkpoint | None:
        """The newest checkpoint that is whole; a damaged one is passed over with a warning."""
        for checkpoint in self._from_newest():
            return checkpoint
        return None

    def _from_newest(self) -> Iterator[Checkpoint]:
        for card in sorted(self.checkpoints.glob("*.json"), reverse=True):
            try:
                yield _read_checkpoint(card)
            except (OSError, ValueError, KeyError, TypeError, SafetensorError) as error:
                warnings.warn(
                    f"checkpoint {card.with_suffix('')} is damaged ({error}); using the one before it.",
                    InputWarning,
                    stacklevel=4,
                )


def _read_checkpoint(card: Path) -> Checkpoint:
    content = json.loads(card.read_text())
    arrays = card.with_suffix(".safetensors").read_bytes()
    if hashlib.sha256(arrays).hexdigest() != content["sha256"]:
        raise ValueError("its content hash does not match")
    return Checkpoint(int(content["step"]), load(arrays))
