"""Actions that are choices: learned, matched by name and returned as logged."""

import jax
import numpy as np
import pytest

import safemil
from safemil.data import Trajectories
from safemil.errors import InputError
from safemil.evaluation import evaluate

TOLD = ("keep", "left", "right")


def pile(told: tuple[str, ...] = TOLD, seed: int = 0, **changes) -> Trajectories:
    """Steps of a driver who goes left where the first column is low and right where it is high."""
    observations = np.random.default_rng(seed).normal(size=(300, 2))
    wanted = np.where(observations[:, 0] < -0.5, "left", np.where(observations[:, 0] > 0.5, "right", "keep"))
    actions = np.where(wanted[:, None] == np.array(told), 1, -1)
    held = actions.max(axis=1) > 0  # of a choice that is not told there is no step
    given = {
        "observation_names": ["offset", "speed"],
        "action_names": [f"turn={each}" for each in told],
        "action_categories": told,
    }
    return Trajectories(observations[held], actions[held], [held.sum()], **given | changes)


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    run = safemil.train("bc", unlabeled=pile(), updates=300, hidden_policy=[16])
    run.save(tmp_path_factory.mktemp("choices") / "run")
    return safemil.Run.load(run.path)


def test_a_policy_learns_choices_and_returns_them_as_logged(run):
    assert run.action_categories == TOLD
    assert run.act({"offset": -1.5, "speed": 0.0}) == "left"
    assert run.act([1.5, 0.0]) == "right"
    assert run.act([[-1.5, 0.0], [0.0, 1.0]]).tolist() == ["left", "keep"]
    sampled = run.act(np.tile([1.5, 0.0], (200, 1)), key=jax.random.key(0))
    assert 0.5 < (sampled == "right").mean() < 1


def test_whole_numbers_come_back_as_whole_numbers():
    told = ("0", "1", "-2")
    renamed = dict(zip(told, TOLD, strict=True))
    run = safemil.train(
        "bc", unlabeled=pile(tuple(renamed.values()), action_categories=told), updates=2, hidden_policy=[4]
    )
    assert run.action_categories == (0, 1, -2)
    assert type(run.act([0.0, 0.0])) is int
    assert run.act([[0.0, 0.0]]).dtype == np.int64


def test_choices_in_another_order_and_choices_that_never_occur_are_put_right(run):
    ours, other = pile(), pile(("right", "keep", "left"))
    assert run.match(other).content_hash() == ours.content_hash()
    few = run.match(pile(("left", "keep")))
    assert few.action_categories == TOLD
    assert (few.actions[:, 2] == -1).all()
    assert few.action_names == ("turn=keep", "turn=left", "turn=right")


def test_a_choice_that_the_run_does_not_know_is_refused(run):
    with pytest.raises(
        InputError, match=r'the data have the action "up", but .* only keep, left, right; leave'
    ):
        run.match(pile(action_categories=("keep", "left", "up")))
    with pytest.raises(
        InputError, match="actions that are choices, but the data have numbers; read all data"
    ):
        run.match(pile(action_categories=None))


def test_both_piles_of_a_training_share_their_choices():
    logs, incidents = pile(("left", "keep")), pile(("right", "left"), seed=1)
    run = safemil.train("bc", unlabeled=logs, nonpreferred=incidents, updates=2, hidden_policy=[4])
    assert run.action_categories == ("left", "keep", "right")
    assert run.action_names == ("turn=left", "turn=keep", "turn=right")


def test_a_policy_of_choices_is_not_evaluated_on_a_task_of_numbers(run):
    with pytest.raises(InputError, match=r"actions of toy:style are numbers, .* \(keep, left, right\)"):
        evaluate(run, "toy:style", episodes=1)
