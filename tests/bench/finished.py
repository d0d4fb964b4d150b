"""What finished cells hold."""

import json

from safemil.bench.cell import CELLS


def contents(results):
    """What each cell came to, but for how long it took."""
    files = {path.name: json.loads(path.read_text()) for path in (results / CELLS).glob("*.json")}
    return {name: {**found, "seconds": None} for name, found in files.items()}
