"""Train the behaviour policies that ship with the package, with Stable-Baselines3 in a venv of its own.

    python -m venv .venv-behaviour
    .venv-behaviour/bin/pip install -r requirements-behaviour.txt
    export PYTHONPATH=src
    .venv-behaviour/bin/python tools/train_behaviour.py train SafetyPointCircle2-v0 --work behaviour
    .venv-behaviour/bin/python tools/train_behaviour.py export SafetyPointCircle2-v0 --work behaviour

One run of PPO gives a whole family, from cautious to reckless. The policy sees one input more than the task
shows, drawn anew for each episode:

- in the velocity tasks a target speed: it earns the task's speed and is fined for each m/s above the target;
- in the point tasks the price of a unit of cost, subtracted from the reward.

In Goal1 and Button1, PPO learns to reach goals within a million steps, but in three million hardly to avoid
what is in the way, at any price. There `search` finds the seven numbers of a driver (safemil.behaviour.field)
for each of several prices, by the cross-entropy method.

`export` fixes the extra input, and the normalisation of observations, into the first layer, one plain network
for each setting and each age of the run, adds the drivers, measures all over 50 episodes and writes weights
and cards into the package. `train` keeps all it needs, every few updates, and goes on when called again.
"""

import argparse
import json
import pickle
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import stable_baselines3
import torch
from safetensors.numpy import load_file, save, save_file
from stable_baselines3 import PPO
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.vec_env import VecEnv, VecNormalize

from safemil.behaviour.field import LIDARS, drive
from safemil.behaviour.policy import SHIPPED, load_policy
from safemil.behaviour.rollouts import roll_out
from safemil.tasks import make_vec

EPISODES = 50  # that a card's means are over
SIGNALS = {
    "price": "the task's reward minus {:g} per unit of cost",
    "speed": "the task's reward, and {1:g} less per m/s above {0:g} m/s",
}
SENSORS = 12  # leading entries of the point robot's observation


class Age(NamedTuple):
    """A moment of a run."""

    steps: int
    settings: Sequence[float]
    share: float = 1.0  # of the episodes a finished policy has in a dataset


@dataclass(frozen=True)
class Recipe:
    """How a task's family is trained."""

    signal: str  # "speed" or "price"
    low: float  # settings drawn in training, m/s or per unit of cost
    high: float
    settings: Sequence[float]  # shipped, of the finished run
    steps: int  # that the learning rate falls over
    stop: int = 0  # steps at which the run ends, if earlier
    young: Sequence["Age"] = ()  # of the run, that are shipped too
    repeat: int = 1  # steps for which an action is held in training
    horizon: int = 1000  # steps of a training episode
    gamma: float = 0.99  # per action
    envs: int = 64
    rollout: int = 128  # actions of each environment per update
    batch: int = 1024
    epochs: int = 6
    rate: float = 1e-3  # at first; falls to a tenth
    deviation: float = 1.0  # of the actions, at first
    fine: float = 2.0  # per m/s above the target speed
    effort: float = 0.0  # given back per squared action: how much of the task's penalty is left out
    ramp: float = 0.25  # share of the run in which prices rise from 0 to their full height
    start: str = ""  # task whose trained run this one begins from
    hidden: int = 64

    @property
    def end(self) -> int:
        return self.stop or self.steps


PRICES = (0.0, 0.03, 0.06, 0.09, 0.12, 0.15, 0.18, 0.2, 0.21, 0.22, 0.235, 0.25)
NAVIGATION = Recipe("price", 0.0, 0.25, PRICES, 3_000_000, repeat=2, horizon=500, gamma=0.985)
RUNNING = Recipe("speed", 1.2, 3.6, (), 2_400_000, envs=32, batch=512, epochs=10, rate=6e-4, deviation=0.6)
NOVICE = 0.2  # share of policies that are there for their low returns
RECIPES = {
    "SafetyPointGoal1-v0": replace(
        NAVIGATION, settings=(0.0, 0.2), steps=1_500_000,
        young=(Age(100_000, (0.0,), NOVICE), Age(250_000, (0.0,), NOVICE), Age(700_000, (0.0,))),
    ),
    "SafetyPointCircle2-v0": replace(
        NAVIGATION, young=(Age(50_000, (0.0,), NOVICE), Age(300_000, (0.2,)), Age(1_000_000, (0.0, 0.2))),
    ),
    "SafetyPointButton1-v0": replace(
        NAVIGATION, settings=(0.0, 0.2), steps=1_600_000,
        young=(Age(300_000, (0.0, 0.2)), Age(800_000, (0.0, 0.2))), rate=5e-4, ramp=0.0,
        start="SafetyPointGoal1-v0",
    ),
    "SafetySwimmerVelocity-v1": Recipe(
        "speed", 0.08, 0.4, (0.1, 0.13, 0.16, 0.19, 0.21, 0.23, 0.25, 0.28, 0.31, 0.35), 3_000_000,
        young=(Age(500_000, (0.15, 0.35)), Age(1_500_000, (0.15, 0.35))), repeat=4, gamma=0.999, rate=5e-4,
    ),
    "SafetyWalker2dVelocity-v1": replace(
        RUNNING, settings=(1.3, 1.5, 1.7, 1.8, 1.9, 2.0, 2.1, 2.25, 2.4, 2.6, 2.8, 3.1), stop=1_306_624,
        young=(Age(60_000, (2.0,), NOVICE), Age(800_000, (1.6, 2.6))),
    ),
    "SafetyAntVelocity-v1": replace(
        RUNNING, settings=(1.4, 1.7, 2.0, 2.3, 2.6, 2.8, 3.0, 3.3), steps=2_000_000,
        young=(Age(700_000, (2.0,)), Age(1_300_000, (2.0, 3.2))),
        deviation=0.4, effort=0.4,
    ),
}  # fmt: skip


@dataclass(frozen=True)
class Search:
    """How a task's policies are searched by the cross-entropy method."""

    aims: Sequence[
        tuple[float, float]
    ]  # price of a unit of cost, and return beyond which more is not better;
    # each is searched from where the one before ended
    first: Sequence[float]  # where the search begins
    least: Sequence[float]  # what the numbers lie between
    most: Sequence[float]
    spread: float  # deviation of the first candidates, as a share of the range
    again: float  # the same, at each further price
    floor: float  # the same, at least
    inertia: float = 0.0  # of the mean
    memory: float = 0.0  # of the spread
    generations: int = 10  # at the first price
    later: int = 10  # at each further price
    candidates: int = 16
    best: int = 4  # of them that the next ones are drawn around
    episodes: int = 12  # of each candidate
    steps: int = 500  # of each episode
    noise: float = 0.0  # added to the actions
    young: Sequence[int] = ()  # generations of the first price that are shipped too
    careless: int = 0  # drivers shipped that take no care at all
    mixes: Sequence[tuple[str, str, float]] = ()  # means of two, with the second's weight; else of neighbours
    left_out: Sequence[str] = ()  # found, but not shipped
    borrow: str = ""  # task whose drivers are shipped too
    deviation: float = 0.2  # of the actions in the shipped policies' episodes with noise


# A driver's seven numbers are those of safemil.behaviour.field.NUMBERS. A swimmer's are 8 x 2 weights of its
# observation: no more is needed to swim.
DRIVERS = Search(
    ((0.05, np.inf), (0.1, np.inf), (0.2, np.inf), (0.4, np.inf)), first=(1.0, 0.1, 0.8, 1.3, 1.0, 1.5, 0.2),
    least=(0.0, 0.0, 0.3, 0.5, 0.3, 0.3, 0.0), most=(4.0, 0.3, 1.5, 3.0, 2.5, 1.6, 1.0),
    spread=0.25, again=0.15, floor=0.02, inertia=0.5, memory=0.6,
    noise=0.1, careless=2,
)  # fmt: skip
SEARCHES = {
    "SafetyPointGoal1-v0": DRIVERS,
    "SafetyPointButton1-v0": replace(
        DRIVERS, aims=((0.02, np.inf), (0.1, np.inf), (0.3, np.inf)),
        first=(1.5, 0.12, 0.8, 1.5, 1.5, 1.2, 0.3), generations=5, later=5,
        candidates=12, best=3, episodes=4, steps=400, spread=0.15,
        borrow="SafetyPointGoal1-v0",
    ),
    "SafetySwimmerVelocity-v1": Search(
        ((0.0, np.inf), (0.1, 270), (0.1, 230), (0.2, 200), (0.3, 170),
         (0.5, 140), (0.5, 130), (0.5, 120), (0.4, 135), (0.3, 150)),
        first=[0.0] * 16, least=[-10.0] * 16, most=[10.0] * 16, spread=0.05,
        again=0.015, floor=0.0025, generations=8, later=5, candidates=24, best=6, episodes=2, steps=1000,
        young=(1,),
        # Faster ones would put the paper's border of a high return above all that swim within the limit.
        left_out=("0.00", "0.10-270", "0.10-230", "0.20-200", "0.50-130", "0.50-140", "0.00-young3"),
        mixes=(
            ("0.30-170", "0.20-200", 0.25), ("0.30-170", "0.20-200", 0.12), ("0.30-170", "0.50-140", 0.5),
            ("0.50-120", "0.40-135", 0.5), ("0.50-120", "0.40-135", 0.75), ("0.50-130", "0.50-120", 0.75),
            ("0.40-135", "0.30-150", 0.5), ("0.50-120", "0.30-150", 0.5), ("0.40-135", "0.30-150", 0.75),
        ),
    ),
}  # fmt: skip


class Conditioned(VecEnv):
    """A task as Stable-Baselines3 wants it, with the setting as the observation's last entry."""

    def __init__(self, task: str, recipe: Recipe, seed: int):
        self.recipe, self.generator = recipe, np.random.default_rng(seed)
        self.envs = make_vec(
            task, recipe.envs, autoreset_mode="SameStep", max_episode_steps=recipe.horizon, threads=1
        )
        size, actions = self.envs.single_observation_space.shape[0], self.envs.single_action_space
        observations = type(actions)(-np.inf, np.inf, (size + 1,), np.float32)
        super().__init__(recipe.envs, observations, type(actions)(-1.0, 1.0, actions.shape, np.float32))
        self.first_seed, self.scale = seed, 1.0
        self.setting = self._draw(recipe.envs)
        self.totals = np.zeros((recipe.envs, 3))  # return, cost, length so far
        self.finished: list[tuple[float, ...]] = []

    def _draw(self, n: int) -> np.ndarray:
        return self.generator.uniform(self.recipe.low, self.recipe.high, n)

    def _seen(self, observations: np.ndarray) -> np.ndarray:
        return np.concatenate([observations, self.setting[:, None]], axis=1).astype(np.float32)

    def reset(self) -> np.ndarray:
        observations, _ = self.envs.reset(seed=self.first_seed)
        # Episodes that all end together would make updates unlike each other.
        self.envs.steps[:] = self.generator.integers(
            0, self.recipe.horizon - self.recipe.repeat, self.num_envs
        )
        return self._seen(observations)

    def step_async(self, actions: np.ndarray) -> None:
        self.actions = actions

    def step_wait(self) -> tuple[np.ndarray, np.ndarray, np.ndarray, list[dict[str, Any]]]:
        earned, done = np.zeros(self.num_envs), np.zeros(self.num_envs, bool)
        infos: list[dict[str, Any]] = [{} for _ in range(self.num_envs)]
        for _ in range(self.recipe.repeat):
            observations, reward, terminated, truncated, info = self.envs.step(self.actions)
            earned += np.where(done, 0.0, self._signal(reward, info))
            self.totals += np.stack([reward, info["cost"], np.ones(self.num_envs)], axis=1)
            for row in np.flatnonzero(terminated | truncated):
                last = np.append(info["final_obs"][row], self.setting[row]).astype(np.float32)
                infos[row] = {
                    "terminal_observation": last,
                    "TimeLimit.truncated": bool(truncated[row] and not terminated[row]),
                }
                self.finished.append((self.setting[row], *self.totals[row]))
                self.totals[row], self.setting[row], done[row] = 0.0, self._draw(1)[0], True
        return self._seen(observations), earned, done, infos

    def _signal(self, reward: np.ndarray, info: dict[str, Any]) -> np.ndarray:
        if self.recipe.signal == "price":
            return reward - self.scale * self.setting * info["cost"]
        speed = np.hypot(info["x_velocity"], info["y_velocity"]) if self._planar(info) else info["x_velocity"]
        effort = self.recipe.effort * np.square(self.actions).sum(axis=1)
        return reward + effort - self.recipe.fine * np.maximum(0.0, speed - self.setting)

    def _planar(self, info: dict[str, Any]) -> bool:
        return "reward_survive" in info  # the ant's speed is limited in all directions

    def close(self) -> None:
        self.envs.close()

    def get_attr(self, attr_name: str, indices: Any = None) -> list[Any]:
        return [None] * self.num_envs

    def set_attr(self, attr_name: str, value: Any, indices: Any = None) -> None:
        raise NotImplementedError

    def env_method(self, method_name: str, *args: Any, indices: Any = None, **kwargs: Any) -> list[Any]:
        raise NotImplementedError

    def env_is_wrapped(self, wrapper_class: Any, indices: Any = None) -> list[bool]:
        return [False] * self.num_envs


class Keeper(BaseCallback):
    """Tells how training goes, keeps what it needs to go on, and the networks of each shipped age."""

    def __init__(self, recipe: Recipe, folder: Path, seconds: float):
        super().__init__()
        self.recipe, self.folder, self.updates, self.seconds = recipe, folder, 0, seconds
        self.began = time.monotonic()

    def _on_training_start(self) -> None:
        self.first = self.model.num_timesteps * self.recipe.repeat

    @property
    def steps(self) -> int:
        return self.num_timesteps * self.recipe.repeat

    def _on_step(self) -> bool:
        late = bool(self.seconds) and time.monotonic() - self.began >= self.seconds
        return not late and self.steps <= self.recipe.end

    def _on_rollout_start(self) -> None:
        envs: Conditioned = self.training_env.unwrapped_envs
        envs.scale = min(1.0, self.steps / max(1.0, self.recipe.ramp * self.recipe.steps))
        self.updates += 1
        if self.updates % 20 == 0:
            self._tell(envs)
            keep(self.model, self.training_env, self.folder)
        for age, *_ in self.recipe.young:
            if self.first < age <= self.steps and not (self.folder / f"age-{age}.safetensors").exists():
                write_run(self.model, self.training_env, self.folder / f"age-{age}.safetensors")

    def _tell(self, envs: Conditioned) -> None:
        done = np.array(envs.finished[-20000:]).reshape(-1, 4)
        envs.finished.clear()
        parts = []
        for low, high in pairwise(np.linspace(self.recipe.low, self.recipe.high, 5)):
            rows = done[(done[:, 0] >= low) & (done[:, 0] < high)]
            if len(rows):
                parts.append("{:.1f}/{:.1f}/{:.0f}".format(*rows[:, 1:].mean(axis=0)))
        deviation = self.model.policy.log_std.exp().mean().item()
        line = (
            f"{self.steps:>9} steps {time.monotonic() - self.began:6.0f} s  return/cost/length "
            + "  ".join(parts)
        )
        print(f"{line}  deviation {deviation:.2f}", flush=True)


class Normalised(VecNormalize):
    """Normalises as it is, and gives access to what it wraps."""

    @property
    def unwrapped_envs(self) -> Conditioned:
        return self.venv  # type: ignore[return-value]


def train(task: str, work: Path, seed: int, seconds: float) -> None:
    """Train a task's family, or go on with it."""
    recipe, folder = RECIPES[task], work / task / str(seed)
    folder.mkdir(parents=True, exist_ok=True)
    if (folder / "final.safetensors").exists():
        print(f"{task} is trained already: {folder}")
        return
    torch.set_num_threads(1)
    # Observations that hardly ever change are divided by 0.01, not by their deviation.
    env = Normalised(Conditioned(task, recipe, 1000 * seed), gamma=recipe.gamma, clip_obs=1e6, epsilon=1e-4)
    model = PPO(
        "MlpPolicy", env, learning_rate=lambda left: recipe.rate * max(0.1, left), n_steps=recipe.rollout,
        batch_size=recipe.batch, n_epochs=recipe.epochs, gamma=recipe.gamma, seed=seed, device="cpu",
        policy_kwargs={"net_arch": [recipe.hidden] * 2, "log_std_init": float(np.log(recipe.deviation))},
    )  # fmt: skip
    done = 0
    if (folder / "model.zip").exists():
        model.set_parameters(str(folder / "model.zip"), device="cpu")
        done = restore(model, env, folder)
    elif recipe.start:
        begin_from(model, env, work / recipe.start / str(seed))
    model.learn(
        recipe.steps // recipe.repeat - done, Keeper(recipe, folder, seconds), reset_num_timesteps=not done
    )
    keep(model, env, folder)
    if model.num_timesteps * recipe.repeat >= recipe.end:
        write_run(model, env, folder / "final.safetensors")


def keep(model: PPO, env: VecNormalize, folder: Path) -> None:
    """Write all that is needed to go on."""
    model.save(folder / "model.zip")
    with open(folder / "normaliser.pkl", "wb") as file:
        pickle.dump((model.num_timesteps, env.obs_rms, env.ret_rms), file)


def restore(model: PPO, env: VecNormalize, folder: Path) -> int:
    with open(folder / "normaliser.pkl", "rb") as file:
        done, env.obs_rms, env.ret_rms = pickle.load(file)
    model.num_timesteps = done
    return done


def begin_from(model: PPO, env: VecNormalize, folder: Path) -> None:
    """Take over the Goal1 run: its goal and hazards are Button1's, what is new is ignored at first."""
    old = PPO.load(folder / "model.zip", device="cpu").policy.state_dict()
    with open(folder / "normaliser.pkl", "rb") as file:
        _, observed, env.ret_rms = pickle.load(file)
    new = model.policy.state_dict()
    size = new["mlp_extractor.policy_net.0.weight"].shape[1]
    # Goal1 sees goal, hazards, vase; Button1 sees buttons, goal, hazards, gremlins; both the setting, last.
    here = [*range(SENSORS), *range(SENSORS + 16, SENSORS + 48), size - 1]
    there = [*range(SENSORS), *range(SENSORS, SENSORS + 32), -1]
    for name, value in old.items():
        if value.shape == new[name].shape:
            new[name] = value
        else:
            new[name] = torch.zeros_like(new[name])
            new[name][:, here] = value[:, there]
    model.policy.load_state_dict(new)
    env.obs_rms.mean[here], env.obs_rms.var[here] = observed.mean[there], observed.var[there]
    others = [i for i in range(size) if i not in here]
    env.obs_rms.mean[others], env.obs_rms.var[others] = 0.2, 0.09
    env.obs_rms.count = 1e5


def write_run(model: PPO, env: VecNormalize, path: Path) -> None:
    """The network as it is, still with the setting as an input, its normalisation folded in."""
    state = {name: value.double().numpy() for name, value in model.policy.state_dict().items()}
    scale = np.sqrt(env.obs_rms.var + env.epsilon)
    first, bias = state["mlp_extractor.policy_net.0.weight"], state["mlp_extractor.policy_net.0.bias"]
    second, third = "mlp_extractor.policy_net.2", "action_net"
    arrays = {
        "weight0": (first / scale).T, "bias0": bias - first @ (env.obs_rms.mean / scale),
        "weight1": state[f"{second}.weight"].T, "bias1": state[f"{second}.bias"],
        "weight2": state[f"{third}.weight"].T, "bias2": state[f"{third}.bias"],
        "deviation": np.exp(state["log_std"]),
    }  # fmt: skip
    save_file({name: np.ascontiguousarray(array) for name, array in arrays.items()}, path)


def search(task: str, work: Path, seed: int) -> None:
    """Find a policy's numbers for each aim by the cross-entropy method.

    Aims that were found before are kept; what is then found may differ from what a search in one go finds.
    """
    plan, folder, generator = SEARCHES[task], work / task / str(seed), np.random.default_rng(seed)
    folder.mkdir(parents=True, exist_ok=True)
    envs = make_vec(task, plan.candidates * plan.episodes, autoreset_mode="Disabled", threads=1)
    least, most, mean = np.array(plan.least), np.array(plan.most), np.array(plan.first)
    found: dict[str, list[float]] = {}
    if (folder / "found.json").exists():
        found = {name: numbers.tolist() for name, numbers in read_found(folder).items()}
    for place, (price, enough) in enumerate(plan.aims):
        if aim_name(price, enough) in found:
            mean = np.array(found[aim_name(price, enough)])
            continue
        spread = (most - least) * (plan.again if place else plan.spread)
        for generation in range(plan.later if place else plan.generations):
            tried = mean + spread * generator.standard_normal((plan.candidates, len(mean)))
            tried = np.clip(tried, least, most)
            tried[0] = mean
            returns, costs = try_all(task, plan, envs, tried, generator)
            best = np.argsort(price * costs - np.minimum(returns, enough))[: plan.best]
            mean = plan.inertia * mean + (1 - plan.inertia) * tried[best].mean(axis=0)
            spread = plan.memory * spread + (1 - plan.memory) * tried[best].std(axis=0)
            spread = np.maximum(spread, plan.floor * (most - least))
            found_so_far = f"return {returns[best].mean():.1f}, cost {costs[best].mean():.1f}"
            line = f"aim {aim_name(price, enough)}, generation {generation}: {found_so_far}"
            print(f"{line} in {plan.steps} steps, {mean.round(2).tolist()}", flush=True)
            if not place and generation in plan.young:
                found[f"{aim_name(price, enough)}-young{generation}"] = mean.tolist()
        found[aim_name(price, enough)] = mean.tolist()
        (folder / "found.json").write_text(json.dumps(found, indent=2) + "\n")


def aim_name(price: float, enough: float) -> str:
    return f"{price:.2f}" if enough == np.inf else f"{price:.2f}-{enough:.0f}"


def try_all(
    task: str, plan: Search, envs: Any, tried: np.ndarray, generator: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """Mean return and cost of each candidate, all in the same worlds."""
    numbers = np.repeat(tried, plan.episodes, axis=0)
    seeds = np.tile(generator.integers(0, 2**31, plan.episodes), plan.candidates)
    seen, _ = envs.reset(seed=[int(each) for each in seeds])
    totals = np.zeros((2, len(numbers)))
    for _ in range(plan.steps):
        actions = chosen(task, numbers, seen)
        if plan.noise:
            actions = actions + plan.noise * generator.standard_normal(actions.shape)
        actions = np.clip(actions, -1.0, 1.0).astype(envs.single_action_space.dtype)
        seen, reward, _, _, info = envs.step(actions)
        totals += np.stack([reward, info["cost"]])
    returns, costs = totals.reshape(2, plan.candidates, plan.episodes).mean(axis=2)
    return returns, costs


def chosen(task: str, numbers: np.ndarray, seen: np.ndarray) -> np.ndarray:
    """Actions (n, A) of n policies."""
    if task in LIDARS:
        return drive(LIDARS[task], numbers, seen)
    return np.einsum("ns,nsa->na", seen, numbers.reshape(len(seen), seen.shape[1], -1))


def export(task: str, work: Path) -> None:
    """Write every policy that ships with its card, measured over 50 episodes."""
    out = SHIPPED / task
    out.mkdir(parents=True, exist_ok=True)
    kept: set[str] = set()
    for folder in sorted((work / task).iterdir()):
        kept |= export_networks(task, folder, int(folder.name), out)
        if (folder / "found.json").exists():
            kept |= export_found(task, folder, int(folder.name), out)
    for old in out.iterdir():
        if old.stem not in kept:
            old.unlink()


def export_networks(task: str, folder: Path, seed: int, out: Path) -> set[str]:
    kept = set()
    recipe = RECIPES[task]
    for steps, settings, share in [*recipe.young, Age(recipe.end, recipe.settings)]:
        run = folder / ("final.safetensors" if steps == recipe.end else f"age-{steps}.safetensors")
        for setting in settings if run.exists() else ():
            arrays = at_setting(load_file(run), setting)
            signal = SIGNALS[recipe.signal].format(setting, recipe.fine)
            card = {"task": task, "signal": signal, "method": "PPO", "steps": steps, "seed": seed}
            card["share"] = share
            card |= {"stable_baselines3": stable_baselines3.__version__, "recipe": asdict(recipe)}
            name = f"{recipe.signal}-{setting:.3f}-{steps // 1000:05d}k-seed{seed}"
            kept.add(write_policy(out / f"{name}.safetensors", arrays, card))
    return kept


def export_found(task: str, folder: Path, seed: int, out: Path) -> set[str]:
    """A policy for each aim, one between each two, some that take no care, and those of a task alike."""
    plan, found, signals = SEARCHES[task], read_found(folder), {}
    grown = [name for name in (aim_name(*aim) for aim in plan.aims) if name in found]
    for name, (price, enough) in zip(grown, plan.aims, strict=False):
        limit = "" if enough == np.inf else f", no return beyond {enough:g} counted"
        signals |= {each: SIGNALS["price"].format(price) + limit for each in found if each.startswith(name)}
    for one, other, weight in plan.mixes or [(*pair, 0.5) for pair in pairwise(grown)]:
        name = f"{one}-to-{other}" + (f"-{weight:g}" if weight != 0.5 else "")
        found[name] = (1 - weight) * found[one] + weight * found[other]
        signals[name] = f"none: {1 - weight:g} of {one} and {weight:g} of {other}"
    found = {name: numbers for name, numbers in found.items() if name not in plan.left_out}
    for i, name in enumerate(grown[: plan.careless]):
        found[f"careless{i}"] = np.append(0.0, found[name][1:])
        signals[f"careless{i}"] = f"as {name}, care set to 0 afterwards"
    for name, numbers in (
        read_found(folder.parents[1] / plan.borrow / str(seed)).items() if plan.borrow else ()
    ):
        found[f"borrowed-{name}"], signals[f"borrowed-{name}"] = numbers, f"as {name} in {plan.borrow}"
    generations = plan.generations + plan.later * (len(plan.aims) - 1)
    about = asdict(plan) | {"aims": [[price, None if e == np.inf else e] for price, e in plan.aims]}
    card = {"task": task, "method": "cross-entropy search", "seed": seed, "search": about}
    card["steps"] = generations * plan.candidates * plan.episodes * plan.steps  # of the whole search
    kept = set()
    for name, numbers in found.items():
        share = NOVICE if "young" in name else 1.0
        more = {"signal": signals[name], "share": share, "numbers": numbers.round(4).tolist()}
        path = out / f"search-{name}-seed{seed}.safetensors"
        kept.add(write_policy(path, found_arrays(task, plan, numbers), card | more))
    return kept


def read_found(folder: Path) -> dict[str, np.ndarray]:
    found = json.loads((folder / "found.json").read_text())
    return {name: np.array(numbers) for name, numbers in found.items()}


def found_arrays(task: str, plan: Search, numbers: np.ndarray) -> dict[str, np.ndarray]:
    if task in LIDARS:
        return {"numbers": numbers, "deviation": np.full(2, plan.deviation)}
    size = make_vec(task, 1).worlds.action_size
    weights = numbers.reshape(-1, size)
    return {"weight0": weights, "bias0": np.zeros(size), "deviation": np.full(size, plan.deviation)}


def write_policy(path: Path, arrays: dict[str, np.ndarray], card: dict[str, Any]) -> str:
    """Write weights and card, unless these weights have been measured already; gives the policy's name."""
    content = save({name: np.ascontiguousarray(array, np.float32) for name, array in arrays.items()})
    told = path.with_suffix(".json")
    before = json.loads(told.read_text()) if told.exists() else {}
    if not (before.get("episodes") == EPISODES and path.read_bytes() == content):
        path.write_bytes(content)
        card |= measured(path, card)
    else:
        card |= {name: before[name] for name in ("episodes", "return", "cost", "length")}
    told.write_text(json.dumps(card, indent=2) + "\n")
    return path.stem


def at_setting(arrays: dict[str, np.ndarray], setting: float) -> dict[str, np.ndarray]:
    """The network of one setting: its last input becomes part of the first bias."""
    first = arrays["weight0"]
    return arrays | {
        "weight0": np.ascontiguousarray(first[:-1]),
        "bias0": arrays["bias0"] + setting * first[-1],
    }


def measured(path: Path, card: dict[str, Any]) -> dict[str, Any]:
    """What the policy does: means over episodes of which every other one has noise."""
    path.with_suffix(".json").write_text(json.dumps(card))
    noise = np.arange(EPISODES) % 2.0
    seen = roll_out(card["task"], load_policy(path), list(range(EPISODES)), noise, np.random.default_rng(0))
    values = {"return": seen.returns, "cost": seen.total_costs, "length": seen.lengths}
    means = {name: round(float(each.mean()), 2) for name, each in values.items()}
    print(f"{path.stem:40}", *(f"{name} {mean:8.1f}" for name, mean in means.items()), flush=True)
    return {"episodes": EPISODES, **means}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("command", choices=["train", "search", "export"])
    parser.add_argument("task", choices=RECIPES)
    parser.add_argument("--work", type=Path, required=True, help="folder for what training keeps")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=0, help="stop early after so long")
    given = parser.parse_args()
    if given.command == "train":
        train(given.task, given.work, given.seed, given.seconds)
    elif given.command == "search":
        search(given.task, given.work, given.seed)
    else:
        export(given.task, given.work)


if __name__ == "__main__":
    main()
