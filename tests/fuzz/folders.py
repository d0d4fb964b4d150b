"""Cases of runs, grids, results, recordings and settings."""

import hashlib
import json
import os
import shutil
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import hostile
import numpy as np
from case import Case, command, require
from materials import GRID, SMALL
from safetensors import SafetensorError
from safetensors.numpy import load, save

from safemil.algorithms import available, find
from safemil.api import Run, configure
from safemil.bench.grid import make_grid, read_grid
from safemil.data import formats
from safemil.settings import parse_assignments
from safemil.texts import read_toml


def run(case: Case) -> None:
    """A run folder with one file changed, used by every command that reads runs."""
    algorithm = case.rng.choice(["safemil", "safemil", "bc"])
    path = case.folder / "run"
    shutil.copytree(case.materials / algorithm, path)
    for _ in range(case.rng.choice([1, 1, 1, 2])):
        _damage_run(case, path)
    _use_run(case, path)


def _damage_run(case: Case, path: Path) -> None:
    rng = case.rng
    file = rng.choice([each for each in sorted(path.rglob("*")) if each.is_file()])
    if rng.random() < 0.06:
        _replace_by_another_thing(case, file)
    elif file.suffix == ".json":
        content = hostile.damaged_document(_document(file), rng, case.values)
        file.write_bytes(hostile.json_text(content, rng))
    elif file.suffix == ".jsonl":
        lines = file.read_text(errors="replace").splitlines() or [""]
        at = rng.randrange(len(lines))
        content = hostile.damaged_document(_parsed(lines[at]), rng, case.values)
        changed = [line.encode() for line in lines]
        changed[at] = rng.choice([hostile.json_text(content, rng), b"", b"{}", b"[]", b"null", b"\xff\xfe"])
        file.write_bytes(b"\n".join(changed) + b"\n")
    elif file.suffix == ".toml":
        content = hostile.damaged_document(_settings_in(file), rng, case.values)
        file.write_bytes(hostile.toml_text(content, rng))
    elif file.suffix == ".safetensors" and rng.random() < 0.8:
        _damage_checkpoint(case, file)
    else:
        file.write_bytes(hostile.damaged_bytes(file.read_bytes(), rng))


def _document(file: Path) -> Any:
    return _parsed(file.read_bytes())


def _settings_in(file: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(file.read_text())
    except (ValueError, RecursionError):  # it was damaged before
        return {"x": 1}


def _parsed(text: str | bytes) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):  # it was damaged before
        return {"x": 1}


def _damage_checkpoint(case: Case, file: Path) -> None:
    """Change arrays of a checkpoint, and note their hash as if nothing had happened."""
    rng = case.rng
    try:
        arrays = load(file.read_bytes())
    except SafetensorError:  # it was damaged before
        return
    name = rng.choice(sorted(arrays))
    old = arrays[name]
    makers: list[Callable[[], Any]] = [
        lambda: old.ravel()[:-1],
        lambda: old[None],
        lambda: old.reshape(-1),
        lambda: np.zeros_like(old),
        lambda: np.full(old.shape, rng.choice([np.nan, np.inf, 1e30]), np.float32),
        lambda: old.astype(rng.choice(["f2", "f8", "i4", "i8", "u1", "?"])),
        lambda: np.concatenate([old, old]) if old.ndim else old[None],
        lambda: np.zeros((0, 3), np.float32),
        lambda: None,
    ]
    with np.errstate(all="ignore"):
        made = rng.choice(makers)()
    arrays = {key: value for key, value in arrays.items() if key != name or made is not None}
    if made is not None:
        arrays[name] = np.ascontiguousarray(made)
    if rng.random() < 0.1:
        arrays[rng.choice(hostile.TEXTS[:12])] = np.zeros(3)
    try:
        content = save(arrays)
    except (SafetensorError, UnicodeEncodeError):
        return
    file.write_bytes(content)
    card = file.with_suffix(".json")
    held = _document(card) if card.is_file() else None
    noted = {**(held if isinstance(held, dict) else {}), "sha256": hashlib.sha256(content).hexdigest()}
    card.write_text(json.dumps(noted))


def _replace_by_another_thing(case: Case, file: Path) -> None:
    """A folder, a named pipe, a link to nowhere or to itself, or nothing, in place of a file."""
    file.unlink()
    makers: list[Callable[[], Any]] = [
        lambda: file.mkdir(),
        lambda: os.mkfifo(file),
        lambda: file.symlink_to("nowhere"),
        lambda: file.symlink_to(file.name),
        lambda: file.symlink_to("/dev/zero"),
        lambda: file.write_bytes(b""),
        lambda: None,
    ]
    case.rng.choice(makers)()


def _use_run(case: Case, path: Path) -> None:
    rng, logs = case.rng, case.materials / "logs.parquet"
    kind = rng.random()
    if kind < 0.35:
        loaded = Run.load(path)
        held = formats.load(logs)
        if loaded.learns_cost:
            costs = loaded.cost(held)
            require(all(np.isfinite(each).all() for each in costs), "the cost is not finite")
            require(all(((each >= 0) & (each <= 1)).all() for each in costs), "the cost is outside of [0, 1]")
        action = loaded[0].act(held.observations[0])
        require(np.isfinite(action).all(), "the action is not finite")
    elif kind < 0.6:
        out = case.folder / rng.choice(["risk.csv", "risk.parquet"])
        code = command(case, "score", path, logs, "--out", out)
        require(out.exists() == (code == 0), f"exit code {code}, but the file says otherwise")
    elif kind < 0.75:
        command(case, "evidence", path, *rng.choice([[], ["--json"]]))
    elif kind < 0.9:
        given = rng.choice([[], ["--unlabeled", logs]])
        command(case, "report", path, *given, "--out", case.folder / "page.html")
    elif kind < 0.96:
        command(case, "evaluate", path, "--task", "toy:speed", "--episodes", 2)
    else:
        settings = [f"--set={each}" for each in ("updates=20", "hidden_policy=[4]", "batch=4")]
        piles = ["--unlabeled", case.materials / "logs", "--seeds", 2]
        command(case, "train", "bc", *piles, *settings, "--log-every=10", "--out", path, "--resume")


def grid(case: Case) -> None:
    """A grid file with changed content: read, and every name in it made into a file name."""
    content = hostile.damaged_document(tomllib.loads(GRID), case.rng, case.values)
    path = case.folder / "grid.toml"
    path.write_bytes(hostile.toml_text(content, case.rng))
    found = read_grid(path) if case.rng.random() < 0.9 else make_grid(content)
    for cell in found.cells():
        require(Path(cell.name).name == cell.name, f"the cell {cell.name!r} would leave its folder")
        require(len(cell.name) < 250, "the name of a cell is too long for a file")
        require(cell.seed >= 0, "a seed is negative")
    for study in found.studies:
        require(Path(study.name).name == study.name, f"the study {study.name!r} would leave its folder")


def results(case: Case) -> None:
    """Results of a benchmark with a changed cell or grid, as tables and as a page."""
    path = case.folder / "results"
    shutil.copytree(case.materials / "results", path)
    rng = case.rng
    if rng.random() < 0.75:
        file = rng.choice(sorted((path / "cells").iterdir()))
        if rng.random() < 0.05:
            _replace_by_another_thing(case, file)
        else:
            content = hostile.damaged_document(json.loads(file.read_text()), rng, case.values)
            file.write_bytes(hostile.json_text(content, rng))
    else:
        content = hostile.damaged_document(tomllib.loads(GRID), rng, case.values)
        (path / "grid.toml").write_bytes(hostile.toml_text(content, rng))
    before = {each for each in case.folder.rglob("*")}
    if rng.random() < 0.6:
        from safemil.bench.page import build
        from safemil.bench.results import Results

        page = build(Results(path))
        for section in page.sections:
            for part in section.parts:
                require(Path(part.name).name == part.name, f"{part.name!r} would leave its folder")
                for row in part.table.rows:
                    require(all("nan" not in str(cell) for cell in row), "a table shows NaN")
    elif rng.random() < 0.1:  # seldom, since drawing the figures takes seconds
        command(case, "tables", path, "--out", case.folder / "page.md")
    else:
        command(case, "report", path, "--out", case.folder / "page.html")
    allowed = ("page", "page.md", "page.html")
    new = {each for each in case.folder.rglob("*")} - before
    require(
        all(each.relative_to(case.folder).parts[0] in allowed for each in new), "a file was written elsewhere"
    )


def recording(case: Case) -> None:
    """A recording with changed arrays."""
    rng = case.rng
    source = case.materials / "SafetySwimmerVelocity-v1.npz"
    path = case.folder / source.name
    if rng.random() < 0.25:
        path.write_bytes(hostile.damaged_bytes(source.read_bytes(), rng))
    else:
        with np.load(source) as archive:
            arrays = {name: archive[name] for name in archive.files}
        for _ in range(rng.choice([1, 1, 2])):
            _damage_recording(case, arrays)
        np.savez(path, **arrays)
    command(case, "tasks", "verify", path)


def _damage_recording(case: Case, arrays: dict[str, Any]) -> None:
    rng = case.rng
    name = rng.choice(sorted(arrays))
    old = arrays[name]
    meta = hostile.damaged_document({"task": "SafetySwimmerVelocity-v1", "x": [1]}, rng, case.values)
    makers: list[Callable[[], Any]] = [
        lambda: old[:-1] if old.ndim else old[None],
        lambda: old[:0] if old.ndim else old,
        lambda: old[..., None],
        lambda: old.ravel(),
        lambda: np.zeros(()),
        lambda: np.full(old.shape, rng.choice([np.nan, np.inf, -1.0, 1e300])),
        lambda: np.full(old.shape, rng.choice([-1, 10**6, 2**62])),
        lambda: np.full(old.shape, "text"),
        lambda: np.full(old.shape, b"bytes"),
        lambda: np.zeros(old.shape, "M8[s]"),
        lambda: np.zeros(old.shape, "c16"),
        lambda: np.zeros(old.shape, bool),
        lambda: np.broadcast_to(old, (3, *old.shape)),
    ]
    kind = rng.random()
    if kind < 0.1:
        del arrays[name]
    elif kind < 0.25:
        arrays["meta"] = np.array(hostile.json_text(meta, rng).decode("utf-8", "replace"))
    else:
        arrays[name] = rng.choice(makers)()


def settings(case: Case) -> None:
    """Settings from assignments, from a TOML file and from Python, of every algorithm."""
    rng = case.rng
    name = rng.choice(sorted(available()))
    preset = rng.choice(["fast", "paper", "fast", *hostile.TEXTS[:3]])
    fields = [each for each in vars(find(name).PRESETS["fast"])]
    chosen = {
        rng.choice([*fields, *fields, *hostile.TEXTS]): rng.choice(
            [
                rng.choice(case.values),
                rng.choice(hostile.NUMBERS),
                [rng.choice(hostile.NUMBERS)],
                "none",
                "full",
            ]
        )
        for _ in range(rng.choice([1, 1, 2]))
    }
    kind = rng.random()
    if kind < 0.4:
        given = parse_assignments([f"{key}={_spelled(value, rng)}" for key, value in chosen.items()])
    elif kind < 0.8:
        path = case.folder / "settings.toml"
        path.write_bytes(hostile.toml_text(chosen, rng))
        given = read_toml(path)
    else:
        given = dict(chosen)
    _, config = configure(name, preset, given)
    for field, value in vars(config).items():
        numbers = value if isinstance(value, tuple) else (value,)
        require(
            all(not isinstance(each, float) or np.isfinite(each) for each in numbers), f"{field} = {value!r}"
        )
        if field.startswith("hidden"):
            require(all(each > 0 for each in numbers), f"{field} = {value!r}")


def _spelled(value: Any, rng: Any) -> str:
    return rng.choice([str(value), json.dumps(value, default=str), "[" * 2000 + "]" * 2000])


def training(case: Case) -> None:
    """Training with settings that are accepted: it ends well, or says what is wrong."""
    rng = case.rng
    names = [each.partition("=")[0] for each in SMALL if "updates" not in each] + [
        "lr_policy",
        "lr_cost",
        "beta",
        "weight_decay",
    ]
    value = rng.choice(
        ["0", "-1", "1", "1e30", "1e-30", "inf", "nan", "1000000000", "[]", "[0]", "[-1]", "true"]
    )
    changed = f"--set={rng.choice(names)}={value}"
    out = case.folder / "run"
    small = [f"--set={each}" for each in ("updates=20", "hidden_policy=[4]", "batch=4")]
    code = command(case, "train", "bc", "--unlabeled", case.materials / "logs", *small, changed, "--out", out)
    if code == 0:
        action = Run.load(out).act(np.zeros(4, np.float32))
        require(np.isfinite(action).all(), f"{changed} gives a policy whose actions are not finite")


KINDS = [run, run, run, run, grid, grid, results, results, recording, settings, settings]
