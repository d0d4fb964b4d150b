"""`safemil train`, `safemil score` and `safemil algorithms`."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import tyro

from safemil.cli.arguments import (
    READING,
    DataPath,
    LogPaths,
    OutFile,
    OutFolder,
    PathFlag,
    ReadingFlags,
    RunPath,
    TaskFlag,
    training_data,
)
from safemil.cli.bench import bench, tables
from safemil.cli.demo import demo
from safemil.cli.evaluate import evaluate
from safemil.cli.evidence import evidence
from safemil.cli.export import export
from safemil.cli.guard import guard
from safemil.cli.report import report
from safemil.terminal import say

if TYPE_CHECKING:  # JAX takes a second to import, which `--help` does not need
    from rich.table import Table

    from safemil.algorithms import Algorithm
    from safemil.api import Run
    from safemil.data.interchange import Options, Paths

Assignments = Annotated[tuple[str, ...], tyro.conf.UseAppendAction, tyro.conf.arg(metavar="NAME=VALUE")]
RunFlag = Annotated[Path | None, tyro.conf.arg(metavar="RUN", help_behavior_hint="")]
Share = Annotated[float | None, tyro.conf.arg(metavar="SHARE", help_behavior_hint="")]


def train(
    algorithm: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="ALGORITHM")],
    data: DataPath = None,
    *,
    out: OutFolder,
    logs: Annotated[tuple[Path, ...], tyro.conf.arg(metavar="PATH ...", help_behavior_hint="")] = (),
    nonpreferred: PathFlag = None,
    unlabeled: PathFlag = None,
    preferred: PathFlag = None,
    labels: PathFlag = None,
    preset: str = "fast",
    config: PathFlag = None,
    set: Assignments = (),
    seed: int = 0,
    seeds: int = 1,
    preferred_share: Share = None,
    resume: bool = False,
    overwrite: bool = False,
    log_every: int = 50,
    checkpoint_seconds: float = 30.0,
    task: TaskFlag = None,
    evaluate_every: int = 1000,
    strict: bool = False,
    device_gb: float = 1.0,
    log: Annotated[tuple[str, ...], tyro.conf.UseAppendAction, tyro.conf.arg(metavar="LOGGER")] = (),
    init_from: RunFlag = None,
    reading: ReadingFlags = READING,
) -> None:
    """Learn a cost and a policy from two piles of episodes.

    safemil train safemil --logs drives.csv --incident incident --out runs/a

    Args:
        algorithm: name of the algorithm; `safemil algorithms` lists all
        data: folder made by `safemil data split`, instead of --nonpreferred and --unlabeled
        out: run folder to write
        logs: files, folders or quoted patterns with all episodes, told apart by --incident
        nonpreferred: episodes marked as bad
        unlabeled: episodes that nobody has marked
        preferred: episodes that somebody has looked at and found good, if there are any
        labels: labels.json that a report has downloaded: which unlabeled episodes are incidents, which fine
        preset: fast, or paper for the hyperparameters of the paper
        config: TOML file of settings that replace those of the preset
        set: one setting that replaces both, as in --set beta=0.3
        seed: number of the first seed
        seeds: how many seeds to train side by side
        preferred_share: share of good episodes that you expect in the unlabeled pile, to check the bag size
        resume: continue the run in the folder; --set updates=N may be raised
        overwrite: replace the run in the folder
        log_every: updates between two lines of metrics
        checkpoint_seconds: seconds between two checkpoints
        task: task to evaluate the policy on during training, for a learning curve in metrics.jsonl
        evaluate_every: updates between two such evaluations
        strict: stop with exit code 1 before a policy is cloned if the evidence is "none"
        device_gb: unlabeled episodes of more gigabytes stay on the host, those of a store in shards in files
        log: tensorboard, wandb or trackio, beside metrics.jsonl; may be given several times
        init_from: run whose networks, normaliser and columns to start from
    """
    from safemil import api
    from safemil.cli import Interrupted
    from safemil.data.formats import located_all
    from safemil.errors import InputError
    from safemil.runs import RunDirectory
    from safemil.settings import parse_assignments
    from safemil.texts import read_toml

    if preferred_share is not None and not 0 <= preferred_share <= 1:
        raise InputError(f"--preferred-share must lie between 0 and 1, got {preferred_share:g}.")
    settings: dict[str, Any] = {**(read_toml(config) if config else {}), **parse_assignments(set)}
    found, _ = api.configure(algorithm, preset, settings)  # refuses a wrong setting before files are read
    options = reading.options()
    given = _pile_paths(data, logs, nonpreferred, unlabeled, found.NEEDS, options)
    paths = {name: located_all(each) for name, each in given.items()}
    if preferred is not None:
        paths["preferred"] = preferred
    piles, options = _load_piles(paths, found.NEEDS, options, device_gb)
    if task is not None:
        from safemil.evaluation import check_fits, curve

        check_fits(task, piles["unlabeled"])
    try:
        run = api.train(
            algorithm,
            **piles,
            labels=labels,
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
            strict=strict,
            device_gb=device_gb,
            loggers=log,
            init_from=init_from,
            **settings,
        )
    except KeyboardInterrupt as stopped:
        raise Interrupted(f"the run so far is in {out}") from stopped
    RunDirectory(out).note_sources(paths, options)
    _print_summary(run, found, preferred_share)
    say(out)


def score(
    run: RunPath,
    path: LogPaths,
    *,
    out: OutFile,
    append: bool = False,
    ahead: bool = False,
    top: int = 10,
    overwrite: bool = False,
    engine: Literal["local", "ray"] = "local",
    workers: Annotated[int | None, tyro.conf.arg(metavar="INT", help_behavior_hint="")] = None,
    reading: ReadingFlags = READING,
) -> int:
    """Compute the risk of each step of each episode.

    safemil score runs/first logs.parquet --out risk.parquet

    With a folder as --out, each file of logs gets a file of risks there.

    The same command goes on after it was stopped; exit code 1: a file failed.

    Args:
        run: run folder
        path: files, folders or quoted patterns; read as those of the run, unless a flag says otherwise
        out: file to write, .parquet or .csv: risk and novelty beside the log's own episode and step; with
            several seeds, the risk's standard deviation over them too; or a folder, for a name without ending
        ahead: write the risk of what follows too, learned once from the logs that the run was trained on
        append: write all columns of the log, and every row, in the order of the log
        top: number of the riskiest episodes to print
        overwrite: replace the file, or the files in the folder
        engine: what scores the files of a folder: processes on this machine, or Ray
        workers: how many files at once (default: one per core)
    """
    from safemil.errors import InputError

    if not out.suffix:
        return _score_files(run, path, out, append, top, overwrite, engine, workers, reading)
    if engine != "local" or workers is not None:
        raise InputError("--engine and --workers are for many files: let --out be a folder.")
    from safemil.api import Run
    from safemil.data.formats import read_columns, read_like
    from safemil.ownership import require_free
    from safemil.scoring import check_suffix, key_columns, novelty_line, rank, riskiest_table, save_risk

    check_suffix(out)
    require_free(out, overwrite=overwrite)
    trained = Run.load(run)
    contents = read_like(path, reading.options().over(trained.reading))
    held = trained.match(contents.trajectories)
    log = read_columns(path, None if append else key_columns(contents))
    if append and log is None:
        raise InputError("only tables (Parquet, CSV) have columns to append to; leave out --append.")
    costs, spread = trained.cost(held, spread=True) if len(trained) > 1 else (trained.cost(held), None)
    novelty = trained.novelty(held)
    if ahead and not trained.learned_ahead:
        trained.learn_ahead(training_data(run, None, READING))
    following = trained.risk_ahead(held) if ahead else None
    save_risk(out, contents, costs, novelty.deviations, log, append=append, spread=spread, ahead=following)
    lines = [] if trained.observation_names else ["columns are matched by position: they have no names."]
    if trained.evidence is not None and trained.evidence.grade == "none":
        lines = [*trained.evidence.lines()[:2], *lines]
    console = _console()
    for line in (*lines, novelty_line(novelty)):
        console.print(line, highlight=False, markup=False)
    console.print(riskiest_table(held, costs, top))
    _print_edit_command(path, held.ids[rank(costs)[: min(top, len(costs) - 1)]].tolist())
    say(out)
    return 0


def _score_files(
    run: Path,
    paths: tuple[Path, ...],
    out: Path,
    append: bool,
    top: int,
    overwrite: bool,
    engine: str,
    workers: int | None,
    reading: ReadingFlags,
) -> int:
    """Score every file on its own; return 1 if one failed."""
    from safemil import fleet
    from safemil.errors import InputError

    if append:
        raise InputError("--append writes one file; give --out a name that ends in .parquet or .csv.")
    content = fleet.prepare(run, reading.options())
    found = fleet.score_files(content, paths, out, engine=engine, workers=workers, overwrite=overwrite)
    console = _console()
    for line in found.lines():
        console.print(line, highlight=False, markup=False)
    console.print(found.riskiest_table(top))
    say(out)
    return int(bool(found.failures))


def _print_edit_command(paths: Path | tuple[Path, ...], riskiest: list[Any]) -> None:
    """Print how LeRobot's own tool would delete the riskiest episodes, if the log is a dataset of LeRobot."""
    from safemil.data import lerobot

    path = paths[0] if isinstance(paths, tuple) and len(paths) == 1 else paths
    if riskiest and isinstance(path, Path) and lerobot.recognises(path):
        print("a copy of the dataset without these episodes, by LeRobot's own tool (for datasets of v3.0):")
        say(f"  {lerobot.edit_command(path, riskiest)}")
        print("  (LeRobot 0.4 writes it into the dataset's folder; later ones where --new_root says)")


def algorithms(
    name: Annotated[
        str | None, tyro.conf.Positional, tyro.conf.arg(metavar="[NAME]", help_behavior_hint="")
    ] = None,
) -> None:
    """List the algorithms, or the settings of one.

    safemil algorithms safemil

    Args:
        name: algorithm whose settings to list, with their values in each preset
    """
    from safemil.algorithms import available, find

    if name is None:
        _console().print(_algorithm_table(available()))
        return
    console = _console()
    for title, table in _setting_tables(find(name)):
        console.print(f"{title}:", style="bold")
        console.print(table)
        console.print()


def _algorithm_table(found: dict[str, "Algorithm"]) -> "Table":
    from rich.table import Column, Table

    table = Table(Column("name", no_wrap=True), "what it does", Column("learns from", min_width=12), box=None)
    for name, each in found.items():
        table.add_row(name, each.summary, ", ".join(sorted(each.NEEDS | {"unlabeled"})))
    return table


def _setting_tables(algorithm: "Algorithm") -> list[tuple[str, "Table"]]:
    """Group the settings: those of the paper, further ones, and those of the networks.

    Settings of the networks are the hidden layers, and all that the algorithms share.
    """
    from dataclasses import fields

    from rich.table import Column, Table

    from safemil.algorithms.cloning import Cloning
    from safemil.settings import meanings, spell

    settings, shared = meanings(algorithm.Config), {field.name for field in fields(Cloning)}
    width = max(map(len, settings))

    def table() -> Table:
        presets = (Column(name, no_wrap=True) for name in algorithm.PRESETS)
        return Table(Column("setting", no_wrap=True, width=width), *presets, "meaning", box=None)

    papers, ours, networks = table(), table(), table()
    for name, meaning in settings.items():
        values = (spell(getattr(preset, name)) for preset in algorithm.PRESETS.values())
        of_networks = name in shared or name.startswith("hidden")
        group = networks if of_networks else ours if name in algorithm.OURS else papers
        group.add_row(name, *values, meaning)
    groups = {
        "Settings of the paper": papers,
        "Settings that the paper does not have": ours,
        "Settings of the networks and their optimiser": networks,
    }
    return [(title, group) for title, group in groups.items() if group.row_count]


def _pile_paths(
    data: Path | None,
    logs: tuple[Path, ...],
    nonpreferred: Path | None,
    unlabeled: Path | None,
    needs: frozenset[str],
    options: "Options",
) -> "dict[str, Paths]":
    """Find the path of each pile that the algorithm needs."""
    from safemil.data.splitting import HINDSIGHT_STORE
    from safemil.errors import InputError

    if options.tells_incidents != bool(logs):
        raise InputError(
            "--logs needs --incident or --incident-episodes, and these need --logs; give both, or two "
            "piles by --nonpreferred and --unlabeled."
        )
    if logs:
        if data or nonpreferred or unlabeled:
            raise InputError("--logs holds all episodes; leave out the folder and files of separate piles.")
        return {"unlabeled": logs, "nonpreferred": logs}
    if data is not None:
        if nonpreferred or unlabeled:
            raise InputError("give either a folder of piles or --nonpreferred and --unlabeled, not both.")
        nonpreferred = data / "nonpreferred"
        unlabeled = data / (HINDSIGHT_STORE if "annotations" in needs else "unlabeled")
    if unlabeled is None:
        raise InputError(
            "no episodes given; give --unlabeled (and --nonpreferred), --logs, or a folder of piles."
        )
    if nonpreferred is None or "nonpreferred" not in needs:
        return {"unlabeled": unlabeled}
    return {"unlabeled": unlabeled, "nonpreferred": nonpreferred}


def _load_piles(
    paths: "dict[str, Paths]", needs: frozenset[str], options: "Options", device_gb: float
) -> tuple[dict[str, Any], "Options"]:
    """Read the piles that the algorithm needs, and say how: with the names of columns instead of patterns.

    The unlabeled episodes of a store in shards that is larger than `device_gb` stay in their files.
    """
    from safemil.data import Annotations
    from safemil.data.formats import read_piles
    from safemil.data.interchange import single_path
    from safemil.data.store import stored

    found = None if options.tells_incidents else stored(single_path(paths["unlabeled"]))
    if found is not None and found.nbytes > device_gb * 1e9:
        others = {name: path for name, path in paths.items() if name != "unlabeled"}
        kept: dict[str, Any] = {name: each.trajectories for name, each in read_piles(others, options).items()}
        if "annotations" in needs:
            kept["annotations"] = Annotations(*map(found.needed_per_step, ("rewards", "costs")))
        return kept | {"unlabeled": found}, options
    contents = read_piles(paths, options)
    piles: dict[str, Any] = {
        name: each.trajectories
        for name, each in contents.items()
        if name in needs | {"unlabeled", "preferred"}
    }
    if "annotations" in needs:
        piles["annotations"] = contents["unlabeled"].annotations()
    return piles, contents["unlabeled"].resolved or options


def _print_summary(run: "Run", algorithm: "Algorithm", preferred_share: float | None) -> None:
    from rich.table import Table

    last: dict[str, Any] = {}
    for line in run.metrics:
        last |= line
    seconds = last.pop("seconds", 0.0)
    updates = last.pop("update", 0)
    table = Table("", *(f"seed {seed}" for seed in run.seeds), box=None)
    for name, values in last.items():
        table.add_row(name, *("NaN" if value is None else f"{value:.3f}" for value in values))
    console = _console()
    console.print(f"{run.algorithm}: {updates:,} updates in {seconds:.0f} s; last values:")
    console.print(table)
    for advice in algorithm.advice(run.config, preferred_share) if algorithm.advice else []:
        console.print(advice)
    for sentence in run.evidence.lines() if run.evidence else []:
        console.print(sentence)


def _console() -> Any:
    from safemil.terminal import console

    return console()


COMMANDS = {
    "demo": demo,
    "train": train,
    "evidence": evidence,
    "score": score,
    "algorithms": algorithms,
    "evaluate": evaluate,
    "export": export,
    "guard": guard,
    "bench": bench,
    "tables": tables,
    "report": report,
}
