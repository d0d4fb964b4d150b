"""`safemil guard`."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import tyro

from safemil.cli.arguments import READING, OutFile, PathFlag, ReadingFlags, RunPath, piles_of_training

if TYPE_CHECKING:
    from safemil.api import Run
    from safemil.deploy import Guard
    from safemil.guard import Caught
from safemil.terminal import say


def guard(
    run: RunPath,
    *,
    out: OutFile,
    calm: PathFlag = None,
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
        calm: episodes without incidents that the run was not trained on (default: unlabeled episodes of
            training that the evidence calls good, by networks that did not see them; without a guarantee)
        out: file to write, which `safemil.deploy.Guard` loads with NumPy alone
        alpha: largest share of calm episodes in which an alarm may be raised
        incidents: incidents that the run was not trained on, to count those that are caught (default: those
            of training, judged by networks that did not see them, where there are such networks)
        seed: seed of the run, if it has several (default: the first)
        overwrite: replace the file
    """
    from statistics import median

    from safemil.api import Run
    from safemil.data.formats import read_like
    from safemil.errors import InputError
    from safemil.guard import calibrate, calibrate_by_evidence, count_caught, save
    from safemil.ownership import require_free

    require_free(out, overwrite=overwrite)
    chosen = Run.load(run).of_seed(seed)
    options = reading.options().over(chosen.reading)
    caught = None
    if calm is None:
        noted = piles_of_training(run, "unlabeled", "nonpreferred")
        if "nonpreferred" not in noted:
            raise InputError(
                f"{chosen.algorithm} judges no episodes that it held out; give calm ones by --calm."
            )
        piles = noted["unlabeled"], noted["nonpreferred"]
        found, caught = calibrate_by_evidence(chosen, *piles, alpha=alpha)
    else:
        found = calibrate(chosen, read_like(calm, options).trajectories, alpha=alpha)
        if incidents is None:
            caught = _of_training(chosen, run, found)
    save(found, chosen, out, overwrite=overwrite)
    say(
        f"Threshold {found.threshold:.4g}, from {found.episodes} calm episodes (enough for alpha "
        f"{1 / (found.episodes + 1):.2g})."
    )
    if found.guaranteed:
        say(f"On average, at most {alpha:.1%} of episodes exchangeable with them raise an alarm.")
    else:
        say(
            "Nobody said that these episodes are calm: the evidence does, by the same cost. So this is no "
            f"guarantee, and more than {alpha:.1%} of calm episodes may raise an alarm."
        )
    if incidents is not None:
        caught = count_caught(found, chosen, read_like(incidents, options).trajectories)
    if caught is not None:
        lead = f", in the median {int(median(caught.leads))} steps before" if caught.leads else ""
        share = f"{caught.caught} of {caught.episodes} ({caught.caught / caught.episodes:.0%})"
        say(f"Held-out incidents caught before the first mark, or the end: {share}{lead}.")
    say(out)


def _of_training(chosen: "Run", run: Path, found: "Guard") -> "Caught | None":
    """Incidents of training, where they are still there and some networks did not see them."""
    from safemil.errors import InputError
    from safemil.guard import heldout_incidents

    try:
        noted = piles_of_training(run, "unlabeled", "nonpreferred")
        piles = noted["unlabeled"], noted["nonpreferred"]
        return heldout_incidents(found, chosen, *piles)
    except (InputError, KeyError):
        return None
