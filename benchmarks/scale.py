"""Time and peak memory of logs of millions of steps, each stage in a process of its own.

    python benchmarks/scale.py --steps 1000000 10000000 --folder /tmp/scale

A log of 38 columns is written once per size, then read plainly with pyarrow, converted, described, trained on
(the whole fast preset), scored and reported on. Finished stages are kept in FOLDER/results.json and not run
again; files of a size are deleted after its last stage.
"""

import argparse
import json
import resource
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

LENGTH, OBSERVED, ACTED = 1000, 36, 2
FILES = 8
INCIDENTS = 50
STAGES = ("read", "convert", "info", "train", "score", "report")


def episodes(count: int, first: int, *, bad: bool, seed: int) -> pa.Table:
    """Walks in which bad episodes have a shifted first column."""
    rng = np.random.default_rng(seed)
    rows = count * LENGTH
    columns: dict[str, Any] = {
        "episode": np.repeat(np.arange(first, first + count), LENGTH),
        "step": np.tile(np.arange(LENGTH), count),
    }
    shift = np.repeat(rng.random(count) < (1.0 if bad else 0.3), LENGTH)
    for i in range(OBSERVED):
        values = rng.standard_normal(rows, np.float32)
        columns[f"obs_{i}"] = values + (shift if i == 0 else np.float32(0))
    for i in range(ACTED):
        columns[f"act_{i}"] = np.tanh(columns[f"obs_{i}"]) * np.float32(0.9)
    return pa.table(columns)


def write(folder: Path, steps: int) -> None:
    logs = folder / "logs"
    logs.mkdir(parents=True, exist_ok=True)
    pq.write_table(episodes(INCIDENTS, 0, bad=True, seed=1), folder / "incidents.parquet")
    each = steps // LENGTH // FILES
    for number in range(FILES):
        target = logs / f"{number}.parquet"
        if target.exists():
            continue
        with pq.ParquetWriter(folder / "part", episodes(1, 0, bad=False, seed=0).schema) as writer:
            for begin in range(0, each, 100):
                count = min(100, each - begin)
                first = number * each + begin
                writer.write_table(episodes(count, first, bad=False, seed=2 + first))
        (folder / "part").rename(target)


def command(stage: str, folder: Path) -> list[str]:
    logs, store, run = (str(folder / name) for name in ("logs", "store", "run"))
    return {
        "read": ["read", logs],
        "convert": ["data", "convert", logs, store, "--shards", "64", "--overwrite"],
        "info": ["data", "info", store],
        "train": [
            "train", "safemil", "--nonpreferred", str(folder / "incidents.parquet"), "--unlabeled", store,
            "--out", run, "--overwrite",
        ],
        "score": ["score", run, f"{logs}/*.parquet", "--out", str(folder / "risk")],
        "report": ["report", run, "--out", str(folder / "report.html"), "--overwrite"],
    }[stage]  # fmt: skip


def run_stage(arguments: list[str]) -> None:
    """Run a command in this process; print seconds, peak memory with and without mapped files."""
    began = time.monotonic()
    if arguments[0] == "read":
        for path in sorted(Path(arguments[1]).glob("*.parquet")):
            for batch in pq.ParquetFile(path).iter_batches(65536):
                del batch
        code = 0
    else:
        from safemil.cli import main

        code = main(arguments)
    usage = resource.getrusage(resource.RUSAGE_SELF), resource.getrusage(resource.RUSAGE_CHILDREN)
    peak = sum(each.ru_maxrss for each in usage) * 1024
    print("RESULT" + json.dumps({"code": code, "seconds": time.monotonic() - began, "peak": peak}))


def measure(stage: str, folder: Path) -> dict[str, float]:
    done = subprocess.run(
        [sys.executable, __file__, "--stage", json.dumps(command(stage, folder))],
        capture_output=True,
        text=True,
        check=False,
    )
    lines = [line for line in done.stdout.splitlines() if line.startswith("RESULT")]
    if not lines:
        raise SystemExit(f"{stage} failed:\n{done.stdout[-2000:]}\n{done.stderr[-4000:]}")
    found: dict[str, float] = json.loads(lines[-1].removeprefix("RESULT"))
    if found["code"]:
        print(done.stdout[-2000:], done.stderr[-2000:])
    sizes = [each.stat().st_size for each in (folder / "run").glob("checkpoints/*.safetensors")]
    return found | ({"checkpoint": max(sizes)} if stage == "train" and sizes else {})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--steps", type=int, nargs="+", default=[1_000_000, 10_000_000, 30_000_000])
    parser.add_argument("--stages", nargs="+", default=list(STAGES), choices=STAGES)
    parser.add_argument("--folder", type=Path, default=Path("/tmp/safemil-scale"))
    parser.add_argument("--keep", action="store_true", help="keep the files of each size")
    parser.add_argument("--stage", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.stage:
        run_stage(json.loads(given.stage))
        return
    results = given.folder / "results.json"
    for steps in given.steps:
        folder = given.folder / str(steps)
        for stage in given.stages:
            found = json.loads(results.read_text()) if results.exists() else {}
            if stage in found.get(str(steps), {}):
                continue
            write(folder, steps)
            found.setdefault(str(steps), {})[stage] = measure(stage, folder)
            results.write_text(json.dumps(found, indent=2) + "\n")
            print(steps, stage, found[str(steps)][stage], flush=True)
        if not given.keep:
            shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
