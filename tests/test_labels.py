import json

import numpy as np
import pytest

import safemil
from safemil.cli import main
from safemil.data import Trajectories
from safemil.errors import InputError
from safemil.labels import Label, Labels, joined, propose
from safemil.runs import RunDirectory

TINY = {"updates": 41, "cost_updates": 40, "members": 2, "hidden_cost": (4,), "hidden_policy": (4,)}


def walks(names, seed=0, first_steps=None):
    rng = np.random.default_rng(seed)
    steps = 4 * len(names)
    return Trajectories(
        rng.normal(size=(steps, 2)), rng.uniform(-1, 1, (steps, 1)), [4] * len(names), ids=names,
        first_steps=first_steps,
    )  # fmt: skip


@pytest.fixture
def pile():
    return walks(["a", "b", "c", "d"], first_steps=[0, 10, 0, 0])


def judged(pile, *labels):
    return Labels(pile.content_hash(), [Label(*each) for each in labels])


def test_incidents_and_fine_episodes_leave_the_pile_and_unsure_ones_stay(pile):
    found = judged(pile, ("b", "incident", 12), ("c", "fine"), ("d", "unsure")).split(pile)
    assert found.unlabeled.ids.tolist() == ["a", "d"]
    assert found.incidents.ids.tolist() == ["b"]
    assert found.incidents.marks.tolist() == [False, False, True, False]  # its steps begin at 10
    assert found.fine.ids.tolist() == ["c"]
    assert not found.fine.marks.any()


def test_no_labels_change_nothing(pile):
    found = judged(pile, ("a", "unsure")).split(pile)
    assert found.unlabeled is pile
    assert found.incidents is None
    assert found.fine is None


def test_a_file_holds_what_was_written(pile, tmp_path):
    labels = judged(pile, ("b", "incident", 12), ("c", "fine"))
    labels.save(tmp_path / "labels.json")
    assert Labels.load(tmp_path / "labels.json") == labels


GOOD = {"format": 1, "unlabeled_sha256": "0", "labels": [{"episode": "a", "label": "fine", "step": None}]}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "is damaged"),
        ("[]", "is damaged"),
        (json.dumps(GOOD | {"format": 2}), "is of format 2"),
        (json.dumps(GOOD | {"labels": [{"episode": "a", "label": "bad"}]}), "is damaged"),
        (json.dumps(GOOD | {"labels": [{"episode": 1, "label": "fine"}]}), "episode must be a text"),
        (json.dumps(GOOD | {"labels": GOOD["labels"] * 2}), "more than one label"),
        (json.dumps(GOOD | {"labels": [{"episode": "a", "label": "fine", "step": 3}]}), "the moment of an"),
        (json.dumps({"format": 1, "labels": []}), "unlabeled_sha256"),
    ],
)
def test_a_damaged_file_is_refused_in_a_sentence(tmp_path, text, message):
    (tmp_path / "labels.json").write_text(text)
    with pytest.raises(InputError, match=message) as refused:
        Labels.load(tmp_path / "labels.json")
    assert "labels.json" in str(refused.value)


def test_a_missing_file_says_where_to_get_it(tmp_path):
    with pytest.raises(InputError, match="download it from the report"):
        Labels.load(tmp_path / "labels.json")


@pytest.mark.parametrize(
    ("label", "message"),
    [
        (("x", "fine"), 'no unlabeled episode "x"'),
        (("b", "incident", 3), "has steps 10 to 13"),
    ],
)
def test_labels_that_do_not_fit_the_pile_are_refused(pile, label, message):
    with pytest.raises(InputError, match=message):
        judged(pile, label).split(pile)


def test_labels_of_other_data_are_refused(pile):
    with pytest.raises(InputError, match="the labels are of other episodes"):
        judged(walks(["a"], seed=5), ("a", "fine")).split(pile)


def test_not_every_episode_can_have_a_label(pile):
    with pytest.raises(InputError, match="every unlabeled episode has a label"):
        judged(pile, *((name, "fine") for name in "abcd")).split(pile)


def test_the_proposed_episodes_are_those_nearest_to_the_boundary():
    scores = np.array([0.9, 0.1, 0.8, 0.2, 0.5, 0.45])
    assert sorted(propose(scores, 0.5, count=2).tolist()) == [4, 5]  # third and fourth of six
    assert sorted(propose(scores, 0.5, count=2, without=[4]).tolist()) == [2, 5]
    assert len(propose(scores, 0.5, count=10, without=[4])) == 5


def test_training_with_labels_is_training_on_the_sorted_piles(pile, tmp_path):
    logs, incidents = walks([f"w{i}" for i in range(12)]), walks(["n0", "n1", "n2"], seed=1)
    labels = judged(logs, ("w3", "incident", 2), ("w5", "fine"), ("w6", "unsure"))
    labels.save(tmp_path / "labels.json")
    given = {"progress": False, **TINY}
    run = safemil.train(
        "safemil", nonpreferred=incidents, unlabeled=logs, labels=tmp_path / "labels.json",
        out=tmp_path / "run", **given,
    )  # fmt: skip
    left, bad, fine = labels.split(logs)
    same = safemil.train(
        "safemil", nonpreferred=joined(incidents, bad), unlabeled=left, preferred=fine, **given
    )
    for one, other in zip(run.cost(logs), same.cost(logs), strict=True):
        np.testing.assert_array_equal(one, other)
    assert (run.evidence.incidents, run.evidence.unlabeled) == (4, 10)
    assert Labels.load(tmp_path / "run" / "labels.json") == labels
    manifest = RunDirectory(tmp_path / "run").read_manifest()
    assert manifest["unlabeled_sha256"] == left.content_hash()


def test_the_command_takes_labels_and_the_report_shows_what_is_left(tmp_path, capsys):
    logs, incidents = walks([f"w{i}" for i in range(12)]), walks(["n0", "n1", "n2"], seed=1)
    for name, each in (("logs", logs), ("incidents", incidents)):
        safemil.save(tmp_path / name, each)
    judged(logs, ("w3", "incident"), ("w5", "fine")).save(tmp_path / "labels.json")
    piles = ["--unlabeled", str(tmp_path / "logs"), "--nonpreferred", str(tmp_path / "incidents")]
    tiny = [
        f"--set={name}={list(value) if isinstance(value, tuple) else value}" for name, value in TINY.items()
    ]
    command = ["train", "safemil", *piles, *tiny, "--labels", str(tmp_path / "labels.json")]
    assert main([*command, "--out", str(tmp_path / "run")]) == 0
    assert main([*command, "--out", str(tmp_path / "run"), "--resume"]) == 0
    out = tmp_path / "report.html"
    assert main(["report", str(tmp_path / "run"), "--out", str(out)]) == 0
    text = out.read_text()
    assert "not the ones this run was trained on" not in text
    assert ">w4<" in text
    assert ">w3<" not in text
    (tmp_path / "labels.json").write_text("{}")
    assert main([*command, "--out", str(tmp_path / "other")]) == 2
    assert "labels.json is damaged" in capsys.readouterr().err


def test_labels_without_use_are_refused(pile):
    labels = judged(pile, ("a", "fine"))
    with pytest.raises(InputError, match="true rewards and costs"):
        safemil.train(
            "bc",
            unlabeled=pile,
            annotations=safemil.data.Annotations(np.ones(16), np.ones(16)),
            labels=labels,
        )
