"""Calibrate a guard (`safemil.deploy.Guard`) on calm episodes, and count the incidents that it catches."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from safemil.arrays import Floats
from safemil.deploy import Guard, Model
from safemil.deploy.guard import conformal_threshold, largest_score, next_score
from safemil.errors import InputError
from safemil.export import encoded
from safemil.files import atomic_file
from safemil.ownership import require_free

if TYPE_CHECKING:
    from safemil.api import Run
    from safemil.data import Trajectories


class Caught(NamedTuple):
    """Incidents in which a guard raised an alarm in time."""

    episodes: int
    caught: int  # before the first mark; before the end where an episode has no mark
    leads: list[int]  # steps from each such alarm to that mark or end


def calibrate(run: "Run", calm: "Trajectories", *, alpha: float = 0.05) -> Guard:
    """Set the threshold of a guard by split conformal prediction, from calm episodes not seen in training.

    Of episodes exchangeable with the calm ones, a share of at most `alpha` raises an alarm.
    """
    model = _model(run)
    scores = [largest_score(risks) for risks in _risks(run, model, calm)]
    return Guard(model, conformal_threshold(scores, alpha), alpha, len(calm))


def calibrate_by_evidence(
    run: "Run", unlabeled: "Trajectories", nonpreferred: "Trajectories", *, alpha: float = 0.05
) -> tuple[Guard, Caught]:
    """Set the threshold from the training data, where nobody can say which episodes are calm.

    It is that of the unlabeled episodes that the evidence calls good, each judged by the networks that did
    not see it. That is no guarantee: the cost itself chose these episodes, so false alarms are likely to be
    more than a share of `alpha`. The incidents of training, judged alike, are counted too.
    """
    model, held = _model(run), run.heldout_risks(unlabeled, nonpreferred)
    scores = [largest_score(each) for each, good in zip(held.unlabeled, held.good, strict=True) if good]
    guard = Guard(model, conformal_threshold(scores, alpha), alpha, len(scores), guaranteed=False)
    return guard, _caught(guard, held.incidents, run.match(nonpreferred))


def heldout_incidents(
    guard: Guard, run: "Run", unlabeled: "Trajectories", nonpreferred: "Trajectories"
) -> Caught:
    """Count the incidents of training that a guard warns of, judged by the networks that did not see them."""
    return _caught(guard, run.heldout_risks(unlabeled, nonpreferred).incidents, run.match(nonpreferred))


def _model(run: "Run") -> Model:
    if len(run) > 1:
        raise InputError(f"this run holds {len(run)} seeds; choose one: calibrate(run[0], ...).")
    if not run.learns_cost:
        raise InputError(f"{run.algorithm} learns no cost, which a guard needs; train safemil.")
    return Model.from_bytes(encoded(run), "the run")


def save(guard: Guard, run: "Run", path: str | os.PathLike[str], *, overwrite: bool = False) -> None:
    """Write a guard of this run with its networks into one file, which `Guard.load` reads."""
    require_free(path, overwrite=overwrite)
    with atomic_file(Path(path)) as file:
        file.write_text(guard.to_json(encoded(run)), encoding="utf-8")


def count_caught(guard: Guard, run: "Run", incidents: "Trajectories") -> Caught:
    """Count the incidents that the guard warns of before their first mark, or else before their end."""
    return _caught(guard, _risks(run, guard.model, incidents), run.match(incidents))


def _caught(guard: Guard, risks_of: Sequence[Floats], incidents: "Trajectories") -> Caught:
    leads = []
    for risks, marks in zip(risks_of, incidents.by_episode(incidents.marks), strict=True):
        end = int(np.argmax(marks)) if marks.any() else len(marks) - 1
        score = 0.0
        for step, risk in enumerate(risks[: end + 1].tolist()):
            score = next_score(score, risk)
            if score > guard.threshold:
                leads.append(end - step)
                break
    return Caught(len(incidents), len(leads), leads)


def _risks(run: "Run", model: Model, episodes: "Trajectories") -> list[np.ndarray]:
    """Risk of every step, by the networks that the guard will use."""
    matched = run.match(episodes)
    actions = matched.recorded_actions()
    if model.action_categories is not None:
        actions = np.asarray(model.action_categories)[actions.argmax(axis=1)]
    return matched.by_episode(model.risk(matched.observations, actions))
