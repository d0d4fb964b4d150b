"""How often is the grade of the evidence right, for costs trained on incidents and on random episodes?

    python benchmarks/null.py --draws 25 --out benchmarks/results/null.json

Each draw of a generated problem is trained twice with the default settings: on its incidents, and on as
many unlabeled episodes given as incidents, from which nothing can be learned. Evidence is made of the first
round of the cost, so training ends with it. Draws that are in the output file are not repeated.
"""

import json
from pathlib import Path
from typing import Any, get_args

import jax
import numpy as np
import tyro
from rich.console import Console
from rich.table import Table

from safemil import loop, toy
from safemil.algorithms import find
from safemil.algorithms.calibrated import AGGREGATES
from safemil.algorithms.safemil import FIRST_ROUND
from safemil.arrays import Doubles
from safemil.data import Trajectories
from safemil.data.sampling import Dataset, Scaler
from safemil.evidence import WEAK, grade, rank_sum_p, share_interval
from safemil.files import atomic_file
from safemil.progress import bar
from safemil.ranks import pairs_won

HERE = Path(__file__).parent
INCIDENTS, UNLABELED = 50, 200
LENGTH = toy.STEPS * 4 // 5  # steps of the shortest episode: equal shapes are compiled once
GRADES = ("strong", "weak", "none")

Row = dict[str, Any]


def main(
    problems: tuple[str, ...] = get_args(toy.Problem),
    draws: int = 25,
    out: Path = HERE / "results" / "null.json",
) -> None:
    """Train on incidents and on random episodes, and count the grades.

    Args:
        problems: generated problems
        draws: how many draws of each
        out: JSON file for the rows
    """
    rows: list[Row] = json.loads(out.read_text(encoding="utf-8")) if out.exists() else []
    done = {(row["problem"], row["draw"], row["random"]) for row in rows}
    missing = [
        (name, draw, random)
        for draw in range(draws)
        for name in problems
        for random in (True, False)
        if (name, draw, random) not in done
    ]
    with bar("grading", len(missing)) as shown:
        for number, (name, draw, random) in enumerate(missing, 1):
            rows.append({"problem": name, "draw": draw, "random": random} | graded(name, draw, random))
            with atomic_file(out) as file:
                file.write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")
            shown.at(number, name)
    Console().print(counts(rows))


def graded(name: Any, draw: int, random: bool) -> Row:
    """Train the first round, and grade what it says of held-out episodes."""
    nonpreferred, unlabeled = piles(name, draw, random)
    algorithm = find("safemil")
    config = algorithm.PRESETS["fast"]
    data = Dataset.of(Scaler.of(unlabeled), unlabeled, nonpreferred)
    state = loop.init(algorithm, config, data, [draw])
    first = config.cost_updates // FIRST_ROUND
    state = loop.fit(algorithm, config, data, [draw], state, until=first, interval=first)
    ranking = jax.tree.map(lambda leaf: leaf[0], state).cost.first_ranking
    return grade_of(*(np.asarray(each, np.float64) for each in (ranking.nonpreferred, ranking.unlabeled)))


def grade_of(incidents: Doubles, unlabeled: Doubles) -> Row:
    auc, p_value = float(pairs_won(incidents, unlabeled)), rank_sum_p(incidents, unlabeled, len(AGGREGATES))
    share = None
    if p_value < WEAK:
        share, _ = share_interval(incidents, unlabeled, np.random.default_rng(0))
    found = grade(auc, p_value, share and share.value)
    return {"grade": found, "auc": auc, "p_value": p_value, "share": share and share.value}


def piles(name: Any, draw: int, random: bool) -> tuple[Trajectories, Trajectories]:
    """Incidents and unlabeled episodes; or unlabeled episodes of which some are given as incidents."""
    drawn = toy.make_piles(
        name, nonpreferred=INCIDENTS, unlabeled=UNLABELED + INCIDENTS * random, heldout=2, seed=1000 + draw
    )
    logs = trimmed(drawn.unlabeled)
    if not random:
        return trimmed(drawn.nonpreferred), logs
    order = np.random.default_rng(draw).permutation(len(logs))
    return logs.take(order[:INCIDENTS]), logs.take(np.sort(order[INCIDENTS:]))


def trimmed(episodes: Trajectories) -> Trajectories:
    """First steps of each episode, as many as the shortest one has at least."""
    rows = (episodes.starts[:, None] + np.arange(LENGTH)).ravel()
    return Trajectories(episodes.observations[rows], episodes.actions[rows], np.full(len(episodes), LENGTH))


def counts(rows: list[Row]) -> Table:
    """Table of the grades, by problem."""
    table = Table("problem", "given as incidents", "draws", *GRADES, "mean AUC")
    for name in dict.fromkeys(row["problem"] for row in rows):
        for random in (True, False):
            group = [row for row in rows if (row["problem"], row["random"]) == (name, random)]
            if group:
                found = [f"{np.mean([row['grade'] == each for row in group]):.0%}" for each in GRADES]
                mean = f"{np.mean([row['auc'] for row in group]):.3f}"
                kind = "random episodes" if random else "incidents"
                table.add_row(f"toy:{name}", kind, str(len(group)), *found, mean)
    return table


if __name__ == "__main__":
    tyro.cli(main)
