"""Train the behaviour policies that ship with the package, with Stable-Baselines3 in a venv of its own.

    python -m venv .venv-behaviour
    .venv-behaviour/bin/pip install -r tools/behaviour/requirements.txt
    export PYTHONPATH=src
    alias python=.venv-behaviour/bin/python
    python tools/behaviour/train_behaviour.py train SafetyPointCircle2-v0 --work behaviour
    python tools/behaviour/train_behaviour.py export SafetyPointCircle2-v0 --work behaviour

One run of PPO gives a whole family, from cautious to reckless. The policy sees one input more than the task
shows, drawn anew for each episode:

- in the velocity tasks a target speed: it earns the task's speed and is fined for each m/s above the target;
- in Circle2 the price of a unit of cost, and of a step driven backwards, subtracted from the reward. Were
  driving backwards free, even the most cautious would circle backwards from a quarter of the starts, and
  beyond the walls: no episode would show how to begin safely there.

That goes well in Circle2, Walker2d and Ant. Swimmer's policies come from search_behaviour.py; in Goal1 and
Button1, PPO learns to reach goals within a million steps, but in three million hardly to avoid what is in the
way, at any price: theirs come from distil_behaviour.py.

`export` fixes the extra input, and the normalisation of observations, into the first layer, one plain network
for each setting and each age of the run, measures all over 50 episodes and writes weights and cards into the
package. `train` keeps all it needs, every few updates, and goes on when called again.
"""

import pickle
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import stable_baselines3
import torch
from gymnasium.spaces import Box
from safetensors.numpy import load_file, save_file
from shipping import NOVICE, at_setting, command_line, folder_of, remove_others, write_policy
from stable_baselines3 import PPO
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.vec_env import VecEnv, VecNormalize

from safemil.tasks import make_vec

SIGNALS = {
    "price": "the task's reward minus {:g} per unit of cost and per step driven backwards",
    "speed": "the task's reward, and {1:g} less per m/s above {0:g} m/s",
}


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
    shares: Mapping[float, float] = field(default_factory=dict)  # of settings, times their age's, if not 1
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
    hidden: int = 64

    @property
    def end(self) -> int:
        return self.stop or self.steps


PRICES = (0.0, 0.02, 0.04, 0.05, 0.06, 0.07, 0.08, 0.09, 0.095, 0.1, 0.11, 0.12)
NAVIGATION = Recipe("price", 0.0, 0.25, PRICES, 3_000_000, repeat=2, horizon=500, gamma=0.985)
RUNNING = Recipe("speed", 1.2, 3.6, (), 2_400_000, envs=32, batch=512, epochs=10, rate=6e-4, deviation=0.6)
RECIPES = {
    "SafetyPointCircle2-v0": replace(
        NAVIGATION, young=(Age(50_000, (0.0,), NOVICE), Age(300_000, (0.0,)), Age(1_000_000, (0.0, 0.17))),
    ),
    "SafetyWalker2dVelocity-v1": replace(
        RUNNING, settings=(1.3, 1.5, 1.7, 1.8, 1.9, 2.0, 2.1, 2.25, 2.4, 2.6, 2.8, 3.1), stop=1_306_624,
        young=(Age(60_000, (2.0,), NOVICE), Age(800_000, (1.6, 2.6))),
        shares={  # a preferred episode costs 12 in the paper, an incident 325
            1.3: 0.2, 1.5: 0.2, 1.6: 0.2, 1.7: 0.2, 1.8: 0.2, 1.9: 0.5, 2.0: 1.5, 2.1: 3.0, 2.25: 1.5,
            2.4: 0.1, 2.6: 0.03, 2.8: 0.03, 3.1: 0.03,
        },
    ),
    "SafetyAntVelocity-v1": replace(
        RUNNING, settings=(1.4, 1.7, 2.0, 2.3, 2.6, 2.8, 3.0, 3.3), steps=2_000_000,
        young=(Age(700_000, (2.0,)), Age(1_300_000, (2.0, 3.2))),
        shares={  # 16 and 221
            1.4: 0.1, 1.7: 0.1, 2.0: 0.25, 2.3: 2.5, 2.6: 0.1, 2.8: 0.02, 3.0: 0.02, 3.2: 0.02, 3.3: 0.02,
        },
        deviation=0.4, effort=0.4,
    ),
}  # fmt: skip


class Conditioned(VecEnv):
    """A task as Stable-Baselines3 wants it, with the setting as the observation's last entry."""

    def __init__(self, task: str, recipe: Recipe, seed: int):
        self.recipe, self.generator = recipe, np.random.default_rng(seed)
        self.envs = make_vec(
            task, recipe.envs, autoreset_mode="SameStep", max_episode_steps=recipe.horizon, threads=1
        )
        observations = Box(-np.inf, np.inf, (self.envs.worlds.observation_size + 1,), np.float32)
        actions = Box(-1.0, 1.0, (self.envs.worlds.action_size,), np.float32)
        super().__init__(recipe.envs, observations, actions)
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
            return reward - self.scale * self.setting * (info["cost"] + (self.actions[:, 0] < 0))
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
        return self.venv


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


def export(task: str, work: Path) -> None:
    """Write every policy that ships with its card, measured over 50 episodes."""
    folders = sorted((work / task).iterdir())
    remove_others(task, set().union(*(export_run(task, folder, int(folder.name)) for folder in folders)))


def export_run(task: str, folder: Path, seed: int) -> set[str]:
    recipe, kept = RECIPES[task], set()
    for steps, settings, share in [*recipe.young, Age(recipe.end, recipe.settings)]:
        run = folder / ("final.safetensors" if steps == recipe.end else f"age-{steps}.safetensors")
        for setting in settings if run.exists() else ():
            arrays = at_setting(load_file(run), setting)
            signal = SIGNALS[recipe.signal].format(setting, recipe.fine)
            card = {"task": task, "signal": signal, "method": "PPO", "steps": steps, "seed": seed}
            card["share"] = share * recipe.shares.get(setting, 1.0)
            card |= {"stable_baselines3": stable_baselines3.__version__, "recipe": asdict(recipe)}
            name = f"{recipe.signal}-{setting:.3f}-{steps // 1000:05d}k-seed{seed}"
            kept.add(write_policy(folder_of(task) / f"{name}.safetensors", arrays, card))
    return kept


def main() -> None:
    parser = command_line(__doc__, ["train", "export"], RECIPES)
    parser.add_argument("--seconds", type=float, default=0, help="stop early after so long")
    given = parser.parse_args()
    if given.command == "train":
        train(given.task, given.work, given.seed, given.seconds)
    else:
        export(given.task, given.work)


if __name__ == "__main__":
    main()
