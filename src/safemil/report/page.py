"""Writes a report: one HTML file with its styles, script and figures inside."""

import base64
import hashlib
import json
from collections.abc import Mapping
from importlib.resources import files
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

import safemil
from safemil.bench.runner import GRID
from safemil.data.interchange import Options, Paths
from safemil.errors import InputError
from safemil.files import atomic_file
from safemil.ownership import require_free

UNSAFE = {ord(each): f"\\u{ord(each):04x}" for each in "<>&\u2028\u2029"}  # inside a script element


def is_bench(path: Path) -> bool:
    """Whether a folder holds results of a benchmark."""
    return (path / GRID).is_file()


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
