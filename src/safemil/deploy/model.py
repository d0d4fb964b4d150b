"""A trained policy and cost without JAX: `act`, `risk` and `novelty` of rows, with NumPy alone."""

import os
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from safemil.arrays import Floats
from safemil.deploy import storage
from safemil.deploy.graph import Graph
from safemil.errors import InputError

ROWS_AT_ONCE = 4096  # bounds the memory of the activations


class Model:
    """Policy and cost of one seed of a run, read from a file that `safemil export` wrote.

    Observations and actions are in the units of the log: one row (S,) or a batch (N, S).
    """

    def __init__(self, graph: Graph, header: dict[str, Any]):
        self._graph = graph
        self.algorithm = str(header["algorithm"])
        self.seed = int(header["seed"])
        self.observation_names: tuple[str, ...] | None = _names(header["observation_names"])
        self.action_names: tuple[str, ...] | None = _names(header["action_names"])
        categories = header["action_categories"]
        self.action_categories: tuple[Any, ...] | None = None if categories is None else (*categories,)
        self.observation_size, self.action_size = graph.inputs["observation"], graph.inputs["taken"]
        self._no_observation = np.zeros(self.observation_size, np.float32)
        self._no_action = np.zeros(self.action_size, np.float32)

    @staticmethod
    def load(path: str | os.PathLike[str]) -> "Model":
        """Read the file; nothing in it is executed."""
        return Model.from_bytes(storage.read_bytes(path), os.fspath(path))

    @staticmethod
    def from_bytes(content: bytes, name: str) -> "Model":
        """Decode the content of such a file; `name` stands for it in messages."""
        graph, header = storage.from_bytes(content, name)
        try:
            return Model(graph, header)
        except (KeyError, TypeError, ValueError) as error:
            raise InputError(f"{name} is damaged ({error}); write it again with `safemil export`.") from None

    @property
    def learns_cost(self) -> bool:
        """Whether the algorithm learned a cost, so that `risk` can be called."""
        return "risk" in self._graph.outputs

    def __repr__(self) -> str:
        sizes = f"{self.observation_size} observed, {self.action_size} action columns"
        return f"Model({self.algorithm}, seed {self.seed}, {sizes})"

    def act(self, observation: npt.ArrayLike) -> Any:
        """Compute the policy's mode, as `Run.act` does: an action (A,) or (N, A), or choices."""
        rows, single = self._rows("observation", observation, self._no_observation)
        if single:
            found = self._graph.run("action", observation=rows)
        else:
            found = _in_blocks(lambda block: self._graph.run("action", observation=block), rows)
        if self.action_categories is not None:
            chosen = [self.action_categories[number] for number in found.argmax(axis=1)]
            return chosen[0] if single else np.asarray(chosen)
        return (found[0] if single else found).astype(np.float64)

    def risk(self, observation: npt.ArrayLike, action: npt.ArrayLike) -> Any:
        """Compute the cost ĉ in (0, 1) of taking an action, as `Run.cost` does: a float, or (N,)."""
        if not self.learns_cost:
            raise InputError(f"{self.algorithm} learns no cost; export a run of safemil to get one.")
        return self._of_steps("risk", observation, action)

    def novelty(self, observation: npt.ArrayLike, action: npt.ArrayLike) -> Any:
        """Compute how far a step lies beyond the range of the training data, as `Run.novelty` does.

        It is the largest distance of a column, in standard deviations; 0 within the range.
        """
        return self._of_steps("novelty", observation, action)

    def _of_steps(self, output: str, observation: npt.ArrayLike, action: npt.ArrayLike) -> Any:
        rows, single = self._rows("observation", observation, self._no_observation)
        taken, _ = self._rows("action", self._columns(action), self._no_action)
        if len(taken) != len(rows):
            raise InputError(f"need one action for each observation, got {len(taken)} for {len(rows)}.")

        if single:
            return float(self._graph.run(output, observation=rows, taken=taken)[0])

        def run(block: Floats, actions: Floats) -> Floats:
            return self._graph.run(output, observation=block, taken=actions)

        return _in_blocks(run, rows, taken)

    def _columns(self, action: npt.ArrayLike) -> npt.ArrayLike:
        """Give a choice the columns that the run has for it: 1 for the choice taken and -1 for the others."""
        if self.action_categories is None:
            return action
        chosen = np.asarray(action)
        one_hot = chosen[..., None] == np.asarray(self.action_categories)
        if chosen.ndim > 1 or not one_hot.any(axis=-1).all():
            raise InputError(f"the action must be one of {list(self.action_categories)}, got {action!r}.")
        return np.where(one_hot, np.float32(1), np.float32(-1))

    def _rows(self, what: str, values: npt.ArrayLike, zeros: Floats) -> tuple[Floats, bool]:
        """Make a batch of values with as many columns as `zeros`, and say whether it was a single row."""
        rows, width = np.asarray(values, np.float32), len(zeros)
        single = rows.ndim == 1
        if single:
            rows = rows[None]
        if rows.ndim != 2 or rows.shape[1] != width:
            raise InputError(
                f"the {what} must be ({width},) or a batch (N, {width}), got shape {np.shape(values)}."
            )
        # 0 times NaN or infinity is NaN: a product takes a third of the time of `isfinite` on a row.
        if not (rows.dot(zeros)[0] == 0 if single else np.isfinite(rows).all()):
            raise InputError(f"the {what} must be finite, got NaN or infinity in it.")
        return rows, single


def _in_blocks(function: Callable[..., Floats], *rows: Floats) -> Floats:
    count = len(rows[0])
    if count <= ROWS_AT_ONCE:
        return function(*rows)
    blocks = (slice(start, start + ROWS_AT_ONCE) for start in range(0, count, ROWS_AT_ONCE))
    return np.concatenate([function(*(each[block] for each in rows)) for block in blocks])


def _names(found: Any) -> tuple[str, ...] | None:
    return None if found is None else tuple(str(each) for each in found)
