"""Draw the README's picture: the learned cost on the generated `disc` problem, and where the policies walk.

python tools/picture.py docs/images/disc.png
"""

from pathlib import Path

import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt
import numpy as np
import tyro

import safemil
from safemil import toy

EPISODES = 40  # drawn in each panel
BLUE, ORANGE = "#0072b2", "#d55e00"  # told apart by the colour-blind too


def main(out: tyro.conf.Positional[Path], updates: int = 10_000) -> None:
    """Train BC and SafeMIL on `disc` and draw what they learned.

    Args:
        out: picture to write
        updates: how long to train
    """
    piles = toy.make_piles("disc")
    data = {"unlabeled": piles.unlabeled}
    bc = safemil.train("bc", **data, updates=updates)
    ours = safemil.train(
        "safemil", nonpreferred=piles.nonpreferred, **data, updates=updates, weighting="threshold"
    )
    figure, axes = plt.subplots(1, 3, figsize=(12, 4.2), layout="constrained")
    draw_cost(axes[0], ours, piles)
    draw_walks(axes[1], bc, BLUE, "behaviour cloning")
    draw_walks(axes[2], ours, BLUE, "SafeMIL")
    out.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(out, dpi=110)
    print(out)


def draw_cost(axes: plt.Axes, run: safemil.Run, piles: toy.Piles) -> None:
    places = piles.heldout.observations[:, :2]
    costs = np.concatenate(run.cost(piles.heldout))
    order = np.argsort(costs)
    points = axes.scatter(
        *places[order].T, c=costs[order], s=3, cmap="inferno_r", vmin=0, vmax=1, rasterized=True
    )
    axes.figure.colorbar(points, ax=axes, label="learned cost ĉ(s, a)", shrink=0.85)
    frame(axes, "held-out episodes")


def draw_walks(axes: plt.Axes, run: safemil.Run, colour: str, name: str) -> None:
    def walk(world: toy.World, rng: np.random.Generator) -> np.ndarray:
        return np.asarray(run.act(world.observations()))

    recorded = toy.rollout("disc", walk, EPISODES, np.random.default_rng(1))
    for places, risky in zip(recorded.observations[..., :2], recorded.risky, strict=True):
        axes.plot(*places.T, color=colour, alpha=0.25, lw=0.8)
        inside = places[1:][risky[:-1]]
        axes.plot(*inside.T, ".", color=ORANGE, ms=3)
    goals = recorded.goals.sum() / EPISODES
    frame(axes, f"{name}: {recorded.risky.mean():.1%} of steps risky, {goals:.1f} goals")


def frame(axes: plt.Axes, title: str) -> None:
    axes.add_patch(plt.Circle((0, 0), toy.DISC_RADIUS, fill=False, ls="--", color="black", lw=1.2))
    axes.plot(*toy.STATIONS.T, "o", color="#009e73", ms=7)
    axes.set(title=title, aspect="equal", xlim=(-1, 1), ylim=(-1, 1), xlabel="x (m)", ylabel="y (m)")


if __name__ == "__main__":
    tyro.cli(main)
