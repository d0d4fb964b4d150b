"""Training and asking a run, from Python."""

import re
import types
from dataclasses import replace

import jax
import numpy as np
import pytest
from tests.conftest import random_episodes

import safemil
from safemil.algorithms import bc, find
from safemil.data import Annotations, Trajectories
from safemil.errors import InputError, InputWarning, NoEvidenceError
from safemil.evidence import Evidence
from safemil.runs import RunDirectory
from small import SMALL


@pytest.fixture(scope="module")
def train(unlabeled, nonpreferred):
    def train(**options):
        options = {"unlabeled": unlabeled, "nonpreferred": nonpreferred, "log_every": 20} | SMALL | options
        return safemil.train("safemil", **options)

    return train


@pytest.fixture(scope="module")
def run(train):
    return train(seed=3)


@pytest.fixture(scope="module")
def pair(train):
    return train(seed=3, seeds=2)


def test_a_cost_is_given_for_every_step_of_every_episode(run, unlabeled):
    costs = run.cost(unlabeled)
    assert [len(episode) for episode in costs] == unlabeled.lengths.tolist()
    assert all(((episode > 0) & (episode < 1)).all() for episode in costs)


def test_an_action_is_deterministic_unless_a_key_is_given(run, unlabeled):
    observation = unlabeled.observations[0]
    np.testing.assert_array_equal(run.act(observation), run.act(observation))
    sampled = [run.act(observation, key=jax.random.key(seed)) for seed in (0, 0, 1)]
    np.testing.assert_array_equal(sampled[0], sampled[1])
    assert (sampled[0] != sampled[2]).any()


def test_a_batch_of_observations_gives_a_batch_of_actions(run, unlabeled):
    actions = run.act(unlabeled.observations[:5])
    np.testing.assert_allclose(actions[2], run.act(unlabeled.observations[2]), rtol=1e-5, atol=1e-6)


def test_actions_come_in_the_units_of_the_log(unlabeled):
    rescaled = Trajectories(
        unlabeled.observations, unlabeled.actions, unlabeled.lengths, action_low=[0, -10], action_high=[1, 10]
    )
    plain, scaled = (
        safemil.train("bc", unlabeled=pile, updates=20, hidden_policy=[8]).act(unlabeled.observations[:4])
        for pile in (unlabeled, rescaled)
    )
    np.testing.assert_allclose(scaled, plain * [0.5, 10] + [0.5, 0], rtol=1e-5)


def test_a_run_comes_back_from_disk_as_it_was(run, unlabeled, tmp_path):
    run.save(tmp_path / "run")
    loaded = safemil.Run.load(tmp_path / "run")
    assert (loaded.algorithm, loaded.config, loaded.seeds) == (run.algorithm, run.config, run.seeds)
    assert loaded.metrics == run.metrics
    np.testing.assert_array_equal(np.concatenate(loaded.cost(unlabeled)), np.concatenate(run.cost(unlabeled)))
    np.testing.assert_array_equal(loaded.act(unlabeled.observations), run.act(unlabeled.observations))


def test_several_seeds_share_a_run(run, pair, unlabeled):
    assert (len(pair), pair.seeds, pair[1].seeds) == (2, (3, 4), (4,))
    each = [np.concatenate(pair[i].cost(unlabeled)) for i in (0, 1)]
    np.testing.assert_allclose(np.concatenate(pair.cost(unlabeled)), np.mean(each, axis=0), rtol=1e-5)
    np.testing.assert_allclose(each[0], np.concatenate(run.cost(unlabeled)), rtol=1e-3)
    with pytest.raises(InputError, match=r"holds 2 seeds; choose one: run\[0\].act"):
        pair.act(unlabeled.observations[0])


def test_the_spread_of_a_cost_is_the_deviation_over_its_seeds(run, pair, unlabeled):
    found = pair.cost(unlabeled, spread=True)
    each = np.stack([np.concatenate(pair[i].cost(unlabeled)) for i in range(2)])
    np.testing.assert_allclose(np.concatenate(found.mean), each.mean(axis=0), rtol=1e-6)
    np.testing.assert_allclose(np.concatenate(found.deviation), each.std(axis=0, ddof=1), atol=1e-6)
    assert np.concatenate(found.deviation).max() > 0
    with pytest.raises(InputError, match=r"two or more of them, this run has one; train with `seeds=3`"):
        run.cost(unlabeled, spread=True)


def test_metrics_tell_how_training_went(run):
    assert [line["update"] for line in run.metrics] == [20, 40, 60]
    assert "loss/cost" in run.metrics[0]
    assert "loss/cost" not in run.metrics[2]  # the cost has stopped learning by then


def test_training_into_a_folder_ends_as_training_in_memory(run, train, tmp_path):
    kept = train(seed=3, out=tmp_path / "run", checkpoint_seconds=0)
    for ours, theirs in zip(jax.tree.leaves(kept._state), jax.tree.leaves(run._state), strict=True):
        np.testing.assert_array_equal(ours, theirs)
    assert len(list((tmp_path / "run" / "checkpoints").glob("*.json"))) == 2


def test_an_interrupted_run_saves_and_resumes_to_the_same_end(run, train, tmp_path, monkeypatch):
    record = safemil.api._Recorder._record

    def interrupt(self, shown, step, state, metrics):
        record(self, shown, step, state, metrics)
        if step == 40:
            raise KeyboardInterrupt

    monkeypatch.setattr(safemil.api._Recorder, "_record", interrupt)
    with pytest.raises(KeyboardInterrupt):
        train(seed=3, out=tmp_path / "run")
    monkeypatch.undo()
    assert safemil.Run.load(tmp_path / "run").metrics[-1]["update"] == 40
    resumed = train(seed=3, out=tmp_path / "run", resume=True)
    for ours, theirs in zip(jax.tree.leaves(resumed._state), jax.tree.leaves(run._state), strict=True):
        np.testing.assert_array_equal(ours, theirs)
    assert [line["update"] for line in resumed.metrics] == [20, 40, 60]


def test_resuming_with_other_settings_or_data_is_refused(train, unlabeled, tmp_path):
    train(out=tmp_path / "run")
    with pytest.raises(InputError, match="was begun with other settings"):
        train(out=tmp_path / "run", resume=True, beta=0.1)
    with pytest.raises(InputError, match="was begun with other settings"):
        train(out=tmp_path / "run", resume=True, seed=1)
    with pytest.raises(InputError, match="was begun with other data"):
        train(out=tmp_path / "run", resume=True, unlabeled=unlabeled.take([0, 1, 2]))


def test_piles_of_different_width_are_refused_and_nothing_is_written(train, tmp_path):
    other = Trajectories(np.zeros((4, 5)), np.zeros((4, 2)), [4])
    with pytest.raises(
        InputError, match="unlabeled pile has 3 observation columns, but the non-preferred pile has 5"
    ):
        train(nonpreferred=other, out=tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_piles_with_different_action_bounds_are_refused(train, nonpreferred):
    other = Trajectories(
        nonpreferred.observations, nonpreferred.actions, nonpreferred.lengths, action_high=[2, 2]
    )
    with pytest.raises(
        InputError,
        match="action 0 bounded by -1 and 1, but the non-preferred pile has it bounded by -1 and 2",
    ):
        train(nonpreferred=other)


def test_data_of_another_width_than_the_run_is_refused(run):
    other = Trajectories(np.zeros((4, 5)), np.zeros((4, 2)), [4])
    with pytest.raises(InputError, match="trained on 3 observation columns, but the data have 5"):
        run.cost(other)
    with pytest.raises(InputError, match="trained on 3 observation"):
        run.act(np.zeros(5))


def test_an_observation_with_nan_is_refused(run):
    with pytest.raises(InputError, match="must be finite"):
        run.act([np.nan, 0, 0])


def test_an_episode_in_both_piles_is_warned_about(train, unlabeled):
    with pytest.raises(UserWarning, match="1 episodes are in both piles"):  # warnings are errors here
        train(nonpreferred=unlabeled.take([2]))


def test_known_good_episodes_are_taken_out_of_the_unlabeled_ones_and_recorded(train, unlabeled, tmp_path):
    known = unlabeled.take([0, 2])
    run = train(preferred=known, out=tmp_path / "run")
    assert run.evidence is not None
    assert (run.evidence.unlabeled, run.evidence.preferred) == (2, 2)
    apart = train(preferred=known, unlabeled=unlabeled.take([1, 3]))
    for ours, theirs in zip(jax.tree.leaves(run._state), jax.tree.leaves(apart._state), strict=True):
        np.testing.assert_array_equal(ours, theirs)
    loaded = safemil.Run.load(tmp_path / "run")
    assert loaded.evidence == run.evidence
    np.testing.assert_array_equal(loaded.cost(known)[0], run.cost(known)[0])
    for others in ({}, {"preferred": unlabeled.take([0])}):
        with pytest.raises(InputError, match=r"other data \(preferred_sha256 differs\)"):
            train(out=tmp_path / "run", resume=True, **others)
    train(preferred=known, out=tmp_path / "run", resume=True)


def test_preferred_episodes_that_contradict_the_other_piles_are_refused(train, unlabeled, nonpreferred):
    with pytest.raises(InputError, match=r"1 of the 1 preferred episodes are non-preferred too \(first: 1\)"):
        train(preferred=nonpreferred.take([1]))
    with pytest.raises(InputError, match="every unlabeled episode is preferred"):
        train(preferred=unlabeled)
    with pytest.raises(InputError, match="but the preferred pile has 5"):
        train(preferred=Trajectories(np.zeros((4, 5)), np.zeros((4, 2)), [4]))


def test_preferred_episodes_are_refused_where_they_have_no_use(unlabeled, nonpreferred):
    with pytest.raises(InputError, match="bc has no use for known good episodes"):
        safemil.train("bc", unlabeled=unlabeled, preferred=unlabeled.take([0]))
    with pytest.raises(InputError, match="bags have no use for known good episodes"):
        safemil.train(
            "safemil",
            preset="paper",
            length=3,
            unlabeled=unlabeled,
            nonpreferred=nonpreferred,
            preferred=unlabeled.take([0]),
        )


def test_a_missing_pile_is_asked_for(unlabeled):
    with pytest.raises(InputError, match=r"give them as `nonpreferred=...`"):
        safemil.train("safemil", unlabeled=unlabeled)


def test_an_algorithm_without_a_cost_says_so(unlabeled):
    run = safemil.train("bc", unlabeled=unlabeled, updates=1, hidden_policy=[8])
    with pytest.raises(InputError, match="bc learns no cost"):
        run.cost(unlabeled)
    assert not run.learns_cost


def test_a_run_with_a_missing_or_unknown_setting_is_refused(run, tmp_path):
    run.save(tmp_path / "run")
    config = tmp_path / "run" / "config.toml"
    text = config.read_text()
    config.write_text(re.sub(r"(beta|gamma) = .*\n", "", text))
    with pytest.raises(InputError, match=r"does not fit this version of safemil: .* no gamma, beta"):
        safemil.Run.load(tmp_path / "run")
    config.write_text(text + "betta = 1\n")
    with pytest.raises(InputError, match=r'does not fit .*: no setting "betta"'):
        safemil.Run.load(tmp_path / "run")


def test_a_folder_that_is_not_a_run_is_not_resumed(train, tmp_path):
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(InputError, match="is not a run"):
        train(out=tmp_path, resume=True)
    assert [each.name for each in tmp_path.iterdir()] == ["notes.txt"]


def test_an_algorithm_is_given_by_name_module_or_settings(unlabeled):
    small = {"updates": 2, "hidden_policy": (8,)}
    runs = [
        safemil.train("bc", unlabeled=unlabeled, **small),
        safemil.train(bc, unlabeled=unlabeled, **small),
        safemil.train(bc.Config(**small), unlabeled=unlabeled),
    ]
    assert [run.algorithm for run in runs] == ["bc"] * 3
    actions = [run.act(unlabeled.observations) for run in runs]
    np.testing.assert_array_equal(actions[0], actions[1])
    np.testing.assert_array_equal(actions[0], actions[2])
    with pytest.raises(InputError, match='leave out the preset "paper"'):
        safemil.train(bc.Config(), unlabeled=unlabeled, preset="paper")


def test_a_module_that_no_package_offers_trains_in_memory_alone(unlabeled, tmp_path):
    mine = types.ModuleType("mine")
    vars(mine).update({name: value for name, value in vars(bc).items() if not name.startswith("__")})
    small = {"updates": 2, "hidden_policy": [8]}
    run = safemil.train(mine, unlabeled=unlabeled, **small)
    assert run.act(unlabeled.observations).shape == (unlabeled.steps, 2)
    for write in (run.save, lambda out: safemil.train(mine, unlabeled=unlabeled, out=out, **small)):
        with pytest.raises(InputError, match='no installed package offers "mine"'):
            write(tmp_path / "run")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"seed": -1}, "seed must be at least 0, got -1"),
        ({"seeds": 0}, "seeds must be at least 1, got 0"),
        ({"log_every": 0}, "log_every must be at least 1, got 0"),
        ({"preset": "quick"}, 'no preset "quick"'),
        ({"betta": 1}, 'no setting "betta"; did you mean "beta"?'),
    ],
)
def test_bad_options_are_refused(train, options, message):
    with pytest.raises(InputError) as error:
        train(**options)
    assert message in str(error.value)


def test_wrong_algorithms_are_answered_with_the_near_ones(unlabeled):
    with pytest.raises(InputError, match='did you mean "safemil"'):
        safemil.train("safemill", unlabeled=unlabeled)


def test_the_public_names_are_all_there():
    for name in safemil.__all__:
        assert getattr(safemil, name) is not None
    with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
        _ = safemil.nothing


def test_strict_training_without_evidence_stops_before_a_policy_is_cloned(train, tmp_path):
    """Three incidents can't be told from four other episodes, whatever their scores are."""
    with pytest.raises(NoEvidenceError, match=r"no policy was cloned.*this may be chance"):
        train(seed=3, out=tmp_path / "run", strict=True)
    assert Evidence.load(tmp_path / "run").grade == "none"
    stopped = RunDirectory(tmp_path / "run").latest_checkpoint()
    assert stopped is not None
    assert stopped.update == 40  # cost_updates


def test_strict_needs_an_algorithm_that_measures_evidence(unlabeled):
    with pytest.raises(InputError, match="bc with these settings measures no evidence"):
        safemil.train("bc", unlabeled=unlabeled, strict=True)


def test_raising_updates_on_resume_goes_on_and_says_what_it_does(train, tmp_path):
    train(seed=3, out=tmp_path / "run")
    with pytest.warns(
        InputWarning, match=r"goes on to 80 updates instead of 60; the policy's learning rate.* rises"
    ):
        longer = train(seed=3, out=tmp_path / "run", resume=True, updates=80)
    assert [line["update"] for line in longer.metrics] == [20, 40, 60, 80]
    assert safemil.Run.load(tmp_path / "run").config.updates == 80
    assert (longer.metrics[-1].keys()) & {"loss/cost"} == set()  # the phase of the cost is as long as before
    with pytest.raises(InputError, match="was begun with 80 updates, which can only be raised, got 60"):
        train(seed=3, out=tmp_path / "run", resume=True)


def test_without_decay_a_raised_run_ends_as_one_begun_with_as_many(unlabeled, tmp_path):
    options = {"unlabeled": unlabeled, "hidden_policy": [8], "cosine_decay": False, "log_every": 10}
    safemil.train("bc", updates=20, out=tmp_path / "run", **options)
    raised = safemil.train("bc", updates=40, out=tmp_path / "run", resume=True, **options)
    whole = safemil.train("bc", updates=40, **options)
    np.testing.assert_array_equal(
        raised.act(unlabeled.observations[:20]), whole.act(unlabeled.observations[:20])
    )


def test_training_starts_from_a_run_with_its_normaliser_and_columns(unlabeled, tmp_path):
    options = {"hidden_policy": [8], "log_every": 10}
    named = replace(unlabeled, observation_names=("a", "b", "c"), action_names=("x", "y"))
    first = safemil.train("bc", unlabeled=named, updates=40, out=tmp_path / "first", **options)
    turned = replace(
        named, observations=10 + named.observations[:, ::-1].copy(), observation_names=("c", "b", "a"),
        final_observations=None, has_final=None,
    )  # fmt: skip
    same = safemil.train("bc", unlabeled=turned, init_from=first, updates=1, lr=1e-12, **options)
    assert same.observation_names == ("a", "b", "c")
    np.testing.assert_allclose(same.act([0.1, 0.2, 0.3]), first.act([0.1, 0.2, 0.3]), atol=1e-5)
    far = dict(
        zip("cba", turned.observations[0].tolist(), strict=True)
    )  # within the range of the new data, beyond that of the first
    same.act(far)
    with pytest.warns(InputWarning, match="unlike"):
        first.act(far)
    loaded = safemil.train("bc", unlabeled=turned, init_from=tmp_path / "first", updates=30, **options)
    again = safemil.train("bc", unlabeled=turned, init_from=first, updates=30, **options)
    np.testing.assert_array_equal(loaded.act([0.1, 0.2, 0.3]), again.act([0.1, 0.2, 0.3]))


@pytest.mark.parametrize("name", ["safemil", "bc", "coptidice"])  # an ensemble, one network, several
def test_an_algorithm_starts_from_a_run_of_its_own(name, dataset_piles):
    settings = {"updates": 2, "hidden_policy": [8]}
    if name == "safemil":
        settings |= SMALL | {"updates": 3, "cost_updates": 2, "members": 2}
    first = safemil.train(name, **dataset_piles(name), seed=1, **settings)
    slow = {field: 1e-12 for field in vars(first.config) if field.startswith("lr")}
    second = safemil.train(name, **dataset_piles(name), seed=2, init_from=first, **settings | slow)
    observation = [0.1, 0.2, 0.3]
    np.testing.assert_allclose(second.act(observation), first.act(observation), atol=1e-4)


def test_a_run_to_start_from_must_fit(run, pair, train, unlabeled):
    with pytest.raises(InputError, match="init_from is a run of safemil, not of bc"):
        safemil.train("bc", unlabeled=unlabeled, init_from=run)
    with pytest.raises(InputError, match="holds 2 seeds, but 1 are trained; choose one, as in"):
        train(init_from=pair)
    with pytest.raises(InputError, match="GaussianPolicy of the run to start from has other layers"):
        train(init_from=run, hidden_policy=[9])


def test_a_run_is_resumed_with_the_run_that_it_started_from(run, train, tmp_path):
    train(init_from=run, out=tmp_path / "run")
    with pytest.raises(InputError, match="begun with other data \\(init_from_sha256 differs\\)"):
        train(resume=True, out=tmp_path / "run")
    train(init_from=run, resume=True, out=tmp_path / "run")


@pytest.fixture(scope="module")
def dataset_piles(unlabeled, nonpreferred):
    rng = np.random.default_rng(0)
    truth = Annotations(rng.random(unlabeled.steps), (rng.random(unlabeled.steps) < 0.3).astype(np.float32))
    offered = {"nonpreferred": nonpreferred, "annotations": truth}

    def piles(name):
        return {"unlabeled": unlabeled} | {key: offered[key] for key in find(name).NEEDS}

    return piles


def test_an_incident_and_another_episode_train_and_their_evidence_says_what_they_can_support(
    train, unlabeled, nonpreferred
):
    run = train(nonpreferred=nonpreferred.take([0]), unlabeled=unlabeled.take([0]), members=4)
    assert all(np.isfinite(each).all() for each in run.cost(unlabeled))
    assert run.evidence is not None
    assert run.evidence.grade == "none"
    assert any("no AUC would be evidence: more are needed" in line for line in run.evidence.lines())


def test_one_kind_of_episodes_alone_is_no_evidence(train, unlabeled):
    """Both piles hold the same kind of random episodes."""
    run = train(nonpreferred=random_episodes([6] * 12, seed=11), unlabeled=random_episodes([6] * 30, seed=12))
    assert run.evidence is not None
    assert run.evidence.grade == "none"
    assert run.evidence.lines()[1].endswith("this may be chance.")
    costs = np.concatenate(run.cost(unlabeled))
    assert ((costs > 0) & (costs < 1)).all()
