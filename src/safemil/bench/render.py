"""Renders a table as Markdown, CSV, LaTeX and HTML."""

import csv as csv_module
import io
from html import escape
from math import isnan

from safemil.bench.tables import Cell, Form, Table, Value

LATEX = str.maketrans({"%": r"\%", "_": r"\_", "&": r"\&", "#": r"\#", "±": r"$\pm$"})


def markdown(table: Table) -> str:
    """Render as Markdown."""

    def text(cell: Cell) -> str:
        shown = str(cell).replace("|", r"\|")
        return f"**{shown}**" if _is_best(cell) else shown

    lines = [table.head, ["---"] * len(table.head), *table.rows]
    return "".join(f"| {' | '.join(map(text, line))} |\n" for line in lines)


def csv(table: Table) -> str:
    r"""Render as CSV with a column per number: a mean and its half-width stand apart.

    >>> from safemil.bench.tables import INTERVAL
    >>> csv(Table(["task, seed", "Cost"], [["Ant", Value((1.0, 0.5), INTERVAL)]]))
    '"task, seed",Cost,Cost ±\nAnt,1.00,0.50\n'
    """
    forms = _forms(table)
    suffixes = [form.suffixes if form else ("",) for form in forms]

    def texts(cell: Cell, parts: tuple[str, ...]) -> list[str]:
        if isinstance(cell, str):
            return [cell] * len(parts)
        return ["" if isnan(number) else format(number, cell.form.csv) for number in cell.numbers]

    text = io.StringIO()
    writer = csv_module.writer(text, lineterminator="\n")
    writer.writerow(title + each for title, parts in zip(table.head, suffixes, strict=True) for each in parts)
    for row in table.rows:
        writer.writerow(each for pair in zip(row, suffixes, strict=True) for each in texts(*pair))
    return text.getvalue()


def latex(table: Table) -> str:
    """Render as a LaTeX tabular; it needs the package booktabs."""

    def text(cell: Cell) -> str:
        shown = str(cell).translate(LATEX)
        return rf"\textbf{{{shown}}}" if _is_best(cell) else shown

    head, *body = (" & ".join(map(text, row)) + r" \\" for row in [table.head, *table.rows])
    begin = rf"\begin{{tabular}}{{l{'c' * (len(table.head) - 1)}}}"
    lines = [begin, r"\toprule", head, r"\midrule", *body, r"\bottomrule", r"\end{tabular}"]
    return "\n".join(lines) + "\n"


def html(table: Table) -> str:
    """Render as an HTML table that the script of a report sorts by its columns."""

    def title(text: str, form: Form | None) -> str:
        kind, style = ("number", ' class="num"') if form else ("text", "")
        return f'<th scope="col"{style}><button type="button" data-kind="{kind}">{escape(text)}</button></th>'

    def text(cell: Cell, form: Form | None) -> str:
        shown = f"<strong>{cell}</strong>" if _is_best(cell) else escape(str(cell))
        if not form:
            return f'<th scope="row" data-value="{shown}">{shown}</th>'
        number = "-Infinity" if isinstance(cell, str) else cell.numbers[0]  # a missing value is the least
        return f'<td class="num" data-value="{number}">{shown}</td>'

    forms = _forms(table)
    head = "".join(map(title, table.head, forms))
    rows = "".join(f"<tr>{''.join(map(text, row, forms))}</tr>\n" for row in table.rows)
    return (
        f'<div class="scroll"><table class="plain sortable">\n<thead><tr>{head}</tr></thead>\n'
        f"<tbody>{rows}</tbody></table></div>\n"
    )


def _forms(table: Table) -> list[Form | None]:
    """Format of each column; None for a column of texts."""
    columns = [[row[number] for row in table.rows] for number in range(len(table.head))]
    return [next((cell.form for cell in column if isinstance(cell, Value)), None) for column in columns]


def _is_best(cell: Cell) -> bool:
    return isinstance(cell, Value) and cell.best
