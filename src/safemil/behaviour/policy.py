"""The shipped behaviour policies, run with numpy.

Each is a file of arrays (safetensors) beside a card (JSON): what it was trained for, and what it does.
"""

import hashlib
import json
from dataclasses import dataclass
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import load_file

from safemil import catalog
from safemil.arrays import Doubles
from safemil.errors import InputError

SHIPPED = Path(str(resources.files("safemil.behaviour") / "policies"))


@dataclass(frozen=True, eq=False)
class Policy:
    """Normal distribution around the output of a network of tanh layers; samples are clipped to [-1, 1].

    Powers of the point robot's lidars may be inputs too: they tell near things apart.
    """

    name: str
    weights: tuple[Doubles, ...]  # (in, out) of each layer
    biases: tuple[Doubles, ...]  # (out,)
    deviation: Doubles  # (actions,)
    card: dict[str, Any]  # task, training signal, steps, and means over 50 episodes
    powers: tuple[float, ...] = ()

    def mean(self, observations: Doubles) -> Doubles:
        """Most likely actions (n, A) for observations (n, S)."""
        hidden = with_powers(observations, self.powers)
        for weight, bias in zip(self.weights[:-1], self.biases[:-1], strict=True):
            hidden = np.tanh(hidden @ weight + bias)
        return hidden @ self.weights[-1] + self.biases[-1]

    def act(self, observations: Doubles, noise: Doubles) -> Doubles:
        """Actions (n, A) for observations (n, S) and standard normal noise (n, A), 0 for the most likely."""
        return np.clip(self.mean(observations) + self.deviation * noise, -1.0, 1.0)


def with_powers(observations: Doubles, powers: tuple[float, ...]) -> Doubles:
    """Append powers of the point robot's lidar readings to observations (n, S)."""
    if not powers:
        return observations
    from safemil.tasks.point import SENSORS

    lidars = observations[:, SENSORS:]
    return np.concatenate([observations, *(lidars**power for power in powers)], axis=1)


def load_policy(path: Path) -> Policy:
    """Read a policy from its file and the card beside it."""
    arrays = {name: array.astype(np.float64) for name, array in load_file(path).items()}
    card = json.loads(path.with_suffix(".json").read_text(encoding="utf-8"))
    card["sha256"] = hashlib.sha256(path.read_bytes()).hexdigest()
    layers = range(sum(name.startswith("weight") for name in arrays))
    weights, biases = (tuple(arrays[f"{part}{i}"] for i in layers) for part in ("weight", "bias"))
    return Policy(path.stem, weights, biases, arrays["deviation"], card, tuple(card.get("powers", ())))


@cache
def shipped(task: str) -> tuple[Policy, ...]:
    """All policies of a task, in the order of their names."""
    catalog.task(task)
    if not has_shipped(task):
        have = ", ".join(name for name in catalog.names() if has_shipped(name))
        raise InputError(
            f"no behaviour policies are shipped for {task}; there are some for: {have or 'none'}."
        )
    return tuple(load_policy(path) for path in sorted((SHIPPED / task).glob("*.safetensors")))


def has_shipped(task: str) -> bool:
    """Whether behaviour policies are shipped for a task."""
    return any((SHIPPED / task).glob("*.safetensors"))
