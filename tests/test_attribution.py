import numpy as np
import pytest

import safemil
from safemil.attribution import Attribution, attribute, cost_of_rows, groups
from safemil.data import Trajectories
from safemil.errors import InputError

CAUSES, HARMLESS, ACTIONS = 3, 3, 1
NAMES = [f"cause {i}" for i in range(CAUSES)] + [f"harmless {i}" for i in range(HARMLESS)] + ["action"]
LIMIT = 2.0  # a cause beyond it makes a step risky


def driven(episodes, bad, rng, length=40):
    """Episodes whose columns move together; in bad ones one cause leaves its range for a while.

    A harmless column follows each cause (correlation 0.6), so that it is unusual too when the cause is.
    """
    causes = rng.normal(0, 0.6, (episodes, length, CAUSES))
    responsible = np.full((episodes, length), -1)
    for episode in range(episodes if bad else 0):
        which, first = rng.integers(CAUSES), rng.integers(length - 12)
        causes[episode, first : first + 12, which] = rng.uniform(LIMIT, LIMIT + 1, 12)
        responsible[episode, first : first + 12] = which
    harmless = 0.6 * causes + 0.8 * rng.normal(0, 0.6, causes.shape)
    observations = np.concatenate([causes, harmless], axis=2).reshape(-1, CAUSES + HARMLESS)
    actions = rng.uniform(-1, 1, (len(observations), ACTIONS))
    held = Trajectories(
        observations, actions, [length] * episodes, observation_names=NAMES[:-1], action_names=NAMES[-1:]
    )
    return held, responsible.ravel()


@pytest.fixture(scope="module")
def problem():
    """A cost learned from incidents, episodes that it has not seen, and the cause of each of their steps."""
    rng = np.random.default_rng(0)
    incidents, _ = driven(40, True, rng)
    logs = Trajectories.concatenate([driven(60, False, rng)[0], driven(40, True, rng)[0]])
    run = safemil.train(
        "safemil", nonpreferred=incidents, unlabeled=logs, progress=False,
        updates=201, cost_updates=200, members=2, hidden_cost=(32, 32),
    )  # fmt: skip
    judged, responsible = driven(40, True, rng)
    good, _ = driven(20, False, rng)
    return run, judged, responsible, good


def test_the_responsible_column_of_a_learned_cost_is_found_in_nine_of_ten_risky_steps(problem):
    run, judged, responsible, good = problem
    rows = responsible >= 0
    found = attribute(
        cost_of_rows(run.cost, judged),
        judged.observations[rows],
        judged.actions[rows],
        (good.observations, good.actions),
        NAMES,
    )
    assert (found.leading() == responsible[rows]).mean() >= 0.9
    assert set(list(found.overall())[:CAUSES]) == set(NAMES[:CAUSES])


def test_shares_add_up_to_the_cost_less_that_of_good_steps(problem):
    run, judged, _, good = problem
    cost = cost_of_rows(run.cost, judged)
    steps = judged.observations[:50], judged.actions[:50]
    found = attribute(cost, *steps, (good.observations, good.actions), NAMES, rounds=2)
    np.testing.assert_allclose(found.risk, cost(*steps), atol=1e-5)
    np.testing.assert_allclose(found.shares.sum(axis=1), found.risk - found.expected, atol=1e-6)


def both(observations, actions):
    """Risky only where both columns are 1."""
    return observations[:, 0] * observations[:, 1]


def either(observations, actions):
    """Risky where either column is 1."""
    return np.maximum(observations[:, 0], observations[:, 1])


@pytest.mark.parametrize("cost", [both, either])
def test_columns_that_act_together_or_say_the_same_share_the_risk(cost):
    found = attribute(cost, [[1, 1, 1]], [[0]], (np.zeros((5, 3)), np.zeros((5, 1))), list("abcd"), rounds=1)
    np.testing.assert_allclose(found.shares, [[0.5, 0.5, 0, 0]])
    assert found.risk.tolist() == [1]
    assert found.expected.tolist() == [0]


def test_columns_that_belong_together_are_replaced_at_once():
    seen = []

    def cost(observations, actions):
        seen.append(actions)
        return actions[:, 0]

    good = np.zeros((1, 1)), np.array([[-1.0, 1.0]])
    found = attribute(cost, [[0.0]], [[1.0, -1.0]], good, ["a", "left", "right"], together=[[1, 2]])
    np.testing.assert_allclose(found.shares, [[0, 2, 0]])
    assert (np.concatenate(seen).sum(axis=1) == 0).all()  # never two choices at once, nor none


def test_the_same_seed_gives_the_same_shares(problem):
    run, judged, _, good = problem
    steps = judged.observations[:20], judged.actions[:20]

    def shares(seed):
        cost = cost_of_rows(run.cost, judged)
        return attribute(cost, *steps, (good.observations, good.actions), NAMES, seed=seed).shares

    assert (shares(3) == shares(3)).all()
    assert (shares(3) != shares(4)).any()


def test_moments_with_the_same_reason_are_one_group():
    shares = np.array([[0.9, 0, 0], [0.8, 0.05, 0], [0.4, 0.5, 0], [0.3, 0.5, 0], [0.7, 0, 0]])
    values = np.array([[-1, 0, 0], [-2, 0, 0], [-1, 1, 0], [-1, 2, 0], [1, 0, 0]])
    risk = np.array([0.9, 0.95, 0.9, 0.8, 0.7])
    found = groups(Attribution(("gap", "speed", "x"), shares, risk, 0 * risk), values, np.zeros(3))
    assert [(each.columns, each.high, each.members.tolist()) for each in found] == [
        ((0,), (False,), [1, 0]),
        ((1, 0), (True, False), [2, 3]),
        ((0,), (True,), [4]),
    ]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"names": ["a"]}, "need the same columns"),
        ({"good": (np.zeros((0, 1)), np.zeros((0, 1)))}, "got none"),
        ({"rounds": 0}, "rounds must be at least 1"),
        ({"actions": [[0.0], [0.0]]}, "a row of actions for each step"),
    ],
)
def test_what_does_not_fit_is_refused(changes, message):
    given = {"observations": [[0.0]], "actions": [[0.0]], "good": ([[0.0]], [[0.0]]), "names": ["a", "b"]}
    with pytest.raises(InputError, match=message):
        attribute(either, **(given | changes))
