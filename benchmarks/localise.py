"""Which episodes, and which of their steps, does a learned cost call risky?

    python benchmarks/localise.py --data data --out benchmarks/results/localise.json
    python benchmarks/localise.py --problems toy:disc --methods default --seeds 1 --draws 1
    python benchmarks/localise.py --publish        # table and figure from the results that are there

Costs of generated problems are judged on held-out episodes, those of tasks on the unlabeled pile. Rows that
are in the output file are not repeated. README.md beside this file says what the columns mean.
"""

import dataclasses
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple, get_args

import equinox as eqx
import jax
import jax.numpy as jnp
import matplotlib.figure
import numpy as np
import numpy.typing as npt
import optax
import tyro
from rich.console import Console
from rich.table import Table

import safemil
from safemil import toy
from safemil.api import configure
from safemil.arrays import Bools, Doubles, Floats, Ints
from safemil.bench.datasets import prepare
from safemil.bench.figures import COLOURS, MARKS
from safemil.bench.tables import short_name
from safemil.data import Trajectories, load_annotated, split
from safemil.data.sampling import Scaler
from safemil.errors import InputError, unknown
from safemil.files import atomic_file
from safemil.networks import ScalarNet
from safemil.stats import auc
from safemil.tasks import TASKS

HERE = Path(__file__).parent
README, FIGURE = HERE / "README.md", HERE.parent / "docs" / "images" / "localise.png"
BEGIN, END = "<!-- results: benchmarks/localise.py -->\n", "<!-- end of results -->\n"

MARKED = {"toy:style+marks": 0.5, "toy:moment+marks": 1.0}  # share of the incidents that carry marks
TOYS = tuple(f"toy:{name}" for name in get_args(toy.Problem))
HAS_MARKS = "marks" in {field.name for field in dataclasses.fields(Trajectories)}
PROBLEMS = (*TOYS, *(MARKED if HAS_MARKS else ()), *TASKS)

TITLES = {
    "eq9": "Eq. (9)",
    "default": "default",
    "dwbc-nu": "DWBC-NU",
    "trex-wbc": "T-REX-WBC",
    "safedice": "SafeDICE",
    "supervised": "supervised",
}
# The loss of the paper with as many updates as a laptop has time for.
EQ9 = {"preset": "paper", "lr_cost": 1e-3, "updates": 2000, "pool": 128, "draw": "segments"}
NAVIGATION_LENGTH = 10  # H of the paper's navigation tasks

COLUMNS = {
    "episode_auc": "episode AUC",
    "episode_auc_worst": "by worst 5%",
    "step_auc": "step AUC",
    "step_auc_in_bad": "in bad",
    "average_precision": "average precision",
    "calibration_error": "calibration error",
    "seconds": "s",
}
PANELS = {
    "episode_auc": "episode AUC, by mean",
    "episode_auc_worst": "episode AUC, by worst 5%",
    "step_auc": "step AUC, all",
    "step_auc_in_bad": "step AUC, in bad episodes",
}
WORST = 0.05  # share of an episode's steps in its worst moments
BINS = 10  # of the calibration error

Row = dict[str, Any]
Sides = tuple[jax.Array, ...]  # numbers of risky steps, and of others
OPTIMISER = optax.adamw(1e-3, weight_decay=0.01)


class Problem(NamedTuple):
    """Piles to learn from, and episodes whose truth is known to judge by."""

    nonpreferred: Trajectories
    unlabeled: Trajectories
    unlabeled_risky: Bools  # (steps,)
    judged: Trajectories
    risky: Bools  # (steps,)
    bad: Bools  # (episodes,)


def main(
    problems: tuple[str, ...] = PROBLEMS,
    methods: tuple[str, ...] = tuple(TITLES),
    seeds: int = 3,
    draws: int = 3,
    data: Path = Path("data"),
    out: Path = HERE / "results" / "localise.json",
    publish: bool = False,
) -> None:
    """Measure how well costs tell bad episodes and risky steps.

    Args:
        problems: generated problems and tasks; those that end in +marks say when incidents happened
        methods: eq9, default (of safemil), algorithms with a cost, and supervised, which is told the truth
        seeds: how many trainings on the same piles
        draws: how many draws of the piles
        data: folder with a store of annotated episodes per task; those missing are made
        out: JSON file for the rows
        publish: only write the table of README.md and the figure of the documentation, from `out`
    """
    for what, names, known in (("problem", problems, PROBLEMS), ("method", methods, tuple(TITLES))):
        for name in names:
            if name not in known:
                raise unknown(what, name, known)
    rows: list[Row] = json.loads(out.read_text(encoding="utf-8")) if out.exists() else []
    if publish:
        with atomic_file(README) as file:
            file.write_text(with_table(README.read_text(encoding="utf-8"), rows), encoding="utf-8")
        draw_figure(rows, FIGURE)
        return
    measure(problems, methods, seeds, draws, data, rows, out)
    table = Table("problem", "method", *COLUMNS.values())
    for line in summary([row for row in rows if row["problem"] in problems and row["method"] in methods]):
        table.add_row(*line)
    Console().print(table)


def measure(
    problems: tuple[str, ...],
    methods: tuple[str, ...],
    seeds: int,
    draws: int,
    data: Path,
    rows: list[Row],
    out: Path,
) -> None:
    """Add the rows that are missing, and write the file after each."""
    done = {(row["problem"], row["method"], row["draw"], row["seed"]) for row in rows}
    for name in problems:
        learners = [each for each in methods if each == "default" or name not in MARKED]
        for draw in range(draws):
            runs = [(each, seed) for each in learners for seed in range(seeds)]
            missing = [(each, seed) for each, seed in runs if (name, each, draw, seed) not in done]
            problem = draw_problem(name, draw, data) if missing else None
            for method, seed in missing:
                assert problem is not None
                start = time.perf_counter()
                costs = learned_costs(name, method, problem, seed)
                seconds = time.perf_counter() - start
                rows.append({"problem": name, "method": method, "draw": draw, "seed": seed})
                rows[-1] |= judge(problem, costs, calibrated=method != "supervised") | {"seconds": seconds}
                with atomic_file(out) as file:
                    file.write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")


def draw_problem(name: str, draw: int, data: Path) -> Problem:
    plain = name.removesuffix("+marks")
    if plain not in TOYS:
        prepare(plain, data)
        found = split(*load_annotated(data / plain), seed=draw)
        risky, bad = found.annotations.costs > 0, ~found.unlabeled_is_preferred
        return Problem(found.nonpreferred, found.unlabeled, risky, found.unlabeled, risky, bad)
    problem: Any = plain.removeprefix("toy:")
    piles = toy.make_piles(problem, seed=draw)
    incidents = piles.nonpreferred
    if name in MARKED:
        marked = incidents.episode_of_step < MARKED[name] * len(incidents)
        incidents = with_marks(incidents, piles.nonpreferred_marks & marked)
    return Problem(
        incidents,
        piles.unlabeled,
        piles.unlabeled_truth.costs > 0,
        piles.heldout,
        piles.heldout_truth.costs > 0,
        piles.heldout_bad,
    )


def with_marks(episodes: Trajectories, marks: Bools) -> Trajectories:
    arrays: dict[str, Any] = {
        field.name: getattr(episodes, field.name) for field in dataclasses.fields(episodes)
    }
    return Trajectories(**(arrays | {"marks": marks}))


def learned_costs(name: str, method: str, problem: Problem, seed: int) -> Floats:
    """Train, and compute the cost of every judged step."""
    if method == "supervised":
        return supervised_costs(problem, seed)
    algorithm = "safemil" if method in ("eq9", "default") else method
    run = safemil.train(
        algorithm,
        nonpreferred=problem.nonpreferred,
        unlabeled=problem.unlabeled,
        seed=seed,
        progress=False,
        **cost_alone(algorithm, name, EQ9 if method == "eq9" else {}),
    )
    return np.concatenate(run.cost(problem.judged))


def cost_alone(algorithm: str, name: str, settings: dict[str, Any]) -> dict[str, Any]:
    """Settings with which training ends as soon as the cost has learned, since no policy is needed."""
    _, config = configure(algorithm, settings.get("preset"), {})
    last = getattr(config, "cost_updates", None) or getattr(config, "reward_updates", None)
    found = settings if last is None else {"updates": last + 1} | settings
    navigates = name.startswith("SafetyPoint") and hasattr(config, "length")
    return found | ({"length": NAVIGATION_LENGTH} if navigates else {})


def judge(problem: Problem, costs: npt.NDArray[np.floating], *, calibrated: bool) -> Row:
    episodes = problem.judged.by_episode(costs)
    in_bad = problem.bad[problem.judged.episode_of_step]
    return {
        "episode_auc": auc([each.mean() for each in episodes], problem.bad),
        "episode_auc_worst": auc([worst(each) for each in episodes], problem.bad),
        "step_auc": auc(costs, problem.risky),
        "step_auc_in_bad": auc(costs[in_bad], problem.risky[in_bad]),
        "average_precision": average_precision(costs, problem.risky),
        "risky_share": float(problem.risky.mean()),
        "calibration_error": calibration_error(costs, in_bad) if calibrated else None,
    }


def worst(costs: npt.NDArray[np.floating]) -> float:
    """Mean of the highest costs of an episode."""
    return float(np.sort(costs)[-max(round(WORST * len(costs)), 1) :].mean())


def average_precision(scores: npt.ArrayLike, positive: npt.ArrayLike) -> float:
    """Precision at each threshold, weighted by the recall that it adds; equal scores share a threshold.

    >>> average_precision([0.9, 0.8, 0.7], [True, False, True])  # (1 + 2/3) / 2
    0.8333333333333333
    """
    values, marked = np.asarray(scores), np.asarray(positive, bool)
    order = np.argsort(-values, kind="stable")
    ends = np.append(np.flatnonzero(np.diff(values[order])), len(order) - 1)  # last entry of each threshold
    found = np.cumsum(marked[order])[ends]
    return float((np.diff(found, prepend=0) * found / (ends + 1)).sum() / marked.sum())


def calibration_error(costs: npt.ArrayLike, from_bad: npt.ArrayLike) -> float:
    """Expected calibration error of ĉ as the probability, at even odds, that a step is from a bad episode.

    Steps of bad and of good episodes have half of the weight each. In each of ten bins of ĉ, the mean of ĉ is
    compared with the share of bad episodes' steps; the differences are averaged by the weight of the bins.

    >>> calibration_error([0.75, 0.75, 0.75, 0.75, 0.0, 0.0], [True, True, True, False, False, False])
    0.0
    >>> calibration_error([0.9, 0.1], [False, True])
    0.9
    """
    values, bad = np.asarray(costs, np.float64), np.asarray(from_bad, bool)
    weights = np.where(bad, 0.5 / bad.sum(), 0.5 / (~bad).sum())
    bins = np.minimum((BINS * values).astype(int), BINS - 1)
    gaps = np.bincount(bins, weights * (values - bad))  # of each bin, times its weight
    return float(np.abs(gaps).sum())


def supervised_costs(problem: Problem, seed: int) -> Floats:
    """Costs by networks that were told the true risky steps of other episodes.

    Held-out episodes are judged by a network that was told of the unlabeled pile. Where the unlabeled pile
    itself is judged, each half of its episodes is judged by a network that was told of the other half.
    """
    scaler = Scaler.of(problem.unlabeled)
    inputs, judged = (
        jnp.concatenate([scaler(jnp.asarray(each.observations)), jnp.asarray(each.actions)], axis=1)
        for each in (problem.unlabeled, problem.judged)
    )
    episodes = problem.unlabeled.episode_of_step
    if problem.judged is not problem.unlabeled:
        return fit(inputs, problem.unlabeled_risky, episodes, seed)(judged)
    half = np.random.default_rng(seed).permutation(len(problem.unlabeled)) % 2
    costs = np.zeros(len(episodes), np.float32)
    for told in range(2):
        rows = np.flatnonzero(half[episodes] == told)
        network = fit(inputs[rows], problem.unlabeled_risky[rows], episodes[rows], seed)
        costs[half[episodes] != told] = network(inputs[half[episodes] != told])
    return costs


def fit(
    inputs: jax.Array, risky: Bools, episodes: Ints, seed: int, updates: int = 3000, chunk: int = 100
) -> Callable[[jax.Array], Floats]:
    """Classify steps by logistic regression, stopped early by the loss on a fifth of the episodes."""
    held_out = episodes % 5 == 0
    told, unseen = (
        tuple(jnp.asarray(np.flatnonzero(side & part)) for side in (risky, ~risky))
        for part in (~held_out, held_out)
    )
    if not all(len(rows) for rows in (*told, *unseen)):
        raise InputError(
            "a supervised network needs risky and other steps both to learn from and to stop by, got a part "
            "without; draw more episodes."
        )
    key_net, key = jax.random.split(jax.random.key(seed))
    net = ScalarNet(inputs.shape[1], (256, 256), key=key_net)
    state, best, least = OPTIMISER.init(net), net, np.inf
    for keys in jax.random.split(key, (updates // chunk, chunk)):
        net, state = advance(net, state, inputs, told, keys)
        if (now := float(even_loss(net, inputs, unseen))) < least:
            best, least = net, now
    return lambda steps: np.asarray(jax.nn.sigmoid(best(steps)))


@eqx.filter_jit
def advance(net: ScalarNet, state: Any, inputs: jax.Array, told: Sides, keys: jax.Array) -> Any:
    """Take an update per key, on as many risky steps as others."""

    def update(carry: Any, key: jax.Array) -> tuple[Any, None]:
        net, state = carry
        draws = zip(jax.random.split(key), told, strict=True)
        batch = tuple(jax.random.choice(each, rows, (256,)) for each, rows in draws)
        changes, state = OPTIMISER.update(jax.grad(even_loss)(net, inputs, batch), state, net)
        return (optax.apply_updates(net, changes), state), None

    return jax.lax.scan(update, (net, state), keys)[0]


@eqx.filter_jit
def even_loss(net: ScalarNet, inputs: jax.Array, rows: Sides) -> jax.Array:
    """Logistic loss in which risky steps have as much weight as others."""
    risky, others = rows
    return (jax.nn.softplus(-net(inputs[risky])).mean() + jax.nn.softplus(net(inputs[others])).mean()) / 2


def summary(rows: list[Row]) -> list[list[str]]:
    """A line per problem and method: means and standard deviations over seeds and draws."""
    groups: dict[tuple[str, str], list[Row]] = {(each, how): [] for each in PROBLEMS for how in TITLES}
    for row in rows:
        groups[row["problem"], row["method"]].append(row)
    return [
        [short_name(problem), TITLES[method], *(cell(name, numbers(group, name)) for name in COLUMNS)]
        for (problem, method), group in groups.items()
        if group
    ]


def numbers(rows: list[Row], name: str) -> Doubles:
    return np.array([row[name] for row in rows if row[name] is not None])


def cell(name: str, values: Doubles) -> str:
    if not len(values):
        return "–"
    if name == "seconds":
        return f"{values.mean():.0f}"
    return f"{values.mean():.2f}" + (f" ± {values.std(ddof=1):.2f}" if len(values) > 1 else "")


def with_table(text: str, rows: list[Row]) -> str:
    """Put the table between the two comments of the README."""
    head = ["problem", "method", *COLUMNS.values()]
    lines = [head, ["---"] * len(head), *summary(rows)]
    table = "".join(f"| {' | '.join(line)} |\n" for line in lines)
    before, rest = text.split(BEGIN)
    return f"{before}{BEGIN}{table}{END}{rest.split(END)[1]}"


def draw_figure(rows: list[Row], path: Path) -> None:
    """Draw a panel per measure: problems from top to bottom, a mark per method, a line from least to most."""
    problems = [each for each in PROBLEMS if any(row["problem"] == each for row in rows)]
    methods = [each for each in TITLES if any(row["method"] == each for row in rows)]
    with matplotlib.rc_context({"font.size": 9, "axes.spines.top": False, "axes.spines.right": False}):
        figure = matplotlib.figure.Figure(figsize=(10, 1.3 + 0.55 * len(problems)), layout="constrained")
        panels = figure.subplots(1, len(PANELS), sharey=True)
        for axes, (measure, title) in zip(panels, PANELS.items(), strict=True):
            for place, method in enumerate(methods):
                _draw_method(axes, rows, problems, method, measure, 0.7 * (place + 0.5) / len(methods) - 0.35)
            axes.axvline(0.5, color="grey", linewidth=0.8, linestyle=":")  # chance
            axes.set_title(title)
            axes.set_xlim(0.25, 1.02)
            for edge in range(1, len(problems)):
                axes.axhline(edge - 0.5, color="0.9", linewidth=0.8)
        panels[0].set_yticks(range(len(problems)), [short_name(each) for each in problems])
        panels[0].set_ylim(len(problems) - 0.5, -0.5)
        handles, labels = panels[0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside lower center", ncols=len(labels), frameon=False)
        with atomic_file(path) as file:
            figure.savefig(file, dpi=150)


def _draw_method(
    axes: Any, rows: list[Row], problems: list[str], method: str, measure: str, offset: float
) -> None:
    number = list(TITLES).index(method)
    colour = COLOURS[number]
    label: str | None = TITLES[method]
    for height, problem in enumerate(problems):
        group = [row for row in rows if (row["problem"], row["method"]) == (problem, method)]
        values = numbers(group, measure)
        if len(values):
            y = height + offset
            axes.plot([values.min(), values.max()], [y, y], color=colour, linewidth=1.2)
            axes.plot(
                values.mean(), y, color=colour, marker=MARKS[number], markersize=5, linestyle="", label=label
            )
            label = None  # one entry in the legend


if __name__ == "__main__":
    tyro.cli(main)
