"""From plain CSV logs with a few noted incidents to a ranking of risk, a policy and a report.

    python examples/incidents.py --folder incidents

The logs are of a robot that drives round a circle between walls (SafetyPointCircle2-v0); replace `write_logs`
by your own file. All that is known about safety is a column `incident`, filled in for some bad episodes.
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
from safemil.evaluate import evaluate

TASK = "SafetyPointCircle2-v0"
COLUMNS = Columns("trip", "tick", observation="sensor_*", action="thrust,turn")
READING = ["--episode", "trip", "--step", "tick", "--observation", "sensor_*", "--action", "thrust,turn"]


@dataclass(frozen=True)
class Settings:
    """What to run."""

    folder: Path = Path("incidents")
    """Where logs, piles, run and report go."""
    episodes: int = 240
    """Episodes in the logs."""
    noted: int = 30
    """How many incidents somebody took the time to note."""
    updates: int = 10_000
    """Updates of the training."""
    seed: int = 0
    """Of everything random."""


def write_logs(path: Path, settings: Settings) -> None:
    """Logs as a robot writes them; a trip with many wall crossings may have been noted as an incident."""
    trips, truth, _ = make(TASK, episodes=settings.episodes, seed=settings.seed)
    _, crossings = truth.episode_sums(trips.lengths)
    bad = np.flatnonzero(crossings > np.quantile(crossings, 0.6))
    noted = set(np.random.default_rng(settings.seed).choice(bad, settings.noted, replace=False).tolist())
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        sensors = [f"sensor_{i}" for i in range(trips.observation_size)]
        writer.writerow(["trip", "tick", *sensors, "thrust", "turn", "incident"])
        episodes = zip(trips.by_episode(trips.observations), trips.by_episode(trips.actions), strict=True)
        for trip, (seen, done) in enumerate(episodes):
            for tick, row in enumerate(zip(seen.tolist(), done.tolist(), strict=True)):
                writer.writerow([trip, tick, *row[0], *row[1], "yes" if trip in noted else ""])


def split_logs(logs: Path, incidents: Path, rest: Path) -> None:
    """The noted trips into one file, all others into another: plain text work."""
    with (
        logs.open(newline="") as file,
        incidents.open("w", newline="") as bad,
        rest.open("w", newline="") as other,
    ):
        rows = csv.DictReader(file)
        writers = {
            "yes": csv.DictWriter(bad, rows.fieldnames or []),
            "": csv.DictWriter(other, rows.fieldnames or []),
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

    bad, unlabeled = safemil.load(incidents, columns=COLUMNS), safemil.load(rest, columns=COLUMNS)
    trained = safemil.train(
        "safemil",
        nonpreferred=bad,
        unlabeled=unlabeled,
        length=10,
        updates=settings.updates,
        seed=settings.seed,
        out=run,
        overwrite=True,
    )
    risk = [float(costs.mean()) for costs in trained.cost(unlabeled)]
    riskiest = np.argsort(risk)[::-1][:5]
    print(
        "riskiest trips nobody had noted:", ", ".join(f"{unlabeled.ids[i]} ({risk[i]:.2f})" for i in riskiest)
    )

    found = evaluate(trained, TASK, episodes=20)  # only because this robot has a simulator
    print(f"the policy: return {found.returns.mean():.1f}, {found.costs.mean():.1f} steps beyond a wall")
    piles = ["--nonpreferred", str(incidents), "--unlabeled", str(rest)]
    command(["report", str(run), *piles, *READING, "--out", str(folder / "report.html"), "--overwrite"])


if __name__ == "__main__":
    main(tyro.cli(Settings))
