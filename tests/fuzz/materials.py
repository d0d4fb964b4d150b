"""Valid inputs of every kind, small, made once; a case of the fuzzing damages a copy of one of them."""

import json
from pathlib import Path

import numpy as np
from foreign_materials import build_foreign

from safemil.bench.cell import write_result
from safemil.bench.grid import read_grid
from safemil.cli import main
from safemil.data import Annotations, Trajectories, save

RECORDINGS = Path(__file__).parents[1] / "tasks" / "recordings"
SMALL = ["updates=20", "cost_updates=10", "bag_size=4", "pool=4", "length=4", "policy_batch=4", "batch=4"]
SMALL += ["hidden_cost=[4]", "hidden_policy=[4]"]
GRID = """
title = "Small"
seeds = 1
reference = "bc"
[evaluation]
episodes = 3
[data]
nonpreferred = 2
unlabeled = 4
sources = {"toy:speed" = "toy:speed"}
[families.generated]
tasks = ["toy:speed"]
settings.bc.updates = 20
[studies.performance]
title = "Performance"
algorithms = ["random", "bc", "safemil"]
[studies.bag-size]
title = "Bags"
tasks = ["toy:speed"]
vary.bag_size = [1, 8]
"""


def build(folder: Path) -> None:
    """Write logs in every format, two runs, results with their grid, and a recording."""
    build_untrained(folder)
    _train(folder, "safemil", ["--nonpreferred", str(folder / "incidents")])
    _train(folder, "bc", ["--seeds", "2"])
    run, pile = str(folder / "safemil"), str(folder / "logs")
    assert main(["export", run, "--unlabeled", pile, "--out", str(folder / "policy.safetensors")]) == 0
    out = str(folder / "guard.json")
    assert main(["guard", run, "--calm", pile, "--alpha", "0.5", "--out", out]) == 0
    for name in ("safemil", "bc"):
        assert main(["evaluate", str(folder / name), "--task", "toy:speed", "--episodes", "2"]) == 0


def build_untrained(folder: Path) -> None:
    """Write all but the runs, which take longer than the rest."""
    _results(folder / "results")
    build_foreign(folder)
    _recording(folder / "SafetySwimmerVelocity-v1.npz")
    incidents, _ = episodes(["bad 1", "bad 2", "bad 3"], 1)
    logs, truth = episodes([f"trip {i}" for i in range(6)], 2)
    for name in ("logs.parquet", "logs.csv", "logs.hdf5", "logs"):
        save(folder / name, logs, truth)
    save(folder / "incidents", incidents)


def episodes(ids: list[str], seed: int) -> tuple[Trajectories, Annotations]:
    """Walks of 5 to 8 steps with the columns of toy:speed; actions are recorded between -2 and 2."""
    rng = np.random.default_rng(seed)
    lengths = rng.integers(5, 9, len(ids))
    steps = int(lengths.sum())
    observations = rng.normal(size=(steps, 4)).astype(np.float32)
    held = Trajectories(
        observations,
        rng.uniform(-1, 1, (steps, 2)),
        lengths,
        final_observations=rng.normal(size=(len(ids), 4)),
        action_low=[-2, -2],
        action_high=[2, 2],
        ids=ids,
    )
    return held, Annotations(np.ones(steps), observations[:, 0] > 1)


def _train(folder: Path, algorithm: str, extra: list[str]) -> None:
    own = SMALL if algorithm == "safemil" else ["updates=20", "hidden_policy=[4]", "batch=4"]
    settings = [f"--set={each}" for each in own]
    logs = ["--unlabeled", str(folder / "logs"), *extra]
    code = main(["train", algorithm, *logs, *settings, "--log-every=10", "--out", str(folder / algorithm)])
    assert code == 0, f"training {algorithm} for the materials of the fuzzing ended with {code}"


def _results(folder: Path) -> None:
    folder.mkdir()
    (folder / "grid.toml").write_text(GRID)
    rng = np.random.default_rng(0)
    for cell in read_grid(folder / "grid.toml").cells():
        write_result(
            folder,
            cell,
            {
                "cell": json.loads(json.dumps(cell.to_json())),
                "data_sha256": {"unlabeled": "0" * 64},
                "returns": rng.normal(10, 1, 3).tolist(),
                "costs": rng.uniform(0, 5, 3).tolist(),
                "curve": [{"update": 10, "return": 1.0, "cost": 2.0}],
                "seconds": {"train": 1.5},
            },
        )


def _recording(path: Path) -> None:
    """Keep the first reset of a recording and its first rows."""
    with np.load(RECORDINGS / path.name) as archive:
        whole = {name: archive[name] for name in archive.files if not name.startswith("model_")}
    count = len(whole["reward"])
    rows = np.flatnonzero(whole["reset_id"] == 0)[:4]
    kept = {
        name: values[rows] if values.ndim and len(values) == count else values[:1] if values.ndim else values
        for name, values in whole.items()
    }
    np.savez(path, **kept)
