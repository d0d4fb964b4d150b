"""Renders a table as Markdown, CSV, LaTeX and HTML."""

import csv as csv_module
import io
from collections.abc import Sequence
from html import escape
from math import isnan

from safemil.bench.tables import Form, Table, Value

LATEX = str.maketrans({"%": r"\%", "_": r"\_", "&": r"\&", "#": r"\#", "±": r"$\pm$"})


def markdown(table: Table) -> str:
    r"""Render as Markdown.

    >>> print(markdown(Table(["a", "b"], [["x|y", ""]])), end="")
    | a | b |
    | --- | --- |
    | x\|y |  |
    """

    def text(cell: str | Value) -> str:
        shown = str(cell).replace("|", r"\|")
        return f"**{shown}**" if _is_best(cell) else shown

    lines: list[Sequence[str | Value]] = [table.head, ["---"] * len(table.head), *table.rows]
    return "".join(f"| {' | '.join(map(text, line))} |\n" for line in lines)


def csv(table: Table) -> str:
    r"""Render as CSV with one column per number, so that a mean and its half-width stand apart.

    >>> from safemil.bench.tables import INTERVAL
    >>> csv(Table(["task, seed", "Cost"], [["Ant", Value((1.0, 0.5), INTERVAL)]]))
    '"task, seed",Cost,Cost ±\nAnt,1.00,0.50\n'
    """
    forms = _forms(table)
    text = io.StringIO()
    writer = csv_module.writer(text, lineterminator="\n")
    writer.writerow(
        title + suffix
        for title, form in zip(table.head, forms, strict=True)
        for suffix in (form.suffixes if form else [""])
    )
    for row in table.rows:
        line: list[str] = []
        for cell, form in zip(row, forms, strict=True):
            if isinstance(cell, Value):
                line += ["" if isnan(number) else format(number, cell.form.csv) for number in cell.numbers]
            else:
                line += [cell] * (len(form.suffixes) if form else 1)
        writer.writerow(line)
    return text.getvalue()


def latex(table: Table) -> str:
    """Render as a LaTeX tabular that needs the package booktabs."""

    def text(cell: str | Value) -> str:
        shown = str(cell).translate(LATEX)
        return rf"\textbf{{{shown}}}" if _is_best(cell) else shown

    rows: list[Sequence[str | Value]] = [table.head, *table.rows]
    head, *body = (" & ".join(map(text, row)) + r" \\" for row in rows)
    begin = rf"\begin{{tabular}}{{l{'c' * (len(table.head) - 1)}}}"
    lines = [begin, r"\toprule", head, r"\midrule", *body, r"\bottomrule", r"\end{tabular}"]
    return "\n".join(lines) + "\n"


def html(table: Table) -> str:
    """Render as an HTML table that the script of a report sorts by its columns."""

    def title(text: str, form: Form | None) -> str:
        kind, style = ("number", ' class="num"') if form else ("text", "")
        return f'<th scope="col"{style}><button type="button" data-kind="{kind}">{escape(text)}</button></th>'

    def text(cell: str | Value, form: Form | None) -> str:
        if not form:
            return f'<th scope="row" data-value="{escape(str(cell))}">{escape(str(cell))}</th>'
        shown = f"<strong>{cell}</strong>" if _is_best(cell) else str(cell)
        number = cell.numbers[0] if isinstance(cell, Value) else "-Infinity"  # a missing value is the least
        return f'<td class="num" data-value="{number}">{shown}</td>'

    forms = _forms(table)
    head = "".join(map(title, table.head, forms))
    body = "".join(f"<tr>{''.join(map(text, row, forms))}</tr>\n" for row in table.rows)
    return (
        f'<div class="scroll"><table class="plain sortable">\n<thead><tr>{head}</tr></thead>\n'
        f"<tbody>{body}</tbody></table></div>\n"
    )


def _forms(table: Table) -> list[Form | None]:
    """Format of each column; None for a column of texts."""
    columns = zip(*table.rows, strict=True)
    return [next((cell.form for cell in column if isinstance(cell, Value)), None) for column in columns]


def _is_best(cell: str | Value) -> bool:
    return isinstance(cell, Value) and cell.best
