"""Make the drivers that ship with the package: networks that still take their caution as an input.

    export PYTHONPATH=src
    python tools/behaviour/ship_drivers.py train SafetySwimmerVelocity-v1 --work behaviour
    python tools/behaviour/ship_drivers.py export SafetySwimmerVelocity-v1 --work behaviour

Some are networks that were trained with a setting as their last input, and shipped at several settings with
the setting folded into the first bias: the difference between two of these biases gives the input back. The
others `train` teaches in rounds (DAgger, Ross et al. 2011, arXiv:1011.0686): those of Swimmer imitate what
lies between two searched swimmers; those of Goal1 and Button1 the planner, as in distil_behaviour.py, but
they see no powers of lidars, which a clone doesn't see either, and their caution changes during a round, so
that they know how to go on after a lapse. `train` keeps each round and goes on when called again; `export`
measures the drivers that there are over 50 episodes of their own manner, and writes weights and cards into
the package.
"""

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from distil_behaviour import (
    RECIPES,
    Lens,
    Recipe,
    Student,
    answer,
    begin,
    lens_of,
    seeing,
    taught,
    teach_in_rounds,
)
from safetensors.numpy import load_file, save_file
from shipping import command_line, write_driver

from safemil.behaviour.drivers import Habits
from safemil.behaviour.policy import SHIPPED
from safemil.tasks import make_vec

Arrays = dict[str, np.ndarray]
Mix = tuple[tuple[str, float], ...]  # searched swimmers and their shares
Teacher = Callable[[np.ndarray, np.ndarray], np.ndarray]  # from observations and settings to actions


@dataclass(frozen=True)
class Trained:
    """A network that was trained with its setting as an input."""

    family: str  # names of its shipped policies, with * for the setting
    habits: Habits
    deviation: float = 1.0  # of the actions, in units of the policies'


@dataclass(frozen=True)
class Imitated:
    """A network that is taught what lies between two searched swimmers, at settings 0 and 1."""

    way: tuple[Mix, Mix]
    habits: Habits
    low: float = -0.6  # settings drawn in teaching; below 0 is as 0, above 1 as 1
    high: float = 1.6
    stretch: int = 150  # mean steps until a setting is drawn anew
    rounds: int = 3
    worlds: int = 64
    steps: int = 1000
    noise: float = 0.2  # mean deviation of the actions
    updates: int = 4000  # in a round
    last_updates: int = 12_000
    deviation: float = 0.35  # of the actions that a unit of noise stands for


@dataclass(frozen=True)
class Planned:
    """A network that is taught by the planner."""

    recipe: Recipe
    habits: Habits


RECIPE = replace(RECIPES["SafetyPointGoal1-v0"], batch=512)  # how a student is taught
SPEED, PRICE, CAUTION = "target speed, m/s", "price of a unit of cost", "caution of the planner"
PLACE = "place on the way from a slow swimmer to a fast one"
SIGNALS = {
    SPEED: "the task's reward, and 2 less per m/s above a target speed",
    PRICE: "the task's reward minus a price per unit of cost and per step driven backwards",
    CAUTION: "a planner's actions, of more or less care",
    PLACE: "the actions of two searched swimmers, and of those between them",
}
FAST = (("0.30-170", 1.0),)
GOAL = replace(
    RECIPES["SafetyPointGoal1-v0"],
    hazard=(-0.6, 0.0, 0.5, 1.0, 2.0, 4.0),
    margin=(0.2, 0.2, 0.2, 0.3, 0.35, 0.4),
    stretch=80,
    rounds=4,
    steps=300,
    noise=0.3,
    deviation=0.3,
    hidden=96,
    updates=2500,
    last_updates=8000,
    batch=512,
    rate=2e-3,
)
BUTTON = replace(
    RECIPES["SafetyPointButton1-v0"],
    powers=(),
    stretch=80,
    noise=0.2,
    deviation=0.2,
    hidden=256,
    worlds=128,
    updates=4000,
    last_updates=40_000,
    rate=2e-3,
    precision="float32",
)
BUTTON_WIDE = replace(
    BUTTON,
    margin=(0.05, 0.1, 0.15, 0.2, 0.25, 0.3),
    room=(0.05, 0.1, 0.15, 0.2, 0.25, 0.3),
)
DRIVERS: dict[str, dict[str, Trained | Imitated | Planned]] = {
    "SafetyWalker2dVelocity-v1": {
        "old": Trained("speed-*-01306k-seed0", Habits(SPEED, 2.25, 1.8, 0.75, 300, 0.7)),
        "young": Trained("speed-*-00800k-seed0", Habits(SPEED, 2.2, 1.7, 0.75, 300, 0.7)),
    },
    "SafetySwimmerVelocity-v1": {
        "one": Imitated(
            ((("0.40-130-5", 0.8), ("0.20-160-15", 0.2)), FAST),
            Habits(PLACE, 0.9, -0.5, 0.8, 1000, 1.0),
        ),
        "two": Imitated(
            ((("0.30-150", 1.0),), FAST),
            Habits(PLACE, 0.9, -0.5, 0.8, 1000, 1.0),
        ),
    },
    "SafetyAntVelocity-v1": {
        "old": Trained("speed-*-02000k-seed0", Habits(SPEED, 2.45, 2.05, 0.9, 300, 0.6)),
        "young": Trained("speed-*-01300k-seed0", Habits(SPEED, 2.6, 2.0, 0.9, 300, 0.6)),
    },
    "SafetyPointCircle2-v0": {
        "old": Trained("price-*-03000k-seed0", Habits(PRICE, 0.06, 0.095, 0.9, 150, 0.8)),
        "young": Trained("price-*-01000k-seed0", Habits(PRICE, 0.09, 0.15, 0.9, 150, 0.8)),
    },
    "SafetyPointGoal1-v0": {
        "planned": Trained("caution-*-seed0", Habits(CAUTION, 0.3, 0.8, 0.6, 300, 0.7)),
        "wide": Planned(GOAL, Habits(CAUTION, 0.2, 0.9, 0.6, 300, 0.7)),
    },
    "SafetyPointButton1-v0": {
        "close": Planned(BUTTON, Habits(CAUTION, 0.3, 0.9, 0.6, 300, 0.7)),
        "wide": Planned(BUTTON_WIDE, Habits(CAUTION, 0.3, 0.9, 0.6, 300, 0.7)),
    },
}  # fmt: skip


def recovered(task: str, family: str) -> tuple[Arrays, dict[str, Any]]:
    """The network behind policies that differ in their setting alone, and the card of one of them."""
    start, end = family.split("*")
    paths = sorted((SHIPPED / task).glob(f"{family}.safetensors"))
    settings = np.array([float(path.stem.removeprefix(start).removesuffix(end)) for path in paths])
    found = [load_file(path) for path in paths]
    biases = np.stack([each["bias0"].astype(np.float64) for each in found])
    known = np.stack([settings, np.ones(len(settings))], axis=1)
    (row, bias), *_ = np.linalg.lstsq(known, biases, rcond=None)
    arrays = {name: array.astype(np.float64) for name, array in found[0].items()}
    arrays |= {"weight0": np.concatenate([arrays["weight0"], row[None]]), "bias0": bias}
    card: dict[str, Any] = json.loads(paths[0].with_suffix(".json").read_text())
    return arrays, card


def searched(name: str) -> np.ndarray:
    """Weights (8, 2) of a swimmer."""
    path = SHIPPED / "SafetySwimmerVelocity-v1" / f"search-{name}-seed0.safetensors"
    return load_file(path)["weight0"].astype(np.float64)


def between(slow: Mix, fast: Mix) -> Teacher:
    """Act as a mixture of two swimmers, of which the setting is the share of the second."""
    first, second = (np.sum([share * searched(name) for name, share in mix], axis=0) for mix in (slow, fast))

    def act(seen: np.ndarray, setting: np.ndarray) -> np.ndarray:
        share = np.clip(setting, 0.0, 1.0)[:, None, None]
        weights = (1 - share) * first + share * second
        return np.clip(np.einsum("ns,nsa->na", seen, weights), -1.0, 1.0)

    return act


def train(task: str, work: Path, seed: int) -> None:
    """Teach the drivers of a task that are taught; those that the folder holds already are kept."""
    for place, (name, driver) in enumerate(DRIVERS[task].items()):
        path = network_in(work, task, name, seed)
        if isinstance(driver, Trained) or path.exists():
            continue
        print(f"{task}, {name}")
        rounds = path.with_suffix("")
        rounds.mkdir(parents=True, exist_ok=True)
        if isinstance(driver, Imitated):
            arrays = taught_in_rounds(task, driver, seed)
        else:
            arrays = planned(task, driver.recipe, rounds, seed + place)
        save_file({part: np.ascontiguousarray(array) for part, array in arrays.items()}, path)


def planned(task: str, recipe: Recipe, rounds: Path, seed: int) -> Arrays:
    """A network that acts as the planner does; its rounds are kept in a folder."""
    teach_in_rounds(task, recipe, rounds, seed)
    lens = lens_of(load_file(rounds / "round-00.safetensors")["inputs"], recipe.powers)
    last = load_file(rounds / f"student-{recipe.rounds - 1:02}.safetensors")
    return seeing(last, lens) | {"deviation": np.full(2, recipe.deviation)}


def network_in(work: Path, task: str, name: str, seed: int) -> Path:
    return work / task / f"driver-{name}-{seed}.safetensors"


def taught_in_rounds(task: str, driver: Imitated, seed: int) -> Arrays:
    """A network that acts as its teacher does, wherever it gets to by itself."""
    generator, key, teacher = np.random.default_rng(seed), jax.random.key(seed), between(*driver.way)
    inputs, told = drive(task, driver, teacher, generator)
    lens, begun = lens_of(inputs, ()), jax.random.fold_in(key, driver.rounds)
    student = begin(begun, inputs.shape[1], RECIPE.hidden)
    for place in range(driver.rounds):
        if place:
            more, more_told = drive(task, driver, teacher, generator, student, lens)
            inputs, told = np.concatenate([inputs, more]), np.concatenate([told, more_told])
        updates = driver.updates if place < driver.rounds - 1 else driver.last_updates
        shown, answers = jnp.asarray(lens(inputs)), jnp.asarray(told)
        student, error = taught(jax.random.fold_in(key, place), student, shown, answers, RECIPE, updates)
        print(f"round {place}: loss {error:.4f}", flush=True)
    arrays = {name: np.asarray(array, np.float64) for name, array in student.items()}
    return seeing(arrays, lens) | {"deviation": np.full(arrays["bias2"].shape, driver.deviation)}


def drive(
    task: str,
    driver: Imitated,
    teacher: Teacher,
    generator: np.random.Generator,
    student: Student | None = None,
    lens: Lens | None = None,
) -> tuple[np.ndarray, np.ndarray]:
    """States with their settings, and what the teacher does there; without a student the teacher drives."""
    n, low, high = driver.worlds, driver.low, driver.high
    envs = make_vec(task, n, autoreset_mode="Disabled", threads=1)
    seen, _ = envs.reset(seed=generator.integers(0, 2**31, n).tolist())
    setting, noise = generator.uniform(low, high, n), generator.exponential(driver.noise, n)[:, None]
    rows = []
    for _ in range(driver.steps):
        changed = generator.random(n) < 1 / driver.stretch
        setting = np.where(changed, generator.uniform(low, high, n), setting)
        inputs, told = np.concatenate([seen, setting[:, None]], axis=1), teacher(seen, setting)
        rows.append((inputs.astype(np.float32), told.astype(np.float32)))
        done = np.asarray(answer(student, lens(inputs))) if student and lens else told
        noisy = np.clip(done + noise * generator.standard_normal(told.shape), -1.0, 1.0)
        seen, *_ = envs.step(noisy.astype(envs.worlds.action_dtype))
    inputs, told = (np.concatenate(part) for part in zip(*rows, strict=True))
    return inputs, told


def export(task: str, work: Path, seed: int) -> None:
    """Write every driver of a task with its card."""
    for name, driver in DRIVERS[task].items():
        path = network_in(work, task, name, seed)
        card: dict[str, Any] = {"task": task, "seed": seed, "signal": SIGNALS[driver.habits.input]}
        if isinstance(driver, Trained):
            arrays, before = recovered(task, driver.family)
            arrays["deviation"] *= driver.deviation
            card |= {each: before[each] for each in ("method", "steps", "recipe")}
        elif not path.exists():
            print(f"{task}, {name}: not trained yet")
            continue
        else:
            recipe = driver if isinstance(driver, Imitated) else driver.recipe
            steps = recipe.rounds * recipe.worlds * recipe.steps
            arrays = load_file(path)
            card |= {"method": "DAgger", "steps": steps, "recipe": asdict(recipe)}
        write_driver(task, name, arrays, card | {"habits": asdict(driver.habits)})


def main() -> None:
    given = command_line(__doc__, ["train", "export"], DRIVERS).parse_args()
    command = train if given.command == "train" else export
    command(given.task, given.work, given.seed)


if __name__ == "__main__":
    main()
