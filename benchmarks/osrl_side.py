"""OSRL's side of osrl.py: trains its COptiDICE when told so. Needs torch, safetensors, gymnasium and tqdm.

    python osrl_side.py SOURCE SEED FOLDER

Of the package at SOURCE only the networks and the algorithm are loaded, with an empty stand-in for the
loggers that the latter names; the rest of it asks for packages that do not install beside a later torch.
"""

import importlib.util
import json
import sys
import time
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import torch
from safetensors.numpy import load_file, save_file


def load(name: str, path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def algorithm(source: Path) -> ModuleType:
    loggers: Any = ModuleType("fsrl.utils")
    loggers.DummyLogger = loggers.WandbLogger = type("Logger", (), {})
    sys.modules["fsrl.utils"] = loggers
    for name in ("fsrl", "osrl", "osrl.common"):
        sys.modules[name] = ModuleType(name)
    load("osrl.common.net", source / "osrl" / "common" / "net.py")
    return load("osrl.algorithms.coptidice", source / "osrl" / "algorithms" / "coptidice.py")


def model_of(source: Path, settings: dict[str, Any], steps: dict[str, np.ndarray]) -> Any:
    """With OSRL's defaults where our settings say nothing: two networks of ν and two of χ."""
    model = algorithm(source).COptiDICE(
        steps["observations"].shape[1],
        steps["actions"].shape[1],
        max_action=1.0,
        f_type="softchi",
        init_state_propotion=float(steps["is_init"].mean()),
        observations_std=steps["observations"].std(axis=0, keepdims=True),
        actions_std=steps["actions"].std(axis=0, keepdims=True),
        a_hidden_sizes=settings["hidden_policy"],
        c_hidden_sizes=settings["hidden_critic"],
        gamma=settings["gamma"],
        alpha=settings["alpha"],
        cost_ub_epsilon=settings["cost_ub_epsilon"],
        num_nu=2,
        num_chi=2,
        cost_limit=settings["cost_limit"],
        episode_len=round(float(steps["mean_length"][0])),
    )
    model.setup_optimizers(settings["lr_policy"], settings["lr_critic"], settings["lr_multiplier"])
    return model


def actor_arrays(model: Any) -> dict[str, np.ndarray]:
    layers = [layer for layer in model.actor.net if isinstance(layer, torch.nn.Linear)]
    arrays = {}
    for number, layer in enumerate([*layers, model.actor.mu_layer]):
        arrays[f"weight{number}"] = layer.weight.detach().numpy()
        arrays[f"bias{number}"] = layer.bias.detach().numpy()
    return arrays


def main() -> None:
    source, seed, folder = Path(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3])
    settings = json.loads((folder / "settings.json").read_text())
    arrays = load_file(folder / "steps.safetensors")
    steps = {name: np.asarray(array, np.float32) for name, array in arrays.items()}
    torch.manual_seed(seed)
    generator, model = np.random.default_rng(seed), model_of(source, settings, steps)
    names = ("observations", "next_observations", "actions", "rewards", "costs", "done", "is_init")
    columns = [torch.from_numpy(steps[name]) for name in names]
    for line in sys.stdin:
        command, *count = line.split()
        if command == "train":
            began = time.perf_counter()
            for _ in range(int(count[0])):
                rows = torch.from_numpy(generator.integers(0, len(columns[0]), settings["batch"]))
                model.update([column[rows] for column in columns])
            print(time.perf_counter() - began, flush=True)
        else:
            save_file(actor_arrays(model), folder / "actor.safetensors")
            print("saved", flush=True)


if __name__ == "__main__":
    main()
