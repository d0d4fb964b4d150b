"""Which cells this process runs, where two benchmarks write one folder of results."""

from pathlib import Path

from safemil.bench.cell import is_done, result_file
from safemil.bench.grid import Cell
from safemil.locks import Claim


class Claims:
    """Claims on cells; the system releases them when the process ends, however it does."""

    def __init__(self, results: Path):
        self._results = results
        self._held: dict[str, Claim] = {}
        self.elsewhere: list[Cell] = []  # cells that another process has claimed or finished

    def take(self, cell: Cell) -> bool:
        """Claim a cell; otherwise note that another process has it."""
        if cell.name in self._held:
            return True
        claim = Claim.on(result_file(self._results, cell))
        if claim is not None and not is_done(result_file(self._results, cell)):
            self._held[cell.name] = claim
            return True
        if claim is not None:
            claim.release()
        self.elsewhere.append(cell)
        return False

    def release(self, cell: Cell) -> None:
        """Let go of a cell that is finished or has failed."""
        self._held.pop(cell.name).release()

    def release_all(self) -> None:
        for claim in self._held.values():
            claim.release()
        self._held.clear()
