"""Write docs/datasets.md and its figures: our datasets compared with Table 1 of the paper.

    python tools/docs/dataset_page.py --data data
    python tools/docs/dataset_page.py --continuum continuum --clones clones

The first folder holds the datasets that `safemil data make TASK --out data/TASK` made, the second those of
`--behaviour continuum`, the third evaluated runs of `bc-preferred` on their splits, each named by its task.
The comparisons leave out tasks without a dataset. What isn't given a folder stays on the page as it is.
"""

import argparse
from pathlib import Path
from typing import Any

import numpy as np

from safemil.behaviour.drivers import SHIPPED as DRIVERS
from safemil.behaviour.paper import TABLE, Means
from safemil.behaviour.plotting import NONPREFERRED, OTHER, PREFERRED, SETTINGS, scatters
from safemil.behaviour.policy import shipped
from safemil.data import Annotations, Trajectories, load_annotated, split
from safemil.data.formats import read_manifest
from safemil.data.splitting import kinds
from safemil.evaluation import Evaluation

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


CONTINUUM = """## A continuum of drivers

    safemil data make SafetyPointCircle2-v0 --behaviour continuum --out data/circle2

makes episodes in which preferred and non-preferred are outcomes, not identities. So far {tasks}
have drivers: networks that take their caution as an input, such as a target speed. Every episode draws its
own caution, evenly from 0 to 1, and its own amount of noise in the actions, from an exponential distribution.
During the episode the caution wanders: after a random number of steps it is drawn anew, around that of the
episode. So a careful driver has careless stretches, and an incident happens at some steps of an episode, not
at all of them. Clones see neither caution nor noise. The manifest of a dataset holds both for each episode.
The benchmark still uses the policies above.

A driver's card says what its input is, its values at caution 0 and 1, how far caution wanders, for how many
steps it stays on average, and the mean noise. `tools/behaviour/ship_drivers.py` makes the drivers. Those of
Walker2d, Ant and Circle2 are networks of the policies above, from two ages of a run of PPO, with their
setting as an input again.

The table is made as the one above. "Share preferred" is that of each driver's preferred episodes among its
preferred and non-preferred ones. "Fifths in both" counts the fifths of the range of caution, of each driver,
that have episodes of both kinds. The clone is `bc-preferred` (preset `fast`), which is told which episodes
are preferred; {clones}. A dataset is cloneable if its clone returns at least 90% of what preferred episodes
return, and costs at most 15 more.
"""
CAUTION = """
![Return and cost of every episode against its caution](continuum.svg)

Each dot is an episode, in the colours of the figure above.
"""


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, help="folder of the datasets, one per task")
    parser.add_argument("--continuum", type=Path, help="the same of the drivers on a continuum")
    parser.add_argument("--clones", type=Path, help="folder of evaluated runs on these, one per task")
    given = parser.parse_args()
    page = DOCS / "datasets.md"
    start = CONTINUUM.splitlines()[0]
    policies, _, drivers = page.read_text(encoding="utf-8").partition(start)
    if given.data:
        policies = policies_half(given.data) + "\n"
    drivers = continuum_half(given.continuum, given.clones) if given.continuum else start + drivers
    page.write_text(policies.rstrip() + "\n\n" + drivers, encoding="utf-8")
    print(page)


def policies_half(data: Path) -> str:
    tasks = [task for task in TABLE if (data / task).exists()]
    datasets = {task: load_annotated(data / task) for task in tasks}
    print(*scatters(DOCS / "datasets", datasets), sep="\n")
    rows = [row(task, read_manifest(data / task), *datasets[task]) for task in tasks]
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
    return text + "".join(f"\n### {task}\n\n{shipped_policies(task)}" for task in TABLE)


def continuum_half(data: Path, clones: Path | None) -> str:
    """Table and figure of the drivers' datasets."""
    tasks = [task for task in TABLE if (data / task).exists()]
    datasets = {task: load_annotated(data / task) for task in tasks}
    manifests = {task: read_manifest(data / task) for task in tasks}
    print(*against_caution(DOCS / "continuum", datasets, manifests), sep="\n")
    evaluations = {task: Evaluation.load(clones / task) if clones else None for task in tasks}
    seeds = sorted({len(each.seeds) for each in evaluations.values() if each})
    rows = [driver_row(task, manifests[task], *datasets[task], evaluations[task]) for task in tasks]
    titles = [
        "task",
        "preferred cost",
        "return",
        "non-preferred cost",
        "return",
        "targets met",
        "share preferred",
        "fifths in both",
        "clone's return",
        "cost",
    ]
    told = (
        "its means are over " + " or ".join(f"{n} seed{'s' * (n > 1)}" for n in seeds)
        if seeds
        else "it has not been measured yet"
    )
    have = [task for task in TABLE if any((DRIVERS / task).glob("*.safetensors"))]
    return CONTINUUM.format(clones=told, tasks=" and ".join(have)) + "\n" + table(titles, rows) + CAUTION


def driver_row(
    task: str,
    manifest: dict[str, Any],
    trajectories: Trajectories,
    annotations: Annotations,
    clone: Evaluation | None,
) -> list[str]:
    name, good_cost, good_return, _, bad_cost, bad_return, _, met = row(
        task, manifest, trajectories, annotations
    )
    found = kinds(trajectories, annotations)
    fifths = np.minimum((5 * np.array(manifest["caution"])).astype(int), 4)
    shares, both = [], []
    for driver in manifest["policies"]:
        own = slice(*driver["episodes"])
        good, bad = (
            np.bincount(fifths[own][kind[own]], minlength=5) for kind in (found.preferred, found.nonpreferred)
        )
        shares.append(f"{good.sum() / (good.sum() + bad.sum()):.0%}")
        both.append(str(((good > 0) & (bad > 0)).sum()))
    cloned = [f"{clone.returns.mean():.1f}", f"{clone.costs.mean():.1f}"] if clone else ["", ""]
    return [
        name,
        good_cost,
        good_return,
        bad_cost,
        bad_return,
        met,
        ", ".join(shares),
        ", ".join(both),
        *cloned,
    ]


def against_caution(
    path: Path, datasets: dict[str, tuple[Trajectories, Annotations]], manifests: dict[str, dict[str, Any]]
) -> list[Path]:
    """Draw return and cost of each episode against its caution, a column for each task."""
    import matplotlib
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    with matplotlib.rc_context(SETTINGS):
        figure = Figure(figsize=(0.6 + 2.9 * len(datasets), 5.2), layout="constrained")
        FigureCanvasAgg(figure)
        panels = figure.subplots(2, len(datasets), squeeze=False, sharex=True)
        for (above, below), (task, (held, truth)) in zip(panels.T, datasets.items(), strict=True):
            returns, costs = truth.episode_sums(held.lengths)
            found, caution = kinds(held, truth), np.array(manifests[task]["caution"])
            other = ~(found.preferred | found.nonpreferred)
            for rows, colour, label in (
                (other, OTHER, "other"),
                (found.preferred, PREFERRED, "preferred"),
                (found.nonpreferred, NONPREFERRED, "non-preferred"),
            ):
                for panel, values in ((above, returns), (below, costs)):
                    panel.scatter(
                        caution[rows],
                        values[rows],
                        7,
                        color=colour,
                        alpha=0.6,
                        lw=0,
                        label=label,
                        rasterized=True,
                    )
                    panel.spines[["top", "right"]].set_visible(False)
            above.set(title=task, ylabel="return of an episode")
            below.set(xlabel="caution of an episode", ylabel="cost of an episode")
        handles, labels = panels[0, 0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside lower center", ncols=3, frameon=False)
        written = [path.with_suffix(suffix) for suffix in (".png", ".svg")]
        for target, metadata in zip(written, ({"Software": None}, {"Date": None}), strict=True):
            figure.savefig(target, dpi=150, metadata=metadata)
    return written


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


def shipped_policies(task: str) -> str:
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
