"""Search the behaviour policies of Swimmer that ship with the package, by the cross-entropy method.

    export PYTHONPATH=src
    python tools/behaviour/search_behaviour.py search SafetySwimmerVelocity-v1 --work behaviour
    python tools/behaviour/search_behaviour.py export SafetySwimmerVelocity-v1 --work behaviour

A swimmer is 8 x 2 weights of its observation: no more is needed to swim. They are searched for one aim after
the other, from the fastest to the most careful, each from where the one before ended. An aim is a price of
cost and a return beyond which more is not better.

`search` keeps what it has found, and goes on when called again. `export` adds mixtures of two, measures each
over 50 episodes, and writes weights and cards into the package. It needs nothing but the package itself.
"""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from shipping import NOVICE, command_line, folder_of, remove_others, write_policy

from safemil.tasks import make_vec

SIZE = 16  # weights of a swimmer


class Aim(NamedTuple):
    """What is searched for."""

    price: float  # of a unit of cost
    enough: float  # return beyond which more is not better
    free: float = 0.0  # cost below which less is not better

    @property
    def name(self) -> str:
        start = f"{self.price:.2f}" if self.enough == np.inf else f"{self.price:.2f}-{self.enough:.0f}"
        return start + (f"-{self.free:.0f}" if self.free else "")

    @property
    def signal(self) -> str:
        beyond = f" beyond {self.free:g}" if self.free else ""
        limit = "" if self.enough == np.inf else f", no return beyond {self.enough:g} counted"
        return f"the task's reward minus {self.price:g} per unit of cost{beyond}{limit}"


class Mix(NamedTuple):
    """A mean of two that were found."""

    one: str
    other: str
    weight: float  # of the other

    @property
    def name(self) -> str:
        return f"{self.one}-to-{self.other}-{self.weight:g}"

    @property
    def signal(self) -> str:
        return f"none: {1 - self.weight:g} of {self.one} and {self.weight:g} of {self.other}"


@dataclass(frozen=True)
class Plan:
    """How candidates are drawn, and how they are tried."""

    generations: int
    candidates: int
    best: int  # of them that the next ones are drawn around
    noise: Sequence[float]  # deviation of the actions in each episode of a candidate
    spread: float  # deviation of the first candidates
    floor: float = 0.05  # the same, at least
    inertia: float = 0.0  # of the mean
    memory: float = 0.0  # of the spread
    steps: int = 1000  # of an episode

    @property
    def total(self) -> int:
        return self.generations * self.candidates * len(self.noise) * self.steps


FIRST = Plan(8, 24, 6, (0.0, 0.0), spread=1.0)
NEXT = Plan(5, 24, 6, (0.0, 0.0), spread=0.3)
PATIENT = Plan(12, 32, 8, (0.0, 0.1, 0.0, 0.1), spread=0.1, floor=0.02, inertia=0.3, memory=0.4)
SEARCHES = {
    Aim(0.0, np.inf): FIRST,
    Aim(0.1, 270): NEXT, Aim(0.1, 230): NEXT, Aim(0.2, 200): NEXT, Aim(0.3, 170): NEXT, Aim(0.5, 140): NEXT,
    Aim(0.5, 130): NEXT, Aim(0.5, 120): NEXT, Aim(0.4, 135): NEXT, Aim(0.3, 150): NEXT,
    Aim(0.4, 130, 5): PATIENT, Aim(0.2, 160, 15): PATIENT,
}  # fmt: skip
YOUNG = 1  # generation of the first search that ships too
# Faster ones would put the paper's border of a high return above all that swim within the limit.
SHIPPED = ("0.30-170", "0.30-150", "0.40-130-5", "0.20-160-15")
MIXES = (
    Mix("0.30-170", "0.20-200", 0.25), Mix("0.30-170", "0.20-200", 0.12), Mix("0.30-170", "0.50-140", 0.5),
    Mix("0.30-150", "0.40-130-5", 0.5), Mix("0.30-150", "0.40-130-5", 0.75),
    Mix("0.40-130-5", "0.20-160-15", 0.25), Mix("0.40-130-5", "0.20-160-15", 0.5),
    Mix("0.40-130-5", "0.20-160-15", 0.75), Mix("0.20-160-15", "0.30-170", 0.15),
)  # fmt: skip
DEVIATION = 0.1  # of the actions in the shipped policies' episodes with noise


def search(task: str, work: Path, seed: int) -> None:
    """Find a policy's weights for each aim.

    Aims that were found before are kept; what is then found may differ from what a search in one go finds.
    """
    path, mean = found_in(work, task, seed), np.zeros(SIZE)
    path.parent.mkdir(parents=True, exist_ok=True)
    found = json.loads(path.read_text()) if path.exists() else {}
    for place, (aim, plan) in enumerate(SEARCHES.items()):
        if aim.name not in found:
            means = search_one(task, aim, plan, mean, np.random.default_rng((seed, place)))
            if not place:
                found[f"{aim.name}-young"] = means[YOUNG].tolist()
            found[aim.name] = means[-1].tolist()
            path.write_text(json.dumps(found, indent=2) + "\n")
        mean = np.array(found[aim.name])


def search_one(
    task: str, aim: Aim, plan: Plan, mean: np.ndarray, generator: np.random.Generator
) -> list[np.ndarray]:
    """The means of all generations."""
    means, spread = [], np.full(SIZE, plan.spread)
    envs = make_vec(task, plan.candidates * len(plan.noise), autoreset_mode="Disabled", threads=1)
    for generation in range(plan.generations):
        tried = mean + spread * generator.standard_normal((plan.candidates, SIZE))
        tried[0] = mean
        returns, costs = try_all(plan, envs, tried, generator)
        loss = aim.price * np.maximum(costs - aim.free, 0.0) - np.minimum(returns, aim.enough)
        best = np.argsort(loss)[: plan.best]
        mean = plan.inertia * mean + (1 - plan.inertia) * tried[best].mean(axis=0)
        spread = plan.memory * spread + (1 - plan.memory) * tried[best].std(axis=0)
        spread = np.maximum(spread, plan.floor)
        means.append(mean)
        seen = f"return {returns[best].mean():.1f}, cost {costs[best].mean():.1f}"
        print(f"aim {aim.name}, generation {generation}: {seen}", flush=True)
    return means


def try_all(
    plan: Plan, envs: Any, tried: np.ndarray, generator: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """Mean return and cost of each candidate, all in the same worlds."""
    episodes = len(plan.noise)
    weights = np.repeat(tried, episodes, axis=0).reshape(plan.candidates * episodes, -1, 2)
    noise = np.tile(plan.noise, plan.candidates)[:, None]
    seeds = np.tile(generator.integers(0, 2**31, episodes), plan.candidates)
    seen, _ = envs.reset(seed=seeds.tolist())
    totals = np.zeros((2, len(weights)))
    for _ in range(plan.steps):
        actions = np.einsum("ns,nsa->na", seen, weights)
        actions += noise * generator.standard_normal(actions.shape)
        seen, reward, _, _, info = envs.step(np.clip(actions, -1.0, 1.0).astype(np.float32))
        totals += np.stack([reward, info["cost"]])
    returns, costs = totals.reshape(2, plan.candidates, episodes).mean(axis=2)
    return returns, costs


def found_in(work: Path, task: str, seed: int) -> Path:
    return work / task / str(seed) / "found.json"


def export(task: str, work: Path, seed: int) -> None:
    """Write every policy that ships with its card, measured over 50 episodes."""
    known = json.loads(found_in(work, task, seed).read_text())
    found = {name: np.array(weights) for name, weights in known.items()}
    first = next(iter(SEARCHES))
    kept = {ship(task, seed, f"{first.name}-young", found[f"{first.name}-young"], first.signal, NOVICE)}
    for aim in SEARCHES:
        if aim.name in SHIPPED:
            kept.add(ship(task, seed, aim.name, found[aim.name], aim.signal))
    for mix in MIXES:
        weights = (1 - mix.weight) * found[mix.one] + mix.weight * found[mix.other]
        kept.add(ship(task, seed, mix.name, weights, mix.signal))
    remove_others(task, kept)


def ship(task: str, seed: int, name: str, weights: np.ndarray, signal: str, share: float = 1.0) -> str:
    card = {"task": task, "method": "cross-entropy search", "signal": signal, "seed": seed, "share": share}
    card["steps"] = sum(plan.total for plan in SEARCHES.values())  # of the whole search
    card["search"] = {aim.name: asdict(plan) for aim, plan in SEARCHES.items()}
    arrays = {"weight0": weights.reshape(-1, 2), "bias0": np.zeros(2), "deviation": np.full(2, DEVIATION)}
    return write_policy(folder_of(task) / f"search-{name}-seed{seed}.safetensors", arrays, card)


def main() -> None:
    given = command_line(__doc__, ["search", "export"], ["SafetySwimmerVelocity-v1"]).parse_args()
    command = search if given.command == "search" else export
    command(given.task, given.work, given.seed)


if __name__ == "__main__":
    main()
