"""How a trained policy becomes a file of the package, with its card."""

import argparse
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from safetensors.numpy import save

from safemil import catalog
from safemil.behaviour import drivers
from safemil.behaviour.making import record
from safemil.behaviour.policy import SHIPPED, load_policy
from safemil.rollouts import Recording

EPISODES = 50  # that a card's means are over
NOVICE = 0.2  # share of policies that are there for their low returns


def command_line(
    description: str | None, commands: list[str], tasks: Iterable[str]
) -> argparse.ArgumentParser:
    """What the scripts that make policies are asked alike."""
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("command", choices=commands)
    parser.add_argument("task", choices=list(tasks))
    parser.add_argument("--work", type=Path, required=True, help="folder for what the command keeps")
    parser.add_argument("--seed", type=int, default=0)
    return parser


def folder_of(task: str) -> Path:
    """Where a task's policies are shipped."""
    folder = SHIPPED / task
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def at_setting(arrays: dict[str, np.ndarray], setting: float) -> dict[str, np.ndarray]:
    """The network of one setting: its last input becomes part of the first bias."""
    first = arrays["weight0"]
    return arrays | {
        "weight0": np.ascontiguousarray(first[:-1]),
        "bias0": arrays["bias0"] + setting * first[-1],
    }


def write_policy(
    path: Path, arrays: dict[str, np.ndarray], card: dict[str, Any], kind: npt.DTypeLike = np.float32
) -> str:
    """Write weights and card, unless these weights have been measured already; gives the policy's name."""
    content = save({name: np.ascontiguousarray(array, kind) for name, array in arrays.items()})
    told = path.with_suffix(".json")
    before = json.loads(told.read_text()) if told.exists() else {}
    if not (before.get("episodes") == EPISODES and path.read_bytes() == content):
        path.write_bytes(content)
        card |= measured(path, card)
    else:
        card |= {name: before[name] for name in ("episodes", "return", "cost", "length")}
    told.write_text(json.dumps(card, indent=2) + "\n")
    return path.stem


def measured(path: Path, card: dict[str, Any]) -> dict[str, Any]:
    """What the policy does: means over episodes of which every other one has noise."""
    path.with_suffix(".json").write_text(json.dumps(card))
    noise = np.arange(EPISODES, dtype=np.float64) % 2
    seen = record(card["task"], load_policy(path), list(range(EPISODES)), noise, np.random.default_rng(0))
    return means(path.stem, seen)


def means(name: str, seen: Recording) -> dict[str, Any]:
    """Means over the recorded episodes, printed too."""
    values: dict[str, npt.NDArray[Any]] = {
        "return": seen.rewards.sum(axis=1),
        "cost": seen.costs.sum(axis=1),
        "length": seen.lengths,
    }
    found = {name: round(float(each.mean()), 2) for name, each in values.items()}
    print(f"{name:40}", *(f"{name} {mean:8.1f}" for name, mean in found.items()), flush=True)
    return {"episodes": EPISODES, **found}


def write_driver(task: str, name: str, arrays: dict[str, np.ndarray], card: dict[str, Any]) -> None:
    """Write the network and the card of a driver, measured over episodes of the driver's own manner."""
    path = drivers.SHIPPED / task / f"{name}.safetensors"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(save({part: np.ascontiguousarray(each, np.float32) for part, each in arrays.items()}))
    told = path.with_suffix(".json")
    told.write_text(json.dumps(card))
    driver, generator = drivers.load_driver(path), np.random.default_rng(0)
    manner = driver.manner(EPISODES, catalog.task(task).limit, generator)
    seen = driver.record(task, manner, list(range(EPISODES)), generator)
    told.write_text(json.dumps(card | means(path.stem, seen), indent=2) + "\n")


def remove_others(task: str, kept: set[str]) -> None:
    """Remove the policies of a task that ship no more."""
    for old in folder_of(task).iterdir():
        if old.stem not in kept:
            old.unlink()
