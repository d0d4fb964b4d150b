"""A reviewer's judgements of unlabeled episodes, and which episodes to look at next.

A report downloads judgements as labels.json, and `train(..., labels="labels.json")` uses them: incidents move
to the non-preferred pile, with a mark where the reviewer named a moment; fine episodes are known to be good;
unsure ones change nothing. The file holds the content hash of the unlabeled pile that was judged, and is
refused for any other.
"""

import json
import os
import re
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Annotated, Literal, NamedTuple, Self, get_args

import numpy as np
import numpy.typing as npt

from safemil.arrays import Doubles, Ints
from safemil.checks import Range, fit
from safemil.data import Trajectories
from safemil.errors import InputError, unknown
from safemil.files import atomic_file
from safemil.texts import read_json

FILE = "labels.json"
FORMAT = 1  # of the file; a change that other versions can't read raises it
PROPOSED = 10

Judgement = Literal["incident", "fine", "unsure"]


@dataclass(frozen=True)
class Label:
    """Judgement of one episode."""

    episode: str  # its name in the log
    label: Judgement
    step: Annotated[int, Range(-(2**53), 2**53)] | None = None  # of the incident, as the report numbers steps


@dataclass(frozen=True)
class Labels:
    """Judgements of the episodes of one unlabeled pile."""

    unlabeled_sha256: str  # content hash of the pile as it was read, before any judgement moved episodes
    labels: list[Label] = field(default_factory=list)
    format: int = FORMAT

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        """Read labels.json."""
        try:
            content = read_json(path)
        except FileNotFoundError:
            raise InputError(
                f"there is no {path}; download it from the report of the run (safemil report)."
            ) from None
        if isinstance(content, dict) and content.get("format") not in (None, FORMAT):
            raise InputError(f"{path} is of format {content['format']}, but this version reads {FORMAT}.")
        try:
            found: Self = fit("", content, cls)
            found._check()
        except InputError as error:
            raise InputError(f"{path} is damaged: {error} Download it anew from the report.") from None
        return found

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write labels.json."""
        self._check()
        with atomic_file(Path(path)) as file:
            file.write_text(json.dumps(self.to_json(), indent=2, ensure_ascii=False) + "\n", encoding="utf-8")

    def to_json(self) -> dict[str, object]:
        """All fields, as the file holds them."""
        return {
            "format": self.format,
            "unlabeled_sha256": self.unlabeled_sha256,
            "labels": [asdict(each) for each in self.labels],
        }

    def _check(self) -> None:
        names = [each.episode for each in self.labels]
        repeated = sorted({name for name in names if names.count(name) > 1})
        if repeated:
            raise InputError(f'the episode "{repeated[0]}" has more than one label.')
        for each in self.labels:
            if each.label not in get_args(Judgement):
                raise unknown("label", each.label, get_args(Judgement))
            if each.step is not None and each.label != "incident":
                raise InputError(
                    f'the episode "{each.episode}" has the moment of an incident, but is {each.label}.'
                )

    def split(self, unlabeled: Trajectories, *, move_fine: bool = True) -> "Sorted":
        """Take the judged episodes out of the unlabeled pile; fine ones only if asked to."""
        if unlabeled.content_hash() != self.unlabeled_sha256:
            ours, theirs = unlabeled.content_hash()[:12], self.unlabeled_sha256[:12]
            raise InputError(
                f"the labels are of other episodes: the content hash of the unlabeled pile is {ours}..., "
                f"that of the labels {theirs}...; train on the logs of the report, read with the same "
                "flags."
            )
        names = unlabeled.ids.astype(np.str_).tolist()
        places = {name: number for number, name in enumerate(names)}
        if len(places) < len(names):
            raise InputError("two unlabeled episodes have the same name; labels need a name for each.")
        marks = unlabeled.marks.copy()
        numbers: dict[str, list[int]] = {name: [] for name in get_args(Judgement)}
        for each in self.labels:
            if each.episode not in places:
                raise unknown("unlabeled episode", each.episode, _near(each.episode, names))
            number = places[each.episode]
            if each.label != "fine" or move_fine:
                numbers[each.label].append(number)
            if each.step is not None:
                marks[_row(unlabeled, number, each)] = True
        held = unlabeled.marked(marks) if marks.any() else unlabeled
        taken = {*numbers["incident"], *numbers["fine"]}
        left = [number for number in range(len(names)) if number not in taken]
        if not left:
            raise InputError("every unlabeled episode has a label; leave some that nobody has looked at.")
        return Sorted(
            unlabeled.take(left) if taken else unlabeled,
            _some(held, numbers["incident"]),
            _some(unlabeled, numbers["fine"]),
        )


class Sorted(NamedTuple):
    """An unlabeled pile, sorted by its labels."""

    unlabeled: Trajectories  # without a label, or unsure
    incidents: Trajectories | None
    fine: Trajectories | None


def _row(unlabeled: Trajectories, number: int, label: Label) -> int:
    """Row of a label's step."""
    assert label.step is not None
    first, length = int(unlabeled.first_steps[number]), int(unlabeled.lengths[number])
    if not first <= label.step < first + length:
        raise InputError(
            f'the episode "{label.episode}" has steps {first} to {first + length - 1}, but its incident is '
            f"said to be at step {label.step}; correct the label."
        )
    return int(unlabeled.starts[number]) + label.step - first


def _near(name: str, names: list[str], most: int = 5) -> list[str]:
    """Some names, those that are most like one that is missing."""
    import difflib

    return difflib.get_close_matches(name, names, n=most, cutoff=0.0)


def _some(held: Trajectories, numbers: list[int]) -> Trajectories | None:
    return held.take(sorted(numbers)) if numbers else None


def joined(pile: Trajectories | None, more: Trajectories | None) -> Trajectories | None:
    """Add episodes to a pile, either of which may be missing."""
    given = [each for each in (pile, more) if each is not None]
    return Trajectories.concatenate(given) if len(given) > 1 else (given[0] if given else None)


def episode_scores(costs: Sequence[npt.NDArray[np.floating]], aggregate: str) -> Doubles:
    """Score of each episode: the mean of its costs, or of the highest share of them, as evidence names it.

    >>> episode_scores([np.array([0.0, 0.2, 0.4, 0.8])], "highest 25%")
    array([0.8])
    """
    found = re.fullmatch(r"highest (\d+)%", aggregate)
    share = int(found[1]) / 100 if found else 1.0
    highest = [np.sort(each)[-max(1, round(share * len(each))) :] for each in costs]
    return np.array([each.mean(dtype=np.float64) for each in highest])


def boundary_share(share: float | None, kept: int, unlabeled: int) -> float:
    """Share of the unlabeled ranking above the boundary: of look-alikes if that is known, else of the rest.

    >>> boundary_share(0.25, 100, 200), boundary_share(None, 150, 200)
    (0.25, 0.25)
    """
    return share if share is not None else 1 - kept / unlabeled


def propose(
    scores: npt.ArrayLike, share: float, *, count: int = PROPOSED, without: Iterable[int] = ()
) -> Ints:
    """Choose the episodes to look at next: those whose kind is least certain, the least certain first.

    `scores` rank the unlabeled episodes, `share` of which look like incidents: the boundary between both
    kinds is at that share of the ranking, and the episodes nearest to it are chosen.
    """
    values: Doubles = np.asarray(scores, np.float64)
    place = np.empty(len(values))
    place[np.argsort(-values, kind="stable")] = np.arange(len(values)) + 0.5
    distance = np.abs(place - share * len(values))
    distance[list(without)] = np.inf
    chosen = np.argsort(distance, kind="stable")[:count]
    return chosen[np.isfinite(distance[chosen])]
