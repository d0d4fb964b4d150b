"""Evidence from synthetic scores, whose truth is known, and from logs of a racing car."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow.csv
import pytest
from scipy.stats import norm

from safemil.cli import main
from safemil.data import Trajectories
from safemil.data.trajectories import scaled_actions
from safemil.errors import InputError
from safemil.evidence import (
    Evidence,
    assess,
    auc_interval,
    calibration_error,
    grade,
    rank_sum_p,
    share_interval,
    smallest_auc,
)
from safemil.ranks import share_like
from safemil.runs import RunDirectory
from safemil.stats import auc

FIXTURES = Path(__file__).parents[2] / "shared" / "fixtures"


def noise(rng, episodes, length=20, columns=3):
    steps = episodes * length
    return Trajectories(
        rng.normal(size=(steps, columns)), rng.uniform(-1, 1, (steps, 1)), np.full(episodes, length)
    )


def scores(rng, incidents, unlabeled, share, true_auc):
    """Normal scores; `share` of the unlabeled episodes score as incidents do, above others by `true_auc`."""
    shift = norm.ppf(true_auc) * np.sqrt(2)
    bad = np.arange(unlabeled) < round(share * unlabeled)
    return rng.normal(shift, 1, incidents), rng.normal(size=unlabeled) + shift * bad


def judged(seed=0, incidents=50, others=200, share=0.5, true_auc=0.97, **changes):
    rng = np.random.default_rng(seed)
    ours, theirs = scores(rng, incidents, others, share, true_auc)
    given = {
        "incident_scores": ours,
        "unlabeled_scores": theirs,
        "votes": np.tile(theirs < np.median(theirs), (3, 1)),
        "nonpreferred": noise(rng, incidents),
        "unlabeled": noise(rng, others),
        "kept": theirs < np.median(theirs),
        "aggregate": "mean",
        "seed": seed,
    }
    return assess(**given | changes)


def test_the_auc_is_the_share_of_pairs_that_incidents_win():
    found = auc_interval(np.array([2.0, 5.0]), np.array([1.0, 2.0, 3.0]), np.random.default_rng(0))
    assert found.value == pytest.approx(4.5 / 6)  # 2 beats 1 and ties with 2; 5 beats all three
    assert found.low < found.value < found.high


def test_perfect_separation_of_three_incidents_keeps_a_wide_interval():
    found = auc_interval(np.array([7.0, 8.0, 9.0]), np.arange(6.0), np.random.default_rng(0))
    assert found.value == found.high == 1
    assert found.low < 0.75


def test_the_p_value_of_the_extreme_order_is_one_over_the_number_of_orders():
    assert rank_sum_p(np.array([8.0, 9.0]), np.arange(5.0)) == pytest.approx(1 / 21)  # C(7, 2) orders
    assert rank_sum_p(np.ones(4), np.ones(9)) == 1


def test_two_incidents_need_to_be_among_the_very_highest():
    # C(52, 2) = 1326 orders; 1, 1, 2, 2, 3, 3 of them lose 0, 1, 2, 3, 4, 5 pairs: 12, below 1% of all.
    assert smallest_auc(2, 50) == pytest.approx(95 / 100)
    assert smallest_auc(1, 99) is None  # the highest of 100 has p = 0.01, which is not below it
    assert smallest_auc(1, 100) == 1
    assert smallest_auc(1, 200, tried=3) is None
    assert smallest_auc(1, 300, tried=3) == 1  # 3 / 301 is below 0.01


def test_the_ceiling_falls_by_half_of_the_share():
    found = judged()
    assert found.share is not None
    assert found.ceiling == 1 - found.share.value / 2
    assert replace(found, share=None).ceiling is None


def test_good_episodes_below_all_incidents_give_the_exact_share():
    incidents, good = np.linspace(1, 2, 50), np.linspace(-2, -1, 150)
    assert share_like(incidents, np.concatenate([incidents, good])) == pytest.approx(50 / 200)


@pytest.mark.parametrize("share", [0.25, 0.5, 0.75])
def test_the_share_is_estimated_within_a_tenth_on_average(share):
    rng = np.random.default_rng(0)
    found = [share_like(*scores(rng, 50, 200, share, 0.97)) for _ in range(100)]
    assert np.mean(found) == pytest.approx(share, abs=0.1)


def test_a_share_that_can_not_be_told_has_a_reason():
    few = judged(incidents=9, share=0.1, true_auc=0.99)
    assert few.grade != "none"
    assert few.share is None
    assert few.share_unknown == "it takes 10 incidents to estimate"
    chance = judged(true_auc=0.5)
    assert chance.share is None
    assert chance.share_unknown == "the scores don't tell"
    wide = share_interval(
        np.concatenate([np.zeros(6), np.full(6, 9.0)]), np.arange(30.0) % 10, np.random.default_rng(0)
    )
    assert wide[0] is None
    assert "fits the scores" in wide[1]


@pytest.mark.parametrize("incidents", [5, 20, 50])
@pytest.mark.parametrize("unlabeled", [50, 200])
def test_scores_without_information_are_graded_none(incidents, unlabeled):
    rng = np.random.default_rng(incidents + unlabeled)
    draws = [rank_sum_p(rng.normal(size=incidents), rng.normal(size=unlabeled)) for _ in range(400)]
    assert np.mean([grade(0.9, p, None) == "none" for p in draws]) >= 0.97


def test_scores_near_their_ceiling_are_graded_strong_and_tell_the_share():
    rng, grades, covered = np.random.default_rng(0), [], []
    for _ in range(30):
        ours, theirs = scores(rng, 50, 200, 0.5, 0.97)
        share, _ = share_interval(ours, theirs, rng)
        reached = auc(np.concatenate([ours, theirs]), np.arange(250) < 50)
        grades.append(grade(reached, rank_sum_p(ours, theirs), share and share.value))
        covered.append(share is not None and share.low <= 0.5 <= share.high)
    assert np.mean([each == "strong" for each in grades]) >= 0.95
    assert np.mean(covered) >= 0.85


def test_strong_evidence_needs_a_small_p_a_high_auc_and_half_of_the_way_to_the_ceiling():
    assert grade(0.7, 0.0009, 0.5) == "strong"
    assert grade(0.7, 0.001, 0.5) == "weak"
    assert grade(0.59, 1e-9, 0.9) == "weak"
    assert grade(0.7, 1e-9, 0.1) == "weak"  # 0.725 is half of the way to 0.95
    assert grade(0.7, 0.01, 0.5) == "none"


def test_agreement_is_the_mean_share_of_equal_votes_of_two_members():
    votes = np.array([[True, True, False, False], [True, False, False, True], [True, True, True, False]])
    rng = np.random.default_rng(0)
    found = judged(incidents=4, others=4, votes=votes, unlabeled_scores=rng.normal(size=4))
    assert found.agreement == pytest.approx((2 + 3 + 1) / 12)  # members 1 and 2, 1 and 3, 2 and 3
    assert found.chance_agreement == pytest.approx(0.5)  # members 1 and 2 clone half
    one = judged(incidents=4, others=4, votes=votes[:1], unlabeled_scores=rng.normal(size=4))
    assert one.agreement is None
    assert not any("networks" in line for line in one.lines())


def test_calibrated_probabilities_have_no_error_and_confident_ones_do():
    rng = np.random.default_rng(0)
    p = rng.uniform(size=40_000)
    incident = rng.uniform(size=p.size) < p
    assert calibration_error(p[incident], p[~incident][:5000]) < 0.02  # fewer good steps, still even odds
    sure = np.where(p > 0.5, 0.99, 0.01)  # right in three of four
    assert calibration_error(sure[incident], sure[~incident]) == pytest.approx(0.24, abs=0.02)


def test_a_column_that_ranks_as_well_is_named():
    rng = np.random.default_rng(0)
    bad, logs = noise(rng, 50), noise(rng, 200)
    shifted = Trajectories(bad.observations - [[0, 1, 0]], bad.actions, bad.lengths)
    found = judged(nonpreferred=shifted, unlabeled=logs, names=["gap", "speed", "yaw", "steer"])
    assert found.column.name == "low mean of speed"
    assert found.start.name == "low mean of speed in the first 10 steps"
    assert found.column.auc > 0.99
    assert found.column.p_value < 0.01
    assert [line.split()[0] for line in found.leaks()] == ["The", "A"]  # the first steps, and the column


def test_the_best_of_many_meaningless_columns_is_no_leak():
    alarms = []
    for seed in range(20):
        rng = np.random.default_rng(seed)
        found = judged(seed, 20, 50, nonpreferred=noise(rng, 20, 5, 60), unlabeled=noise(rng, 50, 5, 60))
        assert found.column.auc > 0.6  # by chance
        alarms.append(bool(found.leaks()))
    assert sum(alarms) <= 3


def test_a_short_episode_counts_whole_as_its_first_steps():
    bad = Trajectories([[1.0], [3.0]], [[0.0], [0.0]], [2])
    logs = Trajectories(np.zeros((20, 1)), np.zeros((20, 1)), [1, 19])
    found = assess(
        incident_scores=[2.0],
        unlabeled_scores=[0.0, 1.0],
        votes=[[True, False]],
        nonpreferred=bad,
        unlabeled=logs,
        kept=[True, False],
        aggregate="mean",
    )
    assert found.start == ("high mean of observation 0 in the first 10 steps", 1.0, found.start.p_value)
    assert found.length.auc == 0.5  # longer than one, shorter than the other
    assert found.grade == "none"
    assert (
        "With 1 incident and 2 unlabeled episodes, no AUC would be evidence: more are needed."
        in found.lines()
    )


def test_lines_say_what_a_reader_needs():
    found = judged(importance={"yaw": 0.1, "gap": 0.9, "noise": -0.1}, step_probabilities=([0.9], [0.9]))
    share = found.share
    assert found.lines()[0] == "Evidence: strong"
    assert found.lines()[1] == (
        f"Held-out incidents rank above unlabeled episodes with AUC {found.auc.value:.2f} "
        f"({found.auc.low:.2f} to {found.auc.high:.2f}), by the mean of an episode's costs; "
        f"{found.ceiling:.2f} would be perfect."
    )
    assert found.lines()[2] == (
        f"{share.value:.0%} ({100 * share.low:.0f} to {100 * share.high:.0f}) of the unlabeled episodes "
        "look like incidents; the policy is cloned from 100 of the 200."
    )
    assert found.lines()[3] == (
        "Two of the 3 networks agree on 100% of the episodes to clone, on average (50% by chance)."
    )
    assert found.lines()[4].startswith(
        "No single column, nor the length, ranks incidents beyond chance (best: "
    )
    assert found.lines()[5] == "The cost of a held-out step is off by 0.40 as a probability at even odds."
    assert found.lines()[6] == "Most informative columns: gap, yaw."


def test_incidents_that_are_a_rare_outcome_of_a_style_are_named():
    found = judged(look_alikes=(0.64, 0.012, True))
    assert found.lines()[3] == (
        "Incidents seem to be a rare outcome of a style: they rank above the unlabeled episodes that look "
        "like them with AUC 0.64 (p = 0.012). The cost tells incidents; the policy avoids the style as well."
    )
    assert not any("rare" in line for line in judged(look_alikes=(0.5, 0.5, False)).lines())


def test_known_good_episodes_have_a_line_of_their_own():
    found = judged(preferred_scores=np.full(12, -9.0))
    assert found.preferred_auc is not None
    assert (found.preferred, found.preferred_auc.value) == (12, 1.0)
    assert found.lines()[2].startswith("They rank above the 12 known good episodes with AUC 1.00 (")
    assert found.lines()[3].endswith("cloned from 100 of the 200 and the 12 known good ones.")


def test_evidence_none_says_so_and_what_would_be_enough():
    lines = judged(true_auc=0.5).lines()
    assert lines[0] == "Evidence: none"
    assert lines[1].endswith(": this may be chance.")
    assert (
        lines[2] == "With 50 incidents and 200 unlabeled episodes, an AUC of 0.61 or more would be evidence."
    )
    assert lines[3].startswith(
        "Can't tell how many unlabeled episodes look like incidents: the scores don't tell;"
    )


def test_few_incidents_say_what_they_can_support():
    lines = judged(incidents=3, share=0.02, true_auc=0.999).lines()
    assert lines[0] in ("Evidence: weak", "Evidence: strong")
    assert (
        lines[2] == "With 3 incidents and 200 unlabeled episodes, an AUC of 0.88 or more would be evidence."
    )


def test_the_same_seed_gives_the_same_evidence():
    assert judged(3) == judged(3)


def test_evidence_survives_its_file(tmp_path):
    for found in (judged(importance={"gap": 0.9}), judged(true_auc=0.5), judged(preferred_scores=[0.5])):
        found.save(tmp_path)
        assert Evidence.load(tmp_path) == found


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{", "is damaged"),
        ("[]", "damaged"),
        ('{"format": 2}', "damaged ('grade')"),
        ('{"format": 1}', "format 1"),
        ('{"format": 99}', "format 99"),
    ],
)
def test_a_damaged_file_is_refused(tmp_path, text, said):
    (tmp_path / "evidence.json").write_text(text)
    with pytest.raises(InputError, match=r"evidence\.json") as error:
        Evidence.load(tmp_path)
    assert said in str(error.value)


@pytest.mark.parametrize("change", [{"grade": "superb"}, {"auc": [1]}, {"share": "half"}, {"length": None}])
def test_a_field_that_makes_no_sense_is_refused(change):
    with pytest.raises(InputError, match="damaged"):
        Evidence.from_json(judged().to_json() | change)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"incident_scores": np.zeros(3)}, "incident_scores must be 50 finite numbers"),
        ({"unlabeled_scores": np.full(200, np.nan)}, "with NaN or infinity"),
        ({"votes": np.zeros((3, 200))}, "votes must be true or false"),
        ({"votes": np.zeros((0, 200), bool)}, "votes must be true or false"),
        ({"kept": np.zeros(7, bool)}, "kept must be true or false"),
        ({"names": ["gap"]}, "a name for each of the 4 columns, got 1"),
        ({"step_probabilities": ([0.5], [1.5])}, "numbers in \\[0, 1\\]"),
        ({"nonpreferred": noise(np.random.default_rng(0), 50, columns=2)}, "same numbers of columns"),
    ],
)
def test_input_that_does_not_fit_is_refused(change, said):
    with pytest.raises(InputError, match=said):
        judged(**change)


@pytest.fixture
def run(tmp_path):
    RunDirectory(tmp_path / "run").create({"algorithm": "safemil", "seeds": [0], "settings": {}}, {})
    return tmp_path / "run"


def test_the_command_prints_the_lines_or_all_numbers(run, capsys):
    found = judged()
    found.save(run)
    assert main(["evidence", str(run)]) == 0
    assert capsys.readouterr().out.splitlines() == found.lines()
    assert main(["evidence", str(run), "--json"]) == 0
    assert Evidence.from_json(json.loads(capsys.readouterr().out)) == found


def test_a_run_without_evidence_and_a_folder_that_is_no_run_are_told_apart(run, tmp_path, capsys):
    assert main(["evidence", str(run)]) == 2
    assert "holds no evidence" in capsys.readouterr().err
    assert main(["evidence", str(tmp_path)]) == 2
    assert "is not a run" in capsys.readouterr().err


def laps():
    """Episodes of two trainings of a racing car, and whether each left the track."""
    tables = [
        pyarrow.csv.read_csv(file) for file in sorted((FIXTURES / "deepracer").glob("*/*-iteration.csv"))
    ]
    observed, driven, lengths, off = [], [], [], []
    for table in tables:
        columns = {name: table[name].to_numpy() for name in ("episode", "X", "Y", "yaw", "steer", "throttle")}
        starts = np.flatnonzero(np.diff(columns["episode"], prepend=-1))
        observed.append(np.stack([columns[name] for name in ("X", "Y", "yaw")], axis=1))
        driven.append(np.stack([columns[name] for name in ("steer", "throttle")], axis=1))
        lengths += np.diff(starts, append=len(table)).tolist()
        ends = [*(starts[1:] - 1), len(table) - 1]
        off += [table["episode_status"][int(end)].as_py() == "off_track" for end in ends]
    actions = scaled_actions(np.concatenate(driven), [-30, 0], [30, 2])
    return Trajectories(np.concatenate(observed), np.clip(actions, -1, 1), lengths), np.array(off)


def test_the_length_of_a_race_gives_its_label_away():
    log, off = laps()
    assert (len(log), off.sum()) == (200, 130)
    rng = np.random.default_rng(0)
    known = rng.permutation(np.flatnonzero(off))[:78]  # 60%
    others = np.setdiff1d(np.arange(200), known)
    heading = np.array([each.mean() for each in log.by_episode(log.observations[:, 2])])  # hardly tells
    found = assess(
        incident_scores=heading[known],
        unlabeled_scores=heading[others],
        votes=np.ones((2, 122), bool),
        nonpreferred=log.take(known),
        unlabeled=log.take(others),
        kept=np.ones(122, bool),
        aggregate="mean",
        names=["X", "Y", "yaw", "steer", "throttle"],
    )
    assert found.length.name == "short episodes"
    assert found.length.auc > 0.7
    assert found.length.auc > found.start.auc
    assert found.length.p_value < 0.01
    assert found.leaks()[0] == (
        f"The length of an episode alone ranks incidents with AUC {found.length.auc:.2f} (short "
        "episodes): does an episode end at its incident?"
    )
    assert found.leaks()[1].startswith("No single column ranks incidents as well as the length (best: ")
