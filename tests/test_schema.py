"""Columns of a run: later data are matched with them by name, and compared with them."""

import json
import warnings

import numpy as np
import pytest

import safemil
from safemil.data import Trajectories
from safemil.errors import InputError, InputWarning
from safemil.schema import Schema
from small import SMALL

QUICK = SMALL | {"log_every": 20}
NAMES = {"observation_names": ["gap", "speed", "lane"], "action_names": ["accel", "steer"]}


def named(pile: Trajectories, **changes) -> Trajectories:
    given = {"action_low": [-6, -0.3], "action_high": [6, 0.3], "ids": pile.ids} | NAMES | changes
    return Trajectories(pile.observations, pile.actions, pile.lengths, **given)


@pytest.fixture(scope="module")
def piles(unlabeled, nonpreferred):
    return {"unlabeled": named(unlabeled), "nonpreferred": named(nonpreferred)}


@pytest.fixture(scope="module")
def run(piles):
    return safemil.train("safemil", **piles, **QUICK)


@pytest.fixture(scope="module")
def schema(run):
    return run._schema


def shuffled(pile: Trajectories) -> Trajectories:
    return pile.select_columns([2, 0, 1], [1, 0])


def test_columns_in_another_order_are_put_right(run, piles):
    held = piles["unlabeled"]
    other = shuffled(held)
    assert other.observation_names == ("lane", "gap", "speed")
    np.testing.assert_array_equal(np.concatenate(run.cost(other)), np.concatenate(run.cost(held)))
    assert run.match(other).content_hash() == held.content_hash()
    assert run.match(held) is held


def test_further_columns_are_left_out(run, piles):
    held = piles["unlabeled"]
    wide = Trajectories(
        np.hstack([np.full((held.steps, 1), 7.0), held.observations]),
        held.actions,
        held.lengths,
        action_low=held.action_low,
        action_high=held.action_high,
        observation_names=["time of day", *held.observation_names],
        action_names=held.action_names,
    )
    np.testing.assert_array_equal(np.concatenate(run.cost(wide)), np.concatenate(run.cost(held)))


def test_a_missing_column_is_named_with_the_nearest_one(run, unlabeled):
    other = named(unlabeled, observation_names=["gapp", "speed", "altitude"])
    with pytest.raises(
        InputError,
        match=r'the data lack observation columns that this run was trained on: "gap" \(did you mean '
        r'"gapp"\?\), "lane"; there are gapp, speed, altitude\.',
    ):
        run.cost(other)
    with pytest.raises(InputError, match=r'lack action columns .*: "accel" \(did you mean "accel_cmd"'):
        run.novelty(named(unlabeled, action_names=["accel_cmd", "steer"]))


def test_other_action_bounds_are_refused(run, unlabeled):
    with pytest.raises(
        InputError,
        match=r"trained on steer bounded by -0.3 and 0.3, but the data have it bounded by -1 and 1; read",
    ):
        run.cost(named(unlabeled, action_low=[-6, -1], action_high=[6, 1]))


def test_data_without_names_are_matched_by_position_with_a_warning(run, unlabeled, piles):
    plain = named(unlabeled, observation_names=None)
    with pytest.warns(InputWarning, match="observation columns are matched by position: the data have no"):
        found = run.cost(plain)
    np.testing.assert_array_equal(np.concatenate(found), np.concatenate(run.cost(piles["unlabeled"])))


def test_the_piles_of_a_training_are_matched_by_name_too(run, piles):
    other = safemil.train(
        "safemil",
        unlabeled=piles["unlabeled"],
        nonpreferred=shuffled(piles["nonpreferred"]),
        **QUICK,
    )
    held = piles["unlabeled"]
    np.testing.assert_array_equal(np.concatenate(run.cost(held)), np.concatenate(other.cost(held)))
    with pytest.raises(InputError, match=r'non-preferred pile lacks .* the unlabeled pile has: "lane"'):
        safemil.train(
            "safemil",
            unlabeled=held,
            nonpreferred=piles["nonpreferred"].select_columns([0, 1], [0, 1]),
            **QUICK,
        )


def test_a_run_is_resumed_with_columns_in_any_order(piles, tmp_path):
    begun = safemil.train(
        "bc", unlabeled=piles["unlabeled"], updates=4, hidden_policy=[4], out=tmp_path / "r"
    )
    again = safemil.train(
        "bc",
        unlabeled=shuffled(piles["unlabeled"]),
        updates=4,
        hidden_policy=[4],
        out=tmp_path / "r",
        resume=True,
    )
    assert again.observation_names == begun.observation_names == ("gap", "speed", "lane")


def test_a_run_keeps_its_columns_on_disk(run, unlabeled, piles, tmp_path):
    run.save(tmp_path / "run")
    loaded = safemil.Run.load(tmp_path / "run")
    assert loaded.observation_names == ("gap", "speed", "lane")
    assert loaded.action_names == ("accel", "steer")
    far = named(unlabeled, observation_names=["lane", "speed", "gap"])
    for ours, theirs in zip(loaded.novelty(far), run.novelty(far), strict=True):
        np.testing.assert_array_equal(np.concatenate(ours), np.concatenate(theirs))


@pytest.mark.parametrize(
    "damage",
    [
        {"low": [0.0]},
        {"deviation": None},
        {"observation_names": ["a"]},
        {"action_low": [7, 7]},
        {"high": "x"},
    ],
)
def test_damaged_columns_of_a_run_are_refused(schema, damage):
    content = json.loads(json.dumps(schema.to_json()))
    assert Schema.from_json(content).to_json() == schema.to_json()
    with pytest.raises((TypeError, ValueError)):
        Schema.from_json(content | damage)


def test_an_observation_can_be_given_by_name(run, piles):
    gap, speed, lane = row = piles["unlabeled"].observations[0]
    by_name = run.act({"speed": speed, "gap": gap, "lane": lane, "weather": 3.0})
    np.testing.assert_array_equal(by_name, run.act(row))
    batch = piles["unlabeled"].observations[:4]
    columns = dict(zip(NAMES["observation_names"], batch.T, strict=True))
    np.testing.assert_array_equal(run.act(columns), run.act(batch))


@pytest.mark.parametrize(
    ("observation", "message"),
    [
        (
            {"gap": 1, "sped": 2, "lane": 0},
            r'lacks columns .*: "speed" \(did you mean "sped"\?\); there are gap',
        ),
        ({"gap": 1, "speed": float("inf"), "lane": 0}, "must be finite, got NaN or infinity in speed"),
        (
            {"gap": 1, "speed": "fast", "lane": 0},
            "\"speed\" must be a number or an array of numbers, got 'fast'",
        ),
        ({"gap": [1, 2], "speed": 1, "lane": 0}, r'shape \(2,\) for "gap" and \(\) for "speed"'),
        ([1, 2], "trained on 3 observation columns, got 2"),
    ],
)
def test_a_wrong_observation_says_what_is_wrong(run, observation, message):
    with pytest.raises(InputError, match=message):
        run.act(observation)


def test_a_run_without_names_takes_no_observation_by_name(unlabeled):
    run = safemil.train("bc", unlabeled=unlabeled, updates=2, hidden_policy=[4])
    assert run.observation_names is None
    with pytest.raises(InputError, match="have no names; give an array of 3 numbers"):
        run.act({"gap": 1.0})


def test_the_training_data_are_not_novel(run, piles):
    for held in piles.values():
        found = run.novelty(held)
        assert not np.concatenate(found.share).any()
        assert not np.concatenate(found.deviations).any()
        assert not found.untrusted().any()


def test_novelty_counts_columns_and_deviations_beyond_the_range_seen():
    seen = Trajectories([[0.0, 1.0], [4.0, 1.0]], [[-0.5], [0.5]], [2])
    schema = Schema.of(seen, [], [2.0, 1.0])
    found = schema.novelty(Trajectories([[10.0, 1.0], [2.0, 0.0], [1.0, 1.0]], [[0.0], [1.0], [0.0]], [2, 1]))
    np.testing.assert_allclose(found.deviations[0], [3, 1])  # 6 / 2; the constant column and the action by 1
    np.testing.assert_allclose(found.share[0], [1 / 3, 2 / 3])
    assert found.deviations[1] == found.share[1] == 0
    assert found.untrusted().tolist() == [True, False]


def test_acting_far_from_the_training_data_warns_and_names_the_columns(run):
    with pytest.warns(InputWarning, match=r"gap, speed, lane lie beyond the range seen, .* by .* deviations"):
        run.act([1e6] * 3)
    with pytest.warns(InputWarning, match=r"unlike the training data: speed lies beyond") as told:
        run.act([[0, 1e6, 0], [0, 0, 0], [0, 2e6, 0]])
    assert len(told) == 1
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        run.act([0, 0, 0])


def test_evidence_and_errors_name_columns(run, unlabeled):
    assert set(run.evidence.importance) == {"gap", "speed", "lane", "accel", "steer"}
    bad = unlabeled.observations.copy()
    bad[3, 1] = np.nan
    with pytest.raises(InputError, match='"speed" is nan at episode 0, step 3'):
        Trajectories(bad, unlabeled.actions, unlabeled.lengths, **NAMES)
