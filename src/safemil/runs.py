"""The run folder: config, manifest, metrics, checkpoints and data sources, each written atomically.

```
config.toml     format, algorithm, seeds and every setting
manifest.json   versions, dataset hashes, columns of the training data, wall time
metrics.jsonl   one line per logging interval
checkpoints/    NUMBER.safetensors and NUMBER.json with its SHA-256, the last two
data.json       paths of the piles, relative to the run, and how their files were read
```
"""

import dataclasses
import hashlib
import json
import os
import tomllib
import warnings
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load, save

from safemil.data.interchange import Columns, Options
from safemil.errors import InputError, InputWarning
from safemil.files import atomic_file, atomic_folder, is_free
from safemil.settings import to_toml

FORMAT = 2  # of the folder; a change that older versions can't read, or that can't read older ones, raises it
CONFIG, MANIFEST, SOURCES = "config.toml", "manifest.json", "data.json"
KEPT = 2  # checkpoints: if the newest is damaged, the one before it is used


class Checkpoint(NamedTuple):
    update: int  # number of updates done
    arrays: dict[str, np.ndarray]


class RunDirectory:
    """A training run on disk. Nothing in it is ever executed, so a run of unknown origin is safe to load."""

    def __init__(self, path: str | os.PathLike[str]):
        self.path = Path(path)

    @property
    def checkpoints(self) -> Path:
        return self.path / "checkpoints"

    @property
    def metrics_file(self) -> Path:
        return self.path / "metrics.jsonl"

    def create(
        self, config: Mapping[str, Any], manifest: Mapping[str, object], *, overwrite: bool = False
    ) -> None:
        """Make the folder with its config and manifest; only a run is overwritten, and only if asked for."""
        if self.path.exists() and not self.path.is_dir():
            raise InputError(f"{self.path} is a file; a run needs a folder.")
        if not is_free(self.path):
            self._check_overwrite(overwrite)
        with atomic_folder(self.path, mark=CONFIG, overwrite=overwrite) as folder:
            new = RunDirectory(folder)
            new.checkpoints.mkdir()
            new.write_manifest(manifest)
            new.write_config(config)

    def _check_overwrite(self, overwrite: bool) -> None:
        try:
            self.read_config()
        except InputError as error:
            raise InputError(
                f"{self.path} is not empty, and no run that can be resumed or overwritten; choose another "
                f"folder. ({error})"
            ) from None
        if not overwrite:
            raise InputError(
                f"{self.path} holds a run already; choose another folder, or give `resume=True` to continue "
                "the run, or `overwrite=True` to replace it."
            )

    def write_config(self, config: Mapping[str, Any]) -> None:
        """Write `algorithm`, `seeds` and the dict of `settings`."""
        header = {"format": FORMAT, "algorithm": config["algorithm"], "seeds": config["seeds"]}
        with atomic_file(self.path / CONFIG) as file:
            file.write_text(f"{to_toml(header)}\n[settings]\n{to_toml(config['settings'])}")

    def read_config(self) -> dict[str, Any]:
        """Read what `write_config` wrote, or say why the folder is not a run that this version can read."""
        path = self.path / CONFIG
        if not path.is_file():
            raise InputError(f"{self.path} is not a run: it has no {CONFIG}; give a folder that train wrote.")
        try:
            found = tomllib.loads(path.read_text())
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            raise InputError(f"{path} is damaged ({error}); train again, or restore the file.") from None
        form = found.get("format")
        if form != FORMAT:
            has = "names no format" if form is None else f"is of format {form}"
            raise InputError(
                f"{path} {has}, but this version of safemil reads run folders of format {FORMAT}; train "
                f"again, or use the version of safemil that wrote the folder (see its {MANIFEST})."
            )
        try:
            return {name: found[name] for name in ("algorithm", "seeds", "settings")}
        except KeyError as error:
            raise InputError(
                f"{path} is damaged ({error} is missing); train again, or restore the file."
            ) from None

    def write_manifest(self, manifest: Mapping[str, object]) -> None:
        self.write_json(MANIFEST, manifest)

    def read_manifest(self) -> dict[str, Any]:
        return self._read_json(MANIFEST)

    def note_sources(self, paths: Mapping[str, Path], options: Options) -> None:
        """Write where the piles were read from, relative to the run, so that both can be moved together."""
        here = self.path.resolve()
        bounds = options.action_bounds and [np.asarray(bound).tolist() for bound in options.action_bounds]
        content = {
            "paths": {name: os.path.relpath(path.resolve(), here) for name, path in paths.items()},
            "columns": dataclasses.asdict(options.columns),
            "action_bounds": bounds,
        }
        self.write_json(SOURCES, content)

    def read_sources(self) -> tuple[dict[str, Path], Options]:
        """Read what `note_sources` wrote: the path of each pile, and how to read it."""
        self.read_config()  # a folder that is not a run is refused first
        which = "give the folder of both piles, or `unlabeled=...` (and `nonpreferred=...`)"
        if not (self.path / SOURCES).exists():
            raise InputError(f"{self.path} does not say where its episodes are; {which}.")
        content = self._read_json(SOURCES)
        try:
            paths = {name: self.path / path for name, path in content["paths"].items()}
            bounds = content["action_bounds"] and tuple(content["action_bounds"])
            options = Options(Columns(**content["columns"]), bounds)
        except (KeyError, TypeError, AttributeError) as error:
            raise InputError(f"{self.path / SOURCES} is damaged ({error}); delete it and {which}.") from None
        for name, path in paths.items():
            if not path.exists():
                raise InputError(f"the {name} episodes of {self.path} are no longer at {path}; {which}.")
        return paths, options

    def write_json(self, name: str, content: Mapping[str, object]) -> Path:
        path = self.path / name
        with atomic_file(path) as file:
            file.write_text(json.dumps(content, indent=2) + "\n")
        return path

    def _read_json(self, name: str) -> dict[str, Any]:
        path = self.path / name
        try:
            content: dict[str, Any] = json.loads(path.read_text())
        except FileNotFoundError:
            raise InputError(f"{self.path} is not a run: it has no {name}.") from None
        except ValueError as error:
            raise InputError(f"{path} is damaged ({error}); train again, or restore the file.") from None
        return content

    def append_metrics(self, line: Mapping[str, object]) -> None:
        with open(self.metrics_file, "a") as file:
            file.write(json.dumps(line) + "\n")

    def read_metrics(self) -> list[dict[str, Any]]:
        """Read every complete line; a line cut off by a kill is left out."""
        if not self.metrics_file.exists():
            return []
        lines = self.metrics_file.read_text().split("\n")[:-1]  # text after the last newline is incomplete
        return [json.loads(line) for line in lines]

    def truncate_metrics(self, update: int) -> None:
        """Delete the lines after `update`, which will be written again."""
        kept = [line for line in self.read_metrics() if line["update"] <= update]
        with atomic_file(self.metrics_file) as file:
            file.write_text("".join(json.dumps(line) + "\n" for line in kept))

    def save_checkpoint(self, checkpoint: Checkpoint) -> None:
        """Write the arrays, then a JSON file with their SHA-256, without which they are ignored."""
        name = self.checkpoints / f"{checkpoint.update:09d}"
        content = save(checkpoint.arrays)
        with atomic_file(name.with_suffix(".safetensors")) as file:
            file.write_bytes(content)
        digest = hashlib.sha256(content).hexdigest()
        with atomic_file(name.with_suffix(".json")) as file:
            file.write_text(json.dumps({"update": checkpoint.update, "sha256": digest}))
        for old in sorted(self.checkpoints.glob("*.json"))[:-KEPT]:
            old.unlink()
            old.with_suffix(".safetensors").unlink(missing_ok=True)

    def latest_checkpoint(self) -> Checkpoint | None:
        """Return the newest intact checkpoint; a damaged one is skipped with a warning."""
        return next(self._from_newest(), None)

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
    return Checkpoint(int(content["update"]), load(arrays))
