"""`safemil data`: make or fetch episodes, describe, convert and split them."""

from json import dumps
from pathlib import Path
from shutil import rmtree
from typing import TYPE_CHECKING, Annotated, Any, Literal

import tyro

from safemil.cli.arguments import READING, LogPaths, LogsPath, NameFlag, PathFlag, ReadingFlags, TaskName
from safemil.terminal import say

if TYPE_CHECKING:  # numpy, pyarrow and h5py take 0.4 s, which `--help` does not need
    from rich.table import Table

    from safemil.data.describing import Description, Spread
    from safemil.data.interchange import Unreadable

SCATTER = "scatter"  # name of the plot in a store that `make` wrote


def make(
    name: TaskName,
    episodes: Annotated[int | None, tyro.conf.arg(metavar="INT", help_behavior_hint="")] = None,
    seed: int = 0,
    behaviour: Literal["policies", "continuum"] = "policies",
    out: PathFlag = None,
    format: Literal["store", "dsrl"] = "store",
    overwrite: bool = False,
) -> None:
    """Make annotated episodes of a task with the behaviour policies of this package.

    safemil data make SafetyPointGoal1-v0 --out data/goal1

    Args:
        name: a task (`safemil tasks list`)
        episodes: how many (default: 800; logs of a task with its own demonstrators: 200)
        seed: chooses the episodes; the same seed makes the same data
        behaviour: fixed policies, or a continuum of drivers that each draw their caution anew for every
            episode, so that good and bad episodes come from the same drivers
        out: store to write (default: data/NAME), or file with --format dsrl (default: data/NAME.hdf5)
        format: our store, with manifest and scatter plot in it, or DSRL's HDF5, with the manifest beside it;
            a generated problem such as toy:speed is made as Parquet files instead: incidents, logs, held out
        overwrite: replace what is there
    """
    from safemil import catalog
    from safemil.errors import InputError
    from safemil.texts import plain_name

    if seed < 0:
        raise InputError(f"seed must be at least 0, got {seed}.")
    task = catalog.task(name)
    if task.demonstrate is None:
        out = out or _default_out(name, format)
        _make_task(name, behaviour, episodes, seed, out, format, overwrite)
    elif behaviour == "continuum":
        raise InputError(f"{name} makes its own episodes; leave --behaviour out.")
    elif format == "dsrl":
        raise InputError(f"{name} is made as Parquet files; leave --format out.")
    else:
        out = out or Path("data") / plain_name("task", name.replace(":", "-"))
        _make_piles(name, 200 if episodes is None else episodes, seed, out, overwrite)


def _make_piles(name: str, episodes: int, seed: int, out: Path, overwrite: bool) -> None:
    """Write the two piles without their true costs, and held-out episodes with them."""
    from safemil import __version__, catalog
    from safemil.data import save
    from safemil.data.piles import draw_piles
    from safemil.files import atomic_folder
    from safemil.ownership import marked, require_free

    require_free(out, overwrite=overwrite)
    task, format = catalog.task(name), "safemil-piles"
    assert task.demonstrate is not None
    piles = draw_piles(
        task.demonstrate,
        unlabeled=episodes,
        preferred_share=task.careful_share,
        rare_incidents=task.rare_incidents,
        seed=seed,
    )
    with atomic_folder(out, marked("made.json", format), overwrite=overwrite) as folder:
        save(folder / "incidents.parquet", piles.nonpreferred)
        save(folder / "logs.parquet", piles.unlabeled)
        save(folder / "heldout.parquet", piles.heldout, piles.heldout_truth)
        made = {"format": format, "task": name, "seed": seed, "safemil": __version__}
        (folder / "made.json").write_text(dumps(made, indent=2) + "\n")
    print(f"{len(piles.nonpreferred)} incidents, {len(piles.unlabeled)} logs, {len(piles.heldout)} held out")
    say(out)


def _default_out(name: str, format: str) -> Path:
    return Path("data") / (name if format == "store" else f"{name}.hdf5")


def _make_task(
    task: str,
    behaviour: Literal["policies", "continuum"],
    episodes: int | None,
    seed: int,
    out: Path,
    format: Literal["store", "dsrl"],
    overwrite: bool,
) -> None:
    from safemil.extras import require_extra

    require_extra("tasks", "making episodes of a safety task")
    from safemil.behaviour.making import EPISODES, make
    from safemil.behaviour.plotting import scatter
    from safemil.data import save
    from safemil.data.formats import STORE
    from safemil.files import atomic_files, atomic_folder
    from safemil.ownership import require_free

    beside = out.with_suffix(".json")  # of an HDF5 file, which has no place for a manifest
    for path in [out] if format == "store" else [out, beside]:
        require_free(path, overwrite=overwrite)
    count = EPISODES if episodes is None else episodes
    trajectories, annotations, manifest = make(
        task, behaviour=behaviour, episodes=count, seed=seed, progress=True
    )
    if format == "store":
        with atomic_folder(out, STORE, overwrite=overwrite) as folder:
            save(folder, trajectories, annotations, format="store", manifest=manifest)
            scatter(folder / SCATTER, trajectories, annotations, task=task)
    else:
        with atomic_files(out) as folder:
            save(folder / out.name, trajectories, annotations, format="hdf5")
            (folder / beside.name).write_text(dumps(manifest, indent=2) + "\n", encoding="utf-8")
    print(f"{trajectories.episodes} episodes of {len(manifest['policies'])} policies")
    say(out)


def record(
    *,
    env: Annotated[str, tyro.conf.arg(metavar="MODULE:FUNCTION")],
    out: Annotated[Path, tyro.conf.arg(metavar="PATH")],
    policy: Annotated[str, tyro.conf.arg(metavar="POLICY")] = "random",
    episodes: int = 50,
    seed: int = 0,
    cost: str = "cost",
    max_steps: Annotated[int | None, tyro.conf.arg(metavar="INT", help_behavior_hint="")] = None,
    observation_names: NameFlag = None,
    action_names: NameFlag = None,
    stochastic: bool = False,
    overwrite: bool = False,
) -> None:
    """Record episodes of a Gymnasium environment, with their rewards and costs.

    safemil data record --env mymodule:make --policy random --out logs.parquet

    Args:
        env: module:function that makes the environment, or the id of one
        out: file or store to write; its format is chosen by the suffix
        policy: random, a run folder, or module:function from an observation to an action
        episodes: number of episodes
        seed: seed of the episodes; the same seed records the same
        cost: entry of the environment's info that is the cost of a step, or module:function of a transition
        max_steps: end longer episodes after as many steps
        observation_names: names of the observation columns, separated by commas (default: those of a Dict)
        action_names: names of the action columns
        stochastic: sample the actions of a run instead of taking its mode
        overwrite: replace the file or store
    """
    from safemil import evaluation
    from safemil.cli.arguments import environment, function
    from safemil.data import save
    from safemil.ownership import require_free

    require_free(out, overwrite=overwrite)
    chosen: Any = policy
    if policy != "random":
        if Path(policy).is_dir():
            from safemil.api import Run

            chosen = Run.load(policy)[0]
        else:
            chosen = function(policy)
    named = [
        None if each is None else [name.strip() for name in each.split(",")]
        for each in (observation_names, action_names)
    ]
    logs, truth = evaluation.record(
        environment(env),
        chosen,
        episodes=episodes,
        seed=seed,
        cost=function(cost) if ":" in cost else cost,
        max_steps=max_steps,
        observation_names=named[0],
        action_names=named[1],
        stochastic=stochastic,
        progress=True,
    )
    save(out, logs, truth, overwrite=overwrite)
    costly = (truth.episode_sums(logs.lengths)[1] > 0).sum()
    print(f"{len(logs)} episodes, {logs.steps} steps; {costly} episodes with cost")
    print(out)


def fetch(task: TaskName, out: PathFlag = None) -> None:
    """Download the DSRL file of a task, or continue an interrupted download.

    safemil data fetch SafetyPointGoal1-v0

    Args:
        task: a task (`safemil tasks list`)
        out: file to write (default: DSRL's name in $DSRL_DATASET_DIR, else in ~/.dsrl/datasets)
    """
    from safemil.behaviour.fetching import fetch

    say(fetch(task, out, progress=True))


def info(
    path: LogPaths,
    reading: ReadingFlags = READING,
    json: bool = False,
    strict: bool = False,
    plot: PathFlag = None,
) -> int:
    """Describe a file of episodes, and point out what looks wrong in it.

    safemil data info logs.parquet

    Args:
        path: files, folders, quoted patterns, or a store of episodes
        json: print the description as JSON
        strict: end with exit code 1 if there is any fault
        plot: name of a scatter plot of return and cost, written as PNG and SVG
    """
    from dataclasses import replace

    from safemil.data.describing import describe_contents
    from safemil.data.formats import read
    from safemil.data.interchange import Unreadable

    options = replace(reading.options(), lenient=True)
    try:
        contents = read(path, options)
    except Unreadable as error:
        if json:
            columns = [each._asdict() for each in error.columns]
            found = {"episodes": 0, "declared": error.declared, "columns": columns}
            print(dumps(found | {"faults": error.faults, "notes": error.notes}, indent=2))
        else:
            _print_raw_columns(error)
        raise
    description = describe_contents(contents, options)
    if json:
        print(dumps(description.as_dict(), indent=2))
    else:
        _print_description(", ".join(str(each) for each in path), description)
    drawn = [path[0] / f"{SCATTER}.png"]
    if plot is not None:
        from safemil.behaviour.plotting import scatter

        drawn = scatter(
            plot, contents.trajectories, contents.annotations(), task=contents.manifest.get("task")
        )
    if not json:
        for each in drawn:
            if each.is_file():
                say(each)
    return int(strict and bool(description.faults))


def split(
    path: LogsPath,
    reading: ReadingFlags = READING,
    nonpreferred: int = 50,
    unlabeled: int = 200,
    preferred_share: float = 0.5,
    return_rule: Literal["midrange", "median"] = "midrange",
    seed: int = 0,
    out: PathFlag = None,
    overwrite: bool = False,
) -> None:
    """Split annotated episodes into the paper's two piles, without rewards and costs.

    safemil data split point-circle.hdf5 --out data/point-circle

    Args:
        path: file or store of episodes with rewards and costs
        nonpreferred: number of episodes in the non-preferred pile
        unlabeled: number of episodes in the unlabeled pile
        preferred_share: share of preferred episodes in the unlabeled pile, 0 to 1
        return_rule: a return is high above the middle of the range of returns, or above the median
        seed: seed of the draw
        out: folder for both piles (default: NAME-split beside the input)
        overwrite: replace an earlier split
    """
    from safemil.data import load_annotated, read_manifest, save_split
    from safemil.data import split as draw
    from safemil.ownership import require_free

    out = out or path.with_name(f"{path.stem}-split")
    require_free(out, overwrite=overwrite)
    options = reading.options()
    trajectories, annotations = load_annotated(
        path, columns=options.columns, action_bounds=options.action_bounds
    )
    chosen: dict[str, Any] = {
        "nonpreferred": nonpreferred,
        "unlabeled": unlabeled,
        "preferred_share": preferred_share,
        "return_rule": return_rule,
        "seed": seed,
    }
    piles = draw(trajectories, annotations, **chosen)
    manifest = {"source": path.name, "source_hash": trajectories.content_hash(), "split": chosen}
    if path.is_dir():  # a store: what it says of itself, such as the task, holds for its episodes still
        manifest["origin"] = read_manifest(path)
    save_split(out, piles, manifest=manifest, overwrite=overwrite)
    print(f"{len(piles.nonpreferred)} non-preferred and {len(piles.unlabeled)} unlabeled episodes")
    say(out)


def convert(
    source: LogsPath,
    out: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="OUT")],
    reading: ReadingFlags = READING,
    format: NameFlag = None,
    shards: Annotated[int | None, tyro.conf.arg(metavar="INT", help_behavior_hint="")] = None,
    overwrite: bool = False,
) -> None:
    """Write episodes in another format, or a log of any size as a store in shards.

    safemil data convert logs.csv logs.parquet --action-low -2 --action-high 2

    A store in shards is made in pieces; the same command goes on if stopped.

    Args:
        source: file or store of episodes
        out: file or store to write
        format: parquet, hdf5, csv or store (default: by the suffix of OUT; a store if it has none)
        shards: files of the store, more where one would exceed 256 MB, fewer for few episodes
        overwrite: replace the file or store
    """
    if shards is not None:
        _convert_to_shards(source, out, reading, format, shards, overwrite)
        return
    from safemil.data.formats import format_for, read, write
    from safemil.ownership import require_free

    require_free(out, overwrite=overwrite)
    write(out, read(source, reading.options()), format or format_for(out), overwrite=overwrite)
    say(out)


def _convert_to_shards(
    source: Path, out: Path, reading: ReadingFlags, format: str | None, shards: int, overwrite: bool
) -> None:
    from safemil.data import converting
    from safemil.data.formats import STORE, format_for
    from safemil.errors import InputError
    from safemil.files import move_aside
    from safemil.ownership import is_free

    if (format or format_for(out)) != "store":
        raise InputError(f"only a store has shards, but {out} would be {format or format_for(out)}.")
    if overwrite and not is_free(out):
        if not STORE.is_ours(out) and not converting.is_unfinished(out):
            raise InputError(f"{out} holds something else than a store; give another path.")
        rmtree(move_aside(out))
    found = converting.convert(source, out, reading.options(), shards=shards)
    print(f"{found.episodes} episodes, {found.steps} steps in {len(found.shards)} shards")
    print(out)


def _print_description(path: str, description: "Description") -> None:
    from safemil.cli import with_flags
    from safemil.terminal import console

    terminal = console()
    lines: list[Any] = [*_summary(path, description), _column_table(description)]
    if description.constant:
        lines.append(f"constant columns: {', '.join(description.constant)}")
    lines += [f"equal columns: {', '.join(names)}" for names in description.duplicate]
    lines += [f"note: {note}" for note in description.notes]
    lines += [f"suspicious: {line}" for line in description.folded()]
    lines += [f"fault: {with_flags(fault)}" for fault in description.faults]
    low, high = description.fitting_bounds()
    fits = (low, high) == (description.action_low, description.action_high)
    if not fits and not description.faults and all(map(float.__lt__, low, high)):
        spelled = (" ".join(f"{value:.6g}" for value in values) for values in (low, high))
        lines.append("all actions lie in --action-low {} --action-high {}".format(*spelled))
    for line in lines:
        terminal.print(line, soft_wrap=True)


def _print_raw_columns(log: "Unreadable") -> None:
    from safemil.terminal import console

    table = _table("column", "low", "high", "empty", "repeated")
    for each in log.columns:
        shares = f"{each.empty:.1%}", f"{each.constant:.1%}"
        table.add_row(each.name, f"{each.low:.4g}", f"{each.high:.4g}", *shares)
    declared = "" if log.declared is None else f"; {log.declared} declared, all passed over for their faults"
    for line in (f"0 episodes{declared}", table, *(f"note: {note}" for note in log.notes)):
        console().print(line, soft_wrap=True)


def _summary(path: str, description: "Description") -> list[str]:
    passed = description.declared - description.episodes
    lines = [
        f"{path}: {description.episodes} episodes, {description.steps} steps"
        + (f"; {description.declared} declared, {passed} passed over for their faults" if passed else ""),
        *([] if description.incidents is None else [f"incidents       {description.incidents} episodes"]),
        f"length          {_spread(description.lengths)}",
        f"observation     {description.observation_size} columns, action {description.action_size}",
        f"action bounds   {_bounds(description)}",
        f"ended by task   {description.terminated} episodes",
        f"final observed  {description.final_observations} episodes",
    ]
    if description.returns and description.costs:
        lines += [
            f"return          {_spread(description.returns)}",
            f"cost            {_spread(description.costs)}",
        ]
    return [*lines, f"content         {description.content_hash[:16]}"]


def _spread(spread: "Spread") -> str:
    return f"{spread.low:g} to {spread.high:g}, median {spread.median:g}, mean {spread.mean:g}"


def _bounds(description: "Description") -> str:
    pairs = list(zip(description.action_low, description.action_high, strict=True))
    shown = pairs[:1] if len(set(pairs)) == 1 else pairs
    return ", ".join(f"{low:g} to {high:g}" for low, high in shown)


def _column_table(description: "Description") -> "Table":
    table = _table("column", "low", "high", "mean", "deviation", "empty", "repeated")
    for each in description.columns:
        table.add_row(
            each.name,
            *(f"{value:.4g}" for value in (each.low, each.high, each.mean, each.deviation)),
            *(f"{share:.1%}" for share in (each.empty, each.constant)),
        )
    return table


def _table(*titles: str) -> "Table":
    from rich.table import Column, Table

    first, *others = titles
    return Table(first, *(Column(title, justify="right") for title in others), box=None)


COMMANDS = {"make": make, "record": record, "fetch": fetch, "info": info, "split": split, "convert": convert}
