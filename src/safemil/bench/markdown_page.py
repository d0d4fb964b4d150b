"""Writes the results page as Markdown, with its figures, CSV and LaTeX tables in a folder beside it."""

from pathlib import Path

from safemil.bench import render
from safemil.bench.page import Page, Part, Section, build
from safemil.bench.results import Results
from safemil.errors import InputError
from safemil.files import atomic_file, atomic_files
from safemil.ownership import require_free
from safemil.texts import plain_name

SUFFIX = ".md"


def write_page(results: Path, out: Path, *, overwrite: bool = False) -> Path:
    """Write the page of a folder of results; return its path, which ends in .md."""
    if out.suffix not in ("", SUFFIX):
        raise InputError(f'expected a Markdown page, got "{out.name}"; give a name that ends in {SUFFIX}.')
    out = out.with_suffix(SUFFIX)
    for path in (out, out.with_suffix("")):
        require_free(path, overwrite=overwrite)
    page = build(Results(results))
    with atomic_files(out) as folder:
        for section in page.sections:
            for part in section.parts:
                _write_files(part, folder / out.stem)
        (folder / out.name).write_text(render_markdown(page, out.stem), encoding="utf-8")
    return out


def _write_files(part: Part, folder: Path) -> None:
    for suffix, rendered in (("csv", render.csv(part.table)), ("tex", render.latex(part.table))):
        with atomic_file(folder / f"{plain_name('table', part.name)}.{suffix}") as file:
            file.write_text(rendered, encoding="utf-8")
    for picture in part.pictures:
        picture.draw(folder / f"{plain_name('picture', picture.name)}.png")


def render_markdown(page: Page, folder: str) -> str:
    """Render the page; its figures are in `folder`."""
    blocks = [f"# {page.title}", page.text]
    for section in page.sections:
        blocks += _section(section, folder)
    return "\n\n".join(block.rstrip("\n") for block in blocks if block) + "\n"


def _section(section: Section, folder: str) -> list[str]:
    blocks = [f"## {section.title}", section.text]
    for part in section.parts:
        blocks += [f"### {part.title}" if part.title else "", part.text, render.markdown(part.table)]
        if part.paper:
            blocks += ["The paper's own numbers, after a million updates:", render.markdown(part.paper)]
        for picture in part.pictures:
            blocks += [f"![{picture.title}]({folder}/{picture.name}.png)", picture.caption]
    return blocks
