"""Learn from CSV logs with a few reported incidents: rank trips by risk, train a policy, write a report.

    python examples/incidents.py --folder incidents

The logs come from a robot that drives round a circle between walls (SafetyPointCircle2-v0); replace
`write_logs` by your own file. The only information about safety is a column `incident`, which somebody filled
in for some of the unsafe trips.
"""

import csv
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import tyro

import safemil
from safemil.behaviour.making import make
from safemil.cli import main as command
from safemil.data import Columns
from safemil.evaluation import evaluate

TASK = "SafetyPointCircle2-v0"
COLUMNS = Columns("trip", "tick", observation="obs_*", action="act_*")
READING = ["--episode", "trip", "--step", "tick", "--observation", "obs_*", "--action", "act_*"]


@dataclass(frozen=True)
class Settings:
    """Settings of the example."""

    folder: Path = Path("incidents")
    """Folder for logs, piles, run and report."""
    episodes: int = 240
    """Number of trips in the logs."""
    reported: int = 30
    """Number of unsafe trips that were reported as incidents."""
    updates: int = 10_000
    """Number of training updates."""
    seed: int = 0
    """Random seed of logs, reports and training."""


def write_logs(path: Path, settings: Settings) -> None:
    """Write logs as a robot would; some trips with many wall crossings are reported as incidents."""
    trips, truth, _ = make(TASK, episodes=settings.episodes, seed=settings.seed)
    _, crossings = truth.episode_sums(trips.lengths)
    unsafe = np.flatnonzero(crossings > np.quantile(crossings, 0.6))
    draw = np.random.default_rng(settings.seed)
    reported = set(draw.choice(unsafe, settings.reported, replace=False).tolist())
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        sensors = [f"obs_{i}" for i in range(trips.observation_size)]  # matched by position in the simulator
        writer.writerow(["trip", "tick", *sensors, "act_0", "act_1", "incident"])
        episodes = zip(trips.by_episode(trips.observations), trips.by_episode(trips.actions), strict=True)
        for trip, (observations, actions) in enumerate(episodes):
            for tick, (sensed, done) in enumerate(zip(observations.tolist(), actions.tolist(), strict=True)):
                writer.writerow([trip, tick, *sensed, *done, "yes" if trip in reported else ""])


def split_logs(logs: Path, incidents: Path, rest: Path) -> None:
    """Copy the reported trips to one file and all others to another."""
    with (
        logs.open(newline="") as file,
        incidents.open("w", newline="") as nonpreferred,
        rest.open("w", newline="") as unlabeled,
    ):
        rows = csv.DictReader(file)
        writers = {
            "yes": csv.DictWriter(nonpreferred, rows.fieldnames or []),
            "": csv.DictWriter(unlabeled, rows.fieldnames or []),
        }
        for writer in writers.values():
            writer.writeheader()
        for row in rows:
            writers[row["incident"]].writerow(row)


def main(settings: Settings) -> None:
    folder = settings.folder
    folder.mkdir(parents=True, exist_ok=True)
    logs, incidents, rest, run = (folder / name for name in ("logs.csv", "incidents.csv", "rest.csv", "run"))
    write_logs(logs, settings)
    split_logs(logs, incidents, rest)

    nonpreferred, unlabeled = (safemil.load(file, columns=COLUMNS) for file in (incidents, rest))
    trained = safemil.train(
        "safemil",
        nonpreferred=nonpreferred,
        unlabeled=unlabeled,
        length=10,
        updates=settings.updates,
        seed=settings.seed,
        out=run,
        overwrite=True,
    )
    risk = [float(costs.mean()) for costs in trained.cost(unlabeled)]
    riskiest = np.argsort(risk)[::-1][:5]
    print("riskiest unreported trips:", ", ".join(f"{unlabeled.ids[i]} ({risk[i]:.2f})" for i in riskiest))

    found = evaluate(trained, TASK, episodes=20)  # possible since this robot has a simulator
    print(f"policy: return {found.returns.mean():.1f}, {found.costs.mean():.1f} steps beyond a wall")
    piles = ["--nonpreferred", str(incidents), "--unlabeled", str(rest)]
    command(["report", str(run), *piles, *READING, "--out", str(folder / "report.html"), "--overwrite"])


if __name__ == "__main__":
    main(tyro.cli(Settings))
