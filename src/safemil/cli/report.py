"""`safemil report`."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import tyro

from safemil.cli.data import READING, PathFlag, Reading, ReadingFlags

if TYPE_CHECKING:
    from safemil.data.interchange import Options


def report(
    path: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="RUN_OR_RESULTS")],
    data: Annotated[
        Path | None, tyro.conf.Positional, tyro.conf.arg(metavar="[DATA]", help_behavior_hint="")
    ] = None,
    *,
    out: Annotated[Path, tyro.conf.arg(metavar="FILE")],
    nonpreferred: PathFlag = None,
    unlabeled: PathFlag = None,
    compare: Annotated[Path | None, tyro.conf.arg(metavar="RUN", help_behavior_hint="")] = None,
    task: Annotated[str | None, tyro.conf.arg(metavar="TASK", help_behavior_hint="")] = None,
    overwrite: bool = False,
    reading: ReadingFlags = READING,
) -> None:
    """Write a page about a run, or about a benchmark's results: one HTML file to read, print or mail.

    safemil report runs/first --out report.html

    Args:
        path: a run directory, or a folder that `safemil bench` wrote
        data: a folder made by `safemil data split`; needed only if the piles are no longer where they were
        out: the .html file to write
        nonpreferred: the episodes marked as bad, likewise
        unlabeled: the episodes to rank, likewise; others than the run was trained on can be given too
        compare: another run, such as one of bc, to show beside this one
        task: the task that the data come from (default: as the evaluation or the data say)
        overwrite: replace the file
    """
    from safemil.report.page import is_bench, write_bench, write_run

    if is_bench(path):
        write_bench(path, out, overwrite=overwrite)
    else:
        piles, options = _piles(path, data, nonpreferred, unlabeled, reading)
        write_run(path, out, piles, options, compare=compare, task=task, overwrite=overwrite, progress=True)
    print(out)


def _piles(
    path: Path, data: Path | None, nonpreferred: Path | None, unlabeled: Path | None, reading: Reading
) -> tuple[dict[str, Path], "Options"]:
    """Where the piles are and how to read them: as given, else as training noted."""
    from safemil.errors import InputError
    from safemil.report.inputs import noted_piles

    if data is not None:
        if nonpreferred or unlabeled:
            raise InputError("give either a folder of piles or --nonpreferred and --unlabeled, not both.")
        return {name: data / name for name in ("unlabeled", "nonpreferred")}, reading.options()
    if unlabeled is not None:
        given = {"unlabeled": unlabeled, "nonpreferred": nonpreferred}
        return {name: where for name, where in given.items() if where is not None}, reading.options()
    if nonpreferred is not None:
        raise InputError("which episodes are to be ranked? give --unlabeled beside --nonpreferred.")
    paths, noted = noted_piles(path)
    try:
        return paths, Reading(**noted).options()
    except TypeError as error:
        raise InputError(
            f"{path} says how to read its piles in words unknown here ({error}); name them."
        ) from None
