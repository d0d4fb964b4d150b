"""Episodes as rows of a table, as Parquet and CSV hold them; the twin of `table`, which reads them."""

import json
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from safemil.arrays import Bools, Ints
from safemil.data.columns import DEFAULTS
from safemil.data.interchange import Contents, written_actions
from safemil.data.matrices import ENTRY_NAMES
from safemil.data.trajectories import HASHED_IF_ANY, Trajectories, starts_of
from safemil.errors import InputError


def to_table(contents: Contents, *, lists: bool) -> pa.Table:
    """Make a table that `from_table` reads, with columns of lists or `obs_0`, `obs_1`, ... of numbers."""
    held = contents.trajectories
    if len(np.unique(held.ids)) < len(held):
        raise InputError(
            "a table needs a name of its own for each episode; give the Trajectories different `ids`."
        )
    lengths = held.lengths + held.has_final
    step = np.ones(lengths.sum(), bool)
    step[(starts_of(lengths) + held.lengths)[held.has_final]] = False
    observations = np.empty((len(step), held.observation_size), np.float32)
    observations[step], observations[~step] = held.observations, held.final_observations[held.has_final]
    last = np.zeros(len(step), bool)
    last[starts_of(lengths) + held.lengths - 1] = held.terminated
    columns = {
        "episode": np.repeat(held.ids, lengths),
        "step": _written_steps(held, lengths, step),
        **_columns("observation", observations, np.ones_like(step), lists),
        **_columns("action", written_actions(held), step, lists),
        **{
            name: _with_gaps(values, step)
            for name, values in (("reward", contents.rewards), ("cost", contents.costs))
            if values is not None
        },
        "terminated": last,
        **{name: _with_gaps(getattr(held, name), step) for name in written_flags(held)},
    }
    table = pa.table(columns)
    for kind in ("observation", "action"):
        names = getattr(held, f"{kind}_names")
        if lists and names is not None:
            noted = pa.field(kind, table.schema.field(kind).type, metadata={ENTRY_NAMES: json.dumps(names)})
            table = table.set_column(table.column_names.index(kind), noted, table.column(kind))
    return table


def written_flags(held: Trajectories) -> list[str]:
    """Names of the flags of steps that a table holds: those that are true anywhere."""
    return [name for name in HASHED_IF_ANY if getattr(held, name).any()]


def _written_steps(held: Trajectories, lengths: Ints, step: Bools) -> pa.Array | npt.NDArray[Any]:
    """The log's own steps; a final observation comes one usual step after the last, or all are numbered."""
    offsets = np.arange(len(step)) - np.repeat(starts_of(lengths), lengths)
    logged = held.step_values
    if logged is None or (logged.dtype.kind == "U" and not step.all()):
        return np.repeat(held.first_steps, lengths) + offsets
    spread = np.empty(len(step), logged.dtype)
    spread[step] = logged
    if not step.all():
        inside = np.flatnonzero(np.diff(held.episode_of_step) == 0)
        gaps = np.diff(logged)[inside]
        usual = np.median(gaps) if len(gaps) else np.ones(1, np.int64).astype(np.diff(logged[:1]).dtype)[0]
        ends = np.flatnonzero(~step)
        spread[ends] = spread[ends - 1] + usual.astype(np.diff(logged[:1]).dtype)
    return _zoned(spread, held.step_zone)


def steps_as_logged(held: Trajectories) -> pa.Array | npt.NDArray[Any]:
    """Step of each row as the log has it, times in their own zone."""
    return _zoned(held.logged_steps, held.step_zone)


def _zoned(steps: npt.NDArray[Any], zone: str | None) -> pa.Array | npt.NDArray[Any]:
    if steps.dtype.kind != "M" or zone is None:
        return steps
    return pa.array(steps).cast(pa.timestamp("ns", zone))


def _columns(kind: str, values: npt.NDArray[Any], present: Bools, lists: bool) -> dict[str, pa.Array]:
    """Columns of an observation or an action; `values` has one row for each true entry of `present`."""
    if not lists:
        prefix = DEFAULTS[kind][1].removesuffix("*")
        return {f"{prefix}{i}": _with_gaps(values[:, i], present) for i in range(values.shape[1])}
    offsets = np.concatenate([[0], np.cumsum(present * values.shape[1])])
    flat = pa.array(np.ascontiguousarray(values).ravel())
    # Large lists, since the offsets of ordinary ones are int32.
    return {kind: pa.LargeListArray.from_arrays(pa.array(offsets), flat, mask=pa.array(~present))}


def _with_gaps(values: npt.NDArray[Any], present: Bools) -> pa.Array:
    """Spread values over the rows that are present; the others are null."""
    spread = np.zeros(len(present), values.dtype)
    spread[present] = values
    return pa.array(spread, mask=~present)
