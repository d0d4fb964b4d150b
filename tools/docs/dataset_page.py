"""Write docs/datasets.md and its figure: our datasets compared with Table 1 of the paper.

    python tools/docs/dataset_page.py --data data

The folder holds the datasets that `safemil data make TASK --out data/TASK` made. The comparison leaves out
tasks without a dataset.
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

`safemil data make TASK` makes these datasets with the behaviour policies that come with the package: 800
episodes of each task, seed 0. `python tools/docs/dataset_page.py --data data` writes this page from them.

    safemil data make SafetyPointGoal1-v0 --out data/goal1
    safemil data info data/goal1
    safemil data split data/goal1 --nonpreferred 50 --unlabeled 200
    safemil data fetch SafetyPointGoal1-v0        # the DSRL file instead, where there is internet

## Comparison with the paper

The table shows mean cost and return over the paper's split (50 non-preferred episodes; 200 unlabeled ones,
half of them preferred; seed 0). Numbers in brackets are from Table 1 in the paper's Appendix D, which
describes DSRL's episodes. The columns "policies" count the behaviour policies that the preferred and the
non-preferred episodes come from. The last column says whether the targets below are met.
"""
TARGETS = """
The targets are a preferred cost of at most 25, at least 80% of the paper's returns, and at least 60% of
the paper's non-preferred cost.
"""
FIGURE = """
![Return against cost of every episode](datasets.svg)

Each dot is an episode. The shaded corners are the preferred episodes (left) and the non-preferred ones
(right): the return is in the upper half of its range, and the cost in the lowest or highest quarter. Stars
are the means in the paper.
"""
POLICIES = """
## The policies

Each policy has a JSON card beside its weights. The policies of Walker2d, Ant and Circle2 were trained with
PPO (`tools/behaviour/train_behaviour.py`). Those of Goal1 and Button1 imitate a planner by DAgger
(`tools/behaviour/distil_behaviour.py`). Those of Swimmer were found by the cross-entropy method
(`tools/behaviour/search_behaviour.py`).

Return, cost and length are means over at least 50 episodes; every other episode has noise in its actions.
The share is the relative number of a policy's episodes in a dataset. Policies with a small share provide
episodes of low return or, in Goal1, episodes between the cautious and the reckless ones.

- **Walker2d and Ant.** The shares are chosen so that preferred and non-preferred episodes cost about as much
  as in the paper. With a share of 1 for every policy, preferred episodes cost 0.0 and 1.8, and non-preferred
  ones 836 and 607. Three algorithms then clone the preferred episodes without any cost, and nothing tells
  them apart.
- **Goal1.** Cautious and reckless policies are far apart on purpose, with small networks and much noise. With
  twelve policies from the one extreme to the other, an episode without cost was due to its layout and came
  from any of them: even clones of the truly preferred episodes cost as much as clones of all episodes.
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
        "targets met",
    ]
    text = HEAD + "\n" + table(titles, rows) + TARGETS + FIGURE + POLICIES
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
    """Number of policies that the episodes come from."""
    ends = [each["episodes"][1] for each in manifest["policies"]]
    return len(np.unique(np.searchsorted(ends, episodes, side="right")))


def verdict(ours: Means, paper: Means) -> str:
    """Say which targets are missed, and by how much."""
    targets = (
        ("preferred cost", ours.preferred_cost, 25.0, -1),
        ("preferred return", ours.preferred_return, 0.8 * paper.preferred_return, 1),
        ("non-preferred cost", ours.nonpreferred_cost, 0.6 * paper.nonpreferred_cost, 1),
        ("non-preferred return", ours.nonpreferred_return, 0.8 * paper.nonpreferred_return, 1),
    )
    missed = [
        f"{name} {mine:.1f}, not {target:.1f}"
        for name, mine, target, sign in targets
        if sign * (mine - target) < 0
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
