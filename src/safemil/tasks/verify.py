"""Replays recordings of the original tasks, to show that ours compute the same.

Three replays of each recording: every row from its recorded state (errors don't add up); in the same pass
the goals, drawn from the stream that the episode's seed started; and every episode freely from its seed, for
as long as it stays in step. The last can't be asked to stay so: the turning servo and contacts multiply a
rounding error by up to a million per step, in the original no less. docs/tasks.md lists a recording's keys.
"""

import json
import os
import zipfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np

from safemil import catalog
from safemil.arrays import Bools, Doubles
from safemil.data.interchange import check_declared_size
from safemil.errors import InputError
from safemil.tasks.envs import TaskEnv

OBSERVATION_TOLERANCE = 1e-7
REWARD_TOLERANCE = 1e-7
# MuJoCo 3 lists other contact points than 2.3 where the robot's arrow first meets a gremlin.
FIRST_TOUCH_OBSERVATION_TOLERANCE = 2e-2
FIRST_TOUCH_REWARD_TOLERANCE = 1e-5
RESET_TOLERANCE = 1e-12  # of observations; drawn places and goals must agree bit for bit

STATE = ("qpos", "qvel", "time", "qacc_warmstart", "mocap_pos", "torso_xpos")
GOAL = ("goal_xy", "goal_button", "button_timer")
OUTCOME = ("action", "next_obs", "reward", "cost", "terminated", "truncated", "reset_id", "step_in_reset")
RESETS = ("reset_seed", "reset_kind", "reset_obs_after_seed", "reset_qpos", "reset_qvel")
NEEDED = {
    "Velocity": "qpos qvel",
    "PointCircle": "qpos qvel reset_agent_xy reset_agent_rot",
    "PointGoal": "qpos qvel time goal_xy last_dist_goal next_goal_xy reset_agent_xy reset_agent_rot "
    "reset_hazards_xy reset_vases_xy reset_vases_rot",
    "PointButton": "qpos qvel time mocap_pos goal_button button_timer last_dist_goal next_goal_button "
    "next_button_timer next_touch_gremlins reset_agent_xy reset_agent_rot reset_buttons_xy "
    "reset_hazards_xy reset_gremlins_xy reset_gremlins_rot",
}

Recording = Mapping[str, Any]


@dataclass(frozen=True)
class Replay:
    """Differences between a recording and our replay of it; arrays hold one entry per row."""

    task: str
    observation_error: Doubles
    reward_error: Doubles
    first_touch: Bools  # rows to which the wider tolerances apply
    cost_wrong: Bools  # in sum or in any part
    terminated_wrong: Bools
    truncated_wrong: Bools
    goal_wrong: Bools
    reset_errors: list[str]
    resets: int
    free_rows: int  # in step when replayed from the seeds
    free_wrong: int  # of these, rows with another cost, end or goal

    def wrong_rows(self) -> list[int]:
        """Rows beyond tolerance."""
        observation = np.where(self.first_touch, FIRST_TOUCH_OBSERVATION_TOLERANCE, OBSERVATION_TOLERANCE)
        reward = np.where(self.first_touch, FIRST_TOUCH_REWARD_TOLERANCE, REWARD_TOLERANCE)
        near = (self.observation_error <= observation) & (self.reward_error <= reward)  # NaN is not near
        flagged = self.cost_wrong | self.terminated_wrong | self.truncated_wrong | self.goal_wrong
        return [int(row) for row in np.flatnonzero(~near | flagged)]

    @property
    def passed(self) -> bool:
        return not (self.wrong_rows() or self.reset_errors or self.free_wrong)


def load(path: str | os.PathLike[str]) -> tuple[str, Recording]:
    """A recording and the name of its task."""
    if Path(path).exists() and not Path(path).is_file():  # a pipe would be waited for
        raise InputError(f"{path} is not a file; need an .npz as docs/tasks.md describes.")
    try:
        with zipfile.ZipFile(path) as packed:
            check_declared_size(Path(path), sum(each.file_size for each in packed.infolist()))
        with np.load(path, allow_pickle=False) as archive:
            recording = {name: archive[name] for name in archive.files if not name.startswith("model_")}
    except InputError:
        raise
    except (ValueError, EOFError, AttributeError, NotImplementedError, zipfile.BadZipFile) as error:
        raise InputError(f"{path} is not a recording; need an .npz as docs/tasks.md describes.") from error
    name = _task(path, recording)
    catalog.task(name)
    needed = next((keys for family, keys in NEEDED.items() if family in name), None)
    if needed is None:
        raise InputError(f"{path} is a recording of {name}; only the six safety tasks can be verified.")
    missing = [key for key in (*needed.split(), *OUTCOME, *RESETS) if key not in recording]
    if missing:
        raise InputError(f"{path} lacks {', '.join(missing)}; docs/tasks.md lists what a recording holds.")
    if not recording["reward"].size:
        raise InputError(f"{path} holds no steps.")
    return name, recording


def _task(path: str | os.PathLike[str], recording: Recording) -> str:
    """Name of the task: in `meta`, else that of the file."""
    try:
        name = json.loads(str(recording["meta"]))["task"] if "meta" in recording else Path(path).stem
    except (ValueError, LookupError, TypeError, RecursionError):
        name = None
    if not isinstance(name, str):
        raise InputError(f'{path} does not name its task: "meta" must be JSON with a text "task".')
    return name


def replay(path: str | os.PathLike[str]) -> Replay:
    """Replay one recording in every way."""
    name, recording = load(path)
    env = TaskEnv(name)
    try:
        rows = _replay_rows(env, recording)
        resets, errors = _replay_resets(env, recording)
        free_rows, free_wrong = _replay_freely(env, recording)
        first_touch = _first_touch(recording)
    except (ArithmeticError, LookupError, TypeError, ValueError, gymnasium.error.Error) as error:
        raise InputError(
            f"{path} holds arrays that don't fit {name} ({error}); docs/tasks.md lists their shapes."
        ) from error
    return Replay(
        task=name,
        **rows,
        first_touch=first_touch,
        reset_errors=errors,
        resets=resets,
        free_rows=free_rows,
        free_wrong=free_wrong,
    )


def _first_touch(recording: Recording) -> Bools:
    """Rows that end with the robot touching a gremlin it did not touch before them."""
    if "next_touch_gremlins" not in recording:
        return np.zeros(len(recording["reward"]), bool)
    after = recording["next_touch_gremlins"]
    steps, resets = recording["step_in_reset"], recording["reset_id"]
    follows = (steps == np.roll(steps, 1) + 1) & (resets == np.roll(resets, 1))
    before = np.roll(after, 1, axis=0) & follows[:, None]
    first: Bools = (after & ~before).any(axis=1)
    return first


def _episodes(recording: Recording) -> Iterator[tuple[int, list[int]]]:
    """Each reset and its rows."""
    for reset in range(len(recording["reset_seed"])):
        yield reset, np.flatnonzero(recording["reset_id"] == reset).tolist()


def _replay_rows(env: TaskEnv, recording: Recording) -> dict[str, Any]:
    count = len(recording["reward"])
    errors = {key: np.zeros(count) for key in ("observation_error", "reward_error")}
    wrong = {f"{key}_wrong": np.zeros(count, bool) for key in ("cost", "terminated", "truncated", "goal")}
    for reset, rows in _episodes(recording):
        env.reset(seed=int(recording["reset_seed"][reset]))
        for place, row in enumerate(rows):
            _restore(env, recording, row)
            observation, reward, terminated, truncated, info = env.step(recording["action"][row])
            gapless = recording["step_in_reset"][row] == place  # else the stream is elsewhere
            wrong["goal_wrong"][row] = gapless and not _same_goal(env, recording, row)
            if info.get("goal_met"):
                observation = _observe_recorded_goal(env, recording, row)
            errors["observation_error"][row] = np.abs(observation - recording["next_obs"][row]).max()
            errors["reward_error"][row] = abs(float(reward) - recording["reward"][row])
            wrong["cost_wrong"][row] = not _same_cost(info, recording, row)
            wrong["terminated_wrong"][row] = terminated != recording["terminated"][row]
            wrong["truncated_wrong"][row] = truncated != recording["truncated"][row]
    return {**errors, **wrong}


def _restore(env: TaskEnv, recording: Recording, row: int) -> None:
    reset = recording["reset_id"][row]
    state = {key: recording[key][row] for key in (*STATE, *GOAL) if key in recording}
    state |= {
        key: recording[key][reset] for key in recording if key.startswith("reset_") and key != "reset_id"
    }
    env.worlds.restore(0, state)
    if "last_dist_goal" in recording:
        env.worlds.last_distance[0] = recording["last_dist_goal"][row]
    env.steps, env.ended = int(recording["step_in_reset"][row]), False


def _same_goal(env: TaskEnv, recording: Recording, row: int) -> bool:
    """The goal in force after the step is the recorded one, bit for bit."""
    keys = [key for key in GOAL if f"next_{key}" in recording and hasattr(env.worlds, key)]
    return all(np.array_equal(getattr(env.worlds, key)[0], recording[f"next_{key}"][row]) for key in keys)


def _observe_recorded_goal(env: TaskEnv, recording: Recording, row: int) -> Doubles:
    """Observation with the recorded goal in place of the drawn one."""
    env.worlds.restore_goal(
        0, {key: recording[f"next_{key}"][row] for key in GOAL if f"next_{key}" in recording}
    )
    observation: Doubles = env.worlds.observe()[0]
    return observation


def _same_cost(info: Mapping[str, Any], recording: Recording, row: int) -> bool:
    """The cost and each of its parts; a part that is missing from `info` is NaN in the recording."""
    if info["cost"] != recording["cost"][row]:
        return False
    parts = [key for key in recording if key.startswith("info_cost_")]
    return all(
        np.array_equal(info.get(key.removeprefix("info_"), np.nan), recording[key][row], equal_nan=True)
        for key in parts
    )


def _replay_resets(env: TaskEnv, recording: Recording) -> tuple[int, list[str]]:
    """Number of resets that were replayed, and their errors."""
    errors, count = [], 0
    for prefix, observed in (("reset", "reset_obs_after_seed"), ("extra", "extra_obs")):
        for index, seed in enumerate(recording.get(f"{prefix}_seed", ())):
            observation, _ = env.reset(seed=int(seed))
            count += 1
            if not np.abs(observation - recording[observed][index]).max() <= RESET_TOLERANCE:
                errors.append(f"reset(seed={seed}) gives another observation")
            errors += [
                f"reset(seed={seed}) puts {thing} elsewhere"
                for thing in _moved(env, recording, prefix, index)
            ]
    for seed, chain in zip(recording.get("chain_seed", ()), recording.get("chain_obs", ()), strict=True):
        for link, expected in enumerate(chain):
            observation, _ = env.reset(seed=int(seed) if link == 0 else None)
            count += 1
            if not np.abs(observation - expected).max() <= RESET_TOLERANCE:
                errors.append(f"reset() number {link} after reset(seed={seed}) gives another observation")
    return count, errors


def _moved(env: TaskEnv, recording: Recording, prefix: str, index: int) -> list[str]:
    """The things of a reset that are not where they were recorded, to the last bit."""
    places = env.worlds.places(0)
    recorded = {key: recording[f"{prefix}_{key}"][index] for key in places if f"{prefix}_{key}" in recording}
    return [key for key, place in recorded.items() if not np.array_equal(place, places[key])]


def _replay_freely(env: TaskEnv, recording: Recording) -> tuple[int, int]:
    """Rows reproduced when each episode runs from its seed alone, and the wrong ones among them."""
    in_step = wrong = 0
    for reset, rows in _episodes(recording):
        env.reset(seed=int(recording["reset_seed"][reset]))
        if recording["reset_kind"][reset]:
            env.worlds.restore(0, {key: recording[f"reset_{key}"][reset] for key in ("qpos", "qvel")})
        for place, row in enumerate(rows):
            if recording["step_in_reset"][row] != place:
                break
            observation, _, terminated, truncated, info = env.step(recording["action"][row])
            if not np.abs(observation - recording["next_obs"][row]).max() <= OBSERVATION_TOLERANCE:
                break
            ends = terminated == recording["terminated"][row] and truncated == recording["truncated"][row]
            wrong += not (ends and _same_cost(info, recording, row) and _same_goal(env, recording, row))
            in_step += 1
    return in_step, wrong
