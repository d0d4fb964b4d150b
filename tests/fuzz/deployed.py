"""Cases of the files that deployment loads: the small form of a policy, and a guard."""

import base64
import json
import struct
from typing import Any

import hostile
import numpy as np
from case import Case, require

from safemil.deploy import Guard, Model

OPERATORS = [
    "Add",
    "Mul",
    "MatMul",
    "Concat",
    "Reshape",
    "Slice",
    "Where",
    "Exp",
    "ReduceSum",
    "Transpose",
    "eval",
]
SEEN, TAKEN = np.zeros((3, 4), np.float32), np.zeros((3, 2), np.float32)


def deployed(case: Case) -> None:
    """A policy file whose header, graph, constants or bytes were changed."""
    path = case.folder / "policy.safetensors"
    path.write_bytes(_damaged_model(case, (case.materials / "policy.safetensors").read_bytes()))
    _use_model(Model.load(path))


def guard(case: Case) -> None:
    """A guard file whose numbers, policy or bytes were changed."""
    rng = case.rng
    path = case.folder / "guard.json"
    content = json.loads((case.materials / "guard.json").read_text())
    if rng.random() < 0.5:
        changed = hostile.damaged_document(content, rng, case.values)
        path.write_bytes(hostile.json_text(changed, rng))
    else:
        content["model"] = base64.b64encode(_damaged_model(case, base64.b64decode(content["model"]))).decode()
        path.write_text(json.dumps(content))
    found = Guard.load(path)
    require(0 < found.alpha < 1, f"a guard has alpha {found.alpha}")
    require(found.episodes >= 1, f"a guard was made with {found.episodes} episodes")
    _use_model(found.model)
    found.step(SEEN[0], TAKEN[0])
    found.advise(SEEN[0], TAKEN)


def _use_model(model: Model) -> None:
    if (model.observation_size, model.action_size) != (4, 2):
        return
    with np.errstate(all="ignore"):
        action = model.act(SEEN)
        require(len(action) == 3, "the policy gives another number of actions than it saw")
        if model.learns_cost:
            require(model.risk(SEEN, TAKEN).shape == (3,), "the cost gives another number of risks")


def _damaged_model(case: Case, content: bytes) -> bytes:
    rng = case.rng
    if rng.random() < 0.15:
        return hostile.damaged_bytes(content, rng)
    length = int.from_bytes(content[:8], "little")
    entries, data = json.loads(content[8 : 8 + length]), content[8 + length :]
    if rng.random() < 0.7:
        header = json.loads(entries["__metadata__"]["safemil"])
        if rng.random() < 0.5:
            _damage_graph(case, header["graph"])
        else:
            header = hostile.damaged_document(header, rng, case.values)
        entries["__metadata__"]["safemil"] = hostile.json_text(header, rng).decode("utf-8", "replace")
    else:
        entries = hostile.damaged_document(entries, rng, case.values)
    text = hostile.json_text(entries, rng)
    size = rng.choice([len(text)] * 9 + [0, 2**31, 2**63 - 1, len(text) + 7])
    return struct.pack("<Q", size) + text + data


def _damage_graph(case: Case, graph: dict[str, Any]) -> None:
    """Add, exchange or change nodes: names that exist, sizes that do not fit, results that grow."""
    rng = case.rng
    nodes = graph["nodes"]
    names = [*graph["inputs"], *(node[2] for node in nodes)]
    at = rng.randrange(len(nodes))
    kind = rng.choice(["node", "input", "swap", "grow", "inputs", "outputs", "repeat"])
    if kind == "node":
        more: dict[str, Any] = {
            "axis": rng.choice([0, 1, -1, 99]),
            "shape": [2**31],
            "perm": [5],
            "axes": [7],
        }
        chosen = {name: more[name] for name in rng.sample(sorted(more), 1)}
        nodes[at] = [rng.choice(OPERATORS), rng.choices(names, k=2), nodes[at][2], chosen]
    elif kind == "input":
        nodes[at][1] = rng.choices(names, k=rng.choice([0, 1, 2, 3, 2000]))
    elif kind == "swap":
        other = rng.randrange(len(nodes))
        nodes[at], nodes[other] = nodes[other], nodes[at]
    elif kind == "grow":
        first = names[0]
        for number in range(40):
            nodes.insert(0 if number == 0 else number, ["Concat", [first, first], f"g{number}", {"axis": 1}])
            first = f"g{number}"
    elif kind == "inputs":
        graph["inputs"][rng.choice([*graph["inputs"], "more"])] = rng.choice([-1, 0, 1, 2**20, 2**31, 2**62])
    elif kind == "outputs":
        graph["outputs"] = rng.choice([[], names[:3], ["nowhere"], [1], ["action", "action"]])
    else:
        graph["nodes"] = nodes * rng.choice([2, 50])


KINDS = [deployed, deployed, guard]
