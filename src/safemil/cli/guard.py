"""`safemil guard`."""

from pathlib import Path
from typing import Annotated

import tyro

from safemil.cli.arguments import READING, OutFile, PathFlag, ReadingFlags, RunPath
from safemil.terminal import say


def guard(
    run: RunPath,
    *,
    calm: Annotated[Path, tyro.conf.arg(metavar="PATH")],
    out: OutFile,
    alpha: float = 0.05,
    incidents: PathFlag = None,
    seed: Annotated[int | None, tyro.conf.arg(metavar="INT", help_behavior_hint="")] = None,
    overwrite: bool = False,
    reading: ReadingFlags = READING,
) -> None:
    """Make a guard that warns of incidents, with a bounded share of false alarms.

    safemil guard runs/first --calm goodlogs.parquet --alpha 0.05 --out guard.json

    Args:
        run: run folder
        calm: episodes without incidents that the run was not trained on
        out: file to write, which `safemil.deploy.Guard` loads with NumPy alone
        alpha: largest share of calm episodes in which an alarm may be raised
        incidents: incidents that the run was not trained on, to count those that are caught
        seed: seed of the run, if it has several (default: the first)
        overwrite: replace the file
    """
    from statistics import median

    from safemil.api import Run
    from safemil.data.formats import read_like
    from safemil.guard import calibrate, count_caught, save
    from safemil.ownership import require_free

    require_free(out, overwrite=overwrite)
    chosen = Run.load(run).of_seed(seed)
    options = reading.options().over(chosen.reading)
    held = read_like(calm, options).trajectories
    found = calibrate(chosen, held, alpha=alpha)
    save(found, chosen, out, overwrite=overwrite)
    least = 1 / (len(held) + 1)
    print(f"Threshold {found.threshold:.4g}, from {len(held)} calm episodes (enough for alpha {least:.2g}).")
    print(f"On average, at most {alpha:.1%} of episodes exchangeable with them raise an alarm.")
    if incidents is not None:
        caught = count_caught(found, chosen, read_like(incidents, options).trajectories)
        lead = f", in the median {int(median(caught.leads))} steps before" if caught.leads else ""
        print(f"Caught before the first mark, or the end: {caught.caught} of {caught.episodes}{lead}.")
    say(out)
