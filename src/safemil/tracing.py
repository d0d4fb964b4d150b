"""From a JAX function to the nodes that `safemil.deploy` runs and ONNX knows.

The function is traced with a symbolic number of rows. Calls inside it are inlined, whatever depends on no
input is computed once, and each of JAX's primitives becomes one node or a few.
"""

import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt

from safemil.deploy.graph import OPERATORS, Graph, Node
from safemil.errors import InputError

Shape = tuple[int, ...]  # -1 is the number of rows
ROWS = -1
INLINED = ("jit", "pjit", "closed_call", "custom_jvp_call", "custom_vjp_call", "remat", "checkpoint")
SAME = ("copy", "copy_p", "stop_gradient", "optimization_barrier")
NAMED = {"elu": "Elu", "relu": "Relu"}  # functions of jax.nn that are one node
SIMPLE = {
    "abs": "Abs", "add": "Add", "add_any": "Add", "and": "And", "div": "Div", "eq": "Equal", "exp": "Exp",
    "ge": "GreaterOrEqual", "gt": "Greater", "le": "LessOrEqual", "log": "Log", "logistic": "Sigmoid",
    "lt": "Less", "max": "Max", "min": "Min", "mul": "Mul", "neg": "Neg", "not": "Not", "or": "Or",
    "sign": "Sign", "sqrt": "Sqrt", "sub": "Sub", "tanh": "Tanh",
}  # fmt: skip
REDUCTIONS = {"reduce_max": "ReduceMax", "reduce_min": "ReduceMin", "reduce_sum": "ReduceSum"}


class Value(NamedTuple):
    """Result of a node, or a constant; an axis along which all entries are equal may have length 1."""

    name: str
    shape: Shape


def trace(function: Callable[..., dict[str, jax.Array]], **columns: int) -> Graph:
    """Make a graph of a function from named (rows, columns) arrays to a dict of arrays with as many rows."""
    struct: Any = jax.ShapeDtypeStruct  # has no types
    (rows,) = jax.export.symbolic_shape("rows")
    arguments = {name: struct((rows, width), np.float32) for name, width in columns.items()}
    closed, result = jax.make_jaxpr(lambda given: function(**given), return_shape=True)(arguments)
    lowering = _Lowering()
    inputs = [Value(name, (ROWS, columns[name])) for name in sorted(columns)]  # JAX sorts the keys of a dict
    found = lowering.inline(closed.jaxpr, [lowering.constant(each) for each in closed.consts], inputs)
    named = [
        Node("Reshape", (value.name,), name, {"shape": list(value.shape)})
        for name, value in zip(sorted(result), found, strict=True)
    ]
    graph = Graph(columns, tuple(sorted(result)), (*lowering.nodes, *named), {})
    kept = tuple(graph.needed(*graph.outputs))
    used = {name for node in kept for name in node.inputs}
    constants = {name: array for name, array in lowering.constants.items() if name in used}
    return Graph(columns, graph.outputs, kept, constants)


class _Lowering:
    """Nodes and constants made so far; a node that was made before is used again."""

    def __init__(self) -> None:
        self.constants: dict[str, npt.NDArray[Any]] = {}
        self.known: dict[Any, str] = {}
        self.nodes: list[Node] = []

    def constant(self, array: Any) -> Value:
        array = np.asarray(array)
        kept = array.astype({"f": np.float32, "i": np.int64, "u": np.int64, "b": np.bool_}[array.dtype.kind])
        name = self.known.setdefault((kept.dtype.str, kept.shape, kept.tobytes()), f"c{len(self.constants)}")
        self.constants[name] = kept
        return Value(name, kept.shape)

    def emit(self, op: str, inputs: Sequence[Value], size: Shape, **attributes: Any) -> Value:
        names = tuple(each.name for each in inputs)
        if all(name in self.constants for name in names):
            return self.constant(OPERATORS[op](*(self.constants[name] for name in names), **attributes))
        key = op, names, repr(attributes)
        if key not in self.known:
            self.known[key] = f"v{len(self.nodes)}"
            self.nodes.append(Node(op, names, self.known[key], attributes))
        return Value(self.known[key], size)

    def reshape(self, value: Value, shape: Shape) -> Value:
        return value if value.shape == shape else self.emit("Reshape", [value], shape, shape=list(shape))

    def transpose(self, value: Value, order: Sequence[int]) -> Value:
        if list(order) == list(range(len(order))):
            return value
        shape = tuple(value.shape[axis] for axis in order)
        return self.emit("Transpose", [value], shape, perm=[int(axis) for axis in order])

    def elementwise(self, op: str, inputs: Sequence[Value]) -> Value:
        return self.emit(op, inputs, _broadcast([each.shape for each in inputs]))

    def part(self, value: Value, axis: int, start: int, end: int) -> Value:
        shape = *value.shape[:axis], end - start, *value.shape[axis + 1 :]
        return self.emit("Slice", [value], shape, axis=axis, start=start, end=end)

    def inline(self, jaxpr: Any, constants: Sequence[Value], arguments: Sequence[Value]) -> list[Value]:
        known = dict(zip([*jaxpr.constvars, *jaxpr.invars], [*constants, *arguments], strict=True))

        def read(atom: Any) -> Value:
            return self.constant(atom.val) if hasattr(atom, "val") else known[atom]

        for equation in jaxpr.eqns:
            results = self.lower(equation, [read(each) for each in equation.invars])
            known |= zip(equation.outvars, results, strict=True)
        return [read(each) for each in jaxpr.outvars]

    def lower(self, equation: Any, inputs: list[Value]) -> list[Value]:
        """Make the nodes of one primitive."""
        name, params = equation.primitive.name, equation.params
        shapes = [_shape(each.aval) for each in equation.outvars]
        if name in INLINED:
            return self.call(params, inputs, shapes)
        if name in SAME:
            return inputs
        if all(each.name in self.constants for each in inputs) and ROWS not in [*itertools.chain(*shapes)]:
            return self.fold(equation, inputs)
        if name in SIMPLE:
            return [self.elementwise(SIMPLE[name], inputs)]
        if name in REDUCTIONS:
            self.require_full(equation, inputs)
            return [
                self.emit(REDUCTIONS[name], inputs, shapes[0], axes=[int(axis) for axis in params["axes"]])
            ]
        special = getattr(self, f"lower_{name}", None)
        if special is None:
            raise InputError(
                f'this algorithm computes "{name}", which export does not know; write its `act` and `cost` '
                "without it."
            )
        return special(equation, inputs, shapes)

    def fold(self, equation: Any, inputs: list[Value]) -> list[Value]:
        """Compute what depends on no input."""
        given = [
            jnp.asarray(np.broadcast_to(self.constants[value.name], atom.aval.shape), atom.aval.dtype)
            for atom, value in zip(equation.invars, inputs, strict=True)
        ]
        found = equation.primitive.bind(*given, **equation.params)
        results = found if equation.primitive.multiple_results else [found]
        return [self.constant(each) for each in results]

    def call(self, params: dict[str, Any], inputs: list[Value], shapes: list[Shape]) -> list[Value]:
        inner = params.get("jaxpr") or params.get("call_jaxpr") or params["fun_jaxpr"]
        name = params.get("name", "")
        if name in NAMED and len(inputs) == 1:
            return [self.elementwise(NAMED[name], inputs)]
        if name == "take_along_axis":
            return [self.take_along(inner.jaxpr, inputs, shapes[0])]
        closed = getattr(inner, "jaxpr", inner)
        return self.inline(closed, [self.constant(each) for each in getattr(inner, "consts", ())], inputs)

    def take_along(self, jaxpr: Any, inputs: list[Value], shape: Shape) -> Value:
        """Entry at a computed index of an axis: the only one that is not replaced by 0 before a sum."""
        values, index = inputs
        (axis,) = jaxpr.eqns[-1].params["dimension_numbers"].start_index_map
        if index.shape[axis] != 1:
            raise InputError(
                "this algorithm takes several entries along an axis, which export does not know."
            )
        width = values.shape[axis]
        numbers = np.arange(width).reshape([width if each == axis else 1 for each in range(len(shape))])
        chosen = self.elementwise("Equal", [index, self.constant(numbers)])
        masked = self.elementwise("Where", [chosen, values, self.constant(np.float32(0))])
        summed = tuple(size for place, size in enumerate(shape) if place != axis)
        return self.reshape(self.emit("ReduceSum", [masked], summed, axes=[int(axis)]), shape)

    def require_full(self, equation: Any, inputs: Sequence[Value]) -> None:
        """Refuse values that are broadcast along an axis where the primitive needs all entries."""
        for atom, value in zip(equation.invars, inputs, strict=True):
            if _shape(atom.aval) != value.shape:
                raise InputError(f"export can't broadcast before {equation.primitive.name}.")

    def lower_argmax(self, equation: Any, inputs: list[Value], shapes: list[Shape]) -> list[Value]:
        (axis,) = equation.params["axes"]
        return [self.emit("ArgMax", inputs, shapes[0], axis=int(axis))]

    def lower_broadcast_in_dim(self, equation: Any, inputs: list[Value], shapes: list[Shape]) -> list[Value]:
        (value,) = inputs[:1]
        shape = [1] * len(shapes[0])
        for axis, size in zip(equation.params["broadcast_dimensions"], value.shape, strict=True):
            shape[axis] = size
        return [self.reshape(value, tuple(shape))]

    def lower_clamp(self, equation: Any, inputs: list[Value], shapes: list[Shape]) -> list[Value]:
        low, value, high = inputs
        return [self.elementwise("Min", [self.elementwise("Max", [value, low]), high])]

    def lower_concatenate(self, equation: Any, inputs: list[Value], shapes: list[Shape]) -> list[Value]:
        self.require_full(equation, inputs)
        return [self.emit("Concat", inputs, shapes[0], axis=int(equation.params["dimension"]))]

    def lower_convert_element_type(
        self, equation: Any, inputs: list[Value], shapes: list[Shape]
    ) -> list[Value]:
        kinds = equation.invars[0].aval.dtype.kind, np.dtype(equation.params["new_dtype"]).kind
        return [self.emit("Cast", inputs, inputs[0].shape)] if kinds[1] == "f" != kinds[0] else inputs

    def lower_dot_general(self, equation: Any, inputs: list[Value], shapes: list[Shape]) -> list[Value]:
        self.require_full(equation, inputs)
        (contracted, batch) = equation.params["dimension_numbers"]
        free = [
            [axis for axis in range(len(value.shape)) if axis not in {*summed, *kept}]
            for value, summed, kept in zip(inputs, contracted, batch, strict=True)
        ]
        left = self.transpose(inputs[0], [*batch[0], *free[0], *contracted[0]])
        right = self.transpose(inputs[1], [*batch[1], *contracted[1], *free[1]])
        outer = tuple(inputs[0].shape[axis] for axis in batch[0])
        rows, width, columns = (
            _product(value.shape[axis] for axis in axes)
            for value, axes in ((inputs[0], free[0]), (inputs[0], contracted[0]), (inputs[1], free[1]))
        )
        left, right = self.reshape(left, (*outer, rows, width)), self.reshape(right, (*outer, width, columns))
        return [self.reshape(self.emit("MatMul", [left, right], (*outer, rows, columns)), shapes[0])]

    def lower_expm1(self, equation: Any, inputs: list[Value], shapes: list[Shape]) -> list[Value]:
        return [self.elementwise("Sub", [self.elementwise("Exp", inputs), self.constant(np.float32(1))])]

    def lower_gather(self, equation: Any, inputs: list[Value], shapes: list[Shape]) -> list[Value]:
        """Index an axis with a constant, as in `x[..., 0]`; anything else is refused."""
        value, index = inputs
        axes = equation.params["dimension_numbers"].start_index_map
        if index.name not in self.constants or index.shape != (1,) or len(axes) != 1:
            raise InputError("this algorithm indexes by computed numbers, which export does not know.")
        axis, start = int(axes[0]), int(self.constants[index.name][0])
        size = int(equation.params["slice_sizes"][axis])
        return [self.reshape(self.part(value, axis, start, start + size), shapes[0])]

    def lower_integer_pow(self, equation: Any, inputs: list[Value], shapes: list[Shape]) -> list[Value]:
        power = equation.params["y"]
        if power < 1:
            raise InputError(f"export does not know the power {power}.")
        result = inputs[0]
        for _ in range(power - 1):
            result = self.elementwise("Mul", [result, inputs[0]])
        return [result]

    def lower_is_finite(self, equation: Any, inputs: list[Value], shapes: list[Shape]) -> list[Value]:
        infinity = self.constant(np.float32(np.inf))
        return [self.elementwise("Less", [self.elementwise("Abs", inputs), infinity])]

    def lower_log1p(self, equation: Any, inputs: list[Value], shapes: list[Shape]) -> list[Value]:
        return [self.elementwise("Log", [self.elementwise("Add", [*inputs, self.constant(np.float32(1))])])]

    def lower_reshape(self, equation: Any, inputs: list[Value], shapes: list[Shape]) -> list[Value]:
        self.require_full(equation, inputs)
        return [self.reshape(inputs[0], shapes[0])]

    lower_squeeze = lower_expand_dims = lower_reshape

    def lower_select_n(self, equation: Any, inputs: list[Value], shapes: list[Shape]) -> list[Value]:
        which, if_false, if_true = inputs
        return [self.elementwise("Where", [which, if_true, if_false])]

    def lower_slice(self, equation: Any, inputs: list[Value], shapes: list[Shape]) -> list[Value]:
        self.require_full(equation, inputs)
        value, params = inputs[0], equation.params
        if any(stride != 1 for stride in params["strides"] or ()):
            raise InputError("this algorithm slices with strides, which export does not know.")
        ends = zip(params["start_indices"], params["limit_indices"], strict=True)
        for axis, (start, end) in enumerate(ends):
            if value.shape[axis] != ROWS and (start, end) != (0, value.shape[axis]):
                value = self.part(value, axis, int(start), int(end))
        return [value]

    def lower_split(self, equation: Any, inputs: list[Value], shapes: list[Shape]) -> list[Value]:
        self.require_full(equation, inputs)
        ends = [0, *itertools.accumulate(int(size) for size in equation.params["sizes"])]
        axis = int(equation.params["axis"])
        return [self.part(inputs[0], axis, start, end) for start, end in itertools.pairwise(ends)]

    def lower_square(self, equation: Any, inputs: list[Value], shapes: list[Shape]) -> list[Value]:
        return [self.elementwise("Mul", [*inputs, *inputs])]

    def lower_transpose(self, equation: Any, inputs: list[Value], shapes: list[Shape]) -> list[Value]:
        return [self.transpose(inputs[0], equation.params["permutation"])]


def _shape(aval: Any) -> Shape:
    return tuple(size if isinstance(size, int) else ROWS for size in aval.shape)


def _product(sizes: Any) -> int:
    """Number of entries; -1 as soon as the rows are among them."""
    listed = list(sizes)
    return ROWS if ROWS in listed else math.prod(listed)


def _broadcast(shapes: Sequence[Shape]) -> Shape:
    """Shape of an elementwise result."""
    rank = max(len(shape) for shape in shapes)
    padded = [(1,) * (rank - len(shape)) + shape for shape in shapes]
    return tuple(next((size for size in sizes if size != 1), 1) for sizes in zip(*padded, strict=True))
