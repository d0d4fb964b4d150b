"""Writes a log of made-up drives on a highway, with a few incidents marked, to try safemil on.

    python examples/drives.py --out drives.parquet
    safemil train safemil --logs drives.parquet --episode drive --step time --incident incident \\
        --observation gap_front,dv_front,speed,lane_offset,curvature --action acceleration,steering \\
        --action-low -5 -1 --action-high 2.5 1 --out runs/drives
    safemil report runs/drives --out report.html

A drive follows a car for a minute, at two steps a second. Careful drivers keep a gap that grows with their
speed and brake early. Others come too close behind a slower car, or are carried out of their lane in a bend;
some of those drives are marked in the column `incident`, at the moment at which it was worst. Nobody has
looked at the rest: some of them are as dangerous.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet
import tyro

STEP = 0.5  # s
CLOSE = 1.0  # s to the car in front at this speed: below it, and closing in, is dangerous
DRIFT = 0.9  # m from the middle of the lane: beyond it is dangerous


@dataclass
class Drive:
    """Rows of one drive, (steps, columns), and the danger at each."""

    rows: npt.NDArray[np.float64]
    danger: npt.NDArray[np.float64]  # above 0 where it is dangerous, the more the worse


COLUMNS = ("gap_front", "dv_front", "speed", "lane_offset", "curvature", "acceleration", "steering")


def drive(kind: str, rng: np.random.Generator) -> Drive:
    """Follow a car whose speed wanders, through bends; `kind` is careful, close or drifting."""
    steps = int(rng.integers(90, 121))
    speed, front = rng.uniform(22, 30, 2)  # m/s
    gap, offset, heading, curvature = rng.uniform(35, 60), 0.1 * rng.standard_normal(), 0.0, 0.0  # m, m, -, -
    # The other two kinds drive well, apart from a lapse of some ten seconds, which may end well.
    lapse = rng.integers(20, steps - 35)
    bend = rng.choice([-1, 1]) * rng.uniform(0.8, 1.3)
    distance = rng.uniform(1.3, 1.9)  # s, that this driver keeps
    rows, danger = [], []
    for step in range(steps):
        lapsing = lapse <= step < lapse + 22
        curvature = 0.93 * curvature + 0.12 * rng.standard_normal()  # of the road, about -1 to 1
        if kind == "drifting" and lapsing:
            curvature = 0.8 * curvature + 0.2 * bend
        front += STEP * np.clip(0.25 * (26 - front) + 0.9 * rng.standard_normal(), -2.5, 2)
        if kind == "close" and lapsing:
            front -= 0.25
        wanted = distance if not (kind == "close" and lapsing) else 0.45  # s behind the car in front
        acceleration = (
            0.16 * (gap - wanted * speed) / 5 + 0.5 * (front - speed) + 0.15 * rng.standard_normal()
        )
        if kind == "close" and lapsing and gap > 14:
            acceleration = max(acceleration, 0.4)  # not looking
        acceleration = float(np.clip(acceleration, -5, 2.5))
        inattentive = 0.25 if kind == "drifting" and lapsing else 1.0
        steering = inattentive * (-0.9 * offset - 1.6 * heading) + 0.05 * rng.standard_normal()
        steering = float(np.clip(steering, -1, 1))
        rows.append((gap, front - speed, speed, offset, curvature, acceleration, steering))
        closing = (CLOSE * speed - gap) / speed if front < speed else -1.0
        danger.append(max(closing, abs(offset) - DRIFT))
        heading += STEP * (0.35 * steering + 0.13 * curvature)
        heading *= 0.85
        offset = float(np.clip(offset + STEP * heading * 1.4, -1.8, 1.8))
        gap = max(gap + STEP * (front - speed), 1.5)
        speed = max(speed + STEP * acceleration, 0.0)
    return Drive(np.array(rows), np.array(danger))


def write(path: Path, driven: list[Drive], marked: list[int]) -> None:
    """Write a Parquet file of drives; the marked ones say when it was worst."""
    incident = [np.zeros(len(each.rows), bool) for each in driven]
    for number in marked:
        incident[number][driven[number].danger.argmax()] = True
    lengths = [len(each.rows) for each in driven]
    values = np.concatenate([each.rows for each in driven])
    table = {"drive": np.repeat([f"drive {number:03}" for number in range(len(driven))], lengths)}
    table["time"] = np.concatenate([STEP * np.arange(length) for length in lengths])
    table |= {name: column.round(4) for name, column in zip(COLUMNS, values.T, strict=True)}
    pyarrow.parquet.write_table(pa.table(table | {"incident": np.concatenate(incident)}), path)


def main(
    out: Annotated[Path, tyro.conf.arg(metavar="FILE")],
    drives: int = 320,
    marked: int = 40,
    only: Literal["all", "calm", "dangerous"] = "all",
    seed: int = 0,
) -> None:
    """Write the log.

    Args:
        out: Parquet file to write
        drives: number of drives
        marked: number of dangerous drives that were reported
        only: all kinds of drives; or calm ones or dangerous ones alone (all marked), to try a guard on
        seed: random seed
    """
    rng = np.random.default_rng(seed)
    kinds = rng.choice(["careful", "close", "drifting"], drives, p=[0.62, 0.2, 0.18])
    driven = [drive(kind, rng) for kind in kinds]
    dangerous = [number for number, each in enumerate(driven) if each.danger.max() > 0]
    if only == "calm":
        write(out, [each for number, each in enumerate(driven) if number not in dangerous], [])
    elif only == "dangerous":
        write(out, [driven[number] for number in dangerous], [*range(len(dangerous))])
    else:
        if len(dangerous) < marked:
            raise SystemExit(f"only {len(dangerous)} of {drives} drives are dangerous; mark fewer.")
        write(out, driven, rng.choice(dangerous, marked, replace=False).tolist())
    print(out)


if __name__ == "__main__":
    tyro.cli(main)
