"""Write a trained policy and cost to one file that runs without JAX: ONNX, or the form of `safemil.deploy`.

Either file is run on rows of data as soon as it is written, and kept only if it gives the numbers of the run.
"""

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import numpy as np

import safemil
from safemil.arrays import Doubles, Floats
from safemil.deploy import storage
from safemil.deploy.graph import Graph, Node
from safemil.errors import InputError
from safemil.extras import require_extra
from safemil.files import atomic_file
from safemil.ownership import require_free
from safemil.tracing import trace

if TYPE_CHECKING:
    from safemil.api import Run
    from safemil.data import Trajectories

SUFFIXES = (".onnx", ".safetensors")
OPSET, IR_VERSION = 18, 10
MOST_DIFFERENCE = 1e-5  # of a risk, or of an action in half the width of its bounds
ROWS = 1000  # of the data that a file is checked on
FAR = 5.0  # standard deviations beyond the ends of the data, of the extreme rows
AXES_AS_INPUT = ("ReduceMax", "ReduceMin", "ReduceSum")

Outputs = dict[str, Any]  # arrays by the name of the output
Compute = Callable[[Floats, Floats], Outputs]  # from observations and the actions taken


class Exported(NamedTuple):
    """What was written, and how far its numbers are from those of the run."""

    path: Path
    outputs: tuple[str, ...]
    rows: int  # that were compared
    difference: float  # largest, of a risk or of an action in half the width of its bounds


def export(
    run: "Run",
    path: str | os.PathLike[str],
    data: "Trajectories",
    *,
    columns: bool = False,
    taken: bool = False,
    overwrite: bool = False,
) -> Exported:
    """Write the run of one seed to FILE.onnx or FILE.safetensors, and check it on `data`, the training data.

    An ONNX file has the input `observation` (rows, S) and the outputs `action`, `risk` and `novelty`, the
    last two for that action. With `taken`, they are for a further input, the action that was taken. With
    `columns`, each column is an input (rows,) of its own, named as in the log. The small form, which
    `safemil.deploy` loads, has no such options.
    """
    path = Path(path)
    if path.suffix not in SUFFIXES:
        raise InputError(f'a run is exported to .onnx or .safetensors, got "{path.name}".')
    if len(run) > 1:
        raise InputError(f"this run holds {len(run)} seeds; choose one: export(run[0], ...).")
    if path.suffix == ".safetensors" and (columns or taken):
        raise InputError("`columns=True` and `taken=True` are for .onnx; the small form takes whole rows.")
    require_free(path, overwrite=overwrite)
    data = run.match(data)
    rows = check_rows(data)
    with atomic_file(path) as file:
        if path.suffix == ".safetensors":
            compute = _write_small(run, file)
        else:
            compute = _write_onnx(run, file, columns=columns, taken=taken)
        half_widths = data.action_high / 2 - data.action_low / 2
        with_taken = taken or path.suffix == ".safetensors"
        difference = largest_difference(run, compute, rows, half_widths, taken=with_taken)
        if not difference <= MOST_DIFFERENCE:
            raise InputError(
                f"the exported numbers differ from those of the run by {difference:.2g}, more than "
                f"{MOST_DIFFERENCE:g}; nothing is written."
            )
    outputs = ("action", "risk", "novelty") if run.learns_cost else ("action", "novelty")
    return Exported(path, outputs, len(rows[0]), difference)


def graph_of(run: "Run") -> Graph:
    """Trace the run of one seed, from `observation` and the action `taken` to all outputs."""
    return trace(run.forward, observation=run.observation_size, taken=run.action_size)


def check_rows(data: "Trajectories") -> tuple[Floats, Floats]:
    """Steps spread over the data, and rows far beyond them: observations, and actions in the log's units."""
    chosen = np.linspace(0, data.steps - 1, min(ROWS, data.steps)).astype(int)
    seen, actions = data.observations[chosen], data.recorded_actions()[chosen]
    low, high, deviation = seen.min(axis=0), seen.max(axis=0), FAR * seen.std(axis=0)
    above = np.random.default_rng(0).random((32, seen.shape[1])) < 0.5
    above[0], above[1] = False, True
    far = np.where(above, high + deviation, low - deviation)
    bounds = np.where(np.arange(len(far))[:, None] % 2, data.action_low, data.action_high)
    both = (seen, far), (actions, bounds)
    observations, taken = (np.concatenate(each).astype(np.float32) for each in both)
    return observations, taken


def largest_difference(
    run: "Run", compute: Compute, rows: tuple[Floats, Floats], half_widths: Doubles, *, taken: bool
) -> float:
    """Compare with the numbers of the run; an action in half the width of its bounds where that exceeds 1."""
    expected = jax.jit(run.forward)(*rows)
    if not taken:
        expected = jax.jit(run.forward)(rows[0], expected["action"])
    scale = {"action": np.maximum(half_widths, 1), "novelty": np.maximum(expected["novelty"], 1)}
    found = compute(*rows)
    return max(
        float(np.max(np.abs(found[name] - np.asarray(values)) / scale.get(name, 1)))
        for name, values in expected.items()
    )


def _header(run: "Run") -> dict[str, Any]:
    return {
        "safemil": safemil.__version__,
        "jax": jax.__version__,
        "algorithm": run.algorithm,
        "seed": run.seeds[0],
        "observation_names": run.observation_names,
        "action_names": run.action_names,
        "action_categories": run.action_categories,
    }


def encoded(run: "Run") -> bytes:
    """Encode the run of one seed in the small form."""
    return storage.to_bytes(graph_of(run), _header(run))


def _write_small(run: "Run", file: Path) -> Compute:
    file.write_bytes(encoded(run))
    graph, _ = storage.read(file)

    def compute(observations: Floats, taken: Floats) -> Outputs:
        return {name: graph.run(name, observation=observations, taken=taken) for name in graph.outputs}

    return compute


def _write_onnx(run: "Run", file: Path, *, columns: bool, taken: bool) -> Compute:
    require_extra("onnx", "exporting to ONNX")
    import onnx
    import onnxruntime

    graph = graph_of(run) if taken else _closed(graph_of(run))
    names = {"observation": run.observation_names, "taken": run.action_names}
    named = _input_names(graph, names) if columns else {}
    model = _onnx_model(graph, named, run.action_size, _header(run))
    onnx.checker.check_model(model, full_check=True)
    file.write_bytes(model.SerializeToString())
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3  # errors only
    session = onnxruntime.InferenceSession(file, options, providers=["CPUExecutionProvider"])

    def compute(observations: Floats, actions: Floats) -> Outputs:
        rows = {"observation": observations, "taken": actions}
        fed: Outputs = {name: rows[name] for name in graph.inputs}
        for name, columns_of in named.items():
            del fed[name]
            fed |= {column: rows[name][:, i] for i, column in enumerate(columns_of)}
        return dict(zip(graph.outputs, session.run(list(graph.outputs), fed), strict=True))

    return compute


def _closed(graph: Graph) -> Graph:
    """Feed the policy's own action to risk and novelty, in place of the input `taken`."""

    def renamed(node: Node) -> Node:
        return node._replace(inputs=tuple("action" if name == "taken" else name for name in node.inputs))

    first = graph.needed("action")
    rest = [renamed(node) for node in graph.nodes if node not in first]
    inputs = {"observation": graph.inputs["observation"]}
    return Graph(inputs, graph.outputs, (*first, *rest), graph.constants)


def _input_names(graph: Graph, names: dict[str, tuple[str, ...] | None]) -> dict[str, list[str]]:
    """Name the columns of each input as the log does, or by number where it has no names."""
    found = {
        name: list(names[name] or (f"{name}_{number}" for number in range(width)))
        for name, width in graph.inputs.items()
    }
    listed = [*graph.outputs, *(each for part in found.values() for each in part)]
    repeated = sorted({name for name in listed if listed.count(name) > 1})
    if repeated:
        raise InputError(f'two inputs or outputs would be named "{repeated[0]}"; leave out `columns=True`.')
    return found


def _onnx_model(graph: Graph, named: dict[str, list[str]], action_size: int, header: dict[str, Any]) -> Any:
    import onnx
    from onnx import TensorProto, helper, numpy_helper

    constants = {f"constant {name}": array for name, array in graph.constants.items()}
    inside = {name: f"constant {name}" for name in graph.constants}
    inside |= {
        node.output: f"result {node.output}" for node in graph.nodes if node.output not in graph.outputs
    }
    nodes: list[Any] = []
    inputs: list[Any] = []
    for name, width in graph.inputs.items():
        if name not in named:
            inputs.append(helper.make_tensor_value_info(name, TensorProto.FLOAT, ["rows", width]))
            continue
        inputs += [helper.make_tensor_value_info(each, TensorProto.FLOAT, ["rows"]) for each in named[name]]
        constants["axis 1"] = np.array([1], np.int64)
        columns = [f"column {each}" for each in named[name]]
        nodes += [
            helper.make_node("Unsqueeze", [each, "axis 1"], [column])
            for each, column in zip(named[name], columns, strict=True)
        ]
        inside[name] = f"input {name}"
        nodes.append(helper.make_node("Concat", columns, [inside[name]], axis=1))
    for node in graph.nodes:
        names = [inside.get(name, name) for name in node.inputs]
        nodes.append(_onnx_node(node, names, inside.get(node.output, node.output), constants))
    shapes = {"action": ["rows", action_size], "novelty": ["rows"], "risk": ["rows"]}
    outputs = [helper.make_tensor_value_info(name, TensorProto.FLOAT, shapes[name]) for name in graph.outputs]
    tensors = [numpy_helper.from_array(array, name) for name, array in constants.items()]
    model = helper.make_model(
        helper.make_graph(nodes, "safemil", inputs, outputs, tensors),
        producer_name="safemil",
        producer_version=safemil.__version__,
        opset_imports=[helper.make_opsetid("", OPSET)],
        ir_version=IR_VERSION,
    )
    helper.set_model_props(
        model, {"safemil": json.dumps(header | {"opset": OPSET, "onnx": onnx.__version__})}
    )
    return model


def _onnx_node(node: Node, names: list[str], output: str, constants: dict[str, Any]) -> Any:
    """Make one node; ONNX takes shapes, axes and slices as constants."""
    from onnx import TensorProto, helper

    def constant(values: Any) -> str:
        name = f"integers {values}"
        constants[name] = np.array(values, np.int64)
        return name

    given, more = node.attributes, dict(node.attributes)
    if node.op == "Reshape":
        names, more = [*names, constant(given["shape"])], {}
    elif node.op in AXES_AS_INPUT:
        names, more = [*names, constant(given["axes"])], {"keepdims": 0}
    elif node.op == "Slice":
        names, more = [*names, *(constant([given[each]]) for each in ("start", "end", "axis"))], {}
    elif node.op == "ArgMax":
        more["keepdims"] = 0
    elif node.op == "Cast":
        more["to"] = TensorProto.FLOAT
    return helper.make_node(node.op, names, [output], **more)
