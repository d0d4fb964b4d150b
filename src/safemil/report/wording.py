"""What a report calls things: episodes in the words of the log, the verdict, and terms with their meaning."""

import re
from typing import NamedTuple

from safemil.evidence import Evidence

PLAIN = ("episode", "ep", "id", "name", "key", "trajectory", "run")  # columns that name no kind of episode
GRADES = {
    "strong": "The ranking can be used to choose what to look at; the risk of single steps is less certain.",
    "weak": "Take the ranking as a hint: look at episodes yourself before you rely on it.",
    "none": "Do not use the ranking, the risks or the policy below: they may be chance.",
}


class Nouns(NamedTuple):
    """Names of episodes."""

    one: str
    many: str


class Fact(NamedTuple):
    """A number at the head of the page."""

    value: str
    says: str


class Term(NamedTuple):
    """A word of the page, and what it means."""

    key: str
    word: str
    meaning: str


def nouns(column: str | None) -> Nouns:
    """Name episodes as the log does, by the column that tells them apart.

    >>> nouns("drive_id"), nouns("Delivery"), nouns("episode_index")
    (Nouns(one='drive', many='drives'), Nouns(one='delivery', many='deliveries'), \
Nouns(one='episode', many='episodes'))
    """
    word = re.sub(r"[\s_-]*(id|index|no|nr|num|number|name|key)$", "", (column or "").lower())
    if not re.fullmatch(r"[a-z]{3,20}", word) or word in PLAIN:
        word = "episode"
    if word.endswith("s"):
        word = word[:-1] if not word.endswith("ss") else word
    if re.search("[^aeiou]y$", word):
        return Nouns(word, word[:-1] + "ies")
    return Nouns(word, word + ("es" if re.search("(s|x|z|ch|sh)$", word) else "s"))


def called(name: str, names: Nouns) -> str:
    """Name an episode in a sentence.

    >>> called("7", Nouns("drive", "drives")), called("drive 7", Nouns("drive", "drives"))
    ('drive 7', 'drive 7')
    """
    return name if name.lower().startswith(names.one) else f"{names.one} {name}"


def counted(number: int, one: str, many: str) -> str:
    """Write a number of things.

    >>> counted(1, "drive", "drives"), counted(1200, "drive", "drives")
    ('1 drive', '1,200 drives')
    """
    return f"{number:,} {one if number == 1 else many}"


def verdict(evidence: Evidence, names: Nouns) -> str:
    """Say what was found in a few sentences; a page whose grade is "none" says that first."""
    many = names.many
    piles = (
        f"{counted(evidence.unlabeled, names.one, many)} that nobody has judged and "
        f"{counted(evidence.incidents, 'incident', 'incidents')}"
    )
    if evidence.grade == "none":
        least = evidence.smallest_auc
        need = (
            "" if least is None else f" With so few, {_percent(least)} of the pairs would have been needed."
        )
        return (
            f"Nothing was found that chance would not find. From {piles}, the networks ranked incidents that "
            f"they had not seen above other {many} in {_percent(evidence.auc.value)} of the pairs "
            f"({_range(evidence.auc)}); chance gives 50%.{need}"
        )
    looks = (
        f"How many of the {evidence.unlabeled:,} {many} that nobody has judged look like the "
        f"{counted(evidence.incidents, 'incident', 'incidents')} can't be told: {evidence.share_unknown}."
        if evidence.share is None
        else f"Of {counted(evidence.unlabeled, names.one, many)} that nobody has judged, about "
        f"{_count(evidence, evidence.share.value):,} ({_count(evidence, evidence.share.low):,} to "
        f"{_count(evidence, evidence.share.high):,}) look like the "
        f"{counted(evidence.incidents, 'incident', 'incidents')}."
    )
    return f"{looks} {_found(evidence, names)} The policy was cloned from {evidence.kept:,} {many}."


def _found(evidence: Evidence, names: Nouns) -> str:
    """How well incidents that the networks had not seen are told from other episodes."""
    how = "well" if evidence.grade == "strong" else "in part"
    best = (
        "chance gives 50%"
        if evidence.ceiling is None
        else f"{_percent(evidence.ceiling)} would be perfect, since some of the others are like incidents too"
    )
    return (
        f"Incidents are found {how}: one that the networks had not seen ranks above another {names.one} in "
        f"{_percent(evidence.auc.value)} of the pairs ({_range(evidence.auc)}); {best}."
    )


def facts(evidence: Evidence, names: Nouns) -> list[Fact]:
    """Three numbers: how many look like incidents, how well incidents are found, what was cloned."""
    many = names.many
    likely = (
        Fact("unknown", f"how many {many} look like incidents: {evidence.share_unknown}")
        if evidence.share is None
        else Fact(
            f"{_count(evidence, evidence.share.value):,}",
            f"of {evidence.unlabeled:,} {many} that nobody has judged look like incidents "
            f"({_count(evidence, evidence.share.low):,} to {_count(evidence, evidence.share.high):,})",
        )
    )
    best = "" if evidence.ceiling is None else f", {_percent(evidence.ceiling)} is the best possible here"
    return [
        likely,
        Fact(
            _percent(evidence.auc.value),
            f"of the pairs of an unseen incident and another {names.one}, the incident ranks higher "
            f"({_range(evidence.auc)}; 50% is chance{best})",
        ),
        Fact(f"{evidence.kept:,}", f"{many}, those least like incidents, were cloned by the policy"),
    ]


def warnings(evidence: Evidence) -> list[str]:
    """Trivial rules that rank as well, in the words of the page."""

    def pairs(found: re.Match[str]) -> str:
        return f"in {_percent(float(found[1]))} of the pairs"

    return [re.sub(r"with AUC (\d\.\d+)", pairs, each) for each in evidence.leaks()]


def _count(evidence: Evidence, share: float) -> int:
    return round(share * evidence.unlabeled)


def _percent(value: float) -> str:
    return f"{100 * value:.0f}%"


def _range(interval: tuple[float, ...]) -> str:
    return f"{100 * interval[1]:.0f} to {_percent(interval[2])}"


def glossary(names: Nouns, *, hindsight: bool) -> list[Term]:
    """Terms of the page, in the words of the log."""
    told = [Term(each.key, *(text.format(**names._asdict()) for text in each[1:])) for each in TERMS]
    return [*told, TRUE_COST] if hindsight else told


TERMS = (
    Term(
        "risk",
        "risk",
        "The learned cost of a step, between 0 and 1: the probability, at even odds, that the step is"
        " from an incident and not from a good {one}. The paper writes ĉ.",
    ),
    Term(
        "incident",
        "incident",
        "A {one} that somebody marked as bad (non-preferred).",
    ),
    Term(
        "unlabeled",
        "unlabeled",
        "A {one} that nobody has judged; good and bad ones are mixed.",
    ),
    Term(
        "good",
        "good {many}",
        "The {many} with the lowest risk, as many as the policy was cloned from. Their range is that "
        "of the middle 90% of their steps.",
    ),
    Term(
        "evidence",
        "evidence",
        "Measured on {many} that a network had not seen in training: strong, weak or none. The page "
        "on evidence in the documentation has the rules.",
    ),
    Term(
        "pairs",
        "pairs",
        "Take one incident and one other {one}: how often the incident has the higher score. 50% is "
        "chance. Others call this the AUC.",
    ),
    Term(
        "interval",
        "numbers in brackets",
        "95% of resampled logs give a value between them.",
    ),
    Term(
        "share",
        "share of a column",
        "How much of a step's risk, compared with that of good steps, is due to a column: the mean "
        "change of the risk when its good value is replaced by the step's own, over random orders of "
        "the columns (Shapley value). The shares add up to the difference.",
    ),
    Term(
        "segment",
        "segment",
        "Some steps in a row.",
    ),
    Term(
        "cloning",
        "cloning",
        "Learning a policy by imitating the actions of {many}.",
    ),
    Term(
        "far",
        "far from what was cloned",
        "A state that lies farther from its nearest good step than 95% of good steps lie from theirs,"
        " in standard deviations over all columns.",
    ),
    Term(
        "deviation",
        "standard deviations",
        "How far a value lies from its mean over all {many}, in units of its usual spread.",
    ),
)
TRUE_COST = Term(
    "true-cost", "true cost", "What the task or the log says a step costs. The learner never saw it."
)
