"""Distil a planner into the behaviour policies of Goal1 and Button1 that ship with the package.

    export PYTHONPATH=src
    python tools/behaviour/distil_behaviour.py train SafetyPointGoal1-v0 --work behaviour
    python tools/behaviour/distil_behaviour.py export SafetyPointGoal1-v0 --work behaviour

The teacher (planning.py) knows where everything is. The student, a small network, sees what the task shows
and one number more, its caution, from 0, reckless, to 1. In rounds (DAgger, Ross et al. 2011,
arXiv:1011.0686), worlds are driven by the student of the round before, in the first by the teacher; the
teacher says what it would have done in each state; and the student is trained on all that was said so far.

`train` keeps each round's data and student, and goes on when called again. `export` fixes the caution into
the first layer, one plain network for each of several cautions, measures each over 50 episodes, and writes
weights and cards into the package. Both need nothing but the package itself.
"""

import time
from dataclasses import asdict, dataclass
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import Array
from planning import HOLD, Care, Reach, at_rest, plan, scene_of, shifted
from safetensors.numpy import load_file, save_file
from shipping import at_setting, command_line, folder_of, remove_others, write_policy

from safemil.behaviour.policy import with_powers
from safemil.tasks import make_vec
from safemil.tasks.point import BINS, SENSORS

KEEN = 0.1  # error below which the loss turns from linear to square
STILL, HIDDEN = 1e-6, 1e6  # deviation of an input that never changes, and what it is divided by
FEW = 0.2  # share of those between the reckless and the cautious
CAUTIONS = (0.0, 0.2, 0.4, 0.6, 0.8, 1.0)  # at which a recipe says how much care is taken


@dataclass(frozen=True)
class Recipe:
    """How a task's student is taught."""

    reach: Reach
    hazard: tuple[float, ...]  # care at each of CAUTIONS; less than 0 seeks what others avoid
    margin: tuple[float, ...]  # m
    touch: tuple[float, ...]
    room: tuple[float, ...]  # m
    cautions: tuple[float, ...]  # that ship
    between: tuple[float, ...] = ()  # that ship with a small share
    powers: tuple[float, ...] = ()  # of the lidars, which the student sees too
    rounds: int = 8
    worlds: int = 128
    steps: int = 400  # of each world in a round
    noise: float = 0.5  # deviation of the actions in half of the worlds
    deviation: float = 0.5  # the same in the shipped policies' episodes with noise
    stretch: int = 0  # mean steps for which a world keeps its caution; 0: always
    hidden: int = 64
    updates: int = 4000  # in a round
    last_updates: int = 20_000  # in the last round
    batch: int = 1024
    rate: float = 3e-3  # at first, in every round; falls to 0
    precision: str = "float32"  # that ships; halves would give each caution errors of its own


RECIPES = {
    "SafetyPointGoal1-v0": Recipe(
        Reach(0.29, 0.0), cautions=(0.0, 0.05, 0.1, 0.2, 0.3, 0.7, 0.72, 0.75, 0.8, 0.85),
        between=(0.4, 0.5, 0.6),
        hazard=(-0.8, -0.4, 0.0, 1.5, 3.0, 5.0), margin=(0.1, 0.05, 0.05, 0.2, 0.3, 0.35),
        touch=(0.0,) * 6, room=(0.02,) * 6,
    ),
    "SafetyPointButton1-v0": Recipe(
        Reach(0.19, 0.14), cautions=(0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.75, 0.8, 0.85, 0.9),
        hazard=(-0.5, 0.0, 0.5, 1.0, 2.0, 4.0), margin=(0.02, 0.02, 0.05, 0.1, 0.15, 0.2),
        touch=(0.3, 0.5, 1.0, 2.0, 4.0, 8.0), room=(0.02, 0.02, 0.05, 0.1, 0.15, 0.2),
        powers=(4.0, 12.0), rounds=9, worlds=96, noise=0.2, deviation=0.15, hidden=128, precision="float16",
    ),
}  # fmt: skip


def mirrored(inputs: np.ndarray, told: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The same states and actions with left and right exchanged."""
    signs = np.ones(inputs.shape[1], np.float32)
    signs[[1, 4, 8, 9]] = -1.0  # acceleration and speed to the left, turning, field ahead
    order = np.arange(inputs.shape[1])
    order[SENSORS:-1] = order[SENSORS:-1].reshape(-1, BINS)[:, ::-1].ravel()
    return inputs[:, order] * signs, told * np.array([1.0, -1.0], np.float32)


def turned_about(inputs: np.ndarray, told: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The same states and actions of a robot that looks the other way."""
    signs = np.ones(inputs.shape[1], np.float32)
    signs[[0, 1, 3, 4, 9, 10]] = -1.0  # acceleration, speed, field
    order = np.arange(inputs.shape[1])
    order[SENSORS:-1] = np.roll(order[SENSORS:-1].reshape(-1, BINS), BINS // 2, axis=1).ravel()
    return inputs[:, order] * signs, told * np.array([-1.0, 1.0], np.float32)


Student = dict[str, Array]  # weight0 (in, out), bias0 (out,), weight1, ...: tanh layers, as they ship


class Lens(NamedTuple):
    """Standardises what a student sees."""

    mean: np.ndarray
    scale: np.ndarray
    powers: tuple[float, ...]

    def __call__(self, inputs: np.ndarray) -> np.ndarray:
        return ((powered(inputs, self.powers) - self.mean) / self.scale).astype(np.float32)


def powered(inputs: np.ndarray, powers: tuple[float, ...]) -> np.ndarray:
    """Observations with the powers of their lidars, and the caution, which stays last."""
    return np.concatenate([with_powers(inputs[:, :-1], powers), inputs[:, -1:]], axis=1)


def lens_of(inputs: np.ndarray, powers: tuple[float, ...]) -> Lens:
    """Hides inputs that never change; those that hardly do are divided by 0.02, not by their deviation."""
    seen = powered(inputs, powers).astype(np.float64)
    deviation = seen.std(axis=0)
    scale = np.where(deviation > STILL, np.maximum(deviation, 0.02), HIDDEN)
    return Lens(seen.mean(axis=0), scale, powers)


def begin(key: Array, size: int, hidden: int) -> Student:
    sizes = [size, hidden, hidden, 2]
    student: Student = {}
    for layer, (into, out) in enumerate(pairwise(sizes)):
        draws = jax.random.normal(jax.random.fold_in(key, layer), (into, out))
        student |= {f"weight{layer}": draws / np.sqrt(into), f"bias{layer}": jnp.zeros(out)}
    return student


@jax.jit
def answer(student: Student, inputs: Array) -> Array:
    """(n, S + 1), standardised -> (n, 2)."""
    hidden = jnp.tanh(inputs @ student["weight0"] + student["bias0"])
    hidden = jnp.tanh(hidden @ student["weight1"] + student["bias1"])
    return hidden @ student["weight2"] + student["bias2"]


def loss(student: Student, inputs: Array, told: Array) -> Array:
    """Nearly the absolute error: between two ways around a thing, a mean would lead into it."""
    return jnp.sqrt(jnp.square(answer(student, inputs) - told) + KEEN * KEEN).mean()


@partial(jax.jit, static_argnames=("recipe", "updates"))
def taught(
    key: Array, student: Student, inputs: Array, told: Array, recipe: Recipe, updates: int
) -> tuple[Student, Array]:
    """The student after so many updates, and its mean loss in the last of them."""
    optimiser = optax.adam(optax.cosine_decay_schedule(recipe.rate, updates))

    def update(state: tuple[Student, Any], key: Array) -> tuple[tuple[Student, Any], Array]:
        student, memory = state
        rows = jax.random.randint(key, (recipe.batch,), 0, len(inputs))
        value, slope = jax.value_and_grad(loss)(student, inputs[rows], told[rows])
        change, memory = optimiser.update(slope, memory)
        return (optax.apply_updates(student, change), memory), value

    start = (student, optimiser.init(student))
    (student, _), losses = jax.lax.scan(update, start, jax.random.split(key, updates))
    return student, losses[-100:].mean()


def care_of(recipe: Recipe, caution: np.ndarray) -> Care:
    tables = (recipe.hazard, recipe.margin, recipe.touch, recipe.room)
    return Care(*(jnp.asarray(np.interp(caution, CAUTIONS, table), jnp.float32) for table in tables))


def drive(
    task: str,
    recipe: Recipe,
    key: Array,
    seed: int,
    student: Student | None = None,
    lens: Lens | None = None,
) -> dict[str, np.ndarray]:
    """A round's states and what the teacher says to them; without a student the teacher drives too."""
    generator = np.random.default_rng(seed)
    envs = make_vec(task, recipe.worlds, autoreset_mode="Disabled", threads=1)
    caution = generator.permutation(np.linspace(0.0, 1.0, recipe.worlds))
    care, courses = care_of(recipe, caution), at_rest(recipe.worlds)
    noise = recipe.noise * (np.arange(recipe.worlds) % 2)[:, None]
    seen, _ = envs.reset(seed=generator.integers(0, 2**31, recipe.worlds).tolist())
    rows, totals = [], np.zeros((3, 5))  # reward, cost and steps in each fifth of the cautions
    for step in range(recipe.steps):
        if recipe.stretch:
            changed = generator.random(recipe.worlds) < 1 / recipe.stretch
            caution = np.where(changed, generator.random(recipe.worlds), caution)
            care = care_of(recipe, caution)
        inputs = np.concatenate([seen, caution[:, None]], axis=1).astype(np.float32)
        draw, scene = jax.random.fold_in(key, step), scene_of(envs.worlds)
        told, courses = plan(draw, scene, courses, care, recipe.reach)
        if step % HOLD == HOLD - 1:
            courses = shifted(courses)
        rows.append((inputs, np.asarray(told)))
        done = np.asarray(answer(student, lens(inputs)) if student and lens else told, np.float64)
        done = done + noise * generator.standard_normal(done.shape)
        seen, reward, _, _, info = envs.step(np.clip(done, -1.0, 1.0))
        fifths = np.minimum((5 * caution).astype(int), 4)
        np.add.at(totals.T, fifths, np.stack([reward, info["cost"], np.ones(recipe.worlds)], axis=1))
    tell(totals)
    inputs, told = (np.concatenate(part) for part in zip(*rows, strict=True))
    return {"inputs": inputs, "told": told}


def tell(totals: np.ndarray) -> None:
    """Print return and cost at five cautions, as of 1000 steps."""
    means = 1000 * totals[:2] / np.maximum(totals[2], 1)
    print("  return/cost, from reckless to cautious:", *(f"{r:.1f}/{c:.0f}" for r, c in means.T), flush=True)


def train(task: str, work: Path, seed: int) -> None:
    """Teach a task's student, or go on with it."""
    teach_in_rounds(task, RECIPES[task], folder_in(work, task, seed), seed)


def teach_in_rounds(task: str, recipe: Recipe, folder: Path, seed: int) -> None:
    """Drive and teach in turns; what the folder holds already is kept."""
    folder.mkdir(parents=True, exist_ok=True)
    student, lens, rounds = None, None, []
    for place in range(recipe.rounds):
        driving, teaching, first = jax.random.split(jax.random.fold_in(jax.random.key(seed), place), 3)
        data, result = folder / f"round-{place:02}.safetensors", folder / f"student-{place:02}.safetensors"
        if not data.exists():
            save_file(drive(task, recipe, driving, 1000 * seed + place, student, lens), data)
        rounds.append(load_file(data))
        lens = lens or lens_of(rounds[0]["inputs"], recipe.powers)
        if not result.exists():
            inputs, told = all_told(rounds)
            start = student or begin(first, len(lens.mean), recipe.hidden)
            updates = recipe.updates if place < recipe.rounds - 1 else recipe.last_updates
            save_file(teach(teaching, start, lens(inputs), told, recipe, updates), result)
        student = load_file(result)


def teach(
    key: Array, student: Student, inputs: np.ndarray, told: np.ndarray, recipe: Recipe, updates: int
) -> dict[str, np.ndarray]:
    began = time.monotonic()
    student, error = taught(key, student, inputs, told, recipe, updates)
    print(f"{updates} updates: loss {error:.3f}, {time.monotonic() - began:.0f} s", flush=True)
    return {name: np.asarray(array) for name, array in student.items()}


def all_told(rounds: list[dict[str, np.ndarray]]) -> tuple[np.ndarray, np.ndarray]:
    """The states of all rounds and what was said to them, as they are, mirrored, and the other way round."""
    inputs, told = (np.concatenate([each[name] for each in rounds]) for name in ("inputs", "told"))
    for changed in (mirrored, turned_about):
        more_inputs, more_told = changed(inputs, told)
        inputs, told = np.concatenate([inputs, more_inputs]), np.concatenate([told, more_told])
    return inputs, told


def folder_in(work: Path, task: str, seed: int) -> Path:
    return work / task / f"distilled-{seed}"


def export(task: str, work: Path, seed: int) -> None:
    """Write every policy that ships with its card, measured over 50 episodes."""
    recipe, folder = RECIPES[task], folder_in(work, task, seed)
    lens = lens_of(load_file(folder / "round-00.safetensors")["inputs"], recipe.powers)
    last, kept = load_file(folder / f"student-{recipe.rounds - 1:02}.safetensors"), set()
    for caution in sorted(recipe.cautions + recipe.between):
        kept.add(ship(f"caution-{caution:.2f}-seed{seed}", last, lens, card_of(task, seed, caution)))
    remove_others(task, kept)


def card_of(task: str, seed: int, caution: float) -> dict[str, Any]:
    recipe = RECIPES[task]
    minded = care_of(recipe, np.array(caution))._asdict()
    care = {name: round(float(each), 4) for name, each in minded.items()}
    signal = f"a planner's actions, to which a step in a hazard is {care['hazard']:g} steps of delay"
    if any(recipe.touch):
        signal += f" and one in touch {care['touch']:g}"
    steps = recipe.rounds * recipe.worlds * recipe.steps
    about = {"task": task, "signal": signal, "method": "DAgger", "steps": steps, "seed": seed}
    about |= {"share": 1.0 if caution in recipe.cautions else FEW, "caution": caution}
    return about | {"powers": recipe.powers, "care": care, "recipe": asdict(recipe)}


def ship(name: str, student: dict[str, np.ndarray], lens: Lens, card: dict[str, Any]) -> str:
    """Fold the lens and the caution into the first layer, and write the network."""
    recipe = RECIPES[card["task"]]
    arrays = at_setting(seeing(student, lens), card["caution"]) | {"deviation": np.full(2, recipe.deviation)}
    return write_policy(
        folder_of(card["task"]) / f"{name}.safetensors", arrays, card, np.dtype(recipe.precision)
    )


def seeing(student: dict[str, np.ndarray], lens: Lens) -> dict[str, np.ndarray]:
    """The network with its lens in the first layer."""
    first = student["weight0"] / lens.scale[:, None]
    return student | {"weight0": first, "bias0": student["bias0"] - lens.mean @ first}


def main() -> None:
    given = command_line(__doc__, ["train", "export"], RECIPES).parse_args()
    command = train if given.command == "train" else export
    command(given.task, given.work, given.seed)


if __name__ == "__main__":
    main()
