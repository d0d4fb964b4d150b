"""What every algorithm keeps to."""

import dataclasses
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from safemil import loop
from safemil.algorithms import ALGORITHMS, find
from safemil.data import Trajectories, sampling
from safemil.data.sampling import Dataset, Scaler
from safemil.errors import InputError
from safemil.networks import CategoricalPolicy
from safemil.settings import meanings

SMALL = {  # settings that make an update cheap, for the algorithms that have them
    "updates": 6,
    "cost_updates": 4,
    "batch": 8,
    "bag_size": 4,
    "pool": 6,
    "policy_batch": 4,
    "length": 3,
    "hidden_cost": (8,),
    "hidden_policy": (8,),
    "hidden_discriminator": (8,),
    "hidden_reward": (8,),
    "hidden_nu": (8,),
    "hidden_critic": (8,),
    "reward_updates": 4,
    "pairs": 4,
    "discriminator_batch": 8,
    "cost_batch": 8,
    "members": 2,
}


METRICS_PAGE = (Path(__file__).parents[2] / "docs" / "metrics.md").read_text(encoding="utf-8")


def small_config(name: str):
    config = find(name).PRESETS["fast"]
    fields = {field.name for field in dataclasses.fields(config)}
    return dataclasses.replace(config, **{key: value for key, value in SMALL.items() if key in fields})


def run(name, dataset, seeds, **options):
    """Fit, and return the state after each interval of two updates."""
    algorithm, config, states = find(name), small_config(name), {}
    state = options.pop("state", None)
    if state is None:
        state = loop.init(algorithm, config, dataset, seeds)
    loop.fit(
        algorithm,
        config,
        dataset,
        seeds,
        state,
        interval=2,
        on_interval=lambda i, s, m: states.update({i: (s, m)}),
        **options,
    )
    return states


@pytest.fixture(scope="module", params=ALGORITHMS)
def name(request):
    return request.param


@pytest.fixture(scope="module")
def states(name, dataset):
    return run(name, dataset, [7])


def test_every_setting_is_explained(name):
    explained = meanings(find(name).Config)
    assert all(explained.values())
    assert find(name).OURS.issubset(explained)


def assert_same(a, b):
    for x, y in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True):
        np.testing.assert_array_equal(x, y)


def test_same_seed_gives_the_same_run_bit_for_bit(name, dataset, states):
    assert_same(run(name, dataset, [7])[6][0], states[6][0])


def test_a_resumed_run_ends_where_the_uninterrupted_one_ends(name, dataset, states):
    algorithm, config = find(name), small_config(name)
    halfway = loop.state_arrays(loop.compact(algorithm, states[4][0]))
    restored = loop.state_from_arrays(loop.compact(algorithm, states[2][0]), halfway)
    restored = loop.derive(algorithm, config, restored, dataset, done=4)
    assert_same(restored, states[4][0])
    assert_same(run(name, dataset, [7], state=restored, start=4)[6][0], states[6][0])


def test_no_array_of_a_checkpoint_has_an_entry_for_each_step(name, dataset, states):
    """Episodes of 19 and 27 steps in all: no other size of these networks and batches is as large."""
    saved = loop.state_arrays(loop.compact(find(name), states[6][0]))
    steps = {len(dataset.unlabeled.actions), len(dataset.nonpreferred.actions)}
    assert not {path: array.shape for path, array in saved.items() if steps & {*array.shape}}


def test_seeds_trained_side_by_side_follow_their_single_runs(name, dataset, states):
    together = run(name, dataset, [3, 7])[2][0]
    second = jax.tree.map(lambda leaf: leaf[1:], together)
    for x, y in zip(jax.tree.leaves(second), jax.tree.leaves(states[2][0]), strict=True):
        np.testing.assert_allclose(x, y, rtol=1e-4, atol=1e-5)


@pytest.fixture(scope="module")
def on_host(unlabeled, nonpreferred, annotations):
    """The same piles with the unlabeled steps on the host, which passes read in several blocks."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sampling, "ROWS_AT_ONCE", 8)
        piles = Scaler.of(unlabeled), unlabeled, nonpreferred, annotations
        yield Dataset.of(*piles, on_host=True)


def test_steps_that_stay_on_the_host_give_the_same_run(name, on_host, states):
    for (_, metrics), (_, expected) in zip(run(name, on_host, [7]).values(), states.values(), strict=True):
        for metric, value in metrics.items():
            np.testing.assert_allclose(value, expected[metric], rtol=1e-4, atol=1e-5, err_msg=metric)


def test_every_metric_is_a_finite_number_where_it_is_computed(states):
    """A method may learn its parts one after the other: then some metrics come early and some late."""
    logged = [metrics for _, metrics in states.values()]
    for name in logged[0]:
        assert any(np.isfinite(metrics[name]).all() for metrics in logged), name


def test_every_metric_is_explained_in_the_documentation(states):
    for metric in states[6][1]:
        assert f"| `{metric}` |" in METRICS_PAGE, metric


def test_actions_lie_in_their_bounds(name, dataset, states):
    state = jax.tree.map(lambda leaf: leaf[0], states[6][0])
    observations = dataset.unlabeled.observations
    for key in (None, jax.random.key(0)):
        actions = find(name).act(state, observations, key)
        assert actions.shape == dataset.unlabeled.actions.shape
        assert (np.abs(actions) <= 1).all()


def test_extreme_inputs_leave_every_number_finite(name, unlabeled, nonpreferred, annotations):
    """Outliers of a million deviations, and actions that all lie on their bounds."""

    def extreme(pile: Trajectories) -> Trajectories:
        observations = pile.observations.copy()
        observations[::5] *= 1e6
        return Trajectories(observations, np.sign(pile.actions), pile.lengths, pile.final_observations)

    data = Dataset.of(Scaler.of(unlabeled), extreme(unlabeled), extreme(nonpreferred), annotations)
    state, _ = run(name, data, [7])[6]
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(state))


@pytest.mark.parametrize("components", [1, 3])
def test_a_policy_has_as_many_gaussians_as_are_asked_for(name, dataset, components):
    config = dataclasses.replace(small_config(name), components=components)

    def mixture():
        policy = find(name).init(config, dataset, jax.random.key(0)).policy
        return policy.mixture(dataset.unlabeled.observations)

    log_weights, means, _ = jax.eval_shape(mixture)  # traced, not compiled
    assert log_weights.shape[-1] == means.shape[-2] == components
    with pytest.raises(InputError, match="components must be above 0, got 0"):
        dataclasses.replace(config, components=0)


def test_actions_that_are_choices_get_a_categorical_policy(name, dataset):
    choices = 2 * jax.nn.one_hot(jnp.arange(len(dataset.unlabeled.actions)) % 2, 2) - 1
    piles = [
        dataclasses.replace(pile, actions=choices[: len(pile.actions)], discrete=True)
        for pile in (dataset.unlabeled, dataset.nonpreferred)
    ]
    data, config = dataset._replace(unlabeled=piles[0], nonpreferred=piles[1]), small_config(name)
    if name == "coptidice":
        with pytest.raises(InputError, match="adds noise to actions, but these are choices; set noise=0"):
            find(name).init(dataclasses.replace(config, noise=0.1), data, jax.random.key(0))

    def act():
        key = jax.random.key(0)
        state = find(name).init(config, data, key)
        state, _ = find(name).update(config, state, data, jnp.array(5), key)
        return state.policy, find(name).act(state, data.unlabeled.observations, key)

    policy, actions = jax.eval_shape(act)  # traced, not compiled
    assert isinstance(policy, CategoricalPolicy)
    assert actions.shape == choices.shape
    with pytest.raises(InputError, match='loss "mse" is for actions that are numbers'):
        dataclasses.replace(config, loss="mse").policy(data, jax.random.key(0))


def test_a_module_says_what_it_is_and_where_it_comes_from(name):
    module, algorithm = ALGORITHMS[name], find(name)
    assert algorithm.summary.endswith(".")
    assert "arXiv" in module.__doc__
    assert {"nonpreferred", "annotations"} >= algorithm.NEEDS
    assert set(algorithm.PRESETS) == {"fast", "paper"}
    assert all(isinstance(preset, algorithm.Config) for preset in algorithm.PRESETS.values())
