"""A computation as a list of nodes, run with NumPy alone.

The nodes are a small subset of ONNX's operators, with attributes in place of constant inputs. A name that is
neither an input nor the result of an earlier node is a constant.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from operator import itemgetter, methodcaller
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from safemil.errors import InputError

Values = npt.NDArray[Any]
Attributes = dict[str, Any]  # int, or list of int
ZERO, HALF = np.float32(0), np.float32(0.5)
MOST_NODES = 10_000
MOST_WORK = 2**24  # products and numbers that one row may take: a damaged file can't fill the memory


class Node(NamedTuple):
    op: str
    inputs: tuple[str, ...]
    output: str
    attributes: Attributes


def _elu(x: Values) -> Values:
    below = np.minimum(x, ZERO)
    np.expm1(below, out=below)
    return np.maximum(x, below, out=below)  # x > expm1(0) where x is positive, else expm1(x) >= x


def _sigmoid(x: Values) -> Values:
    return HALF + HALF * np.tanh(HALF * x)  # within a rounding error, without a division or an overflow


def _part(x: Values, axis: int, start: int, end: int) -> Values:
    return x[(slice(None),) * axis + (slice(start, end),)]


ELEMENTWISE: dict[str, Callable[..., Values]] = {
    "Abs": np.abs, "Add": np.add, "And": np.logical_and, "Div": np.divide, "Elu": _elu, "Equal": np.equal,
    "Exp": np.exp, "Greater": np.greater, "GreaterOrEqual": np.greater_equal, "Less": np.less,
    "LessOrEqual": np.less_equal, "Log": np.log, "Max": np.maximum, "Min": np.minimum, "Mul": np.multiply,
    "Neg": np.negative, "Not": np.logical_not, "Or": np.logical_or, "Relu": lambda x: np.maximum(x, ZERO),
    "Sigmoid": _sigmoid, "Sign": np.sign, "Sqrt": np.sqrt, "Sub": np.subtract, "Tanh": np.tanh,
    "Where": np.where,
}  # fmt: skip
OPERATORS: dict[str, Callable[..., Values]] = ELEMENTWISE | {
    "ArgMax": lambda x, axis: x.argmax(axis),
    "Cast": lambda x: x.astype(np.float32),
    "Concat": lambda *parts, axis: np.concatenate(parts, axis),
    "MatMul": np.matmul,
    "ReduceMax": lambda x, axes: x.max(tuple(axes)),
    "ReduceMin": lambda x, axes: x.min(tuple(axes)),
    "ReduceSum": lambda x, axes: x.sum(tuple(axes)),
    "Reshape": lambda x, shape: x.reshape(shape),
    "Slice": _part,
    "Transpose": lambda x, perm: x.transpose(perm),
}
ATTRIBUTES = {
    "ArgMax": {"axis"}, "Concat": {"axis"}, "ReduceMax": {"axes"}, "ReduceMin": {"axes"},
    "ReduceSum": {"axes"}, "Reshape": {"shape"}, "Slice": {"axis", "start", "end"}, "Transpose": {"perm"},
}  # fmt: skip


@dataclass(frozen=True, eq=False)
class Graph:
    """Nodes in the order of computation, with their constants.

    >>> double = Graph({"x": 2}, ("y",), (Node("Mul", ("x", "two"), "y", {}),), {"two": np.float32([2])})
    >>> double.run("y", x=np.float32([[1, 3]]))
    array([[2., 6.]], dtype=float32)
    """

    inputs: dict[str, int]  # columns of each input, which is (rows, columns) and of float32
    outputs: tuple[str, ...]
    nodes: tuple[Node, ...]
    constants: dict[str, Values]
    _plans: dict[str, "_Plan"] = field(default_factory=dict, init=False, repr=False)

    def run(self, output: str, **inputs: Values) -> Values:
        """Compute one output; only the nodes that it needs are run."""
        plan = self._plans.get(output)
        if plan is None:
            plan = self._plans[output] = _Plan(self, output)
        try:
            return plan(inputs)
        except (ValueError, IndexError) as error:  # of a file that was tried on one row and fails on others
            raise InputError(f"its {output} can't be computed ({error}): the file is damaged") from None

    def needed(self, *outputs: str) -> list[Node]:
        """Nodes that these outputs depend on, in order."""
        wanted, kept = {*outputs}, []
        for node in reversed(self.nodes):
            if node.output in wanted:
                wanted.update(node.inputs)
                kept.append(node)
        return kept[::-1]

    def reads(self, output: str) -> list[str]:
        """Inputs that an output depends on."""
        used = {output, *(name for node in self.needed(output) for name in node.inputs)}
        return [name for name in self.inputs if name in used]

    def to_json(self) -> dict[str, Any]:
        return {"inputs": self.inputs, "outputs": self.outputs, "nodes": [list(node) for node in self.nodes]}

    @staticmethod
    def from_json(content: Mapping[str, Any], constants: dict[str, Values]) -> "Graph":
        """Read a graph from a file of unknown origin: nodes are checked and run once on a row of zeros."""
        inputs = {str(name): int(columns) for name, columns in content["inputs"].items()}
        nodes = [Node(str(op), tuple(ins), str(out), dict(more)) for op, ins, out, more in content["nodes"]]
        if len(nodes) > MOST_NODES or sum(map(abs, inputs.values())) > MOST_WORK:
            raise InputError(f"it has more than {MOST_NODES} nodes, or wider inputs than {MOST_WORK}")
        graph = Graph(inputs, tuple(content["outputs"]), tuple(nodes), constants)
        graph._check()
        return graph

    def _check(self) -> None:
        known = dict(self.constants)
        known |= {name: np.zeros((1, width), np.float32) for name, width in self.inputs.items()}
        work = 0
        for node in self.nodes:
            if node.op not in OPERATORS or node.attributes.keys() != ATTRIBUTES.get(node.op, set()):
                raise InputError(f'this version does not know its operation "{node.op}"')
            arguments = [known[name] for name in node.inputs]
            work += _work(node.op, arguments)
            if work > MOST_WORK:
                raise InputError(f"its nodes up to {node.output} take more than {MOST_WORK} products")
            with np.errstate(all="ignore"):
                known[node.output] = np.asarray(OPERATORS[node.op](*arguments, **node.attributes))
        for name in self.outputs:
            if len(known[name]) != 1 or known[name].dtype != np.float32:
                raise InputError(f"its output {name} is not one row of float32 per row of input")


def _work(op: str, arguments: Sequence[Values]) -> int:
    """Upper bound of the size of a result, and of the products that it takes."""
    if op in ELEMENTWISE:
        return math.prod(np.broadcast_shapes(*(each.shape for each in arguments)))
    if op == "MatMul":
        left, right = arguments
        batch = np.broadcast_shapes(left.shape[:-2], right.shape[:-2])
        return math.prod((*batch, left.shape[-2], *right.shape[-2:]))
    return sum(each.size for each in arguments)


class _Plan:
    """Steps that compute one output, with every name replaced by its place in a list."""

    def __init__(self, graph: Graph, output: str):
        nodes = graph.needed(output)
        names = [*graph.inputs, *graph.constants, *(node.output for node in nodes)]
        place = {name: number for number, name in enumerate(names)}
        self.inputs = [(name, place[name]) for name in graph.reads(output)]
        self.output = place[output]
        self.slots: list[Any] = [graph.constants.get(name) for name in names]
        self.steps = [
            (_bound(node), *_places([place[name] for name in node.inputs]), place[node.output])
            for node in nodes
        ]

    def __call__(self, inputs: Mapping[str, Values]) -> Values:
        slots = self.slots.copy()
        for name, place in self.inputs:
            slots[place] = inputs[name]
        for function, first, second, others, result in self.steps:
            if second < 0:  # the usual cases, in half the time
                slots[result] = function(slots[first])
            elif others is None:
                slots[result] = function(slots[first], slots[second])
            else:
                slots[result] = function(*[slots[each] for each in others])
        return slots[self.output]


def _places(places: list[int]) -> tuple[int, int, list[int] | None]:
    """First argument, second one (-1 without), and all of them where they are more than two."""
    return places[0], places[1] if len(places) > 1 else -1, places if len(places) > 2 else None


def _bound(node: Node) -> Callable[..., Values]:
    """Operator of a node, with its attributes; those of views are prepared, which halves their time."""
    function, given = OPERATORS[node.op], node.attributes
    if node.op == "Slice":
        return itemgetter((slice(None),) * given["axis"] + (slice(given["start"], given["end"]),))
    if node.op in ("Reshape", "Transpose"):
        return methodcaller(node.op.lower(), tuple(given["shape" if node.op == "Reshape" else "perm"]))
    if node.op == "ReduceSum":
        return partial(np.add.reduce, axis=tuple(given["axes"]))
    return partial(function, **given) if given else function
