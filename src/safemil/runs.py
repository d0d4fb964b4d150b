"""The run folder: config, manifest, metrics, checkpoints and data sources, each written atomically.

```
config.toml     format, algorithm, seeds and every setting
manifest.json   versions, dataset hashes, columns of the training data, wall time
metrics.jsonl   one line per logging interval
checkpoints/    NUMBER.safetensors and NUMBER.json with its SHA-256, the last two
ahead.safetensors  networks of the risk of what follows, if it was asked for
data.json       paths of the piles, relative to the run, and how their files were read
```
"""

import dataclasses
import glob
import hashlib
import json
import os
import shutil
import warnings
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load, save

from safemil.checks import Natural, fit
from safemil.data.interchange import Options, Paths
from safemil.errors import InputError, InputWarning
from safemil.files import atomic_file, atomic_folder, bring_back, move_aside, naming
from safemil.locks import Lock
from safemil.ownership import ASIDE, Kind, is_free
from safemil.settings import to_toml
from safemil.texts import read_json, read_toml

FORMAT = 3  # of the folder; a change that older versions can't read, or that can't read older ones, raises it
READ = (2, 3)  # formats that this version reads; 2 has larger checkpoints
CONFIG, MANIFEST, SOURCES = "config.toml", "manifest.json", "data.json"
AHEAD = "ahead.safetensors"
KEPT = 2  # checkpoints: if the newest is damaged, the one before it is used
PILES = ("unlabeled", "nonpreferred", "preferred")


@dataclasses.dataclass(frozen=True)
class Config:
    """Content of config.toml."""

    format: int
    algorithm: str
    seeds: list[Natural]
    settings: dict[str, Any]


@dataclasses.dataclass(frozen=True)
class Sources:
    """Content of data.json: where the piles were read from, and how."""

    paths: dict[str, list[str]]
    options: dict[str, Any]


def _several(paths: Paths) -> Sequence[str | os.PathLike[str]]:
    return [paths] if isinstance(paths, str | os.PathLike) else paths


class Checkpoint(NamedTuple):
    update: int  # number of updates done
    arrays: dict[str, np.ndarray]


class RunDirectory:
    """A training run on disk. Nothing in it is ever executed, so a run of unknown origin is safe to load."""

    def __init__(self, path: str | os.PathLike[str]):
        self.path = Path(path)
        self._lock: Lock | None = None
        self._before: Path | None = None  # run that this one replaces, until this one has a checkpoint

    @property
    def checkpoints(self) -> Path:
        return self.path / "checkpoints"

    @property
    def metrics_file(self) -> Path:
        return self.path / "metrics.jsonl"

    def create(
        self, config: Mapping[str, Any], manifest: Mapping[str, object], *, overwrite: bool = False
    ) -> None:
        """Make the folder with config and manifest, and lock it; a run is overwritten only if asked for."""
        if self.path.exists() and not self.path.is_dir():
            raise InputError(f"{self.path} is a file; a run needs a folder.")
        if not is_free(self.path):
            self._check_overwrite(overwrite)
        before = Lock(self.path) if self.path.exists() else None
        try:
            if before is not None and not is_free(self.path):
                with naming(self.path):
                    self._before = move_aside(self.path)
                before.folder = self._before / ASIDE
            with atomic_folder(self.path, RUN) as folder:
                new = RunDirectory(folder)
                new.checkpoints.mkdir()
                new.write_manifest(manifest)
                new.write_config(config)
                self._lock = Lock(folder)
            self._lock.folder = self.path
        except BaseException:
            self.unlock()
            if before is not None:
                before.folder = self.path
            raise
        finally:
            if before is not None:
                before.release()

    def lock(self) -> None:
        """Refuse to go on if another process writes the run, and keep others from writing it."""
        self._lock = Lock(self.path)

    def unlock(self) -> None:
        """Let other processes write the run; bring back the one before it if this one has no checkpoint."""
        if self._before is not None:
            bring_back(self._before, self.path)
            self._before = None
        if self._lock is not None:
            self._lock.release()

    def _check_overwrite(self, overwrite: bool) -> None:
        try:
            self.read_config()
            if not _is_run(self.path):
                raise InputError(f"its {MANIFEST} does not name the version of safemil that wrote it.")
        except InputError as error:
            raise InputError(
                f"{self.path} is not empty, and is not a run that can be resumed or overwritten; choose "
                f"another folder. ({error})"
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
            file.write_text(f"{to_toml(header)}\n[settings]\n{to_toml(config['settings'])}", encoding="utf-8")

    def read_config(self) -> dict[str, Any]:
        """Read what `write_config` wrote, or say why the folder is not a run that this version can read."""
        path = self.path / CONFIG
        if not path.is_file():
            raise InputError(f"{self.path} is not a run: it has no {CONFIG}; give a folder that train wrote.")
        try:
            found = read_toml(path)
        except InputError as error:
            raise InputError(f"{error} Train again, or restore the file.") from None
        form = found.get("format")
        if form not in READ:
            has = "names no format" if form is None else f"is of format {form}"
            known = " and ".join(map(str, READ))
            raise InputError(
                f"{path} {has}, but this version of safemil reads run folders of format {known}; train "
                f"again, or use the version of safemil that wrote the folder (see its {MANIFEST})."
            )
        try:
            return {name: value for name, value in vars(fit("", found, Config)).items() if name != "format"}
        except InputError as error:
            raise InputError(f"{path} is damaged: {error} Train again, or restore the file.") from None

    def write_manifest(self, manifest: Mapping[str, object]) -> None:
        self.write_json(MANIFEST, manifest)

    def read_manifest(self) -> dict[str, Any]:
        """Read what `write_manifest` wrote."""
        path = self.path / MANIFEST
        if not path.exists():
            raise InputError(f"{self.path} is not a run: it has no {MANIFEST}.")
        return fit(str(path), read_json(path), dict[str, Any])

    def note_sources(self, paths: Mapping[str, Paths], options: Options) -> None:
        """Write where the piles were read from, relative to the run, so that both can be moved together."""
        here = self.path.resolve()
        noted = {
            name: [os.path.relpath(Path(path).resolve(), here) for path in _several(given)]
            for name, given in paths.items()
        }
        self.write_json(SOURCES, {"paths": noted, "options": options.to_dict()})

    def read_sources(self) -> tuple[dict[str, list[Path]], Options]:
        """Read what `note_sources` wrote: the paths of each pile, and how to read them."""
        self.read_config()  # a folder that is not a run is refused first
        which = "give the folder of both piles, or `unlabeled=...` (and `nonpreferred=...`)"
        if not (self.path / SOURCES).exists():
            raise InputError(f"{self.path} does not say where its episodes are; {which}.")
        try:
            found: Sources = fit("", read_json(self.path / SOURCES), Sources)
            if "unlabeled" not in found.paths or not set(found.paths) <= set(PILES):
                raise InputError(f"paths must name {', '.join(PILES)}, got {sorted(found.paths)}.")
            options = Options.from_dict(found.options)
        except InputError as error:
            raise InputError(f"{self.path / SOURCES} is damaged: {error} Delete it and {which}.") from None
        paths = {name: [self.path / path for path in given] for name, given in found.paths.items()}
        for name, path in ((name, path) for name, given in paths.items() for path in given):
            if not path.exists() and not glob.has_magic(str(path)):
                raise InputError(f"the {name} episodes of {self.path} are no longer at {path}; {which}.")
        return paths, options

    def require_learned(self, name: str, content_hash: str) -> None:
        """Refuse episodes that data.json names, unless the run was trained on them.

        Whoever made the run wrote data.json, and could name any file of this machine there.
        """
        if self.read_manifest().get(f"{name}_sha256") != content_hash:
            raise InputError(
                f"the {name} episodes that {self.path / SOURCES} names are not those that the run was "
                "trained on; give their path by `unlabeled=...` (and `nonpreferred=...`) to read them."
            )

    def write_json(self, name: str, content: Mapping[str, object]) -> Path:
        path = self.path / name
        with atomic_file(path) as file:
            file.write_text(json.dumps(content, indent=2) + "\n")
        return path

    def append_metrics(self, line: Mapping[str, object]) -> None:
        with naming(self.metrics_file), open(self.metrics_file, "a") as file:
            file.write(json.dumps(line) + "\n")

    def read_metrics(self) -> list[dict[str, Any]]:
        """Read every complete line; a line cut off by a kill is left out, a damaged one with a warning."""
        if not self.metrics_file.is_file():
            return []
        content = self.metrics_file.read_bytes().decode(errors="replace")
        lines = content.split("\n")[:-1]  # text after the last newline is incomplete
        read = [_metrics(line) for line in lines]
        if bad := [number for number, line in enumerate(read, 1) if line is None]:
            warnings.warn(
                f"{self.metrics_file}: {len(bad)} damaged lines are left out (first: line {bad[0]}).",
                InputWarning,
                stacklevel=3,
            )
        return [line for line in read if line is not None]

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
        if self._before is not None:
            shutil.rmtree(self._before, ignore_errors=True)
            self._before = None
        for old in sorted(self.checkpoints.glob("*.json"))[:-KEPT]:
            old.unlink()
            old.with_suffix(".safetensors").unlink(missing_ok=True)

    def save_ahead(self, arrays: dict[str, np.ndarray]) -> None:
        """Write the networks of the risk of what follows."""
        with atomic_file(self.path / AHEAD) as file:
            file.write_bytes(save(arrays))

    def read_ahead(self) -> dict[str, np.ndarray] | None:
        """Read what `save_ahead` wrote; None if there is nothing."""
        path = self.path / AHEAD
        if not path.is_file():
            return None
        try:
            return load(path.read_bytes())
        except (SafetensorError, ValueError) as error:
            raise InputError(f"{path} is damaged ({error}); delete it, and learn it again.") from None

    def latest_checkpoint(self) -> Checkpoint | None:
        """Return the newest intact checkpoint; a damaged one is skipped with a warning."""
        return next(self._from_newest(), None)

    def _from_newest(self) -> Iterator[Checkpoint]:
        for card in sorted(self.checkpoints.glob("*.json"), reverse=True):
            try:
                yield _read_checkpoint(card)
            except (OSError, ValueError, SafetensorError) as error:
                warnings.warn(
                    f"checkpoint {card.with_suffix('')} is damaged ({error}); using the one before it.",
                    InputWarning,
                    stacklevel=4,
                )


@dataclasses.dataclass(frozen=True)
class _Card:
    """Content of the JSON file of a checkpoint."""

    update: Natural
    sha256: str


def _read_checkpoint(card: Path) -> Checkpoint:
    content: _Card = fit("", read_json(card), _Card)
    path = card.with_suffix(".safetensors")
    if not path.is_file():
        raise InputError(f"{path} is missing")
    arrays = path.read_bytes()
    if hashlib.sha256(arrays).hexdigest() != content.sha256:
        raise ValueError("its content hash does not match")
    return Checkpoint(content.update, load(arrays))


def _metrics(line: str) -> dict[str, Any] | None:
    """Read a line of metrics; None if it is damaged."""
    try:
        found: dict[str, Any] = json.loads(line)
        fit("", found, dict[str, float | list[float | list[float | None] | None]])
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found.get("update"), int) and "seconds" in found else None


def _is_run(path: Path) -> bool:
    """Whether a folder is a run, by the content of its config and its manifest."""
    try:
        RunDirectory(path).read_config()
        return isinstance(RunDirectory(path).read_manifest().get("safemil"), str)
    except InputError:
        return False


RUN = Kind(CONFIG, _is_run)
