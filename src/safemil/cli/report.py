"""`safemil report`."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import tyro

from safemil.cli.arguments import READING, DataPath, OutFile, PathFlag, Reading, ReadingFlags, TaskFlag
from safemil.terminal import say

if TYPE_CHECKING:
    from collections.abc import Mapping

    from safemil.data.interchange import Options, Paths


def report(
    path: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="RUN_OR_RESULTS")],
    data: DataPath = None,
    *,
    out: OutFile,
    nonpreferred: PathFlag = None,
    unlabeled: PathFlag = None,
    compare: Annotated[Path | None, tyro.conf.arg(metavar="RUN", help_behavior_hint="")] = None,
    task: TaskFlag = None,
    overwrite: bool = False,
    reading: ReadingFlags = READING,
) -> None:
    """Write a report on a run, or on a benchmark's results, as one HTML file.

    safemil report runs/first --out report.html

    Args:
        path: run folder, or folder that `safemil bench` wrote
        data: folder made by `safemil data split`; needed only if the piles have been moved since training
        out: .html file to write
        nonpreferred: episodes marked as bad, if they have been moved
        unlabeled: episodes to rank, if they have been moved or others are to be ranked
        compare: another run to compare with, such as one of bc
        task: task that the data come from (default: as named by the evaluation or the data)
        overwrite: replace the file
    """
    from safemil.report.page import is_bench, write_bench, write_run

    if is_bench(path):
        write_bench(path, out, overwrite=overwrite)
    else:
        piles, options = _piles(path, data, nonpreferred, unlabeled, reading)
        write_run(
            path,
            out,
            piles,
            options,
            noted=data is None and unlabeled is None,
            compare=compare,
            task=task,
            overwrite=overwrite,
            progress=True,
        )
    say(out)


def _piles(
    path: Path, data: Path | None, nonpreferred: Path | None, unlabeled: Path | None, reading: Reading
) -> tuple["Mapping[str, Paths]", "Options"]:
    """Find the piles and how to read them: as given, else as noted by training."""
    from safemil.errors import InputError
    from safemil.runs import RunDirectory

    if data is not None:
        if nonpreferred or unlabeled:
            raise InputError("give either a folder of piles or --nonpreferred and --unlabeled, not both.")
        return {name: data / name for name in ("unlabeled", "nonpreferred")}, reading.options()
    if unlabeled is not None:
        given = {"unlabeled": unlabeled, "nonpreferred": nonpreferred}
        return {name: where for name, where in given.items() if where is not None}, reading.options()
    if nonpreferred is not None:
        raise InputError("need episodes to rank; give --unlabeled as well as --nonpreferred.")
    return RunDirectory(path).read_sources()
