"""Tables with one row per step, in any order: the common part of Parquet and CSV.

The final observation of an episode is one more row, the last of its episode, whose action is empty.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from safemil.arrays import Bools, Doubles, Ints
from safemil.data.actions import Actions, read_actions
from safemil.data.columns import Plan, joined, matching, plan
from safemil.data.episodes import Rows, check_doubles, sorted_rows, with_stand_ins, without_keys
from safemil.data.faults import Faults
from safemil.data.incidents import is_incident, values_seen
from safemil.data.interchange import Bounds, Contents, Fill, Options, Unreadable, listed
from safemil.data.matrices import entries_of, names_of, uneven_lists
from safemil.data.observations import Observations, read_observations
from safemil.data.parts import Loaded, Part, floats, is_list, is_number, together, with_partition
from safemil.data.steps import describe_gaps, gap_limit
from safemil.data.surveying import survey
from safemil.data.trajectories import HASHED_IF_ANY, Trajectories, starts_of
from safemil.errors import InputError

MOST_LACKING = 5  # columns in a message
Note = Callable[[Sequence[str]], None]  # raises what is wrong, or keeps it


def from_table(table: pa.Table, options: Options, recorded: Bounds | None = None) -> Contents:
    """Check the rows of a table and sort them into episodes."""
    noted = {} if recorded is None else {"action_low": recorded[0], "action_high": recorded[1]}
    part = Part(table.column_names, lambda names, _: Loaded(table.select(names)), noted)
    return from_parts([part], options)


def from_parts(parts: Sequence[Part], options: Options) -> Contents:
    """Check the rows of all parts of a log and sort them into episodes.

    The result does not depend on the order of parts, rows and columns. With `lenient` options, columns and
    episodes with faults are left out; `Unreadable` describes the columns if nothing remains.
    """
    faults: list[str] = []
    try:
        try:
            return _from_parts(parts, options, faults)
        except pa.ArrowException as error:  # of a type for which Arrow does not do what a part needs
            raise InputError(f"a column is of a type that can't be read: {error}.") from error
    except InputError as error:
        if not options.lenient:
            raise
        found = [*faults, *([] if str(error) in faults or isinstance(error, Unreadable) else [str(error)])]
        notes, declared = getattr(error, "notes", ()), getattr(error, "declared", None)
        raise Unreadable(found, survey(parts, options), notes, declared) from error


def _from_parts(parts: Sequence[Part], options: Options, general: list[str]) -> Contents:
    """Read all parts; faults that concern no single episode are added to `general`, if they are allowed."""

    def note(faults: Sequence[str]) -> None:
        general.extend(faults)
        if faults and not options.lenient:
            raise joined(faults)

    recorded = _recorded(parts, options, note)
    chosen = _plan(parts, options, recorded, note)
    loaded = [_load(part, chosen) for part in parts]
    wrong = _wrong_types(loaded, chosen, options)
    note(
        [
            f'"{name}" must hold numbers, but holds {kind}; choose other columns.'
            for name, kind in wrong.items()
        ]
    )
    uneven = uneven_lists(loaded, [*chosen.observation, *chosen.action]) if options.lenient else {}
    note([*uneven.values()])
    chosen = chosen.without({*wrong, *uneven})
    _check_anything_left(chosen, general)
    keys = [each.whole([name for name in chosen.singles() if name in each.schema.names]) for each in loaded]
    keys = [with_partition(table, part, chosen.singles()) for table, part in zip(keys, parts, strict=True)]
    if not sum(table.num_rows for table in keys):
        raise InputError("the table has no rows; need at least one step.")
    note(nameless := without_keys(keys, chosen))
    keys, lacking = with_stand_ins(keys, chosen) if nameless else (keys, None)
    rows = sorted_rows(keys, [part.path for part in parts], chosen, recorded.get("episodes"), options)
    observed, acted = (entries_of(loaded, columns) for columns in (chosen.observation, chosen.action))
    fills = _used_fills(options.fills, [each.name for each in (*observed, *acted)], note)
    faults = Faults(rows, general, np.zeros(len(rows.ids), bool))
    if lacking is not None:
        faults.bad[rows.episodes[rows.sort(lacking)]] = True
    for text, doubled in check_doubles(rows, ~faults.bad):
        faults.add(text, doubled)
    actions = read_actions(loaded, rows, acted, replace(options, fills=fills), recorded, faults)
    notes = describe_gaps(rows.steps, rows.episodes, rows.where)
    singles = _singles(keys, rows, chosen, actions.is_step)
    del keys
    observations = read_observations(loaded, rows, observed, fills, actions.is_step, faults)
    return _contents(rows, actions, observations, singles, faults, chosen, options, tuple(notes))


def _contents(
    rows: Rows,
    actions: Actions,
    observations: Observations,
    singles: dict[str, Any],
    faults: Faults,
    chosen: Plan,
    options: Options,
    notes: tuple[str, ...],
) -> Contents:
    lengths = np.bincount(rows.episodes[actions.is_step], minlength=len(rows.ids))
    for episode in np.flatnonzero(lengths == 0)[:1]:
        ends = lengths[rows.episodes] == 0
        faults.add(
            f"episode {rows.ids[episode]} has no step with an action, only a final observation; "
            "every episode needs at least one such step: leave the episode out.",
            ends,
        )
    if faults.texts and not options.lenient:
        raise joined(faults.texts)
    if faults.bad.all():
        seen = f'"{chosen.incident}" holds {singles["incident_values"]}'
        raise Unreadable(
            faults.texts, (), notes if chosen.incident is None else (*notes, seen), len(rows.ids)
        )
    kept = ~faults.bad
    steps = slice(None) if kept.all() else np.repeat(kept, lengths)
    acting = actions.is_step if kept.all() else actions.is_step & kept[rows.episodes]
    numbered, first_steps = _numbering(rows, acting, lengths[kept])
    has_final = np.bincount(rows.episodes[~actions.is_step], minlength=len(rows.ids)) > 0
    values = actions.values[acting] if not acting.all() else actions.values
    trajectories = Trajectories(
        observations=observations.values[steps],
        actions=values,
        lengths=lengths[kept],
        final_observations=observations.finals[kept],
        has_final=has_final[kept],
        terminated=singles["terminated"][kept],
        action_low=actions.low,
        action_high=actions.high,
        ids=rows.ids[kept],
        first_steps=first_steps,
        marks=singles["marks"][steps],
        after_gap=_after_gap(rows, acting, options, chosen.step) | singles["after_gap"][steps],
        step_values=None if numbered else rows.steps.logged[acting],
        step_zone=None if numbered else rows.steps.zone,
        observation_names=names_of(observations.entries, observations.names()),
        action_names=names_of(actions.entries, [each.name for each in actions.entries]),
        action_categories=actions.categories,
        reading=(resolved := _resolved(options, chosen, observations, actions)),
        owned=True,
    )
    return Contents(
        trajectories,
        rewards=None if singles["reward"] is None else singles["reward"][steps],
        costs=None if singles["cost"] is None else singles["cost"][steps],
        names=(options.columns.reward, options.columns.cost),
        incidents=None if singles["incident"] is None else singles["incident"][steps],
        incident_values=singles["incident_values"],
        resolved=resolved,
        step_rows=np.flatnonzero(acting) if rows.place is None else np.argsort(rows.place)[acting],
        row_episodes=rows.episodes if rows.place is None else rows.episodes[rows.place],
        faults=tuple(faults.texts),
        notes=notes,
        declared=len(rows.ids),
        empty=observations.empty,
    )


def _resolved(options: Options, chosen: Plan, observations: Observations, actions: Actions) -> Options:
    """The options, with names instead of patterns, and with the bounds and choices that were found."""
    names = [each.name for each in (*observations.entries, *actions.entries)]
    fills = tuple(
        replace(fill, pattern=name) for fill in options.fills for name in matching(fill.pattern, names)
    )
    columns = replace(options.columns, observation=chosen.observation, action=chosen.action)
    if actions.categories is not None:
        choices: dict[str, Any] = {"action_kind": "discrete", "action_categories": actions.categories}
    else:
        choices = {"action_bounds": (actions.low.tolist(), actions.high.tolist())}
    return replace(options, columns=columns, fills=fills, **choices)


def _used_fills(fills: Sequence[Fill], names: Sequence[str], note: Note) -> tuple[Fill, ...]:
    """Rules that apply to a column; the others are noted."""
    used = [fill for fill in fills if matching(fill.pattern, names)]
    note(
        [
            f'no observation or action is called "{fill.pattern}", which should be filled '
            f"({listed(names)}); correct the rule."
            for fill in fills
            if fill not in used
        ]
    )
    return tuple(used)


def _check_anything_left(chosen: Plan, faults: Sequence[str]) -> None:
    """Stop where there is nothing to be read for the faults."""
    if faults and not (chosen.observation and chosen.action):
        raise InputError(faults[-1])


def _recorded(parts: Sequence[Part], options: Options, note: Note) -> Mapping[str, Any]:
    """What our writer noted about the actions; the same in all parts."""
    first = parts[0].recorded
    bounds = ("action_low", "action_high")
    ours = [first.get(name) for name in bounds]
    other = [each.path for each in parts if [each.recorded.get(name) for name in bounds] != ours]
    if other and options.action_bounds is None:
        note(
            [f"{parts[0].path} and {other[0]} record different action bounds; give `action_low=...` and "
             "`action_high=...`."]
        )  # fmt: skip
        first = {name: first[name] for name in first if name not in bounds}
    return first if len(parts) == 1 else {name: first[name] for name in first if name != "episodes"}


def _plan(parts: Sequence[Part], options: Options, recorded: Mapping[str, Any], note: Note) -> Plan:
    """Choose columns that all files have; the others are noted."""
    names = [*dict.fromkeys(name for part in parts for name in (*part.columns, *part.partition))]
    known = {*names}
    for part in parts:
        columns = [*part.columns]
        names += [
            name for name in dict.fromkeys(columns) for _ in range(columns.count(name) - names.count(name))
        ]
    chosen, faults = plan(names, options, many=len(parts) > 1, flags=tuple(recorded.get("flags", ())))
    lacking = [
        (name, f'{part.path} has no column "{name}"')
        for part in parts
        for name in chosen.needed()
        if name in known and name not in part.columns and name not in part.partition
    ]
    if lacking:
        faults.append(
            f"all files need the same columns, but {listed((text for _, text in lacking), MOST_LACKING)}."
        )
    note(faults)
    twice = {name for name in names if names.count(name) > 1}
    lost = twice.union(name for name, _ in lacking)
    if {chosen.step, chosen.episode} & lost or not {chosen.step, chosen.episode} <= {*known, None}:
        raise InputError(faults[-1])
    if chosen.incident is not None and chosen.incident not in known:
        lost.add(chosen.incident)
    return chosen.without(lost)


def columns_of(part: Part, options: Options) -> list[str]:
    """Names of the columns that are read of a part."""
    chosen = _plan([part], options, part.recorded, lambda *_: None)  # `from_parts` says what is wrong
    return [name for name in chosen.all() if name in part.columns]


def _load(part: Part, chosen: Plan) -> Loaded:
    others = {*chosen.singles(), *chosen.action}
    narrow = [name for name in chosen.observation if name not in others]
    return part.load([name for name in chosen.all() if name in part.columns], narrow)


def _wrong_types(loaded: Sequence[Loaded], chosen: Plan, options: Options) -> dict[str, str]:
    """Types of the columns that should hold numbers and do not."""
    numbers = [*chosen.observation]
    if options.action_kind == "continuous" or len(chosen.action) > 1:
        numbers += chosen.action
    optional = (chosen.reward, chosen.cost, chosen.terminated)
    single = [*(name for name in optional if name is not None), *chosen.flags]
    return {
        name: str(kind)
        for each in loaded
        for name in (*single, *numbers)
        if name in each.schema.names
        and (not is_number(kind := each.schema.field(name).type) or (name in single and is_list(kind)))
    }


def _singles(keys: Sequence[pa.Table], rows: Rows, chosen: Plan, is_step: Bools) -> dict[str, Any]:
    """Columns with one value per row: per step, or `terminated` per episode."""

    def numbers(name: str | None) -> Doubles | None:
        if name is None:
            return None
        columns = [table.column(name) for table in keys]
        return rows.sort(np.concatenate([floats(chunk) for each in columns for chunk in each.chunks]))

    def per_step(values: npt.NDArray[Any] | None) -> npt.NDArray[Any] | None:
        return None if values is None else values[is_step]

    ended = numbers(chosen.terminated)
    flags = np.zeros(len(is_step)) if ended is None else np.nan_to_num(ended)
    found: dict[str, Any] = {
        "reward": per_step(numbers(chosen.reward)),
        "cost": per_step(numbers(chosen.cost)),
        "terminated": np.bincount(rows.episodes, flags != 0, minlength=len(rows.ids)) > 0,
        "incident": None,
        "incident_values": "",
    }
    for name in HASHED_IF_ANY:
        values = numbers(name) if name in chosen.flags else None
        found[name] = np.zeros(int(is_step.sum()), bool) if values is None else values[is_step] == 1
    if chosen.incident is not None:
        column = [table.column(chosen.incident) for table in keys]
        true = rows.sort(np.concatenate([is_incident(each, chosen.incident_value) for each in column]))
        # The row of a final observation is no step: the step before it stands for it.
        steps = np.flatnonzero(is_step)
        ends = np.searchsorted(steps, np.flatnonzero(true & ~is_step)) - 1
        found["incident"] = true[steps]
        found["incident"][ends[ends >= 0]] = True
        found["incident_values"] = values_seen(together(column))
    return found


def _numbering(rows: Rows, acting: Bools, lengths: Ints) -> tuple[bool, Ints]:
    """Whether steps are consecutive whole numbers, and the first of each episode (else 0)."""
    if rows.steps.logged.dtype.kind == "i":
        steps = rows.steps.order if acting.all() else rows.steps.order[acting]
        starts = starts_of(lengths)
        inside = np.ones(len(steps), bool)
        inside[starts] = False
        if not ((np.diff(steps) != 1) & inside[1:]).any():
            return True, steps[starts]
    return False, np.zeros(len(lengths), np.int64)


def _after_gap(rows: Rows, acting: Bools, options: Options, name: str) -> Bools:
    """Steps that come more than the largest gap after the one before."""
    found = np.zeros(int(acting.sum()), bool)
    if options.max_gap is not None:
        episodes = rows.episodes[acting]
        limit = gap_limit(options.max_gap, rows.steps, name)
        differences = rows.steps.seconds(np.diff(rows.steps.order[acting]))
        found[1:] = (differences > limit) & (np.diff(episodes) == 0)
    return found
