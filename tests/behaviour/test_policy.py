import json

import numpy as np
import pytest
from safetensors.numpy import save_file

from safemil.behaviour import policy as policies
from safemil.behaviour.policy import SHIPPED, Policy, load_policy, shipped, with_powers
from safemil.errors import InputError
from safemil.tasks import TASKS, make_vec

HAVE = [task for task in TASKS if any((SHIPPED / task).glob("*.safetensors"))]


def test_a_network_is_tanh_layers_and_its_actions_are_clipped():
    network = Policy(
        "one",
        (np.array([[1.0], [0.0]]), np.array([[2.0]])),
        (np.array([0.5]), np.array([-1.0])),
        np.array([10.0]),
        {},
    )
    seen = np.array([[0.0, 7.0], [1.0, 7.0]])
    np.testing.assert_allclose(
        network.mean(seen), [[2 * np.tanh(0.5) - 1], [2 * np.tanh(1.5) - 1]], rtol=1e-12
    )
    np.testing.assert_array_equal(network.act(seen, np.array([[1.0], [-1.0]])), [[1.0], [-1.0]])
    np.testing.assert_array_equal(network.act(seen, np.zeros((2, 1))), network.mean(seen))


def test_powers_of_the_lidars_follow_the_observation():
    seen = np.array([[2.0] * 12 + [0.5, 1.0]])
    np.testing.assert_allclose(with_powers(seen, (2.0, 3.0))[0, 12:], [0.5, 1.0, 0.25, 1.0, 0.125, 1.0])
    last = np.zeros((16, 1))
    last[14] = 1.0
    policy = Policy("one", (last,), (np.zeros(1),), np.zeros(1), {}, (2.0,))
    np.testing.assert_allclose(policy.mean(seen), [[0.25]])


def test_weights_come_from_the_file_and_what_it_is_from_the_card(tmp_path):
    arrays = {"weight0": np.array([[0.5]]), "bias0": np.array([0.25]), "deviation": np.array([0.1])}
    save_file({name: array.astype(np.float32) for name, array in arrays.items()}, tmp_path / "a.safetensors")
    (tmp_path / "a.json").write_text(json.dumps({"task": "some"}))
    found = load_policy(tmp_path / "a.safetensors")
    assert found.name == "a"
    assert found.card["task"] == "some"
    assert len(found.card["sha256"]) == 64
    np.testing.assert_allclose(found.act(np.array([[1.0]]), np.array([[1.0]])), [[0.85]], rtol=1e-6)


def test_a_task_without_policies_says_which_have_some(tmp_path, monkeypatch):
    monkeypatch.setattr(policies, "SHIPPED", tmp_path)
    (tmp_path / "SafetyPointGoal1-v0").mkdir()
    (tmp_path / "SafetyPointGoal1-v0" / "a.safetensors").touch()
    with pytest.raises(InputError, match=r"no behaviour policies .* SafetyAnt.*: SafetyPointGoal1-v0"):
        shipped.__wrapped__("SafetyAntVelocity-v1")


@pytest.mark.parametrize("task", HAVE)
def test_every_task_has_ten_policies_from_cautious_to_reckless(task):
    cards = [policy.card for policy in shipped(task)]
    assert len({card["sha256"] for card in cards}) == len(cards) >= 10
    for card in cards:
        assert card["task"] == task
        assert {"signal", "method", "steps", "seed", "share"} <= set(card)
        assert card["episodes"] >= 50
        assert {"return", "cost", "length"} <= set(card)
    best = max(card["return"] for card in cards)
    grown = [card for card in cards if card["return"] > best / 2]  # the others are there for low returns
    assert len(grown) >= 10
    costs = [card["cost"] for card in grown]
    assert max(costs) > 2 * min(costs)


@pytest.mark.parametrize("task", HAVE)
def test_every_policy_acts_on_what_its_task_shows(task):
    envs = make_vec(task, 3)
    observations, _ = envs.reset(seed=0)
    for policy in shipped(task):
        actions = policy.act(observations, np.ones((3, envs.worlds.action_size)))
        assert actions.shape == (3, envs.worlds.action_size)
        assert np.abs(actions).max() <= 1


def test_weights_are_small():
    assert sum(each.stat().st_size for each in SHIPPED.rglob("*.*")) < 8e6
