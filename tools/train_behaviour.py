"""Train the behaviour policies that ship with the package, with Stable-Baselines3 in a venv of its own.

    python -m venv .venv-behaviour
    .venv-behaviour/bin/pip install -r requirements-behaviour.txt
    PYTHONPATH=src .venv-behaviour/bin/python tools/train_behaviour.py train SafetyPointGoal1-v0 --work behaviour
    PYTHONPATH=src .venv-behaviour/bin/python tools/train_behaviour.py export SafetyPointGoal1-v0 --work behaviour

One run of PPO gives a whole family, from cautious to reckless. The policy sees one input more than the task
shows, drawn anew for each episode:

- in the velocity tasks a target speed: it earns the task's speed and is fined for each m/s above the target;
- in the point tasks the price of a unit of cost, subtracted from the reward.

`export` fixes that input, and the normalisation of observations, into the first layer, one plain network for
each setting and each age of the run, measures it over 50 episodes and writes weights and card into the package.
`train` writes all it needs to go on, every few updates, and goes on from there when called again.
"""

import argparse
import json
import pickle
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import stable_baselines3
import torch
from safetensors.numpy import load_file, save_file
from stable_baselines3 import PPO
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.vec_env import VecEnv, VecNormalize

from safemil.behaviour.policy import SHIPPED, load_policy
from safemil.behaviour.rollouts import roll_out
from safemil.tasks import make_vec

EPISODES = 50  # that a card's means are over
SIGNALS = {
    "price": "the task's reward minus {:g} per unit of cost",
    "speed": "the task's reward, and {1:g} less per m/s above {0:g} m/s",
}
REACH = 3.0  # m, of the lidar
MARGIN = 0.2  # m, around costly things
SENSORS = 12  # leading entries of the point robot's observation


@dataclass(frozen=True)
class Recipe:
    """How a task's family is trained."""

    signal: str  # "speed" or "price"
    low: float  # settings drawn in training, m/s or per unit of cost
    high: float
    settings: Sequence[float]  # shipped, of the finished run
    steps: int
    young: Sequence[tuple[int, Sequence[float]]] = ()  # steps, and settings shipped of the run at that age
    repeat: int = 1  # steps for which an action is held in training
    horizon: int = 1000  # steps of a training episode
    gamma: float = 0.99  # per action
    envs: int = 64
    rollout: int = 128  # actions of each environment per update
    batch: int = 1024
    epochs: int = 6
    rate: float = 1e-3  # at first; falls to a tenth
    deviation: float = 1.0  # of the actions, at first
    skew: float = 1.0  # settings are drawn as uniform numbers to this power
    near: dict[int, float] = field(
        default_factory=dict
    )  # m, where a thing becomes costly, by its lidar's first entry
    fine: float = 2.0  # per m/s above the target speed
    effort: float = 0.0  # given back per squared action: how much of the task's penalty is left out
    ramp: float = 0.25  # share of the run in which prices rise from 0 to their full height
    start: str = ""  # task whose trained run this one begins from
    hidden: int = 64
    extra: dict[str, Any] = field(default_factory=dict)


NAVIGATION = (0.0, 0.01, 0.02, 0.03, 0.045, 0.065, 0.09, 0.12, 0.16, 0.2)
RECIPES = {
    "SafetyPointGoal1-v0": Recipe(
        "price",
        0.0,
        0.4,
        NAVIGATION,
        6_000_000,
        ((500_000, (0.0, 0.2)), (1_500_000, (0.0, 0.2))),
        repeat=2,
        horizon=500,
        gamma=0.985,
        skew=2.0,
        ramp=0.15,
        near={28: 0.2},
    ),
    "SafetyPointCircle2-v0": Recipe(
        "price",
        0.0,
        0.25,
        NAVIGATION,
        3_000_000,
        ((300_000, (0.0, 0.2)), (1_000_000, (0.0, 0.2))),
        repeat=2,
        horizon=500,
        gamma=0.985,
    ),
    "SafetySwimmerVelocity-v1": Recipe(
        "speed",
        0.08,
        0.4,
        (0.1, 0.13, 0.16, 0.19, 0.21, 0.23, 0.25, 0.28, 0.31, 0.35),
        3_000_000,
        ((500_000, (0.15, 0.35)), (1_500_000, (0.15, 0.35))),
        repeat=4,
        gamma=0.999,
        rate=5e-4,
    ),
    "SafetyWalker2dVelocity-v1": Recipe(
        "speed",
        1.2,
        3.6,
        (1.4, 1.7, 1.9, 2.1, 2.25, 2.4, 2.6, 2.8, 3.0, 3.3),
        2_400_000,
        ((800_000, (1.8, 3.0)), (1_600_000, (1.8, 3.0))),
        envs=32,
        batch=512,
        epochs=10,
        rate=6e-4,
        deviation=0.6,
    ),
    "SafetyPointButton1-v0": Recipe(
        "price",
        0.0,
        0.25,
        NAVIGATION,
        1_600_000,
        ((300_000, (0.0, 0.2)), (800_000, (0.0, 0.2))),
        repeat=2,
        horizon=500,
        gamma=0.985,
        rate=5e-4,
        start="SafetyPointGoal1-v0",
        ramp=0.0,
    ),
    "SafetyAntVelocity-v1": Recipe(
        "speed",
        1.2,
        3.6,
        (1.4, 1.8, 2.0, 2.2, 2.4, 2.6, 2.8, 3.0, 3.2, 3.5),
        2_000_000,
        ((700_000, (2.0, 3.2)), (1_300_000, (2.0, 3.2))),
        envs=32,
        batch=512,
        epochs=10,
        rate=6e-4,
        deviation=0.4,
        effort=0.4,
    ),
}


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
        share = self.generator.uniform(0.0, 1.0, n) ** self.recipe.skew
        return self.recipe.low + (self.recipe.high - self.recipe.low) * share

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
            earned += np.where(done, 0.0, self._signal(info.get("final_obs", observations), reward, info))
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

    def _signal(self, seen: np.ndarray, reward: np.ndarray, info: dict[str, Any]) -> np.ndarray:
        if self.recipe.signal == "price":
            return reward - self.scale * self.setting * np.maximum(info["cost"], self._nearness(seen))
        speed = np.hypot(info["x_velocity"], info["y_velocity"]) if self._planar(info) else info["x_velocity"]
        effort = self.recipe.effort * np.square(self.actions).sum(axis=1)
        return reward + effort - self.recipe.fine * np.maximum(0.0, speed - self.setting)

    def _nearness(self, seen: np.ndarray) -> np.ndarray:
        """From 0 at some distance of a costly thing to 1 where it costs: a bare step is hard to learn from."""
        found = np.zeros(len(seen))
        for first, border in self.recipe.near.items():
            distance = REACH * (1.0 - seen[:, first : first + 16].max(axis=1))
            found = np.maximum(found, np.clip((border + MARGIN - distance) / MARGIN, 0.0, 1.0))
        return found

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

    @property
    def steps(self) -> int:
        return self.num_timesteps * self.recipe.repeat

    def _on_step(self) -> bool:
        return not self.seconds or time.monotonic() - self.began < self.seconds

    def _on_rollout_start(self) -> None:
        envs: Conditioned = self.training_env.unwrapped_envs
        envs.scale = min(1.0, self.steps / max(1.0, self.recipe.ramp * self.recipe.steps))
        self.updates += 1
        if self.updates % 20 == 0:
            self._tell(envs)
            keep(self.model, self.training_env, self.folder)
        for age, _ in self.recipe.young:
            if self.steps >= age and not (self.folder / f"age-{age}.safetensors").exists():
                write_run(self.model, self.training_env, self.folder / f"age-{age}.safetensors")

    def _tell(self, envs: Conditioned) -> None:
        done = np.array(envs.finished[-20000:]).reshape(-1, 4)
        envs.finished.clear()
        parts = []
        edges = (
            self.recipe.low + (self.recipe.high - self.recipe.low) * np.linspace(0, 1, 5) ** self.recipe.skew
        )
        for low, high in zip(edges[:-1], edges[1:], strict=True):
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
        **recipe.extra,
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
    if model.num_timesteps * recipe.repeat >= recipe.steps or seconds:
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
    # Goal1 sees goal, hazards, vase; Button1 sees buttons, goal, hazards, gremlins. The setting is last in both.
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
    arrays = {
        "weight0": (first / scale).T, "bias0": bias - first @ (env.obs_rms.mean / scale),
        "weight1": state["mlp_extractor.policy_net.2.weight"].T, "bias1": state["mlp_extractor.policy_net.2.bias"],
        "weight2": state["action_net.weight"].T, "bias2": state["action_net.bias"],
        "deviation": np.exp(state["log_std"]),
    }  # fmt: skip
    save_file({name: np.ascontiguousarray(array) for name, array in arrays.items()}, path)


def export(task: str, work: Path, seeds: Sequence[int]) -> None:
    """Write every shipped setting of the runs as a plain network with its card, measured over 50 episodes."""
    recipe, out = RECIPES[task], SHIPPED / task
    out.mkdir(parents=True, exist_ok=True)
    for old in out.iterdir():
        old.unlink()
    for seed in seeds:
        ages = [(f"age-{steps}", steps, settings) for steps, settings in recipe.young]
        for file, steps, settings in [*ages, ("final", recipe.steps, recipe.settings)]:
            path = work / task / str(seed) / f"{file}.safetensors"
            for setting in settings if path.exists() else ():
                name = f"{recipe.signal}-{setting:.3f}-{steps // 1000:05d}k-seed{seed}"
                arrays = at_setting(load_file(path), setting)
                save_file(
                    {each: array.astype(np.float32) for each, array in arrays.items()},
                    out / f"{name}.safetensors",
                )
                card = {
                    "task": task,
                    "signal": SIGNALS[recipe.signal].format(setting, recipe.fine),
                    "steps": steps,
                    "seed": seed,
                }
                card |= {
                    "recipe": asdict(recipe),
                    "trained_with": f"stable-baselines3 {stable_baselines3.__version__}",
                }
                write_card(out / f"{name}.safetensors", card)


def at_setting(arrays: dict[str, np.ndarray], setting: float) -> dict[str, np.ndarray]:
    """The network of one setting: its last input becomes part of the first bias."""
    first = arrays["weight0"]
    return arrays | {
        "weight0": np.ascontiguousarray(first[:-1]),
        "bias0": arrays["bias0"] + setting * first[-1],
    }


def write_card(path: Path, card: dict[str, Any]) -> None:
    """What the policy was trained for, and what it does: half of the episodes with noise, half without."""
    path.with_suffix(".json").write_text("{}")
    noise = np.arange(EPISODES) % 2.0
    policy = load_policy(path)
    seen = roll_out(card["task"], policy, list(range(EPISODES)), noise, np.random.default_rng(0))
    means = {"return": seen.returns, "cost": seen.total_costs, "length": seen.lengths}
    card["episodes"] = EPISODES
    card |= {name: round(float(values.mean()), 2) for name, values in means.items()}
    path.with_suffix(".json").write_text(json.dumps(card, indent=2) + "\n")
    halves = [
        f"{seen.returns[noise == n].mean():8.1f} {seen.total_costs[noise == n].mean():6.1f}" for n in (0, 1)
    ]
    print(
        path.stem, f"return {card['return']} cost {card['cost']} length {card['length']}", *halves, flush=True
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("command", choices=["train", "export"])
    parser.add_argument("task", choices=RECIPES)
    parser.add_argument("--work", type=Path, required=True, help="folder for what training keeps")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=0, help="stop early after so long")
    given = parser.parse_args()
    if given.command == "train":
        train(given.task, given.work, given.seed, given.seconds)
    else:
        export(given.task, given.work, sorted(int(each.name) for each in (given.work / given.task).iterdir()))


if __name__ == "__main__":
    main()
