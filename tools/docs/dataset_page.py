"""Write docs/datasets.md and its figure: our datasets beside Table 1 of the paper.

    python tools/docs/dataset_page.py --data data

The folder holds what `safemil data make TASK --out data/TASK` made; tasks that are not in it are left out of
the comparison.
"""

import argparse
from pathlib import Path
from typing import Any

import numpy as np

from safemil.behaviour.paper import TABLE, Means
from safemil.behaviour.plotting import scatters
from safemil.behaviour.policy import shipped
from safemil.data import Annotations, Trajectories, load_annotated, split
from safemil.data.formats import read_manifest

DOCS = Path(__file__).parents[2] / "docs"
HEAD = """# Datasets

Made by `safemil data make TASK` from the behaviour policies that come with the package, 800 episodes of each
task, seed 0. This page is written by `python tools/docs/dataset_page.py --data data`; its numbers are those
of the datasets made where it was run.

    safemil data make SafetyPointGoal1-v0 --out data/goal1
    safemil data info data/goal1
    safemil data split data/goal1 --nonpreferred 50 --unlabeled 200
    safemil data fetch SafetyPointGoal1-v0        # the DSRL file instead, where there is internet

## Beside the paper

Means over the paper's split (50 non-preferred episodes; 200 unlabeled, half of them preferred; seed 0) and,
in brackets, those of Table 1 in the paper's Appendix D, which are of DSRL's episodes. Policies counts those
that the preferred and the non-preferred episodes come from.
"""
AIM = """
Aimed for: preferred cost at most 25, and of the paper's numbers at least 80% of both returns and 60% of the
non-preferred cost.
"""
FIGURE = """
![Return against cost of every episode](datasets.svg)

Each dot is an episode. The shaded corners are what the split calls preferred (left) and non-preferred
(right): a return in the upper half of the range, and a cost in the lowest or highest quarter. Stars are the
means in the paper.
"""
POLICIES = """
## The policies

Each has a card beside its weights. Those of Walker2d, Ant and Circle2 are trained by
`tools/behaviour/train_behaviour.py` (PPO), those of Goal1 and Button1 by
`tools/behaviour/distil_behaviour.py` (a network that imitates a planner, by DAgger), those of Swimmer
searched by `tools/behaviour/search_behaviour.py`. Means over 50
episodes or more, every other one with noise in its actions. Share is the weight of a policy in a dataset:
those with little of it are there for their low returns, or stand in Goal1 between two kinds. In Walker2d and
Ant shares are chosen for both kinds of episodes to cost what they do in the paper. With a share of 1 each,
preferred episodes cost 0.0 and 1.8 and incidents 836 and 607; three methods then clone the preferred ones
without any cost, and nothing can be told of them. In Goal1 the reckless and the cautious are apart on
purpose, and their networks small and their noise large: with twelve policies from the one to the other, an
episode without cost was a matter of the layout and came from any of them, and even clones of the truly
preferred episodes were as costly as clones of all.
"""


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, required=True, help="folder of the datasets, one per task")
    given = parser.parse_args()
    tasks = [task for task in TABLE if (given.data / task).exists()]
    datasets = {task: load_annotated(given.data / task) for task in tasks}
    figure = scatters(DOCS / "datasets", datasets)
    rows = [row(task, read_manifest(given.data / task), *datasets[task]) for task in tasks]
    titles = [
        "task",
        "preferred cost",
        "return",
        "policies",
        "non-preferred cost",
        "return",
        "policies",
        "reached",
    ]
    text = HEAD + "\n" + table(titles, rows) + AIM + FIGURE + POLICIES
    page = DOCS / "datasets.md"
    page.write_text(text + "".join(f"\n### {task}\n\n{policies(task)}" for task in TABLE), encoding="utf-8")
    print(*figure, page, sep="\n")


def row(
    task: str, manifest: dict[str, Any], trajectories: Trajectories, annotations: Annotations
) -> list[str]:
    paper, piles = TABLE[task], split(trajectories, annotations)
    returns, costs = annotations.episode_sums(trajectories.lengths)
    cells = [task]
    means: list[float] = []
    for episodes, numbers in (
        (piles.unlabeled_episodes[piles.unlabeled_is_preferred], paper[:2]),
        (piles.nonpreferred_episodes, paper[2:]),
    ):
        ours = costs[episodes].mean(), returns[episodes].mean()
        means += ours
        cells += [f"{mine:.1f} ({theirs:g})" for mine, theirs in zip(ours, numbers, strict=True)]
        cells.append(str(sources(manifest, episodes)))
    return [*cells, verdict(Means(*means), paper)]


def sources(manifest: dict[str, Any], episodes: np.ndarray) -> int:
    """How many policies the episodes come from."""
    ends = [each["episodes"][1] for each in manifest["policies"]]
    return len(np.unique(np.searchsorted(ends, episodes, side="right")))


def verdict(ours: Means, paper: Means) -> str:
    """Which of the aims are missed, and by how much."""
    aims = (
        ("preferred cost", ours.preferred_cost, 25.0, -1),
        ("preferred return", ours.preferred_return, 0.8 * paper.preferred_return, 1),
        ("non-preferred cost", ours.nonpreferred_cost, 0.6 * paper.nonpreferred_cost, 1),
        ("non-preferred return", ours.nonpreferred_return, 0.8 * paper.nonpreferred_return, 1),
    )
    missed = [
        f"{name} {mine:.1f}, not {aim:.1f}" for name, mine, aim, sign in aims if sign * (mine - aim) < 0
    ]
    return "; ".join(missed) or "yes"


def policies(task: str) -> str:
    cards = [(policy.name, policy.card) for policy in shipped(task)]
    rows = [
        [f"`{name}`", card["signal"], card["method"], f"{card['steps']:,}", f"{card['share']:g}"]
        + [f"{card[mean]:.1f}" for mean in ("return", "cost", "length")]
        for name, card in cards
    ]
    return table(["policy", "signal", "method", "steps", "share", "return", "cost", "length"], rows)


def table(titles: list[str], rows: list[list[str]]) -> str:
    lines = [titles, ["---"] * len(titles), *rows]
    return "".join(f"| {' | '.join(cells)} |\n" for cells in lines)


if __name__ == "__main__":
    main()
