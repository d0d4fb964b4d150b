"""Write the results table of README.md from the cells of a benchmark.

python tools/docs/readme_results.py results/paper
"""

import argparse
from collections import Counter
from pathlib import Path

from safemil.bench.render import markdown
from safemil.bench.results import Results
from safemil.bench.tables import measured

README = Path(__file__).parents[2] / "README.md"
BEGIN, END = "<!-- results: tools/docs/readme_results.py -->\n", "<!-- end of results -->\n"


def with_table(text: str, folder: Path) -> str:
    """Put the table of the first study between the two comments of the README."""
    results = Results(folder)
    study = results.grid.studies[0]
    table = markdown(measured(results.means(study)))
    seeds = Counter((cell.task, cell.algorithm) for _, cell in study.cells if cell.name in results.found)
    least, most = min(seeds.values()), max(seeds.values())
    over = f"{most}" if least == most else f"{least} to {most}"
    episodes = study.cells[0][1].evaluation["episodes"]
    made = f"{BEGIN}{table}\nMeans over {over} seeds of {episodes} episodes each.\n{END}"
    before, rest = text.split(BEGIN)
    return before + made + rest.split(END)[1]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("results", type=Path)
    folder = parser.parse_args().results
    README.write_text(with_table(README.read_text(encoding="utf-8"), folder), encoding="utf-8")


if __name__ == "__main__":
    main()
