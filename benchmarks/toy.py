"""The generated problems: how risky is a policy, how good at the task, and does the cost find the risk?

python benchmarks/toy.py --seeds 5 --out benchmarks/results/toy.json
"""

import json
from pathlib import Path
from typing import Any

import numpy as np
import tyro
from rich.console import Console
from rich.table import Table

import safemil
from safemil import toy
from safemil.data.piles import Piles
from safemil.stats import auc

SCHEMES = ("segment", "episode", "threshold", "transition", "cost-to-go")
Problems = tuple[toy.Problem, ...]


def main(
    problems: Problems = ("speed", "disc"), seeds: int = 5, episodes: int = 100, out: Path | None = None
) -> None:
    """Train BC, the oracle and every weighting scheme with the shipped settings.

    Args:
        problems: which of the generated problems
        seeds: how many seeds each is trained with
        episodes: how many episodes each seed's policy is let go for
        out: JSON file for the figures
    """
    rows = [row for problem in problems for row in compare(problem, seeds, episodes)]
    table = Table("problem", "policy", "risky steps", "goals", "step AUC", "episode AUC", "effective share")
    for row in rows:
        table.add_row(
            *(f"{value:.3f}" if isinstance(value, float) else str(value or "") for value in row.values())
        )
    Console().print(table)
    if out:
        out.parent.mkdir(parents=True, exist_ok=True)
        out.write_text(json.dumps(rows, indent=2) + "\n")


def compare(problem: toy.Problem, seeds: int, episodes: int) -> list[dict[str, Any]]:
    piles = toy.make_piles(problem)
    bc = safemil.train("bc", unlabeled=piles.unlabeled, seeds=seeds)
    oracle = safemil.train("bc", unlabeled=piles.careful, seeds=seeds)
    rows = [judge(problem, "bc", bc, piles, episodes), judge(problem, "oracle", oracle, piles, episodes)]
    for scheme in SCHEMES:
        run = safemil.train(
            "safemil",
            nonpreferred=piles.nonpreferred,
            unlabeled=piles.unlabeled,
            seeds=seeds,
            weighting=scheme,
        )
        rows.append(judge(problem, scheme, run, piles, episodes))
    return rows


def judge(problem: toy.Problem, name: str, run: safemil.Run, piles: Piles, episodes: int) -> dict[str, Any]:
    members = [run[index] for index in range(len(run))]
    risky, goals = zip(
        *(toy.evaluate(problem, member.act, episodes=episodes) for member in members), strict=True
    )
    row: dict[str, Any] = {
        "problem": problem,
        "policy": name,
        "risky": np.mean(risky),
        "goals": np.mean(goals),
    }
    row |= {"step_auc": None, "episode_auc": None, "effective": None}
    if run.algorithm == "safemil":
        aucs = np.array([cost_aucs(member, piles) for member in members])
        row |= {"step_auc": aucs[:, 0].mean(), "episode_auc": aucs[:, 1].mean()}
        row["effective"] = np.mean(run.metrics[-1]["weights/effective"])
    return {key: float(value) if isinstance(value, np.floating) else value for key, value in row.items()}


def cost_aucs(run: safemil.Run, piles: Piles) -> tuple[float | None, float | None]:
    """How well ĉ ranks risky steps above others, and its mean reckless episodes above careful ones."""
    costs = run.cost(piles.heldout)
    steps, means = np.concatenate(costs), np.array([episode.mean() for episode in costs])
    return auc(steps, piles.heldout_truth.costs > 0), auc(means, piles.heldout_reckless)


if __name__ == "__main__":
    tyro.cli(main)
