"""What is wrong with the rows of a table: every fault with its number of rows and its first place."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from safemil.arrays import Bools
from safemil.data.episodes import Rows


@dataclass
class Faults:
    """Faults of sorted rows, and the episodes concerned."""

    rows: Rows
    texts: list[str]
    bad: Bools  # (episodes,)

    def add(self, text: str, rows: npt.NDArray[Any]) -> None:
        """Note a fault of some sorted rows."""
        self.texts.append(text)
        self.bad[self.rows.episodes[rows]] = True

    def add_infinite(self, what: str, values: npt.NDArray[Any], name: str, rows: npt.NDArray[Any]) -> None:
        """Note numbers of a column that are infinite; `rows` are the sorted rows of the values."""
        self._add_wrong(what, values, name, rows, np.isinf(values))

    def add_not_finite(self, what: str, values: npt.NDArray[Any], name: str, rows: npt.NDArray[Any]) -> None:
        """Note numbers of a column that are infinite or NaN; `rows` are the sorted rows of the values."""
        self._add_wrong(what, values, name, rows, ~np.isfinite(values))

    def _add_wrong(
        self, what: str, values: npt.NDArray[Any], name: str, rows: npt.NDArray[Any], wrong: Bools
    ) -> None:
        if wrong.any():
            first = int(np.argmax(wrong))
            self.add(
                f'{what} must be finite numbers that float32 can hold, but "{name}" is '
                f"{values[first]} at {self.rows.where(rows[first])}, in {int(wrong.sum())} rows; "
                "correct it, or leave the episode out.",
                rows[wrong],
            )
