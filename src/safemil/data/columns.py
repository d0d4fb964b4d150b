"""Columns of a table by name and by pattern, in an order that does not depend on the table's own."""

import re
from collections import Counter
from collections.abc import Container, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

from safemil.data.interchange import ColumnSpec, Options, listed
from safemil.errors import InputError, unknown

DEFAULTS = {"observation": ("observation", "obs_*"), "action": ("action", "act_*")}


@dataclass(frozen=True)
class Plan:
    """The columns that are read, by the part that they play; None if the table has no such column."""

    episode: str | None  # None: each file is an episode
    step: str
    observation: tuple[str, ...]
    action: tuple[str, ...]
    reward: str | None
    cost: str | None
    terminated: str | None
    incident: str | None
    incident_value: str | None  # None: any true value
    flags: tuple[str, ...] = ()  # columns of `Trajectories` that our own writer added

    def singles(self) -> list[str]:
        """Columns with one value per row that are neither observed nor acted."""
        named = (self.episode, self.step, self.reward, self.cost, self.terminated, self.incident, *self.flags)
        return [*dict.fromkeys(name for name in named if name is not None)]

    def needed(self) -> list[str]:
        """Columns that every file must have."""
        named = (self.episode, self.step, self.incident, *self.action, *self.observation)
        return [*dict.fromkeys(name for name in named if name is not None)]

    def without(self, lost: Container[str]) -> Self:
        """Leave out columns that can't be read."""
        changes: dict[str, Any] = {
            kind: tuple(name for name in getattr(self, kind) if name not in lost)
            for kind in ("observation", "action", "flags")
        }
        changes |= {
            kind: None for kind in ("reward", "cost", "terminated", "incident") if getattr(self, kind) in lost
        }
        return replace(self, **changes)

    def all(self) -> list[str]:
        return [*dict.fromkeys((*self.singles(), *self.action, *self.observation))]


def matching(pattern: str, names: Iterable[str]) -> list[str]:
    """Names that match a pattern, whose `*` stands for any text, in natural order.

    >>> matching("obs_*", ["obs_10", "obs_9", "act_0"])
    ['obs_9', 'obs_10']
    """
    wanted = re.compile(".*".join(re.escape(piece) for piece in pattern.split("*")), re.DOTALL)
    return sorted({name for name in names if wanted.fullmatch(name)}, key=natural)


def natural(name: str) -> tuple[list[tuple[int, str]], str]:
    """Sort key: numbers within names count as numbers, so that obs_9 comes before obs_10."""
    pieces = re.split(r"([0-9]{1,18})", name)
    return [(int(each), "") if i % 2 else (-1, each) for i, each in enumerate(pieces)], name


def plan(
    names: Sequence[str], options: Options, *, many: bool, flags: tuple[str, ...] = ()
) -> tuple[Plan, list[str]]:
    """Choose the columns to read; also returns what is wrong with them, every missing column included."""
    faults: list[str] = []
    columns = options.columns

    def needed(name: str) -> str:
        if name not in names:
            faults.append(str(unknown("column", name, names)))
        return name

    incident, value = _incident(options.incident, names)
    optional = {name: name if name in names else None for name in (columns.reward, columns.cost)}
    ended = columns.terminated if columns.terminated in names else None
    episode = needed(columns.episode) if columns.episode in names or not many else None
    step = needed(columns.step)
    if incident is not None:
        needed(incident)
    taken = {columns.episode, columns.step, columns.reward, columns.cost, columns.terminated, incident}
    specs = {"action": columns.action, "observation": columns.observation}
    chosen: dict[str, tuple[str, ...]] = {}
    for kind, spec in specs.items():
        chosen[kind] = _chosen(kind, spec, names, taken, faults)
        taken = {*taken, *chosen[kind]}
    for name in [name for name in chosen["observation"] if name == incident]:
        faults.append(f'"{name}" tells incidents apart, so it can\'t be observed too; leave it out.')
    for name in sorted({*chosen["observation"]} & {*chosen["action"]}):
        faults.append(f'"{name}" can\'t be observed and acted both; leave it out of one.')
    read = {*chosen["observation"], *chosen["action"]}
    used = {episode, step, incident, ended, *optional.values()} | read
    for name, count in sorted(Counter(names).items()):
        if count > 1 and name in used:
            faults.append(f'the table has {count} columns called "{name}"; rename one of them.')
    made = Plan(
        episode,
        step,
        chosen["observation"],
        chosen["action"],
        optional[columns.reward],
        optional[columns.cost],
        ended,
        incident,
        value,
        tuple(name for name in flags if name in names),
    )
    return made, faults


def joined(faults: Sequence[str]) -> InputError:
    """Make one error of several."""
    return InputError("\n  also: ".join(faults))


def _incident(spec: str | None, names: Sequence[str]) -> tuple[str | None, str | None]:
    """Split "column=value"; a column of exactly that name comes first."""
    if spec is None or spec in names or "=" not in spec:
        return spec, None
    column, _, value = spec.partition("=")
    return column.strip(), value.strip()


def _chosen(
    kind: str, spec: ColumnSpec, names: Sequence[str], taken: set[str | None], faults: list[str]
) -> tuple[str, ...]:
    """Names of the columns of an observation or an action; a pattern passes over those taken already."""
    if spec is None:
        spec = next((each for each in DEFAULTS[kind] if matching(each, names)), None)
        if spec is None:
            faults.append(
                f'need a column "{kind}" of lists or columns {DEFAULTS[kind][1]} of numbers, but there is '
                f"neither (columns: {listed(names)}); say which columns hold the {kind}."
            )
            return ()
    parts = [part.strip() for part in spec.split(",")] if isinstance(spec, str) else spec
    found: list[str] = []
    for part in parts:
        if "*" not in part or part in names or not isinstance(spec, str):
            found.append(part)
            continue
        matched = matching(part, names)
        if not matched:
            start = part.removesuffix("*")
            what = f'begins with "{start}"' if "*" not in start else f'matches "{part}"'
            faults.append(f"no column {what} (columns: {listed(names)}).")
        found += [name for name in matched if name not in found and name not in taken]
    missing = [name for name in found if name not in names]
    faults += [str(unknown("column", name, names)) for name in missing]
    repeated = [name for name in dict.fromkeys(found) if found.count(name) > 1]
    if repeated or (not found and not faults):
        what = f'"{repeated[0]}" twice' if repeated else "only columns that play another part"
        faults.append(f"the {kind} names {what}; give each of its columns once.")
    return tuple(name for name in dict.fromkeys(found) if name not in missing)
