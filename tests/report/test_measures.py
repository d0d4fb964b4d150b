from base64 import b64decode
from dataclasses import replace

import numpy as np
import pytest

import safemil
from safemil import stats
from safemil.data import Trajectories, describe
from safemil.evidence import Evidence, Rule
from safemil.report import cost_quality, decisions, episode_table, extreme_segments, moments, svg, wording
from safemil.report.maps import CELLS, heat


def test_rank_correlation_knows_order_only():
    assert cost_quality.rank_correlation([1, 2, 3, 4], [1, 10, 100, 1000]) == 1
    assert cost_quality.rank_correlation([1, 2, 3, 4], [4, 3, 2, 1]) == -1
    assert cost_quality.rank_correlation([1, 2], [5, 5]) is None


def test_calibration_counts_every_step_once_even_at_the_ends():
    bins = cost_quality.calibration([0.0, 0.5, 1.0], [False, True, True])
    assert sum(each.steps for each in bins) == 3
    assert bins[-1].costly == 1


def test_the_riskiest_segment_is_where_the_cost_is_highest_and_says_what_is_unusual_there():
    observations = np.zeros((20, 2), np.float32)
    observations[14:17, 1] = 5
    held = Trajectories(observations, np.zeros((20, 1)), [10, 10], ids=["calm", "wild"])
    risk = np.where(observations[:, 1] > 0, 0.9, 0.1).astype(np.float32)
    riskiest, safest = extreme_segments.extreme(held, held.by_episode(risk), describe(held).columns, 3)
    assert (riskiest[0].episode, riskiest[0].first, riskiest[0].steps) == (1, 4, 3)
    assert riskiest[0].risk == pytest.approx(0.9)
    assert [each.column for each in riskiest[0].unusual] == ["observation 1"]  # the others never change
    assert safest[0].risk == pytest.approx(0.1)


def test_an_episode_shorter_than_a_segment_is_one():
    held = Trajectories(np.zeros((2, 1)), np.zeros((2, 1)), [2])
    risk = [np.array([0.2, 0.4], np.float32)]
    riskiest, _ = extreme_segments.extreme(held, risk, describe(held).columns, 10)
    assert (riskiest[0].first, riskiest[0].steps) == (0, 2)
    assert riskiest[0].risk == pytest.approx(0.3)


def test_a_large_pile_is_shown_from_both_ends():
    number = episode_table.RISKIEST + episode_table.SAFEST + 7
    held = Trajectories(np.zeros((number, 1)), np.zeros((number, 1)), [1] * number)
    risk = [np.array([i / number], np.float32) for i in range(number)]
    listed, left_out = episode_table.rows(held, risk, None)
    assert left_out == 7
    assert (listed[0].name, listed[-1].name) == (str(number - 1), "0")
    assert (listed[0].rank, listed[-1].rank) == (1, number)


def test_a_long_timeline_keeps_the_greatest_of_each_stretch():
    risk = np.zeros(2500, np.float32)
    risk[1234] = 1
    held = Trajectories(np.zeros((2500, 1)), np.zeros((2500, 1)), [2500])
    listed, _ = episode_table.rows(held, [risk], None)
    episode = episode_table.content(listed, held, [risk], None, [None])["episodes"][0]
    assert episode["stride"] == 3
    values = np.frombuffer(b64decode(episode["risk"]), np.uint8)
    assert values.nonzero()[0].tolist() == [1234 // 3]


def test_a_heat_map_has_north_at_the_top_and_leaves_rare_places_empty():
    places = np.array([[-0.99, 0.99]] * 3 + [[0.99, -0.99]])
    found = heat(np.array([0.2, 0.4, 0.6, 0.9]), places, 1.0)
    assert found[0, 0] == pytest.approx(0.4)
    assert np.isnan(found[CELLS - 1, CELLS - 1])


def test_a_trail_has_a_stretch_for_each_level_and_no_gaps():
    x = np.arange(4.0)
    drawn = str(svg.trail(x, x, [0.0, 0.0, 1.0, 1.0]))
    assert '<path class="trail r0" d="M0 0L1 1L2 2"/>' in drawn
    assert '<path class="trail r7" d="M2 2L3 3"/>' in drawn


def test_names_in_a_chart_are_escaped():
    drawn = svg.lines([svg.Line("a<b", "ours", np.arange(2.0), np.arange(2.0))] * 2, "<x>", "y", '"says"')
    assert "a&lt;b" in drawn
    assert "&lt;x&gt;" in drawn
    assert "<x>" not in drawn


@pytest.mark.parametrize("between", [(0.0, 1.0), (-3.2, 17.0), (0.0, 250_000.0), (1e-6, 3e-6)])
def test_ticks_are_few_round_and_inside(between):
    found = [value for value, _ in svg.ticks(between)]
    assert 2 <= len(found) <= 8
    assert between[0] - 1e-9 <= found[0] <= found[-1] <= between[1] + 1e-9
    np.testing.assert_allclose(np.diff(found), np.diff(found)[0])


def test_a_pile_shows_the_asked_episodes_too():
    number = episode_table.RISKIEST + episode_table.SAFEST + 7
    held = Trajectories(np.zeros((number, 1)), np.zeros((number, 1)), [1] * number)
    risk = [np.array([i / number], np.float32) for i in range(number)]
    listed, left_out = episode_table.rows(held, risk, None, more=[52, 53])
    assert left_out == 5
    assert {"52", "53"} <= {row.name for row in listed}


@pytest.fixture(scope="module")
def compared(folder):
    run, logs = safemil.Run.load(folder / "run"), safemil.load(folder / "logs")
    risk, columns = run.cost(logs), logs.column_names
    order = np.argsort([-each.mean() for each in risk])
    found = moments.find(run, logs, risk, order, 6, 5, columns, progress=False)
    return run, logs, risk, found


def test_decisions_compare_the_policy_with_the_log_in_the_same_states(compared):
    run, logs, risk, found = compared
    against = decisions.compare(run, logs, risk, found.good, [3])
    every, good, *_ = against.lines
    actions = run.act(logs.observations)
    distances = np.abs(actions - logs.actions).max(axis=1)
    among_good = distances[np.isin(logs.episode_of_step, found.good.episodes)]
    assert against.limit == pytest.approx(np.quantile(among_good, 0.9), abs=1e-5)
    assert every.otherwise == pytest.approx((distances > against.limit).mean(), abs=0.01)
    assert good.otherwise == pytest.approx(0.1, abs=0.02)
    same = Trajectories(logs.observations, actions, logs.lengths)
    assert every.ours == pytest.approx(np.concatenate(run.cost(same)).mean(), abs=1e-4)
    assert every.logged == pytest.approx(np.concatenate(risk).mean(), abs=1e-5)
    first = logs.starts[3]
    assert against.otherwise[0].tolist() == (distances[first : first + 30] > against.limit).tolist()


def test_states_beyond_the_good_ones_are_far(compared):
    _, logs, _, found = compared
    other = int(np.setdiff1d(np.arange(len(logs)), found.good.episodes)[0])
    away = logs.observations.copy()
    away[logs.episode_of_step == other] += 50
    moved = Trajectories(away, logs.actions, logs.lengths)
    far = decisions._far(moved, np.arange(moved.steps), found.good, np.random.default_rng(0))
    assert far[moved.episode_of_step == other].all()
    assert not far[moved.episode_of_step != other].all()


def test_only_a_sample_is_compared_in_a_large_pile(compared, monkeypatch):
    run, logs, risk, found = compared
    monkeypatch.setattr(decisions, "STEPS", 50)
    against = decisions.compare(run, logs, risk, found.good, [])
    assert (against.steps, against.all_steps) == (50, 360)


def test_values_of_actions_are_shown_in_the_units_of_the_log():
    held = Trajectories(
        np.arange(4.0).reshape(4, 1), [[-1], [0], [1], [1]], [4], action_low=[-5], action_high=[15]
    )
    assert moments.values_at(held, np.array([0, 1, 2])).tolist() == [[0, -5], [1, 5], [2, 15]]
    assert [each.tolist() for each in moments.ranges(held)] == [[0, -5], [3, 15]]


def test_unusual_actions_are_told_in_the_units_of_the_log():
    actions = np.zeros((20, 1), np.float32)
    actions[10:] = 1
    held = Trajectories(np.zeros((20, 1)), actions, [10, 10], action_low=[0], action_high=[100])
    risk = held.by_episode(actions[:, 0])
    riskiest, _ = extreme_segments.extreme(held, risk, describe(held).columns, 3)
    assert riskiest[0].unusual[0].value == 100
    assert riskiest[0].first == 4  # the middle one of those about as risky, not the first step


@pytest.mark.parametrize("grade", ["strong", "weak", "none"])
@pytest.mark.parametrize("share", [stats.Interval(0.25, 0.2, 0.3), None])
def test_the_verdict_says_the_numbers_of_the_evidence_in_the_words_of_the_log(folder, grade, share):
    found = replace(
        Evidence.load(folder / "run"),
        grade=grade,
        share=share,
        share_unknown="" if share else "there are fewer than 10 incidents",
        incidents=40,
        unlabeled=200,
        kept=112,
        auc=stats.Interval(0.8, 0.75, 0.85),
    )
    text = wording.verdict(found, wording.nouns("drive_id"))
    assert "200 drives" in text
    assert "40 incidents" in text
    assert "80% of the pairs (75 to 85%)" in text
    assert ("about 50 (40 to 60)" in text) == (grade != "none" and share is not None)
    assert ("chance would not find" in text) == (grade == "none")
    assert ("cloned from 112 drives" in text) == (grade != "none")


def test_warnings_are_in_the_words_of_the_page(folder):
    found = replace(
        Evidence.load(folder / "run"),
        length=Rule("short episodes", 0.98, 0.001),
        auc=stats.Interval(0.8, 0.7, 0.9),
    )
    assert wording.warnings(found)[0].startswith(
        "The length of an episode alone ranks incidents in 98% of the pairs (short episodes)"
    )
