"""`safemil train`, `safemil score` and `safemil algorithms`."""

import shlex
import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import tyro

from safemil.cli.bench import bench, tables
from safemil.cli.data import READING, ReadingFlags
from safemil.cli.demo import demo
from safemil.cli.evaluate import evaluate
from safemil.cli.report import report

if TYPE_CHECKING:  # JAX takes a second to import, which `--help` needn't wait for
    from safemil.api import Run
    from safemil.data.interchange import Options

Optional = Annotated[Path | None, tyro.conf.arg(metavar="PATH", help_behavior_hint="")]
Assignments = Annotated[tuple[str, ...], tyro.conf.UseAppendAction, tyro.conf.arg(metavar="NAME=VALUE")]
Share = Annotated[float | None, tyro.conf.arg(metavar="SHARE", help_behavior_hint="")]


def train(
    algorithm: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="ALGORITHM")],
    data: Annotated[
        Path | None, tyro.conf.Positional, tyro.conf.arg(metavar="[DATA]", help_behavior_hint="")
    ] = None,
    *,
    out: Annotated[Path, tyro.conf.arg(metavar="FOLDER")],
    nonpreferred: Optional = None,
    unlabeled: Optional = None,
    preset: str = "fast",
    config: Optional = None,
    set: Assignments = (),
    seed: int = 0,
    seeds: int = 1,
    preferred_share: Share = None,
    resume: bool = False,
    overwrite: bool = False,
    log_every: int = 50,
    checkpoint_seconds: float = 30.0,
    task: Annotated[str | None, tyro.conf.arg(metavar="TASK", help_behavior_hint="")] = None,
    evaluate_every: int = 1000,
    reading: ReadingFlags = READING,
) -> int | None:
    """Learn a cost and a policy from two piles of episodes.

    safemil train safemil --nonpreferred incidents.parquet --unlabeled logs.parquet --out runs/first

    Args:
        algorithm: the method; `safemil algorithms` lists them and their settings
        data: a folder made by `safemil data split`, instead of --nonpreferred and --unlabeled
        out: the run directory to write
        nonpreferred: the episodes marked as bad
        unlabeled: the episodes nobody looked at
        preset: fast, or paper for the paper's own hyperparameters
        config: a TOML file of settings, laid over the preset
        set: one setting, laid over both, as in --set beta=0.3; may be repeated
        seed: number of the first seed
        seeds: how many seeds to train side by side
        preferred_share: the share of good episodes you expect in the unlabeled pile, to check the bag size
        resume: go on with the run in the folder
        overwrite: replace the run in the folder
        log_every: updates between two lines of metrics
        checkpoint_seconds: seconds between two checkpoints
        task: a task to evaluate the policy on as it learns, for a learning curve in metrics.jsonl
        evaluate_every: updates between two such evaluations
    """
    from safemil import api
    from safemil.algorithms import find
    from safemil.runs import RunDirectory
    from safemil.settings import parse_assignments, read_toml, resolve

    method = find(algorithm)
    settings: dict[str, Any] = {**(read_toml(config) if config else {}), **parse_assignments(set)}
    resolve(method.PRESETS["fast"], settings)  # a wrong name or value is told before anything is read
    paths = _pile_paths(data, nonpreferred, unlabeled, method.NEEDS)
    piles = _load_piles(paths, method.NEEDS, reading.options())
    if task is not None:
        from safemil.evaluate import check_fits, curve

        check_fits(task, piles["unlabeled"].observation_size, piles["unlabeled"].action_size)
    try:
        run = api.train(
            algorithm,
            **piles,
            preset=preset,
            seed=seed,
            seeds=seeds,
            out=out,
            resume=resume,
            overwrite=overwrite,
            log_every=log_every,
            checkpoint_seconds=checkpoint_seconds,
            evaluate=curve(task) if task is not None else None,
            evaluate_every=evaluate_every,
            **settings,
        )
    except KeyboardInterrupt:
        return _say_how_to_go_on(out)
    RunDirectory(out).note_sources(paths, asdict(reading))
    _print_summary(run, getattr(method, "advice", None), preferred_share)
    print(out)
    return None


def score(
    run: tyro.conf.Positional[Path],
    path: tyro.conf.Positional[Path],
    *,
    out: Annotated[Path, tyro.conf.arg(metavar="FILE")],
    top: int = 10,
    overwrite: bool = False,
    reading: ReadingFlags = READING,
) -> None:
    """Say for each step of each episode how risky it is.

    safemil score runs/first logs.parquet --out risk.parquet

    Args:
        run: a run directory
        path: file or store of episodes
        out: file to write, .parquet or .csv, with the columns episode, step and cost
        top: how many of the riskiest episodes to show
        overwrite: replace the file
    """
    from safemil.api import Run
    from safemil.data import load
    from safemil.files import require_free
    from safemil.scoring import check_suffix, riskiest_table, save_risk

    check_suffix(out)
    require_free(out, overwrite=overwrite)
    trained = Run.load(run)
    options = reading.options()
    trajectories = load(path, columns=options.columns, action_bounds=options.action_bounds)
    costs = trained.cost(trajectories)
    save_risk(out, trajectories, costs)
    _console().print(riskiest_table(trajectories, costs, top))
    print(out)


def algorithms(name: tyro.conf.Positional[str | None] = None) -> None:
    """List the methods, or the settings of one.

    safemil algorithms safemil

    Args:
        name: the method whose settings to list
    """
    import dataclasses

    from rich.table import Table

    from safemil.algorithms import ALGORITHMS, find
    from safemil.algorithms.cloning import Cloning

    if name is None:
        table = Table("name", "what it does", "learns from", box=None)
        for each, method in ALGORITHMS.items():
            needs = ", ".join(sorted(method.NEEDS | {"unlabeled"}))
            table.add_row(each, (method.__doc__ or "").split("\n", 1)[0], needs)
    else:
        presets = find(name).PRESETS
        table = Table("setting", *presets, box=None)
        shared = [field.name for field in dataclasses.fields(Cloning)]
        names = [field.name for field in dataclasses.fields(presets["fast"]) if field.name not in shared]
        for each in names + shared:  # what is the method's own comes first
            values = (getattr(preset, each) for preset in presets.values())
            table.add_row(each, *(str(value).lower() if value is None else str(value) for value in values))
    _console().print(table)


def _pile_paths(
    data: Path | None, nonpreferred: Path | None, unlabeled: Path | None, needs: frozenset[str]
) -> dict[str, Path]:
    """Where the piles that a method needs are, by the name of the pile."""
    from safemil.data.splitting import HINDSIGHT_STORE
    from safemil.errors import InputError

    if data is not None:
        if nonpreferred or unlabeled:
            raise InputError("give either a folder of piles or --nonpreferred and --unlabeled, not both.")
        nonpreferred = data / "nonpreferred"
        unlabeled = data / (HINDSIGHT_STORE if "annotations" in needs else "unlabeled")
    if unlabeled is None:
        raise InputError(
            "which episodes? give --unlabeled (and --nonpreferred), or a folder made by data split."
        )
    if nonpreferred is None or "nonpreferred" not in needs:
        return {"unlabeled": unlabeled}
    return {"unlabeled": unlabeled, "nonpreferred": nonpreferred}


def _load_piles(paths: dict[str, Path], needs: frozenset[str], options: "Options") -> dict[str, Any]:
    from safemil.data import load, load_annotated

    how: dict[str, Any] = {"columns": options.columns, "action_bounds": options.action_bounds}
    piles: dict[str, Any] = {}
    if "annotations" in needs:
        piles["unlabeled"], piles["annotations"] = load_annotated(paths["unlabeled"], **how)
    else:
        piles["unlabeled"] = load(paths["unlabeled"], **how)
    if "nonpreferred" in paths:
        piles["nonpreferred"] = load(paths["nonpreferred"], **how)
    return piles


def _say_how_to_go_on(out: Path) -> int:
    command = [argument for argument in sys.argv[1:] if argument not in ("--resume", "--overwrite")]
    print(f"\nstopped; everything so far is in {out}. Go on with:\n", file=sys.stderr)
    print(f"  {shlex.join(['safemil', *command, '--resume'])}\n", file=sys.stderr)
    return 130


def _print_summary(run: "Run", advice: Any, preferred_share: float | None) -> None:
    from rich.table import Table

    last: dict[str, Any] = {}
    for line in run.metrics:
        last |= line
    seconds = last.pop("seconds", 0.0)
    updates = last.pop("step", 0)
    table = Table("", *(f"seed {seed}" for seed in run.seeds), box=None)
    for name, values in last.items():
        table.add_row(name, *("NaN" if value is None else f"{value:.3f}" for value in values))
    console = _console()
    console.print(f"{run.algorithm}: {updates:,} updates in {seconds:.0f} s; last values:")
    console.print(table)
    for line in advice(run.config, preferred_share) if advice else []:
        console.print(line, highlight=False)


def _console() -> Any:
    from rich.console import Console

    return Console()


COMMANDS = {
    "demo": demo,
    "train": train,
    "score": score,
    "algorithms": algorithms,
    "evaluate": evaluate,
    "bench": bench,
    "tables": tables,
    "report": report,
}
