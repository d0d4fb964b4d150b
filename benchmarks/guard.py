"""How many unsafe episodes does a guard catch, how early, and how often does it raise a false alarm?

    python benchmarks/guard.py --data data --runs runs/guard
    python benchmarks/guard.py --tasks SafetyPointCircle2-v0 --shield
    python benchmarks/guard.py --publish           # table and figure from the results that are there

Runs are trained on the paper's split with the default settings, unless a run is at RUNS/TASK/safemil already.
All episodes of the dataset that the split did not use are held out: calm ones have a total cost in the lowest
quarter, unsafe ones in the highest. Half of the calm episodes, drawn anew many times, set the threshold, and
the other half count false alarms. True costs judge, and choose nothing.
"""

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import matplotlib.figure
import numpy as np
import optax
import tyro
from rich.console import Console
from rich.table import Table

import safemil
from safemil import evaluation
from safemil.arrays import Bools, Doubles, Floats
from safemil.bench.datasets import prepare
from safemil.bench.figures import COLOURS
from safemil.bench.tables import short_name
from safemil.data import Trajectories, load_annotated, split
from safemil.data.sampling import Scaler
from safemil.data.splitting import kinds
from safemil.deploy import Guard, Model
from safemil.deploy.guard import conformal_threshold, next_score
from safemil.export import encoded
from safemil.files import atomic_file
from safemil.networks import ScalarNet
from safemil.tasks import TASKS

HERE = Path(__file__).parent
FIGURE = HERE.parent / "docs" / "images" / "guard.png"
METHODS = {"guard": "guard", "discriminator": "plain discriminator", "novelty": "novelty alone"}
ALPHAS = (0.01, 0.02, 0.05, 0.1, 0.2, 0.3, 0.5)
DRAWS = 50  # of the calm episodes that set the threshold
SHIELD_EPISODES, SHIELD_ACTIONS = 20, 16

Row = dict[str, Any]


class Held(NamedTuple):
    """Held-out episodes and their true costs."""

    logs: Trajectories
    costs: list[Doubles]
    calm: Bools  # (episodes,)
    unsafe: Bools


def main(
    tasks: tuple[str, ...] = tuple(TASKS),
    data: Path = Path("data"),
    runs: Path = Path("runs/guard"),
    out: Path = HERE / "results" / "guard.json",
    shield: bool = False,
    publish: bool = False,
) -> None:
    """Measure guards on held-out episodes of tasks.

    Args:
        tasks: tasks to measure; those in the output file are not repeated
        data: folder with a store of annotated episodes per task; those missing are made
        runs: folder with the runs TASK/safemil and TASK/bc; those missing are trained
        out: JSON file for the results
        shield: measure `Guard.advise` with the policy of BC instead
        publish: only draw the figure and print the table
    """
    found: dict[str, Any] = json.loads(out.read_text(encoding="utf-8")) if out.exists() else {}
    what, measure = ("shield", measure_shield) if shield else ("guard", measure_guard)
    for task in () if publish else tasks:
        if task in found.get(what, {}):
            continue
        prepare(task, data)
        found.setdefault(what, {})[task] = measure(task, data, runs)
        with atomic_file(out) as file:
            file.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    print_tables(found)
    if found.get("guard"):
        draw(found["guard"], FIGURE)


def trained(name: str, task: str, data: Path, runs: Path) -> safemil.Run:
    folder = runs / task / name
    if (folder / "config.toml").exists():
        return safemil.Run.load(folder)
    piles = split(*load_annotated(data / task))
    bad = piles.nonpreferred if name == "safemil" else None
    return safemil.train(name, unlabeled=piles.unlabeled, nonpreferred=bad, out=folder)


def held_out(task: str, data: Path) -> Held:
    logs, truth = load_annotated(data / task)
    piles, found = split(logs, truth), kinds(logs, truth)
    used = np.concatenate([piles.nonpreferred_episodes, piles.unlabeled_episodes])
    rest = np.setdiff1d(np.arange(len(logs)), used)
    totals = truth.episode_sums(logs.lengths)[1]
    costs = logs.by_episode(truth.costs.astype(np.float64))
    return Held(
        logs.take(rest),
        [costs[number] for number in rest],
        (totals <= found.low_cost)[rest],
        (totals >= max(found.high_cost, 1))[rest],
    )


def measure_guard(task: str, data: Path, runs: Path) -> Row:
    run, held = trained("safemil", task, data, runs)[0], held_out(task, data)
    matched = run.match(held.logs)
    model = Model.from_bytes(encoded(run), task)
    rows = matched.observations, matched.recorded_actions()
    plain = plain_discriminator(
        *(getattr(split(*load_annotated(data / task)), name) for name in ("nonpreferred", "unlabeled"))
    )
    scores: dict[str, list[Doubles]] = {
        "guard": [running(each) for each in matched.by_episode(model.risk(*rows))],
        "discriminator": [running(each) for each in plain(held.logs)],
        "novelty": [
            np.maximum.accumulate(each.astype(np.float64))
            for each in matched.by_episode(model.novelty(*rows))
        ],
    }
    return {
        "calm": int(held.calm.sum()),
        "unsafe": int(held.unsafe.sum()),
        "methods": {name: [judged(each, held, alpha) for alpha in ALPHAS] for name, each in scores.items()},
    }


def running(risks: Floats) -> Doubles:
    """Running score of an episode after each step."""
    score, found = 0.0, []
    for risk in risks.tolist():
        score = next_score(score, risk)
        found.append(score)
    return np.array(found)


def judged(scores: list[Doubles], held: Held, alpha: float) -> Row:
    """False alarms, and unsafe episodes caught, over many draws of the calm episodes for the threshold."""
    rng, calm, unsafe = np.random.default_rng(0), np.flatnonzero(held.calm), np.flatnonzero(held.unsafe)
    largest = np.array([each.max() for each in scores])
    rows = []
    for _ in range(DRAWS):
        drawn = rng.permutation(calm)
        half = len(drawn) // 2
        threshold = conformal_threshold(largest[drawn[:half]], alpha) if half >= 1 / alpha - 1 else np.inf
        alarms = [first_above(scores[number], threshold) for number in unsafe]
        before = [alarm < half_paid(held.costs[n]) for alarm, n in zip(alarms, unsafe, strict=True)]
        leads = [
            np.argmax(held.costs[n] > 0) - alarm
            for alarm, n in zip(alarms, unsafe, strict=True)
            if np.isfinite(alarm)
        ]
        rows.append(
            (
                np.mean(largest[drawn[half:]] > threshold),
                np.mean(np.isfinite(alarms)),
                np.mean(before),
                np.median(leads) if leads else np.nan,
            )
        )
    false, caught, early, _ = (float(each) for each in np.array(rows, np.float64).mean(axis=0))
    known = [row[-1] for row in rows if np.isfinite(row[-1])]
    lead = float(np.mean(known)) if known else None  # none where no draw raised an alarm
    return {"alpha": alpha, "false_alarms": false, "caught": caught, "caught_early": early, "lead": lead}


def first_above(scores: Doubles, threshold: float) -> float:
    above = scores > threshold
    return float(np.argmax(above)) if above.any() else np.inf


def half_paid(costs: Doubles) -> int:
    """Step at which half of the cost of an episode has been paid."""
    return int(np.argmax(np.cumsum(costs) >= costs.sum() / 2))


def plain_discriminator(
    nonpreferred: Trajectories, unlabeled: Trajectories, updates: int = 2000, batch: int = 256
) -> Callable[[Trajectories], list[Floats]]:
    """One network trained to tell steps of incidents from unlabeled steps, as risk of each step."""
    scaler = Scaler.of(unlabeled)

    def inputs(logs: Trajectories) -> jax.Array:
        return jnp.hstack([scaler(jnp.asarray(logs.observations)), jnp.asarray(logs.actions)])

    bad, other = inputs(nonpreferred), inputs(unlabeled)
    net = ScalarNet(bad.shape[1], (64, 64), key=jax.random.key(0))
    optimiser = optax.adamw(1e-3, weight_decay=0.01)

    def loss(net: ScalarNet, key: jax.Array) -> jax.Array:
        first, second = jax.random.split(key)
        chosen = (
            bad[jax.random.randint(first, (batch,), 0, len(bad))],
            other[jax.random.randint(second, (batch,), 0, len(other))],
        )
        return jax.nn.softplus(-net(chosen[0])).mean() + jax.nn.softplus(net(chosen[1])).mean()

    def update(carried: Any, key: jax.Array) -> tuple[Any, None]:
        net, state = carried
        changes, state = optimiser.update(jax.grad(loss)(net, key), state, net)
        return (eqx.apply_updates(net, changes), state), None

    keys = jax.random.split(jax.random.key(1), updates)
    (net, _), _ = jax.jit(partial(jax.lax.scan, update))((net, optimiser.init(net)), keys)
    judge = jax.jit(lambda rows: jax.nn.sigmoid(net(rows)))
    return lambda logs: logs.by_episode(np.asarray(judge(inputs(logs))))


def measure_shield(task: str, data: Path, runs: Path) -> Row:
    """Let BC act, by its mode, by a sample, and by the least risky of 16 samples."""
    cloned, run = trained("bc", task, data, runs)[0], trained("safemil", task, data, runs)[0]
    guard = Guard(Model.from_bytes(encoded(run), task), 0.0, 0.05, 0)
    key = jax.random.key(0)

    def sampled(observations: Doubles, step: int, count: int) -> Doubles:
        rows = np.repeat(observations.astype(np.float32), count, axis=0)
        return cloned.act_each(rows[None], key=jax.random.fold_in(key, step))[0]

    def shielded(observations: Doubles, step: int) -> Doubles:
        actions = sampled(observations, step, SHIELD_ACTIONS).reshape(len(observations), SHIELD_ACTIONS, -1)
        best = [
            offered[guard.advise(seen, offered).order[0]]
            for seen, offered in zip(observations, actions, strict=True)
        ]
        return np.array(best)

    ways = {
        "mode": evaluation.policy(cloned, task=task),
        "sample": lambda observations, step: sampled(observations, step, 1),
        "least risky of 16": shielded,
        "SafeMIL's policy": evaluation.policy(run, task=task),
    }
    rows = {}
    for name, act in ways.items():
        found = evaluation.roll_out(task, act, episodes=SHIELD_EPISODES, seed=1)
        rows[name] = {
            "return": found.returns.mean(),
            "cost": found.costs.mean(),
            "costs": found.costs.ravel().tolist(),
        }
    return rows


def print_tables(found: dict[str, Any]) -> None:
    console = Console()
    titles = ("task", "method", "false alarms", "caught", "before half of the cost", "median lead, steps")
    table = Table(*titles, title="alpha = 0.05")
    for task, row in found.get("guard", {}).items():
        for name, points in row["methods"].items():
            point = points[ALPHAS.index(0.05)]
            shares = (f"{point[each]:.0%}" for each in ("false_alarms", "caught", "caught_early"))
            table.add_row(
                short_name(task),
                METHODS[name],
                *shares,
                "" if point["lead"] is None else f"{point['lead']:.0f}",
            )
    if table.row_count:
        console.print(table)
    shielded = Table("task", "actions of BC", "return", "cost")
    for task, ways in found.get("shield", {}).items():
        for name, each in ways.items():
            shielded.add_row(short_name(task), name, f"{each['return']:.1f}", f"{each['cost']:.1f}")
    if shielded.row_count:
        console.print(shielded)


def draw(found: dict[str, Any], path: Path) -> None:
    """Share caught in time against false alarms, above; median lead against false alarms, below."""
    figure = matplotlib.figure.Figure((3 * len(found) + 0.6, 5.4), layout="constrained")
    axes = figure.subplots(2, len(found), squeeze=False, sharex=True)
    for column, (task, row) in zip(axes.T, found.items(), strict=True):
        for (name, points), colour in zip(row["methods"].items(), COLOURS, strict=False):
            false = [100 * each["false_alarms"] for each in points]
            column[0].plot(
                false,
                [100 * each["caught_early"] for each in points],
                "o-",
                ms=3,
                color=colour,
                label=METHODS[name],
            )
            column[1].plot(
                false,
                [np.nan if each["lead"] is None else each["lead"] for each in points],
                "o-",
                ms=3,
                color=colour,
            )
        column[0].set(title=f"{short_name(task)} ({row['unsafe']} unsafe)", ylim=(-3, 103))
        column[1].axhline(0, color="0.7", lw=0.8, zorder=0)
        column[1].set(xlabel="false alarms, % of calm episodes")
    axes[0, 0].set_ylabel("caught before half of\nthe cost is paid, %")
    axes[1, 0].set_ylabel("median lead before the\nfirst cost, steps")
    axes[0, 0].legend(frameon=False, fontsize=8)
    path.parent.mkdir(exist_ok=True)
    with atomic_file(path) as file:
        figure.savefig(file, format="png", dpi=110)


if __name__ == "__main__":
    tyro.cli(main)
