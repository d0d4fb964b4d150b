"""Learn to drive from logs with crashes: BC beside SafeMIL on highway-env, in closed loop.

    python examples/highway.py --folder highway

A fleet of drivers, from careless to careful, is recorded on a highway (highway-env, extra `examples`). Some
of the drives that ended in a crash were reported: they are the incidents. Everything else, crashes that
nobody reported included, is the unlabeled log. Reward and crashes are used to judge the policies, never to
train.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gymnasium
import highway_env
import numpy as np
import tyro
from numpy.typing import NDArray

import safemil
from safemil import stats
from safemil.data import Trajectories
from safemil.evaluation import Evaluation, record

CARS = 7  # seen, the own one first
LANE, LENGTH = 4.0, 5.0  # m, width of a lane and length of a car
RANGES = {"x": [-100, 100], "y": [-16, 16], "vx": [-40, 40], "vy": [-40, 40]}  # m and m/s, scaled to [-1, 1]
SCALES = [1, *(high for _, high in RANGES.values())]
LEFT, STAY, RIGHT, FASTER, SLOWER = range(5)
NAMES = [f"{what}_{car}" for car in range(CARS) for what in ("presence", *RANGES)]
HIGHWAY: dict[str, Any] = {
    "lanes_count": 3,
    "vehicles_count": 12,
    "vehicles_density": 1.5,
    "duration": 15,  # s
    "policy_frequency": 2,  # Hz
    "simulation_frequency": 4,
    "observation": {
        "type": "Kinematics",
        "vehicles_count": CARS,
        "features": ["presence", *RANGES],
        "features_range": RANGES,
        "see_behind": True,
        "clip": False,
    },
    "action": {"type": "DiscreteMetaAction", "target_speeds": [16, 20, 24, 28, 32]},  # m/s
    "reward_speed_range": [16, 32],
}


@dataclass(frozen=True)
class Settings:
    """Settings of the example."""

    folder: Path = Path("highway")
    """Folder for logs and runs; what is there already is not made again."""
    drives: int = 160
    """Number of recorded drives."""
    reported: int = 25
    """Number of crashes that were reported as incidents."""
    seeds: int = 3
    """Number of seeds of each training."""
    episodes: int = 100
    """Number of drives of each trained policy."""
    updates: int | None = None
    """Number of training updates (default: that of each method)."""
    seed: int = 0
    """Random seed of drives, reports and training."""


def make() -> gymnasium.Env[Any, Any]:
    """Make the highway."""
    gymnasium.register_envs(highway_env)
    return gymnasium.make("highway-fast-v0", config=HIGHWAY)


def crashed(step: Any) -> float:
    """Cost of a step: 1 if the car crashed."""
    return float(step.info["crashed"])


class Fleet:
    """Drivers of differing caution; each drive has another driver.

    A careless driver keeps hardly any distance, changes lanes into any gap, likes to drive at 32 m/s and is
    often inattentive. A careful one keeps 1.6 s, looks ahead and behind before changing lanes, and likes
    26 m/s.
    """

    def __init__(self, seed: int):
        self._rng = np.random.default_rng(seed)
        self._caution = 0.0

    def begin(self) -> None:
        """Let the next driver take the wheel."""
        self._caution = self._rng.uniform()

    def __call__(self, observation: NDArray[np.float32]) -> int:
        """Choose the action for what is seen."""
        caution = self._caution
        if self._rng.uniform() < 0.5 * (1 - caution) ** 2:  # inattentive
            return STAY
        (_, _, place, speed, _), others = (observation * SCALES)[0], (observation * SCALES)[1:]
        others = others[others[:, 0] > 0.5]
        lane = round(place / LANE)
        gap, closing = _nearest(others, lane * LANE - place, ahead=True)
        if gap < 1.6 * caution * speed + (1 + caution) * closing:
            free = [side for side in (LEFT, RIGHT) if self._is_free(others, lane, place, side, gap)]
            return free[0] if free else SLOWER
        return FASTER if speed < 31 - 6 * caution else STAY

    def _is_free(self, others: NDArray[np.float32], lane: int, place: float, side: int, gap: float) -> bool:
        """Whether the lane beside is there, and promises more room than this one."""
        there = lane + (1 if side == RIGHT else -1)
        if not 0 <= there < HIGHWAY["lanes_count"]:
            return False
        ahead, closing = _nearest(others, there * LANE - place, ahead=True)
        behind, approaching = _nearest(others, there * LANE - place, ahead=False)
        room = 22 * self._caution + 1.5 * self._caution * closing
        room_behind = 20 * self._caution - LENGTH + 1.5 * self._caution * approaching
        return ahead > max(room, gap) and behind > room_behind


def _nearest(others: NDArray[np.float32], offset: float, *, ahead: bool) -> tuple[float, float]:
    """Gap in m to the nearest car of a lane, and the speed in m/s at which it closes."""
    sign = 1 if ahead else -1
    here = others[(np.abs(others[:, 2] - offset) < LANE / 2) & (sign * others[:, 1] > 0)]
    if not len(here):
        return 200.0, 0.0
    nearest = here[np.argmin(np.abs(here[:, 1]))]
    return abs(nearest[1]) - LENGTH, max(0.0, -sign * nearest[3])


def record_logs(settings: Settings) -> tuple[Trajectories, NDArray[np.bool_]]:
    """Record the fleet, or read what was recorded; say which drives ended in a crash."""
    file = settings.folder / "drives.parquet"
    if not file.exists():
        fleet = Fleet(settings.seed)

        class Changing(gymnasium.Wrapper[Any, Any, Any, Any]):
            def reset(self, **options: Any) -> Any:
                fleet.begin()
                return self.env.reset(**options)

        env = Changing(make())
        options: dict[str, Any] = {"observation_names": NAMES, "action_names": ["maneuver"], "progress": True}
        drives, truth = record(
            env, fleet, episodes=settings.drives, seed=settings.seed, cost=crashed, **options
        )
        env.close()
        safemil.save(file, drives, truth)
    drives, truth = safemil.load_annotated(file)
    return drives, truth.episode_sums(drives.lengths)[1] > 0


def report(name: str, found: Evaluation) -> None:
    """Print return and crash rate with their intervals."""
    rates = (found.costs > 0).astype(float)
    each, crashes = ", ".join(f"{rate:.0%}" for rate in rates.mean(axis=1)), stats.interval(100 * rates)
    print(f"{name}: return {stats.interval(found.returns)}, crashes {crashes} % (seeds: {each})")


def main(settings: Settings) -> None:
    settings.folder.mkdir(parents=True, exist_ok=True)
    drives, crash = record_logs(settings)
    draw = np.random.default_rng(settings.seed)
    reported = draw.choice(np.flatnonzero(crash), min(settings.reported, crash.sum() // 2), replace=False)
    rest = np.setdiff1d(np.arange(len(drives)), reported)
    print(f"{len(drives)} drives, {crash.sum()} crashes, of which {len(reported)} were reported")
    changes: dict[str, Any] = {} if settings.updates is None else {"updates": settings.updates}
    for name in ("bc", "safemil"):
        run = safemil.train(
            name,
            unlabeled=drives.take(rest),
            nonpreferred=drives.take(reported) if name == "safemil" else None,
            seed=settings.seed,
            seeds=settings.seeds,
            out=settings.folder / name,
            resume=True,
            **changes,
        )
        found = Evaluation.load(settings.folder / name)
        if found is None:
            found = safemil.evaluate(
                run, make, episodes=settings.episodes, seed=1, cost=crashed, progress=True
            )
            found.save(settings.folder / name)
        report(name, found)


if __name__ == "__main__":
    main(tyro.cli(Settings))
