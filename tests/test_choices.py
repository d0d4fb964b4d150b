"""Actions that are choices: learned, matched by name and returned as logged."""

from pathlib import Path

import jax
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import safemil
from safemil.cli import main
from safemil.data import Trajectories
from safemil.deploy import Model
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


def test_choices_go_from_a_table_of_texts_to_risks_and_an_exported_policy(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    drive, offset = np.repeat(np.arange(20), 8), rng.normal(size=160)
    table = pa.table(
        {
            "episode": drive,
            "step": np.tile(np.arange(8), 20),
            "offset": offset,
            "speed": rng.normal(size=160),
            "turn": np.where(offset < 0, "left", "right"),
            "crash": drive % 4 == 0,
        }
    )
    pq.write_table(table, "log.parquet")
    columns = ["--observation", "offset,speed", "--action", "turn", "--incident", "crash"]
    small = ["updates=4", "reward_updates=2", "batch=4", "length=3", "hidden_policy=[8]", "hidden_reward=[8]"]
    sets = [f"--set={each}" for each in small]
    assert main(["train", "trex-wbc", "--logs", "log.parquet", *columns, *sets, "--out", "run"]) == 0
    assert main(["score", "run", "log.parquet", "--append", "--out", "risk.parquet"]) == 0
    risk = pq.read_table("risk.parquet")
    assert risk.column_names == [*table.column_names, "risk", "novelty"]
    assert risk.select(["turn"]).equals(table.select(["turn"]))
    assert main(["export", "run", "--out", "policy.safetensors"]) == 0
    model, run = Model.load("policy.safetensors"), safemil.Run.load("run")
    for seen in ([-1.0, 0.0], [1.0, 0.5]):
        assert model.act(np.array(seen, np.float32)) == run.act(seen)
        assert run.act(seen) in ("left", "right")
    strange = table.set_column(4, "turn", pa.array(["reverse"] * 160))
    pq.write_table(strange, "strange.parquet")
    assert main(["score", "run", "strange.parquet", "--out", "never.parquet"]) == 2
    assert '"turn" holds "reverse" at episode 0, step 0' in capsys.readouterr().err
    assert not Path("never.parquet").exists()
