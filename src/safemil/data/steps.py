"""The column that orders the steps of an episode: numbers, times, durations or text."""

import re
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from safemil.arrays import Doubles, Ints
from safemil.data.interchange import listed
from safemil.data.trajectories import check_name_length
from safemil.errors import InputError

UNITS = {"ns": 1e-9, "us": 1e-6, "ms": 1e-3, "s": 1.0, "min": 60.0, "h": 3600.0, "d": 86400.0}
MISSING = 1.5  # a step this many times the usual one has left others out
IRREGULAR = 0.1  # a step whose length differs by this share from the usual one is irregular


class Steps(NamedTuple):
    """Steps of rows: how they sort, and how the log spells them."""

    order: npt.NDArray[Any]  # (rows,) int64, float64 or, for texts that are no times, their rank
    logged: npt.NDArray[Any]  # (rows,) int64, float64, datetime64, timedelta64 or str
    zone: str | None = None

    @property
    def measured(self) -> bool:
        """Whether differences of steps mean something."""
        return self.logged.dtype.kind != "U" or self.order.dtype.kind == "M"

    @property
    def timed(self) -> bool:
        """Whether differences of steps are durations."""
        return self.order.dtype.kind in "mM"

    def seconds(self, differences: npt.NDArray[Any]) -> Doubles:
        """Differences as numbers: seconds for times, else in the units of the column."""
        return differences / np.timedelta64(1, "s") if self.timed else differences.astype(np.float64)


def read_steps(column: pa.ChunkedArray, name: str) -> Steps:
    """Read a step column without empty cells."""
    kind = column.type
    try:
        if pa.types.is_integer(kind):
            return _plain(pc.cast(column, pa.int64()).to_numpy())
        if pa.types.is_floating(kind) or pa.types.is_decimal(kind):
            return _plain(_whole(pc.cast(column, pa.float64()).to_numpy(), name))
        if pa.types.is_timestamp(kind) or pa.types.is_date(kind):
            zone = kind.tz if pa.types.is_timestamp(kind) else None
            return _plain(pc.cast(column, pa.timestamp("ns", zone)).to_numpy(), zone)
        if pa.types.is_duration(kind):
            return _plain(pc.cast(column, pa.duration("ns")).to_numpy())
        if pa.types.is_time(kind):
            since_midnight = pc.cast(pc.cast(column, pa.time64("ns")), pa.int64())
            return _plain(since_midnight.to_numpy().view("timedelta64[ns]"))
        if pa.types.is_string(kind) or pa.types.is_large_string(kind):
            return _from_text(column, name)
    except pa.ArrowInvalid as error:
        raise InputError(f'"{name}" holds a step that is out of range: {error}.') from error
    raise InputError(f'"{name}" must hold numbers, times, durations or text to sort by, but holds {kind}.')


def _plain(values: npt.NDArray[Any], zone: str | None = None) -> Steps:
    return Steps(values, values, zone)


def _whole(values: Doubles, name: str) -> npt.NDArray[Any]:
    """Whole numbers as int64; refuse numbers that can't be sorted."""
    if not np.isfinite(values).all():
        row = int(np.argmin(np.isfinite(values)))
        raise InputError(f'"{name}" is {values[row]} in row {row}, which has no place among the steps.')
    small = np.abs(values).max(initial=0) < 2**53
    return values.astype(np.int64) if small and (values == np.rint(values)).all() else values


def _from_text(column: pa.ChunkedArray, name: str) -> Steps:
    """Texts sort as the numbers or the times that all of them spell, else as texts."""
    for kind in (pa.int64(), pa.float64()):
        try:
            values = pc.cast(column, kind).to_numpy()
            return _plain(values if kind == pa.int64() else _whole(values, name))
        except pa.ArrowInvalid:
            continue
    texts = text_array(column)
    for zone in (None, "UTC"):
        try:
            times = pc.cast(column, pa.timestamp("ns", zone))
            return Steps(times.to_numpy(), texts, zone)
        except pa.ArrowInvalid:
            continue
    return Steps(np.unique(texts, return_inverse=True)[1], texts)


def text_array(column: pa.Array | pa.ChunkedArray) -> npt.NDArray[np.str_]:
    """Names of steps or episodes, unless one is so long that the array would fill the memory."""
    check_name_length(pc.max(pc.utf8_length(column)).as_py() or 0)
    return np.asarray(column.to_pylist(), np.str_)


def join_steps(parts: list[Steps]) -> Steps:
    """Steps of several files; kinds that differ are compared as numbers, or else not at all."""
    kinds = {part.order.dtype.kind for part in parts}
    zones = {part.zone for part in parts}
    if len(parts) == 1:
        return parts[0]
    texts = [part.logged.dtype.kind == "U" for part in parts]
    if any(texts) and not all(part.measured for part in parts):
        logged = np.concatenate([part.logged.astype(np.str_) for part in parts])
        return Steps(np.unique(logged, return_inverse=True)[1], logged)
    if kinds - {"i", "f"} and len(kinds) > 1:
        raise InputError(
            f"the files hold steps of different kinds: {listed(sorted(kinds))}; make them alike."
        )
    if len(zones) > 1 and None in zones:
        raise InputError("some files give their steps a time zone and others none; make them alike.")
    if any(texts) and not all(texts):
        parts = [part._replace(logged=part.order) for part in parts]
    order = np.concatenate([part.order for part in parts])
    logged = order if not any(texts) else np.concatenate([part.logged for part in parts])
    return Steps(order, logged, zones.pop() if len(zones) == 1 else "UTC")


def gap_limit(max_gap: float | str, steps: Steps, name: str) -> float:
    """`max_gap` as a number that compares with `Steps.seconds`.

    >>> gap_limit("500ms", _plain(np.arange(2).astype("datetime64[s]")), "stamp")
    0.5
    """
    found = re.fullmatch(r"\s*([0-9.eE+-]+)\s*([a-z]*)\s*", str(max_gap))
    try:
        number = float(found[1]) if found else np.nan
    except ValueError:
        number = np.nan
    unit = found[2] if found else ""
    if not number > 0 or not np.isfinite(number) or unit not in ("", *UNITS):
        raise InputError(
            f"`max_gap=...` must be a number above 0, or a duration such as 500ms, 1s, 2min or 1h; "
            f"got {max_gap!r}."
        )
    if not steps.measured:
        raise InputError(
            f'"{name}" holds texts that are no times, so its gaps have no size; omit `max_gap=...`.'
        )
    if unit and not steps.timed:
        raise InputError(
            f'"{name}" holds numbers, not times: give `max_gap=...` in its units, not as {max_gap!r}.'
        )
    return number * UNITS.get(unit, 1.0)


def describe_gaps(steps: Steps, episodes: Ints, where: Callable[[int], str]) -> list[str]:
    """Say how many steps are missing and how irregular they are; rows are sorted."""
    same = episodes[1:] == episodes[:-1]
    if not steps.measured or not same.any():
        return []
    every = np.diff(steps.order)
    if not ((every != every[np.argmax(same)]) & same).any():
        return []
    inside = np.flatnonzero(same)
    differences = steps.seconds(every[inside])
    usual = float(np.median(differences))
    if not usual:
        return []
    unit, notes = " s" if steps.timed else "", []
    left_out = np.where(differences > MISSING * usual, np.rint(differences / usual) - 1, 0)
    if left_out.any():
        concerned = len(np.unique(episodes[inside[left_out > 0]]))
        longest = int(np.argmax(differences))
        notes.append(
            f"{int(left_out.sum())} steps are missing in {concerned} episodes (the usual step is "
            f"{usual:g}{unit}); the longest gap is {differences[longest]:g}{unit}, before "
            f"{where(inside[longest] + 1)}"
        )
    irregular = (np.abs(differences / usual - 1) > IRREGULAR) & (left_out == 0)
    if irregular.any():
        notes.append(
            f"{irregular.mean():.1%} of the steps are more than {IRREGULAR:.0%} shorter or longer than the "
            f"usual {usual:g}{unit}"
        )
    return notes
