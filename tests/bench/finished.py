"""Content of finished cells."""

import json

from safemil.bench.cell import CELLS


def contents(results):
    """Result of each cell, without its wall time."""
    files = {path.name: json.loads(path.read_text()) for path in (results / CELLS).glob("*.json")}
    return {name: {**found, "seconds": None} for name, found in files.items()}
