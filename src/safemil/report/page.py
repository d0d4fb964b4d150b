"""Writes a report: one HTML file with its styles, script and figures inside."""

import base64
import copy
import hashlib
import json
import os
import tempfile
from collections.abc import Mapping
from importlib.resources import files
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

import safemil
from safemil.api import Run
from safemil.bench.runner import GRID
from safemil.data import Trajectories, save
from safemil.data.interchange import Options, Paths
from safemil.errors import InputError
from safemil.files import atomic_file
from safemil.ownership import require_free

UNSAFE = {ord(each): f"\\u{ord(each):04x}" for each in "<>&\u2028\u2029"}  # inside a script element


def is_bench(path: Path) -> bool:
    """Whether a folder holds results of a benchmark."""
    return (path / GRID).is_file()


def report(
    run: Run | str | os.PathLike[str],
    out: str | os.PathLike[str],
    *,
    unlabeled: Trajectories | Paths | None = None,
    nonpreferred: Trajectories | Paths | None = None,
    compare: str | os.PathLike[str] | None = None,
    task: str | None = None,
    overwrite: bool = False,
    progress: bool = False,
) -> Path:
    """Write the report of a run, or of its folder, as one HTML file.

    The piles are episodes or paths of files; without any, they are read where the run says that they are.
    """
    from safemil.runs import RunDirectory

    _check_out(Path(out), overwrite=overwrite)
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        path = Path(run) if isinstance(run, str | os.PathLike) else _on_disk(run, folder / "run")
        given = {"unlabeled": unlabeled, "nonpreferred": nonpreferred}
        piles = {name: _as_paths(pile, folder / name) for name, pile in given.items() if pile is not None}
        if piles and "unlabeled" not in piles:
            raise InputError("which episodes are to be ranked? give `unlabeled=...` beside the others.")
        read, options = (piles, Options()) if piles else RunDirectory(path).read_sources()
        other = None if compare is None else Path(compare)
        write_run(
            path, Path(out), read, options, noted=not piles, compare=other, task=task, overwrite=overwrite,
            progress=progress,
        )  # fmt: skip
    return Path(out)


def _on_disk(run: Run, folder: Path) -> Path:
    """Folder of a run; one that is in memory alone, or a seed of another, is written first."""
    if run.path is not None and len(Run.load(run.path)) == len(run):
        return run.path
    copy.copy(run).save(folder)
    return folder


def _as_paths(pile: Trajectories | Paths, store: Path) -> Paths:
    if not isinstance(pile, Trajectories):
        return pile
    save(store, pile)
    return store


def write_run(
    path: Path,
    out: Path,
    piles: Mapping[str, Paths],
    options: Options,
    *,
    noted: bool = False,
    compare: Path | None = None,
    task: str | None = None,
    overwrite: bool = False,
    progress: bool = False,
) -> None:
    """Write the report of a run; `noted` piles are those that the run itself names."""
    from safemil.report.inputs import gather
    from safemil.report.run_page import context

    _check_out(out, overwrite=overwrite)
    material = gather(path, piles, options, noted=noted, compare=compare, task=task)
    _write(out, "run.html", context(material, progress=progress))


def write_bench(path: Path, out: Path, *, overwrite: bool = False) -> None:
    """Write the report of a benchmark."""
    from safemil.report.bench_page import context

    _check_out(out, overwrite=overwrite)
    _write(out, "bench.html", context(path))


def _check_out(out: Path, *, overwrite: bool) -> None:
    """Refuse a name that is not HTML, and a file that exists unless it may be overwritten."""
    if out.suffix not in (".html", ".htm"):
        raise InputError(f'expected an HTML file, got "{out.name}"; give a name that ends in .html.')
    require_free(out, overwrite=overwrite)


def to_json(content: Any) -> Markup:
    """Encode as JSON for a script element; no text in it can end the element.

    >>> to_json("</script>")
    Markup('"\\\\u003c/script\\\\u003e"')
    """
    return Markup(json.dumps(content, separators=(",", ":"), ensure_ascii=False).translate(UNSAFE))


def _write(out: Path, template: str, context: Mapping[str, Any]) -> None:
    environment = Environment(
        loader=PackageLoader("safemil.report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["json"] = to_json
    script = files("safemil.report").joinpath("templates", "page.js").read_text(encoding="utf-8")
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    text = environment.get_template(template).render(
        **context,
        script=Markup(script),
        script_hash=digest,  # the page allows this script and no other
        version=safemil.__version__,
    )
    with atomic_file(out) as file:
        file.write_text(text, encoding="utf-8")
