"""What do a reviewer's answers buy? A simulated reviewer knows the truth and answers some episodes at a time.

    python benchmarks/review.py --problems toy:disc --draws 1
    python benchmarks/review.py --publish          # table from the results that are there

Training begins with 5 incidents. The reviewer then answers 10, 20 and 40 unlabeled episodes: those that the
report proposes, random ones, or the riskiest; each batch is chosen by the training before it. Incidents move
to the non-preferred pile, the others are known good. Costs are judged on episodes that were never answered.
Rows that are in the output file are not repeated. README.md beside this file says what the columns mean.
"""

import json
from pathlib import Path
from typing import Any, Literal, NamedTuple, get_args

import numpy as np
import tyro
from rich.console import Console
from rich.table import Table

import safemil
from safemil import toy
from safemil.api import Run
from safemil.arrays import Bools, Doubles, Ints
from safemil.bench.datasets import prepare
from safemil.data import Trajectories, load_annotated, split
from safemil.errors import unknown
from safemil.evaluation import evaluate
from safemil.files import atomic_file
from safemil.labels import Label, Labels, boundary_share, episode_scores, propose
from safemil.stats import auc

HERE = Path(__file__).parent
README = HERE / "README.md"
BEGIN, END = "<!-- results: benchmarks/review.py -->\n", "<!-- end of results -->\n"

TASKS = ("SafetyPointGoal1-v0", "SafetySwimmerVelocity-v1")
PROBLEMS = (*(f"toy:{name}" for name in get_args(toy.Problem)), *TASKS)
Strategy = Literal["proposed", "random", "riskiest"]
STRATEGIES = get_args(Strategy)
ANSWERS = (10, 20, 40)
INCIDENTS, UNLABELED, HELD_OUT = 5, 200, 200

Row = dict[str, Any]


class Problem(NamedTuple):
    """Piles to learn from, what the reviewer knows, and episodes to judge by."""

    nonpreferred: Trajectories
    unlabeled: Trajectories
    bad: Bools  # (unlabeled,)
    judged: Trajectories
    judged_bad: Bools


def main(
    problems: tuple[str, ...] = PROBLEMS,
    strategies: tuple[str, ...] = STRATEGIES,
    draws: int = 3,
    first_draw: int = 0,
    policies: bool = False,
    data: Path = Path("data"),
    out: Path = HERE / "results" / "review.json",
    publish: bool = False,
) -> None:
    """Measure what answers buy, by the way in which episodes were chosen.

    Args:
        problems: generated problems and tasks
        strategies: proposed, random or riskiest
        draws: how many draws of the piles
        first_draw: number of the first draw
        policies: train the policy too, and measure its cost
        data: folder with a store of annotated episodes per task; those missing are made
        out: JSON file for the rows
        publish: only write the table of README.md, from `out`
    """
    for what, names, known in (("problem", problems, PROBLEMS), ("strategy", strategies, STRATEGIES)):
        for name in names:
            if name not in known:
                raise unknown(what, name, known)
    rows: list[Row] = json.loads(out.read_text(encoding="utf-8")) if out.exists() else []
    if publish:
        text = README.read_text(encoding="utf-8")
        before, after = text.split(BEGIN)[0], text.split(END)[1]
        with atomic_file(README) as file:
            file.write_text(before + BEGIN + markdown(rows) + END + after, encoding="utf-8")
        return
    for name in problems:
        for draw in range(first_draw, first_draw + draws):
            measure(name, draw, strategies, policies, data, rows, out)
    table = Table("problem", "choice", *(f"{each} answers" for each in (0, *ANSWERS)))
    for line in summary(rows):
        table.add_row(*line)
    Console().print(table)


def measure(
    name: str, draw: int, strategies: tuple[str, ...], policies: bool, data: Path, rows: list[Row], out: Path
) -> None:
    """Add the rows that are missing, and write the file after each."""

    def found(strategy: str, answers: int) -> Row | None:
        key = {"problem": name, "draw": draw, "strategy": strategy, "answers": answers, "policies": policies}
        return next((row for row in rows if key.items() <= row.items()), None)

    problem = draw_problem(name, draw, data)
    for strategy in strategies:
        known: dict[int, bool] = {}
        for answers in (0, *ANSWERS):
            row = found(strategy, answers)
            if row is None:
                started = found(STRATEGIES[0], 0) if answers == 0 else None  # the same before any answer
                made = started or learn(name, problem, known, strategy, draw, policies)
                row = made | {"strategy": strategy, "problem": name, "draw": draw, "answers": answers}
                rows.append(row)
                with atomic_file(out) as file:
                    file.write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")
            if answers < ANSWERS[-1]:
                wanted = ANSWERS[(0, *ANSWERS).index(answers)] - answers
                # Before any answer all strategies share a training, which notes the choice of each.
                chosen = row["ranked"][strategy] if answers == 0 else row["next"]
                known |= {number: bool(problem.bad[number]) for number in chosen[:wanted]}


def draw_problem(name: str, draw: int, data: Path) -> Problem:
    if name.startswith("toy:"):
        problem: Any = name.removeprefix("toy:")
        piles = toy.make_piles(
            problem, nonpreferred=INCIDENTS, unlabeled=UNLABELED, heldout=HELD_OUT, seed=draw
        )
        return Problem(
            piles.nonpreferred, piles.unlabeled, piles.unlabeled_bad, piles.heldout, piles.heldout_bad
        )
    prepare(name, data)
    both = split(
        *load_annotated(data / name), nonpreferred=INCIDENTS, unlabeled=UNLABELED + HELD_OUT, seed=draw
    )
    asked, judged = np.arange(UNLABELED), np.arange(UNLABELED, UNLABELED + HELD_OUT)
    bad = ~both.unlabeled_is_preferred
    return Problem(
        both.nonpreferred, both.unlabeled.take(asked), bad[asked], both.unlabeled.take(judged), bad[judged]
    )


def learn(
    name: str, problem: Problem, known: dict[int, bool], strategy: str, draw: int, policies: bool
) -> Row:
    """Train with the answers so far, judge the cost, and choose the episodes to answer next."""
    names = problem.unlabeled.ids.astype(str).tolist()
    given = [Label(names[number], "incident" if bad else "fine") for number, bad in known.items()]
    labels = Labels(problem.unlabeled.content_hash(), given)
    run = safemil.train(
        "safemil",
        nonpreferred=problem.nonpreferred,
        unlabeled=problem.unlabeled,
        labels=labels if known else None,
        seed=draw,
        progress=False,
        **({} if policies else cost_alone()),
    )
    assert run.evidence is not None
    scores = episode_scores(run.cost(problem.judged), run.evidence.aggregate)
    row: Row = {
        "episode_auc": auc(scores, problem.judged_bad),
        "incidents_found": sum(known.values()),
        "grade": run.evidence.grade,
        "policies": policies,
        "policy_cost": float(evaluate(run, name, episodes=50).costs.mean()) if policies else None,
    }
    following = {each: choose(each, run, problem.unlabeled, known, draw).tolist() for each in STRATEGIES}
    return row | ({"next": following[strategy]} if known else {"ranked": following})


def cost_alone() -> dict[str, Any]:
    """Settings with which training ends as soon as the cost has learned."""
    from safemil.api import configure

    return {"updates": configure("safemil", None, {})[1].cost_updates + 1}


def choose(strategy: str, run: Run, unlabeled: Trajectories, known: dict[int, bool], draw: int) -> Ints:
    """Numbers of the episodes to answer next, as many as the largest batch."""
    most = max(b - a for a, b in zip((0, *ANSWERS), ANSWERS, strict=False))
    left = np.array([number for number in range(len(unlabeled)) if number not in known])
    if strategy == "random":
        return np.random.default_rng((draw, len(known))).permutation(left)[:most]
    evidence = run.evidence
    assert evidence is not None
    scores: Doubles = episode_scores(run.cost(unlabeled.take(left)), evidence.aggregate)
    if strategy == "riskiest":
        return left[np.argsort(-scores, kind="stable")[:most]]
    share = None if evidence.share is None else evidence.share.value
    return left[propose(scores, boundary_share(share, evidence.kept, evidence.unlabeled), count=most)]


def summary(rows: list[Row]) -> list[list[str]]:
    """A line for each problem and strategy: mean AUC over draws after each number of answers."""
    lines = []
    for problem in dict.fromkeys(row["problem"] for row in rows):
        for strategy in STRATEGIES:
            cells = []
            for answers in (0, *ANSWERS):
                found = [
                    row for row in rows
                    if (row["problem"], row["strategy"], row["answers"]) == (problem, strategy, answers)
                ]  # fmt: skip
                cells.append(_cell(found))
            lines.append([problem.removesuffix("-v0").removesuffix("-v1"), strategy, *cells])
    return lines


def _cell(found: list[Row]) -> str:
    if not found:
        return "–"
    text = f"{np.mean([row['episode_auc'] for row in found]):.3f}"
    costs = [row["policy_cost"] for row in found if row["policy_cost"] is not None]
    return text + (f" ({np.mean(costs):.1f})" if costs else "")


def markdown(rows: list[Row]) -> str:
    head = ["problem", "choice", *(f"{each} answers" for each in (0, *ANSWERS))]
    lines = [head, ["---"] * len(head), *summary(rows)]
    draws = len({row["draw"] for row in rows})
    return "\n".join(f"| {' | '.join(line)} |" for line in lines) + f"\n\n{draws} draws at most.\n"


if __name__ == "__main__":
    tyro.cli(main)
