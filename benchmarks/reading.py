"""Speed and memory of reading logs, beside the plain read of the same columns by pyarrow or h5py.

python benchmarks/reading.py [ROWS]

Each read runs in a process of its own. `speed` is the plain read's time divided by ours (0.5 or more is the
aim), and `cpu` the same for the time on all cores, which says more on a machine with other work; `memory` is
the growth of the peak, divided by the size of the arrays (2.5 or less is the aim).
"""

import json
import os
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.dataset
import pyarrow.parquet as pq

from safemil.data import Trajectories, load, save

OBSERVED, ACTED, LENGTH, REPEATS = 18, 2, 500, 3
KEYS = ("observations", "actions", "rewards", "terminations")  # of an episode of Minari that are read
LEROBOT = ("observation.state", "action", "next.reward", "episode_index", "frame_index")


def write(folder: Path, rows: int) -> list[tuple[str, Path]]:
    """Write the same episodes in each format."""
    rng = np.random.default_rng(0)
    held = Trajectories(
        rng.normal(size=(rows, OBSERVED)),
        rng.uniform(-1, 1, (rows, ACTED)),
        np.full(rows // LENGTH, LENGTH),
    )
    save(folder / "log.parquet", held)
    save(folder / "log.csv", held)
    save(folder / "log.hdf5", held)
    pq.write_table(pyarrow.csv.read_csv(folder / "log.csv"), folder / "columns.parquet")
    shuffled = pq.read_table(folder / "columns.parquet").take(rng.permutation(rows))
    pq.write_table(shuffled, folder / "shuffled.parquet")
    _write_lerobot(folder / "lerobot21", held, "v2.1")
    _write_lerobot(folder / "lerobot30", held, "v3.0")
    for storage in ("hdf5", "arrow"):
        _write_minari(folder, held, storage)
    return [
        ("Parquet, a column each", folder / "columns.parquet"),
        ("the same, rows shuffled", folder / "shuffled.parquet"),
        ("Parquet, lists", folder / "log.parquet"),
        ("CSV", folder / "log.csv"),
        ("HDF5", folder / "log.hdf5"),
        ("LeRobot v2.1", folder / "lerobot21"),
        ("LeRobot v3.0", folder / "lerobot30"),
        ("Minari, HDF5", folder / "minari-hdf5"),
        ("Minari, Arrow", folder / "minari-arrow"),
    ]


def _write_lerobot(folder: Path, held: Trajectories, version: str) -> None:
    """Write a dataset as LeRobot lays it out: a file per episode in v2.1, all episodes in one in v3.0."""
    new = version == "v3.0"
    numbers = np.repeat(np.arange(len(held)), held.lengths)
    sizes = {"observation.state": OBSERVED, "action": ACTED}
    matrices = {"observation.state": held.observations, "action": held.actions}
    columns: dict[str, Any] = {
        name: pa.FixedSizeListArray.from_arrays(matrices[name].ravel(), size) for name, size in sizes.items()
    }
    columns |= {
        "next.reward": pa.array(np.zeros(held.steps, np.float32)),
        "episode_index": pa.array(numbers),
        "frame_index": pa.array(held.step_numbers),
    }
    table = pa.table(columns)
    (folder / "meta" / "episodes" / "chunk-000").mkdir(parents=True)
    (folder / "data" / "chunk-000").mkdir(parents=True)
    episodes = [{"episode_index": i, "length": int(n), "tasks": ["go"]} for i, n in enumerate(held.lengths)]
    if new:
        pq.write_table(table, folder / "data" / "chunk-000" / "file-000.parquet")
        places = {"data/chunk_index": 0, "data/file_index": 0}
        listed = pa.Table.from_pylist([each | places for each in episodes])
        pq.write_table(listed, folder / "meta" / "episodes" / "chunk-000" / "file-000.parquet")
    else:
        for i, start in enumerate(held.starts.tolist()):
            rows = table.slice(start, int(held.lengths[i]))
            pq.write_table(rows, folder / "data" / "chunk-000" / f"episode_{i:06d}.parquet")
        lines = "".join(json.dumps(each) + "\n" for each in episodes)
        (folder / "meta" / "episodes.jsonl").write_text(lines)
    features = {name: {"dtype": "float32", "shape": [size], "names": None} for name, size in sizes.items()}
    features["next.reward"] = {"dtype": "float32", "shape": [1], "names": None}
    for name in ("episode_index", "frame_index"):
        features[name] = {"dtype": "int64", "shape": [1], "names": None}
    file = "file-{file_index:03d}" if new else "episode_{episode_index:06d}"
    chunk = "chunk-{chunk_index:03d}" if new else "chunk-{episode_chunk:03d}"
    info = {
        "codebase_version": version,
        "total_episodes": len(held),
        "total_frames": held.steps,
        "chunks_size": 10_000,
        "fps": 10,
        "data_path": f"data/{chunk}/{file}.parquet",
        "features": features,
    }
    (folder / "meta" / "info.json").write_text(json.dumps(info))


def _write_minari(folder: Path, held: Trajectories, storage: str) -> None:
    """Write a dataset with Minari itself."""
    os.environ["MINARI_DATASETS_PATH"] = str(folder)
    import minari
    from gymnasium.spaces import Box
    from minari.data_collector import EpisodeBuffer

    ends = [False] * (LENGTH - 1) + [True]
    buffers = [
        EpisodeBuffer(
            id=i,
            observations=np.concatenate([seen, seen[-1:]]),
            actions=done,
            rewards=[0.0] * LENGTH,
            terminations=[False] * LENGTH,
            truncations=ends,
        )
        for i, (seen, done) in enumerate(
            zip(held.by_episode(held.observations), held.by_episode(held.actions), strict=True)
        )
    ]
    about = dict.fromkeys(["algorithm_name", "author", "author_email", "code_permalink"], "none")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that no environment is recorded
        minari.create_dataset_from_buffers(
            f"minari-{storage}-v0",
            buffers,
            observation_space=Box(-np.inf, np.inf, (OBSERVED,)),
            action_space=Box(-1, 1, (ACTED,)),
            data_format=storage,
            description="none",
            **about,
        )
    (folder / f"minari-{storage}-v0").rename(folder / f"minari-{storage}")


def plain(path: Path) -> None:
    """Read the same columns with the library that knows the format."""
    name = path.name
    if path.suffix == ".parquet":
        pq.read_table(path)
    elif path.suffix == ".csv":
        pyarrow.csv.read_csv(path)
    elif path.suffix == ".hdf5":
        with h5py.File(path) as file:
            [file[name][()] for name in ("observations", "actions", "terminals", "timeouts")]
    elif name.startswith("lerobot"):
        files = sorted(map(str, path.glob("data/*/*.parquet")))
        pyarrow.dataset.dataset(files).to_table(columns=[*LEROBOT])
    elif name == "minari-hdf5":
        with h5py.File(path / "data" / "main_data.hdf5") as file:
            [file[episode][key][()] for episode in file for key in KEYS]
    else:
        for each in sorted((path / "data").glob("*/*.arrow")):
            with pa.OSFile(str(each)) as opened:  # a mapped file would not be read at all
                pa.ipc.open_file(opened).read_all().select([*KEYS])


def measure(how: Callable[[Path], object], path: Path) -> None:
    """Print seconds, seconds on all cores, and the growth of the peak in bytes."""
    before, started, on_cores = peak(), time.perf_counter(), time.process_time()
    how(path)
    print(time.perf_counter() - started, time.process_time() - on_cores, peak() - before)


def peak() -> int:
    """Most bytes that this process has held; `ru_maxrss` would count those of the process that started it."""
    status = Path("/proc/self/status").read_text()
    return int(status.split("VmHWM:")[1].split()[0]) * 1024


def measured(path: Path) -> tuple[list[float], list[float]]:
    """Least seconds, seconds on all cores and growth of the plain read, and of ours."""
    found: dict[str, list[list[float]]] = {"plain": [], "ours": []}
    for _ in range(REPEATS):
        for how, runs in found.items():
            command = [sys.executable, __file__, how, str(path)]
            run = subprocess.run(command, capture_output=True, text=True, check=True)
            runs.append([float(each) for each in run.stdout.split()])
    plainly, ours = ([*map(min, zip(*runs, strict=True))] for runs in found.values())
    return plainly, ours


def main(rows: int) -> None:
    size = rows * (OBSERVED + ACTED) * 4
    print(f"{rows:,} steps of {OBSERVED} + {ACTED} columns, arrays of {size / 2**20:.0f} MB\n")
    print("| file | plain s | ours s | speed | cpu | memory |\n|---|---|---|---|---|---|", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        for name, path in write(Path(folder), rows):
            theirs, ours = measured(path)
            ratios = f"{theirs[0] / ours[0]:.2f} | {theirs[1] / ours[1]:.2f} | {ours[2] / size:.1f}"
            print(f"| {name} | {theirs[0]:.2f} | {ours[0]:.2f} | {ratios} |", flush=True)


if __name__ == "__main__":
    if len(sys.argv) == 3:
        measure(plain if sys.argv[1] == "plain" else load, Path(sys.argv[2]))
    else:
        main(int(sys.argv[1]) if len(sys.argv) == 2 else 1_000_000)
