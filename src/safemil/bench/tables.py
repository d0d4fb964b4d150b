"""Tables as Markdown, CSV and LaTeX: mean ± half of the 95% interval, the safest in bold."""

import json
import math
from collections.abc import Callable, Mapping, Sequence
from importlib.resources import files
from typing import Any

from safemil.bench.results import MEASURES, Entry, is_rival, rivals

Row = list[str]
ByTask = Mapping[str, Mapping[str, tuple[float, float]]]  # two numbers by task and algorithm
NAMES = {
    "safemil": "SafeMIL",
    "bc": "BC-Unlabeled",
    "dwbc-nu": "DWBC-NU",
    "trex-wbc": "T-REX-WBC",
    "safedice": "SafeDICE",
    "coptidice": "COptiDICE",
    "bc-preferred": "BC on preferred",
    "bc-true-cost": "BC on true cost",
    "random": "random",
}


def name_of(algorithm: str) -> str:
    return NAMES.get(algorithm, algorithm)


def short(task: str) -> str:
    """A task's name without its frame.

    >>> short("SafetyPointGoal1-v0"), short("SafetyAntVelocity-v1"), short("toy:speed")
    ('Goal1', 'Ant', 'toy:speed')
    """
    plain = task.rsplit("-v", 1)[0].removeprefix("Safety").removeprefix("Point")
    return plain.removesuffix("Velocity") or plain


def paper() -> dict[str, Any]:
    """The paper's own numbers, by task and algorithm."""
    return json.loads(files("safemil.bench").joinpath("paper.json").read_text(encoding="utf-8"))


def performance(entries: Sequence[Entry], tasks: Sequence[str], bold: Mapping[str, str]) -> list[Row]:
    """A row per algorithm and three columns per task; `bold` says what goes around the safest."""
    by = {(entry.task, entry.algorithm): entry for entry in entries}
    tasks = [task for task in tasks if any(entry.task == task for entry in entries)]
    rows = [["algorithm", *(f"{short(task)} {measure}" for task in tasks for measure in MEASURES)]]
    for algorithm in dict.fromkeys(entry.algorithm for entry in entries if entry.task in tasks):
        row = [name_of(algorithm)]
        for task in tasks:
            entry = by.get((task, algorithm))
            row += _cells(entry, [each for each in entries if each.task == task], bold) if entry else [""] * 3
        rows.append(row)
    return rows


def measured(means: ByTask) -> list[Row]:
    """A row per task: return / cost of each algorithm, the least cost of those that see none in bold.

    >>> measured({"toy:speed": {"safemil": (5.0, 1.25), "bc": (6.0, 3.0), "bc-preferred": (5.0, 0.5)}})[1]
    ['toy:speed', '**5.00 / 1.25**', '6.00 / 3.00', '5.00 / 0.50']
    """

    def cell(found: Mapping[str, tuple[float, float]], name: str) -> str:
        text = " / ".join(_figures(each) for each in found[name])
        least = min((cost for other, (_, cost) in found.items() if is_rival(other)), default=None)
        return f"**{text}**" if is_rival(name) and found[name][1] == least else text

    return _by_task(means, cell)


def lost(shares: ByTask) -> list[Row]:
    """A row per task: episodes lost, and the mean cost of the others if there are any, of each algorithm.

    >>> lost({"toy:speed": {"safemil": (0.02, 1.25), "bc": (1.0, math.nan)}})
    [['task', 'SafeMIL', 'BC-Unlabeled'], ['toy:speed', '2% / 1.25', '100%']]
    """
    return _by_task(shares, lambda found, name: _lost(*found[name]))


def _by_task(values: ByTask, cell: Callable[[Mapping[str, tuple[float, float]], str], str]) -> list[Row]:
    """A row per task and a column per algorithm; `cell` is given a task's values and an algorithm's name."""
    algorithms = list(dict.fromkeys(name for found in values.values() for name in found))
    rows = [["task", *map(name_of, algorithms)]]
    for task, found in values.items():
        rows.append([short(task), *(cell(found, name) if name in found else "" for name in algorithms)])
    return rows


def _lost(share: float, cost: float) -> str:
    return f"{share:.0%}" if math.isnan(cost) else f"{share:.0%} / {_figures(cost)}"


def _figures(value: float) -> str:
    """Three of them, or as many as stand before the point."""
    size = abs(value)
    return f"{value:,.{0 if size >= 99.95 else 1 if size >= 9.995 else 2}f}"


def papers_performance(tasks: Sequence[str]) -> list[Row]:
    """The same from the paper."""
    numbers = paper()["tasks"]
    tasks = [task for task in tasks if task in numbers]
    if not tasks:
        return []
    rows = [["algorithm", *(f"{short(task)} {measure}" for task in tasks for measure in MEASURES)]]
    for algorithm in numbers[tasks[0]]:
        values = (f"{mean:.2f} ± {half:.2f}" for task in tasks for mean, half in numbers[task][algorithm])
        rows.append([name_of(algorithm), *values])
    return rows


def varied(entries: Sequence[Entry], bold: Mapping[str, str]) -> list[Row]:
    """A row per task and setting."""
    rows = [["task", "setting", *MEASURES, "training, s"]]
    for entry in entries:
        same = [each for each in entries if each.task == entry.task]
        rows.append([short(entry.task), entry.label, *_cells(entry, same, bold), f"{entry.seconds:.0f}"])
    return rows


def _cells(entry: Entry, same_task: Sequence[Entry], bold: Mapping[str, str]) -> Row:
    cells = [str(each) for each in entry.measures]
    candidates = rivals(same_task)
    for number in (1, 2):
        best = min((each.measures[number].value for each in candidates), default=None)
        if entry in candidates and entry.measures[number].value == best:
            cells[number] = bold["before"] + cells[number] + bold["after"]
    return cells


MARKDOWN = {"before": "**", "after": "**"}
LATEX = {"before": r"\textbf{", "after": "}"}
PLAIN = {"before": "", "after": ""}


def markdown(rows: Sequence[Row]) -> str:
    head, *body = rows
    lines = [head, ["---"] * len(head), *body]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def csv(rows: Sequence[Row]) -> str:
    """Means and half widths in columns of their own.

    >>> csv([["algorithm", "Goal1 Cost"], ["SafeMIL", "1.00 ± 0.50"]])
    'algorithm,Goal1 Cost,Goal1 Cost ±\\nSafeMIL,1.00,0.50\\n'
    """
    head, *body = rows
    wide = [any(" ± " in row[i] for row in body) for i in range(len(head))]
    lines = [
        [
            part
            for name, both in zip(head, wide, strict=True)
            for part in ([name, f"{name} ±"] if both else [name])
        ]
    ]
    for row in body:
        line: list[str] = []
        for cell, both in zip(row, wide, strict=True):
            mean, _, half = cell.partition(" ± ")
            line += [mean, half] if both else [cell]
        lines.append(line)
    return "".join(",".join(f'"{cell}"' if "," in cell else cell for cell in line) + "\n" for line in lines)


def latex(rows: Sequence[Row]) -> str:
    """With booktabs."""
    head, *body = ([_escaped(cell) for cell in row] for row in rows)
    lines = [" & ".join(row) + r" \\" for row in (head, *body)]
    columns = "l" + "c" * (len(head) - 1)
    parts = [
        rf"\begin{{tabular}}{{{columns}}}",
        r"\toprule",
        lines[0],
        r"\midrule",
        *lines[1:],
        r"\bottomrule",
    ]
    return "\n".join([*parts, r"\end{tabular}"]) + "\n"


def _escaped(text: str) -> str:
    return text.replace("%", r"\%").replace("_", r"\_").replace("±", r"$\pm$")
