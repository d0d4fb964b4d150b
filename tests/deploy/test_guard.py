"""The guard: its share of false alarms, its threshold, and what it says of steps."""

import jax
import numpy as np
import pytest
from random_runs import random_run
from scipy.stats import betabinom

import safemil
from safemil.cli import main
from safemil.data import Trajectories
from safemil.deploy import Guard
from safemil.deploy.guard import conformal_threshold, episodes_needed, largest_score, next_score
from safemil.errors import InputError
from safemil.guard import calibrate, calibrate_by_evidence, count_caught, save


def simulated_scores(episodes, rng):
    """Largest scores of calm episodes of 5 to 30 steps, each with a risk level of its own."""
    levels = rng.normal(-1, 1, episodes)
    lengths = rng.integers(5, 31, episodes)
    return [
        largest_score(1 / (1 + np.exp(-rng.normal(level, 1, length))))
        for level, length in zip(levels, lengths, strict=True)
    ]


@pytest.mark.parametrize("alpha", [0.01, 0.05, 0.2])
def test_false_alarms_over_2000_episodes_are_as_rare_as_promised(alpha):
    rng = np.random.default_rng(0)
    threshold = conformal_threshold(simulated_scores(999, rng), alpha)
    alarms = int((np.array(simulated_scores(2000, rng)) > threshold).sum())
    # Given the calibration, alarms are binomial; over calibrations their rate has a Beta distribution.
    expected = round(1000 * alpha)
    low, high = betabinom(2000, expected, 1000 - expected).interval(0.999)
    assert low <= alarms <= high


@pytest.mark.parametrize(
    ("count", "alpha", "place"),  # k = ceil((n + 1)(1 - alpha)) of the published formula, worked by hand
    [(99, 0.01, 99), (100, 0.01, 100), (199, 0.01, 198), (19, 0.05, 19), (100, 0.05, 96), (10, 0.2, 9)],
)
def test_the_threshold_is_the_score_at_the_place_of_the_published_formula(count, alpha, place):
    scores = np.random.default_rng(0).permutation(np.arange(1, count + 1))
    assert conformal_threshold(scores, alpha) == place


@pytest.mark.parametrize("count", [19, 20, 57, 100, 333])
@pytest.mark.parametrize("alpha", [0.05, 0.1, 0.2, 0.37])
def test_the_threshold_is_that_of_crepes(count, alpha):
    import crepes

    scores = np.random.default_rng(count).exponential(size=count)
    regressor = crepes.ConformalRegressor()
    regressor.fit(scores)
    # Without the margin, crepes takes (n + 1)α = 2 for 1.9999, and the next higher score.
    half_width = regressor.predict_int(np.zeros(1), confidence=1 - alpha - 1e-9)[0, 1]
    assert conformal_threshold(scores, alpha) == pytest.approx(half_width, rel=1e-12)


@pytest.mark.parametrize(("alpha", "needed"), [(0.01, 99), (0.05, 19), (0.2, 4), (0.3, 3)])
def test_too_few_calm_episodes_are_an_error_with_the_number_needed(alpha, needed):
    assert episodes_needed(alpha) == needed
    assert conformal_threshold(range(needed), alpha) == needed - 1
    with pytest.raises(InputError, match=rf"needs {needed} calm episodes, got {needed - 1}; give more"):
        conformal_threshold(range(needed - 1), alpha)


def test_a_score_adds_logits_and_never_falls_below_zero():
    even, odds_of_three = next_score(0.0, 0.25), next_score(0.0, 0.75)
    assert even == 0.0
    assert odds_of_three == pytest.approx(np.log(3))
    assert next_score(odds_of_three, 0.25) == pytest.approx(0.0, abs=1e-12)
    assert np.isfinite(next_score(0.0, 1.0))


@pytest.fixture(scope="module")
def run(unlabeled):
    return random_run("safemil", unlabeled)


def test_a_guard_watches_an_episode_as_it_was_calibrated(run, unlabeled, tmp_path):
    guard = calibrate(run, unlabeled, alpha=0.3)
    save(guard, run, tmp_path / "guard.json")
    loaded = Guard.load(tmp_path / "guard.json")
    assert (loaded.threshold, loaded.alpha, loaded.episodes) == (guard.threshold, 0.3, 4)
    risks = run.cost(unlabeled)
    for number in range(len(unlabeled)):
        episode = unlabeled.take([number])
        loaded.reset()
        verdicts = [loaded.step(*step) for step in zip(episode.observations, episode.actions, strict=True)]
        np.testing.assert_allclose([each.risk for each in verdicts], risks[number], atol=1e-5)
        highest = max(each.score for each in verdicts)
        assert highest == pytest.approx(largest_score(risks[number]), abs=1e-3)
        assert highest <= guard.threshold + 1e-3  # 4 episodes and alpha 0.3: the highest of them
        assert all(each.novelty == 0 for each in verdicts)


def test_an_alarm_says_its_step_and_stays_until_reset(run, unlabeled):
    guard = calibrate(run, unlabeled, alpha=0.3)
    guard.threshold = -1.0
    step = unlabeled.observations[0], unlabeled.actions[0]
    assert [guard.step(*step)[2:4] for _ in range(2)] == [(True, 0)] * 2
    guard.reset()
    guard.threshold = np.inf
    assert guard.step(*step)[2:4] == (False, None)


def test_incidents_are_caught_before_their_first_mark(run, unlabeled):
    guard = calibrate(run, unlabeled, alpha=0.3)
    guard.threshold = -1.0
    marks = np.zeros(unlabeled.steps, bool)
    marks[5] = True  # of the first episode, which has 7 steps; the second has 3 and no mark
    incidents = Trajectories(unlabeled.observations, unlabeled.actions, unlabeled.lengths, marks=marks)
    assert count_caught(guard, run, incidents.take([0, 1])) == (2, 2, [5, 2])
    guard.threshold = np.inf
    assert count_caught(guard, run, incidents).caught == 0


def test_advice_ranks_actions_by_risk(run, unlabeled):
    guard = calibrate(run, unlabeled, alpha=0.3)
    order, risks = guard.advise(unlabeled.observations[0], unlabeled.actions[:6])
    assert (np.diff(risks[order]) >= 0).all()
    alone = guard.model.risk(unlabeled.observations[0], unlabeled.actions[2])
    assert risks[2] == pytest.approx(alone, abs=1e-6)


@pytest.mark.parametrize(
    "change",
    [
        lambda text: text[:50],
        lambda text: text.replace('"alpha"', '"a"', 1),
        lambda text: text.replace('"alpha": 0', '"alpha": 7', 1),
    ],
)
def test_a_damaged_guard_is_refused(run, unlabeled, tmp_path, change):
    path = tmp_path / "guard.json"
    save(calibrate(run, unlabeled, alpha=0.3), run, path)
    path.write_text(change(path.read_text()))
    with pytest.raises(InputError, match=r"guard\.json is not a guard, or is damaged"):
        Guard.load(path)


def test_a_run_without_a_cost_makes_no_guard(unlabeled):
    with pytest.raises(InputError, match="bc learns no cost, which a guard needs"):
        calibrate(random_run("bc", unlabeled), unlabeled)


def test_the_command_writes_a_guard_and_says_what_it_catches(run, unlabeled, tmp_path, capsys):
    safemil.save(tmp_path / "calm.parquet", unlabeled)
    trained = random_run("dwbc-nu", unlabeled)
    trained.save(tmp_path / "run")
    files = [f"{tmp_path}/run", "--calm", f"{tmp_path}/calm.parquet", "--out", f"{tmp_path}/guard.json"]
    assert main(["guard", *files]) == 2
    assert (
        "alpha 0.05 needs 19 calm episodes, got 4; give more, or set --alpha to 0.2"
        in capsys.readouterr().err
    )
    assert not (tmp_path / "guard.json").exists()
    assert main(["guard", *files, "--alpha", "0.3", "--incidents", f"{tmp_path}/calm.parquet"]) == 0
    said = capsys.readouterr().out
    assert "from 4 calm episodes (enough for alpha 0.2)" in said
    assert "Held-out incidents caught before the first mark, or the end: 0 of 4 (0%)." in said
    assert Guard.load(tmp_path / "guard.json").alpha == 0.3


@pytest.fixture(scope="module")
def learned(unlabeled, nonpreferred):
    settings = {"updates": 12, "cost_updates": 10, "members": 4, "hidden_cost": [8], "hidden_policy": [8]}
    return safemil.train(
        "safemil", unlabeled=unlabeled, nonpreferred=nonpreferred, progress=False, **settings
    )


def test_held_out_risks_are_those_of_networks_that_did_not_see_an_episode(learned, unlabeled, nonpreferred):
    found = learned.heldout_risks(unlabeled, nonpreferred)
    learner = jax.tree.map(lambda leaf: leaf[0], learned._state.cost)
    for risks, pile, first in (
        (found.incidents, nonpreferred, 0),
        (found.unlabeled, unlabeled, len(nonpreferred)),
    ):
        for number in range(len(pile)):
            episode = pile.take([number])
            unseen = np.asarray(learner.heldout[:, first + number])
            logits = learner.cost.logits(learned._scaler(episode.observations), episode.actions)
            expected = learner.cost.curve(np.asarray(logits)[unseen].mean(axis=0))
            np.testing.assert_allclose(risks[number], expected, atol=1e-5)
    assert [len(each) for each in found.unlabeled] == unlabeled.lengths.tolist()
    with pytest.raises(InputError, match="trained on 7 episodes, got 5; give those, or calm ones"):
        learned.heldout_risks(unlabeled.take([0, 1]), nonpreferred)


def test_without_calm_episodes_the_evidence_chooses_them_and_nothing_is_promised(
    unlabeled, nonpreferred, tmp_path, capsys
):
    for name, pile in (("logs", unlabeled), ("bad", nonpreferred)):
        safemil.save(tmp_path / f"{name}.parquet", pile)
    files = ["--unlabeled", f"{tmp_path}/logs.parquet", "--nonpreferred", f"{tmp_path}/bad.parquet"]
    tiny = ["updates=12", "cost_updates=10", "members=4", "hidden_cost=[8]", "hidden_policy=[8]"]
    settings = [word for each in tiny for word in ("--set", each)]
    assert main(["train", "safemil", *files, *settings, "--out", f"{tmp_path}/run"]) == 0
    capsys.readouterr()
    command = ["guard", f"{tmp_path}/run", "--out", f"{tmp_path}/guard.json", "--alpha", "0.9"]
    assert main(command) == 0
    said = capsys.readouterr().out
    assert "Nobody said that these episodes are calm: the evidence does" in said
    assert "Held-out incidents caught before the first mark, or the end:" in said
    guard, run = Guard.load(tmp_path / "guard.json"), safemil.Run.load(tmp_path / "run")
    held = run.heldout_risks(unlabeled, nonpreferred)
    good = [largest_score(each) for each, is_good in zip(held.unlabeled, held.good, strict=True) if is_good]
    assert (guard.guaranteed, guard.episodes) == (False, len(good))
    assert guard.threshold == pytest.approx(conformal_threshold(good, 0.9), rel=1e-4)


def test_an_algorithm_without_held_out_networks_needs_calm_episodes(unlabeled, nonpreferred):
    with pytest.raises(InputError, match="dwbc-nu with these settings judges no episodes that it held out"):
        calibrate_by_evidence(random_run("dwbc-nu", unlabeled), unlabeled, nonpreferred)
