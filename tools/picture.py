"""Draw the README's picture: what SafeMIL learns on the generated `speed` problem.

python tools/picture.py docs/images/speed.png
"""

from pathlib import Path

import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt
import numpy as np
import tyro

import safemil
from safemil import toy

EPISODES = 100  # that each policy is let go for
BLUE, ORANGE, GREEN = "#0072b2", "#d55e00", "#009e73"  # told apart by the colour-blind too


def main(out: tyro.conf.Positional[Path], updates: int = 10_000) -> None:
    """Train BC and SafeMIL on `speed` and draw what they learned.

    Args:
        out: picture to write
        updates: how long to train
    """
    piles = toy.make_piles("speed")
    data = {"unlabeled": piles.unlabeled}
    bc = safemil.train("bc", **data, updates=updates)
    ours = safemil.train("safemil", nonpreferred=piles.nonpreferred, **data, updates=updates)
    figure, axes = plt.subplots(1, 2, figsize=(10, 3.6), layout="constrained")
    draw_cost(axes[0], ours, piles)
    draw_policies(axes[1], {"behaviour cloning": (bc, BLUE), "SafeMIL": (ours, ORANGE)})
    out.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(out, dpi=110)
    print(out)


def draw_cost(axes: plt.Axes, run: safemil.Run, piles: toy.Piles) -> None:
    lengths = np.linalg.norm(piles.heldout.actions, axis=1)
    costs = np.concatenate(run.cost(piles.heldout))
    axes.scatter(lengths, costs, s=2, color=ORANGE, alpha=0.3, rasterized=True)
    mark_limit(axes)
    axes.set(title="what was learned from 50 bad episodes", ylabel="cost ĉ(s, a) of a held-out step")


def draw_policies(axes: plt.Axes, runs: dict[str, tuple[safemil.Run, str]]) -> None:
    for name, (run, colour) in runs.items():

        def walk(world: toy.World, rng: np.random.Generator, run: safemil.Run = run) -> np.ndarray:
            return np.asarray(run.act(world.observations()))

        recorded = toy.rollout("speed", walk, EPISODES, np.random.default_rng(1))
        lengths = np.linalg.norm(recorded.actions, axis=-1).ravel()
        label = f"{name}: {recorded.risky.mean():.1%} of steps risky"
        axes.hist(lengths, bins=np.linspace(0, 1, 51), density=True, color=colour, alpha=0.6, label=label)
    mark_limit(axes)
    axes.set(title="what the policies do", ylabel="share of steps (density)")
    axes.legend(loc="upper right")


def mark_limit(axes: plt.Axes) -> None:
    axes.axvline(toy.SPEED_LIMIT, color=GREEN, ls="--")
    axes.text(
        toy.SPEED_LIMIT + 0.01,
        axes.get_ylim()[1] * 0.5,
        "limit, never told",
        color=GREEN,
        rotation=90,
        va="center",
    )
    axes.set(xlabel="length of a step (of a full stride)", xlim=(0, 1))


if __name__ == "__main__":
    tyro.cli(main)
