"""`safemil evaluate`."""

from typing import Annotated

import tyro

from safemil.cli.arguments import EnvFlag, RunPath, TaskFlag, environment, function
from safemil.terminal import say


def evaluate(
    run: RunPath,
    *,
    task: TaskFlag = None,
    env: EnvFlag = None,
    cost: str = "cost",
    max_steps: Annotated[int | None, tyro.conf.arg(metavar="INT", help_behavior_hint="")] = None,
    episodes: int = 50,
    seed: int = 0,
    stochastic: bool = False,
) -> None:
    """Run a policy in a task or environment: return, cost, length of each episode.

    safemil evaluate runs/first --task SafetyPointGoal1-v0 --episodes 50

    Args:
        run: run folder; evaluation.json is written into it
        task: name of the task; `safemil tasks list` lists them
        env: module:function that makes a Gymnasium environment, or the id of one, instead of a task
        cost: entry of the environment's info that is the cost of a step, or module:function of a transition
        max_steps: end longer episodes of an environment after as many steps
        episodes: episodes of each seed of the run
        seed: seed of the episodes; the same seed gives every run the same episodes
        stochastic: sample actions instead of taking the policy's mode
    """
    from rich.table import Table

    from safemil import stats
    from safemil.api import Run
    from safemil.errors import InputError
    from safemil.evaluation import FILE, by_position, sizes
    from safemil.evaluation import evaluate as roll
    from safemil.terminal import console

    if (task is None) == (env is None):
        raise InputError("in which task? give either --task or --env.")
    where = environment(env) if env is not None else task
    if task is not None:
        sizes(task)  # a wrong name is told before anything is read
    trained = Run.load(run)
    found = roll(
        trained,
        where,
        cost=function(cost) if ":" in cost else cost,
        max_steps=max_steps,
        episodes=episodes,
        seed=seed,
        stochastic=stochastic,
        progress=True,
    )
    found.save(run)
    table = Table("", "return", "cost", "CVaR 20% cost", "steps", box=None)
    names = [f"seed {each}" for each in trained.seeds]
    rows = [(name, slice(i, i + 1)) for i, name in enumerate(names)]
    for name, part in [*rows, ("all", slice(None))] if len(names) > 1 else rows:
        costs = found.costs[part]
        values = stats.interval(found.returns[part]), stats.interval(costs), stats.cvar_interval(costs)
        table.add_row(name, *map(str, values), f"{found.lengths[part].mean():.0f}")
    terminal = console()
    if task is not None and by_position(trained, task):
        terminal.print("columns are matched by position: the run's data, or the task, have no names.")
    terminal.print(
        f"{trained.algorithm} on {found.task}, {episodes} episodes of each seed; mean ± 95% interval:"
    )
    terminal.print(table)
    say(run / FILE)
