"""Evidence, without true costs, that a learned score tells incidents from good episodes.

Input are the scores of episodes by networks that were not trained on them. `assess` compares the scores of
incidents with those of unlabeled episodes, and both with what trivial rules reach; it grades the result:

- none: chance ranks held-out incidents as high in one of a hundred cases or more (p ≥ 0.01);
- strong: p < 0.001, the AUC is 0.6 or more and, where the share of incidents among the unlabeled episodes can
  be estimated, at least half way from 0.5 to its ceiling;
- weak: all else.

p is that of the one-sided rank-sum test, times the number of aggregates among which the best was chosen
(Bonferroni). Half way means that an episode with an incident ranks above one
without in three of four pairs. docs/evidence.md says how often the grades are right in simulations.
"""

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, Literal, NamedTuple, Self, get_args

import numpy as np
import numpy.typing as npt

from safemil.arrays import Bools, Doubles
from safemil.data import Trajectories
from safemil.data.sources import Episodes
from safemil.errors import InputError
from safemil.files import atomic_file
from safemil.ranks import pairs_won, share_like
from safemil.stats import LEVEL, SAMPLES, Interval
from safemil.texts import read_json

Grade = Literal["strong", "weak", "none"]
FORMAT = 2  # of the file; a change that other versions can't read raises it
FILE = "evidence.json"

WEAK, STRONG = 0.01, 0.001  # p-values below which evidence is weak or strong
STRONG_AUC = 0.6  # large logs make tiny differences significant
STRONG_WAY = 0.5  # from 0.5 to the ceiling
FEW = 5  # incidents; for fewer, `lines` says what so few can show
FEW_FOR_SHARE = 10  # for 5 incidents the interval covered the true share in 55% to 89% of 100 draws
FEW_FOR_BOOTSTRAP = 20  # for 5 incidents the bootstrap covered the true AUC in 74% to 91% of 100 draws
WIDEST_SHARE = 0.5  # a wider interval says nothing
PERMUTATIONS = 200
RULE_LEVEL = 0.05  # p-value below which a trivial rule is more than chance
FIRST_STEPS = 10
BINS = 10  # of the calibration error


class Rule(NamedTuple):
    """A trivial rule that ranks episodes by one number."""

    name: str  # "low mean of speed": low or high in incidents
    auc: float  # of incidents against unlabeled episodes, 0.5 or more
    p_value: float  # that the best of all rules reaches this AUC if the labels are permuted


@dataclass(frozen=True)
class Evidence:
    """Measurements on held-out episodes, and the grade that follows from them (see the module)."""

    grade: Grade
    incidents: int
    unlabeled: int
    kept: int  # unlabeled episodes that the policy is cloned from
    preferred: int  # episodes that are known to be good
    preferred_auc: Interval | None  # of held-out incidents against these; None if there are none
    aggregate: str  # of an episode's costs, its score
    auc: Interval  # of held-out incidents against unlabeled episodes
    p_value: float  # one-sided, against an AUC of 0.5, times the number of aggregates tried
    smallest_auc: float | None  # that would not be graded "none"; None if there is none
    share: Interval | None  # of the unlabeled episodes look like incidents
    share_unknown: str  # why `share` is None, else empty
    members: int
    agreement: float | None  # mean share of equal votes of two members; None for one member
    chance_agreement: float | None  # if each member voted for as many episodes, chosen at random
    alike_auc: float  # of incidents against unlabeled episodes that look like them to the second round
    alike_p: float  # one-sided, against an AUC of 0.5
    rare: bool  # whether incidents are a rare outcome of a style, by this p-value
    length: Rule
    start: Rule  # best rule on the first steps of a column
    column: Rule  # best rule on a whole column
    chance_rule: float  # AUC that the best rule exceeds in 5% of the permutations of the labels
    calibration: float | None  # expected calibration error of held-out steps at even odds
    importance: dict[str, float]  # by column, the highest first

    @property
    def ceiling(self) -> float | None:
        """AUC of a perfect ranking: unlabeled episodes with an incident rank as high as incidents do."""
        return None if self.share is None else 1 - self.share.value / 2

    def lines(self) -> list[str]:
        """Sentences for a reader; the first one is the grade."""
        return [
            f"Evidence: {self.grade}",
            self._ranking(),
            *self._against_preferred(),
            *self._power(),
            self._share(),
            *self._rare(),
            *self._agreement(),
            *(self.leaks() or [self._no_leak()]),
            *self._calibration(),
            *self._importance(),
        ]

    def leaks(self) -> list[str]:
        """Warnings of trivial rules that rank incidents as well as the learned score does."""
        found = []
        if self._is_leak(self.length):
            found.append(
                f"The length of an episode alone ranks incidents with AUC {self.length.auc:.2f} "
                f"({self.length.name}): does an episode end at its incident?"
            )
        if self._is_leak(self.start):
            found.append(
                f"The first {FIRST_STEPS} steps alone rank incidents with AUC {self.start.auc:.2f} "
                f"({self.start.name}): does the place, the driver or the start give the label away?"
            )
        if self._is_leak(self.length) and self.column.auc < self.length.auc:
            found.append(f"No single column ranks incidents as well as the length {self._best(self.column)}.")
        elif self._is_leak(self.column):
            found.append(
                f"A single column ranks incidents as well as the cost, with AUC {self.column.auc:.2f} "
                f"({self.column.name}): is it the cause of incidents, or does it give the label away?"
            )
        return found

    def _is_leak(self, rule: Rule) -> bool:
        return rule.p_value < RULE_LEVEL and rule.auc >= self.auc.low

    def _ranking(self) -> str:
        line = (
            f"Held-out incidents rank above unlabeled episodes with AUC {self.auc.value:.2f} "
            f"({self.auc.low:.2f} to {self.auc.high:.2f}), by the {self.aggregate} of an episode's costs"
        )
        if self.grade == "none":
            return f"{line}: this may be chance."
        return f"{line}." if self.ceiling is None else f"{line}; {self.ceiling:.2f} would be perfect."

    def _against_preferred(self) -> list[str]:
        if self.preferred_auc is None:
            return []
        value, low, high = self.preferred_auc
        known = _count(self.preferred, "known good episode")
        return [f"They rank above the {known} with AUC {value:.2f} ({low:.2f} to {high:.2f})."]

    def _power(self) -> list[str]:
        if self.grade != "none" and self.incidents >= FEW:
            return []
        piles = f"{_count(self.incidents, 'incident')} and {_count(self.unlabeled, 'unlabeled episode')}"
        if self.smallest_auc is None:
            return [f"With {piles}, no AUC would be evidence: more are needed."]
        return [f"With {piles}, an AUC of {self.smallest_auc:.2f} or more would be evidence."]

    def _share(self) -> str:
        known = f" and the {_count(self.preferred, 'known good one')}" if self.preferred else ""
        cloned = f"the policy is cloned from {self.kept} of the {self.unlabeled}{known}."
        if self.share is None:
            return (
                f"Can't tell how many unlabeled episodes look like incidents: {self.share_unknown}; {cloned}"
            )
        value, low, high = (100 * each for each in self.share)
        looks = f"{value:.0f}% ({low:.0f} to {high:.0f}) of the unlabeled episodes look like incidents"
        return f"{looks}; {cloned}"

    def _rare(self) -> list[str]:
        if not self.rare or self.grade == "none":
            return []
        return [
            "Incidents seem to be a rare outcome of a style: they rank above the unlabeled episodes that look"
            f" like them with AUC {self.alike_auc:.2f} (p = {self.alike_p:.3f}). The cost tells incidents; "
            "the policy avoids the style as well."
        ]

    def _agreement(self) -> list[str]:
        if self.agreement is None:
            return []
        return [
            f"Two of the {self.members} networks agree on {self.agreement:.0%} of the episodes to clone, on "
            f"average ({self.chance_agreement:.0%} by chance)."
        ]

    def _no_leak(self) -> str:
        best = max(self.length, self.start, self.column, key=lambda rule: rule.auc)
        how = "as well" if best.p_value < RULE_LEVEL else "beyond chance"
        return f"No single column, nor the length, ranks incidents {how} {self._best(best)}."

    def _best(self, rule: Rule) -> str:
        return f"(best: {rule.name}, {rule.auc:.2f}; chance reaches {self.chance_rule:.2f})"

    def _calibration(self) -> list[str]:
        if self.calibration is None:
            return []
        return [
            f"The cost of a held-out step is off by {self.calibration:.2f} as a probability at even odds."
        ]

    def _importance(self) -> list[str]:
        best = [name for name, value in self.importance.items() if value > 0][:3]
        return [f"Most informative columns: {', '.join(best)}."] if best else []

    def to_json(self) -> dict[str, Any]:
        """All fields, and the format of the file."""
        return {"format": FORMAT, **asdict(self)}

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> Self:
        """Read what `to_json` returned."""
        try:
            if content["format"] != FORMAT:
                raise InputError(
                    f"evidence is of format {content['format']}, but this version reads {FORMAT}."
                )
            values = {field.name: content[field.name] for field in fields(cls)}
            if values["grade"] not in get_args(Grade):
                raise ValueError(f'no grade "{values["grade"]}"')
            values["auc"] = _interval(values["auc"])
            for name in ("share", "preferred_auc"):
                values[name] = values[name] and _interval(values[name])
            for name in ("length", "start", "column"):
                rule, *numbers = values[name]
                values[name] = Rule(str(rule), *map(float, numbers))
            for name in ("incidents", "unlabeled", "kept", "preferred", "members"):
                values[name] = int(values[name])
            values["rare"] = bool(values["rare"])
            for name in ("p_value", "chance_rule", "alike_auc", "alike_p"):
                values[name] = float(values[name])
            for name in ("smallest_auc", "agreement", "chance_agreement", "calibration"):
                values[name] = None if values[name] is None else float(values[name])
            for name in ("aggregate", "share_unknown"):
                values[name] = str(values[name])
            values["importance"] = {name: float(each) for name, each in values["importance"].items()}
        except InputError:
            raise
        except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
            raise InputError(f"evidence is damaged ({error}); train again, or restore the file.") from None
        return cls(**values)

    def save(self, folder: str | os.PathLike[str]) -> None:
        """Write evidence.json into a folder."""
        with atomic_file(Path(folder) / FILE) as file:
            file.write_text(json.dumps(self.to_json(), indent=2, allow_nan=False) + "\n", encoding="utf-8")

    @classmethod
    def load(cls, folder: str | os.PathLike[str]) -> Self:
        """Read evidence.json from a folder."""
        path = Path(folder) / FILE
        try:
            content = read_json(path)
        except FileNotFoundError:
            raise InputError(
                f"{folder} holds no evidence: it has no {FILE}. Its algorithm or preset measures none, or "
                "training has not ended; train safemil with its default settings to get it."
            ) from None
        try:
            return cls.from_json(content)
        except InputError as error:
            raise InputError(f"{path}: {error}") from None


def assess(
    *,
    incident_scores: npt.ArrayLike,
    unlabeled_scores: npt.ArrayLike,
    votes: npt.ArrayLike,
    nonpreferred: Trajectories,
    unlabeled: Episodes,
    kept: npt.ArrayLike,
    aggregate: str,
    tried: int = 1,
    look_alikes: tuple[float, float, bool] = (0.5, 1.0, False),
    preferred_scores: npt.ArrayLike = (),
    step_probabilities: tuple[npt.ArrayLike, npt.ArrayLike] | None = None,
    importance: Mapping[str, float] | None = None,
    names: Sequence[str] | None = None,
    seed: int = 0,
) -> Evidence:
    """Measure what the scores of held-out episodes tell, and grade it.

    `votes` (members, unlabeled episodes) says which episodes each member would clone, `kept` which ones the
    policy is cloned from. The `aggregate` is the best of as many as were `tried`. `preferred_scores` are
    those of episodes that are known to be good. `look_alikes` are an AUC, its p-value and whether incidents
    are rare by it. `step_probabilities` are those of held-out steps of incidents and of good episodes.
    `names` are those of the observation columns, then of the action columns.
    """
    incidents = _scores("incident_scores", incident_scores, len(nonpreferred))
    others = _scores("unlabeled_scores", unlabeled_scores, len(unlabeled))
    known = _scores("preferred_scores", preferred_scores, np.size(preferred_scores))
    rng = np.random.default_rng(seed)
    auc, p_value = auc_interval(incidents, others, rng), rank_sum_p(incidents, others, tried)
    share, unknown = (
        share_interval(incidents, others, rng) if p_value < WEAK else (None, "the scores don't tell")
    )
    ballots = _booleans("votes", votes, 2, len(unlabeled))
    agreement, chance_agreement = _agreement(ballots)
    rules = _rules(nonpreferred, unlabeled, names, rng)
    preferred_auc = auc_interval(incidents, known, rng) if len(known) else None
    ranked = sorted((importance or {}).items(), key=lambda item: -item[1])
    return Evidence(
        grade=grade(auc.value, p_value, share and share.value),
        incidents=len(incidents),
        unlabeled=len(others),
        kept=int(_booleans("kept", kept, 1, len(unlabeled)).sum()),
        preferred=len(known),
        preferred_auc=preferred_auc,
        aggregate=aggregate,
        auc=auc,
        p_value=p_value,
        smallest_auc=smallest_auc(len(incidents), len(others), tried),
        share=share,
        share_unknown=unknown,
        members=len(ballots),
        agreement=agreement,
        chance_agreement=chance_agreement,
        alike_auc=look_alikes[0],
        alike_p=look_alikes[1],
        rare=look_alikes[2],
        **rules,
        calibration=None if step_probabilities is None else calibration_error(*step_probabilities),
        importance={name: float(value) for name, value in ranked},
    )


def grade(auc: float, p_value: float, share: float | None) -> Grade:
    """Grade the evidence by the rule of the module.

    >>> grade(0.73, 1e-6, 0.5), grade(0.62, 1e-4, 0.2), grade(0.55, 0.2, None)
    ('strong', 'weak', 'none')
    """
    if not p_value < WEAK:
        return "none"
    way = 1.0 if share is None or share >= 1 else (auc - 0.5) / (0.5 - share / 2)
    return "strong" if p_value < STRONG and auc >= STRONG_AUC and way >= STRONG_WAY else "weak"


def rank_sum_p(incidents: Doubles, unlabeled: Doubles, tried: int = 1) -> float:
    """One-sided p-value of the rank-sum test that incidents score higher; exact for few and no ties.

    It is multiplied by the number of scores that were tried, of which these are the best.
    """
    from scipy.stats import mannwhitneyu  # takes a second to import

    if np.ptp(np.concatenate([incidents, unlabeled])) == 0:
        return 1.0
    return min(tried * float(mannwhitneyu(incidents, unlabeled, alternative="greater").pvalue), 1.0)


def smallest_auc(incidents: int, unlabeled: int, tried: int = 1) -> float | None:
    """Find the smallest AUC that is not graded "none", by bisection; None if there is none.

    >>> smallest_auc(3, 5), smallest_auc(1, 50)  # 1 of 56 orders is no rarer than p = 0.01
    (None, None)
    """

    def significant(pairs: int) -> bool:
        each, rest = divmod(pairs, incidents)  # incident i is above `each` unlabeled episodes, or one more
        above = each + (np.arange(incidents) < rest)
        scores = above - 0.5 + np.arange(incidents) / (4 * incidents)
        return rank_sum_p(scores, np.arange(unlabeled, dtype=np.float64), tried) < WEAK

    low, high = 0, incidents * unlabeled
    if not significant(high):
        return None
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if significant(middle) else (middle, high)
    return high / (incidents * unlabeled)


def auc_interval(incidents: Doubles, unlabeled: Doubles, rng: np.random.Generator) -> Interval:
    """AUC with its stratified bootstrap interval, which for few episodes is widened to Newcombe's.

    Newcombe 2006 (Statistics in Medicine 25), method 5: all θ with |AUC − θ| ≤ z √V(θ).
    """
    value = float(pairs_won(incidents, unlabeled))
    drawn = [pairs_won(*_resampled(incidents, unlabeled, rng)) for _ in range(SAMPLES)]
    low, high = _quantiles(drawn)
    m, n = len(incidents), len(unlabeled)
    if min(m, n) < FEW_FOR_BOOTSTRAP:
        θ = np.linspace(0, 1, 2001)
        variance = θ * (1 - θ) * (1 + ((m + n) / 2 - 1) * ((1 - θ) / (2 - θ) + θ / (1 + θ))) / (m * n)
        inside = θ[np.abs(value - θ) <= 1.96 * np.sqrt(variance) + 1e-9]
        low, high = min([low, *inside[:1]]), max([high, *inside[-1:]])
    return Interval(value, float(low), float(high))


def share_interval(
    incidents: Doubles, unlabeled: Doubles, rng: np.random.Generator
) -> tuple[Interval | None, str]:
    """`share_like` with its bootstrap interval, or None and the reason why it can't be told."""
    if len(incidents) < FEW_FOR_SHARE:
        return None, f"it takes {FEW_FOR_SHARE} incidents to estimate"
    drawn = [share_like(*_resampled(incidents, unlabeled, rng)) for _ in range(SAMPLES)]
    low, high = _quantiles(drawn)
    if high - low > WIDEST_SHARE:
        return None, f"anything from {low:.0%} to {high:.0%} fits the scores"
    value = float(share_like(incidents, unlabeled))
    return Interval(value, min(low, value), max(high, value)), ""


def calibration_error(incident_steps: npt.ArrayLike, good_steps: npt.ArrayLike) -> float:
    """Expected calibration error at even odds, in ten bins of equal mass.

    Both kinds of steps have half of the mass, however many there are.

    >>> calibration_error([1.0, 1.0], [0.0])
    0.0
    >>> calibration_error([0.9], [0.9])
    0.4
    """
    kinds = [np.asarray(each, np.float64).ravel() for each in (incident_steps, good_steps)]
    if not all(len(each) and np.isfinite(each).all() and (np.abs(each - 0.5) <= 0.5).all() for each in kinds):
        raise InputError("step_probabilities must be two arrays of numbers in [0, 1], neither of them empty.")
    values = np.concatenate(kinds)
    mass = np.concatenate([np.full(len(each), 0.5 / len(each)) for each in kinds])
    label = np.repeat([1.0, 0.0], [len(each) for each in kinds])
    order = np.argsort(values)
    inner = np.searchsorted(np.cumsum(mass[order]), np.arange(1, BINS) / BINS)
    edges = values[order][np.minimum(inner, len(values) - 1)]
    bins = np.searchsorted(edges, values)  # equal values share a bin
    gap = np.bincount(bins, mass * (values - label), minlength=BINS)
    return float(np.round(np.abs(gap).sum(), 12))


def _agreement(votes: Bools) -> tuple[float | None, float | None]:
    """Mean share of equal votes over pairs of members, and its expectation for independent votes."""
    members = len(votes)
    if members < 2:
        return None, None
    pairs = members * (members - 1)
    yes = votes.sum(axis=0)
    no = members - yes
    rate = votes.mean(axis=1)
    both, neither = (r.sum() ** 2 - (r**2).sum() for r in (rate, 1 - rate))
    equal = (yes * (yes - 1) + no * (no - 1)).mean()
    return float(equal / pairs), float((both + neither) / pairs)


def _rules(
    nonpreferred: Trajectories, unlabeled: Episodes, names: Sequence[str] | None, rng: np.random.Generator
) -> dict[str, Any]:
    """AUC of each trivial rule, tested against the best rule after permutations of the labels.

    The best of many rules is above 0.5 by chance; so is the best of permuted labels.
    """
    from scipy.stats import rankdata

    columns = _names(nonpreferred, unlabeled, names)
    values = np.concatenate([_features(nonpreferred), _features(unlabeled)])  # (episodes, rules)
    ranks = rankdata(values, axis=0)
    is_incident = np.arange(len(values)) < len(nonpreferred)
    labels = np.stack([is_incident, *rng.permuted(np.tile(is_incident, (PERMUTATIONS, 1)), axis=1)])
    m, n = len(nonpreferred), len(unlabeled)
    aucs = (labels @ ranks - m * (m + 1) / 2) / (m * n)  # (1 + permutations, rules)
    sided = np.maximum(aucs, 1 - aucs)
    chance = sided[1:].max(axis=1)

    def rule(index: int, low: str, high: str) -> Rule:
        p_value = (1 + int((chance >= sided[0, index] - 1e-9).sum())) / (1 + PERMUTATIONS)
        return Rule(high if aucs[0, index] >= 0.5 else low, float(sided[0, index]), p_value)

    per_column = ("mean", "minimum", "maximum")
    whole = [f"{kind} of {name}" for kind in per_column for name in columns]
    best_start = 1 + len(whole) + int(sided[0, 1 + len(whole) :].argmax())
    best_column = 1 + int(sided[0, 1 : 1 + len(whole)].argmax())
    start = f"mean of {columns[best_start - 1 - len(whole)]} in the first {FIRST_STEPS} steps"
    return {
        "length": rule(0, "short episodes", "long episodes"),
        "start": rule(best_start, f"low {start}", f"high {start}"),
        "column": rule(best_column, f"low {whole[best_column - 1]}", f"high {whole[best_column - 1]}"),
        "chance_rule": float(np.quantile(chance, 1 - RULE_LEVEL)),
    }


def _features(pile: Episodes) -> Doubles:
    """Length; mean, minimum and maximum of each column; its mean over the first steps."""
    return np.concatenate([_features_of(block) for block in pile.blocks()])


def _features_of(pile: Trajectories) -> Doubles:
    steps = np.concatenate([pile.observations, pile.actions], axis=1)
    starts, lengths = pile.starts, pile.lengths[:, None]
    first = (np.arange(pile.steps) - np.repeat(starts, pile.lengths) < FIRST_STEPS)[:, None]
    parts = [
        lengths,
        np.add.reduceat(steps, starts, dtype=np.float64) / lengths,
        np.minimum.reduceat(steps, starts),
        np.maximum.reduceat(steps, starts),
        np.add.reduceat(np.where(first, steps, 0), starts, dtype=np.float64)
        / np.minimum(lengths, FIRST_STEPS),
    ]
    return np.concatenate(parts, axis=1, dtype=np.float64)  # (episodes, 1 + 4 * columns)


def _names(nonpreferred: Trajectories, unlabeled: Episodes, names: Sequence[str] | None) -> list[str]:
    sizes = [(pile.observation_size, pile.action_size) for pile in (nonpreferred, unlabeled)]
    if sizes[0] != sizes[1]:
        raise InputError(
            "both piles need the same numbers of columns (of observations, of actions), got "
            f"{sizes[0]} and {sizes[1]}."
        )
    default = [
        f"{kind} {i}"
        for kind, size in zip(("observation", "action"), sizes[0], strict=True)
        for i in range(size)
    ]
    if names is not None and len(names) != len(default):
        raise InputError(f"need a name for each of the {len(default)} columns, got {len(names)}.")
    return default if names is None else [*names]


def _resampled(incidents: Doubles, unlabeled: Doubles, rng: np.random.Generator) -> tuple[Doubles, Doubles]:
    return rng.choice(incidents, len(incidents)), rng.choice(unlabeled, len(unlabeled))


def _quantiles(drawn: Sequence[float]) -> tuple[float, float]:
    low, high = np.quantile(drawn, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return float(low), float(high)


def _scores(name: str, values: npt.ArrayLike, episodes: int) -> Doubles:
    array = np.asarray(values, np.float64)
    if array.shape != (episodes,) or not np.isfinite(array).all():
        raise InputError(
            f"{name} must be {episodes} finite numbers, one per episode; got shape {array.shape}"
            f"{'' if np.isfinite(array).all() else ' with NaN or infinity'}."
        )
    return array


def _booleans(name: str, values: npt.ArrayLike, dimensions: int, episodes: int) -> Bools:
    array = np.asarray(values)
    if array.dtype != np.bool_ or array.ndim != dimensions or array.shape[-1] != episodes or not array.size:
        raise InputError(
            f"{name} must be true or false for each of the {episodes} unlabeled episodes, got {array.dtype} "
            f"of shape {array.shape}."
        )
    return array


def _interval(values: Sequence[Any]) -> Interval:
    return Interval(*map(float, values))


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
