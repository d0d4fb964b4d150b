"""Speed and memory of reading logs, beside the plain read of the same columns by pyarrow or h5py.

python benchmarks/reading.py [ROWS]

Each read runs in a process of its own. `speed` is the plain read's time divided by ours (0.5 or more is the
aim); `memory` is the growth of the peak, divided by the size of the arrays (2.5 or less is the aim).
"""

import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import h5py
import numpy as np
import pyarrow.csv
import pyarrow.parquet

from safemil.data import Trajectories, load, save

OBSERVED, ACTED, LENGTH, REPEATS = 18, 2, 500, 3


def write(folder: Path, rows: int) -> list[Path]:
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
    columns = pyarrow.csv.read_csv(folder / "log.csv")
    pyarrow.parquet.write_table(columns, folder / "columns.parquet")
    return [folder / name for name in ("columns.parquet", "log.parquet", "log.csv", "log.hdf5")]


def plain(path: Path) -> None:
    """Read all columns with the library that knows the format."""
    if path.suffix == ".parquet":
        pyarrow.parquet.read_table(path)
    elif path.suffix == ".csv":
        pyarrow.csv.read_csv(path)
    else:
        with h5py.File(path) as file:
            [file[name][()] for name in ("observations", "actions", "terminals", "timeouts")]


def measure(how: str, path: Path) -> None:
    """Print seconds and the growth of the peak in bytes."""
    before, started = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.perf_counter()
    plain(path) if how == "plain" else load(path)
    seconds = time.perf_counter() - started
    print(seconds, (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024)


def measured(how: str, path: Path) -> tuple[float, float]:
    """Least seconds and least growth of several runs."""
    command = [sys.executable, __file__, how, str(path)]
    runs = [subprocess.run(command, capture_output=True, text=True, check=True) for _ in range(REPEATS)]
    seconds, growth = zip(*([float(each) for each in run.stdout.split()] for run in runs), strict=True)
    return min(seconds), min(growth)


def main(rows: int) -> None:
    size = rows * (OBSERVED + ACTED) * 4
    print(f"{rows:,} steps of {OBSERVED} + {ACTED} columns, arrays of {size / 2**20:.0f} MB")
    print(f"{'file':18} {'plain s':>8} {'ours s':>8} {'speed':>6} {'memory':>7}")
    with tempfile.TemporaryDirectory() as folder:
        for path in write(Path(folder), rows):
            theirs, (seconds, growth) = measured("plain", path)[0], measured("ours", path)
            print(f"{path.name:18} {theirs:8.2f} {seconds:8.2f} {theirs / seconds:6.2f} {growth / size:7.2f}")


if __name__ == "__main__":
    if len(sys.argv) == 3:
        measure(sys.argv[1], Path(sys.argv[2]))
    else:
        main(int(sys.argv[1]) if len(sys.argv) == 2 else 1_000_000)
