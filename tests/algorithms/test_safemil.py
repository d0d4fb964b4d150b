"""SafeMIL's losses and weights, on numbers a reader can check."""

import dataclasses
import itertools
import typing
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jax.test_util import check_grads

from safemil import loop
from safemil.algorithms import find, safemil
from safemil.algorithms.base import NOT_COMPUTED
from safemil.algorithms.cloning import bc_losses
from safemil.algorithms.safemil import (
    Config,
    advice,
    bag_scores,
    cost_loss,
    pile_weights,
    policy_loss,
    preferred_share_needed,
    segment_costs,
    segment_weights,
    transition_weights,
)
from safemil.data import Trajectories
from safemil.data.sampling import (
    Bags,
    Dataset,
    Pile,
    Scaler,
    Segments,
    draw_steps,
    sample_bags,
    sample_segments,
)
from safemil.errors import InputError
from safemil.networks import CostNet, GaussianPolicy


def first_observation(observations, actions):
    """A cost that a reader can see: the first column of the observation."""
    return observations[..., 0]


def segments_with_costs(costs, mask=None):
    """Segments (M, H) whose cost under `first_observation` is given."""
    costs = jnp.asarray(costs)
    mask = jnp.ones(costs.shape) if mask is None else jnp.asarray(mask, jnp.float32)
    return Segments(costs[..., None], jnp.zeros((*costs.shape, 1)), mask, jnp.zeros(costs.shape, jnp.int32))


def pile_with_costs(costs, lengths):
    costs = np.asarray(costs, np.float32)[:, None]
    return Pile.of(Trajectories(costs, np.zeros_like(costs), lengths), Scaler(jnp.zeros(1), jnp.ones(1)))


@pytest.fixture(scope="module")
def nets():
    key_cost, key_policy = jax.random.split(jax.random.key(0))
    return CostNet(3, 2, [8, 8], key=key_cost), GaussianPolicy(3, 2, [8], key=key_policy)


@pytest.fixture(scope="module")
def segments(dataset):
    return sample_segments(dataset.unlabeled, 16, 4, jax.random.key(3))


def test_a_segment_costs_the_discounted_sum_of_its_steps():
    costs = segment_costs(first_observation, segments_with_costs([[1.0, 0.5, 0.25]]), gamma=0.5)
    np.testing.assert_allclose(costs, [1 + 0.25 + 0.0625])


def test_a_bag_scores_the_mean_of_its_segments():
    pool = segments_with_costs([[0.2], [0.4], [0.9]])
    scores = bag_scores(first_observation, Bags(pool, jnp.array([[0, 1], [2, 2]])), gamma=0.99)
    np.testing.assert_allclose(scores, [0.3, 0.9], rtol=1e-6)


@settings(max_examples=20, deadline=None)
@given(st.permutations(range(6)))
def test_the_order_of_the_segments_in_a_bag_does_not_matter(order):
    pool = segments_with_costs([[0.1], [0.5], [0.2], [0.8], [0.3], [0.9]])
    members = jnp.array([0, 1, 1, 3, 4, 5])
    plain = bag_scores(first_observation, Bags(pool, members[None]), gamma=0.99)
    np.testing.assert_allclose(
        bag_scores(first_observation, Bags(pool, members[jnp.array(order)][None]), gamma=0.99),
        plain,
        rtol=1e-6,
    )


def test_the_cost_loss_is_bradley_terry():
    loss = cost_loss(jnp.array([2.0, 0.0]), jnp.array([1.0, 1.0]))
    by_hand = -(np.log(np.e**2 / (np.e**2 + np.e)) + np.log(1 / (1 + np.e))) / 2
    np.testing.assert_allclose(loss, by_hand, rtol=1e-6)


def test_a_bag_compared_with_itself_gives_log_two(nets, dataset):
    bags = sample_bags(dataset.unlabeled, bags=4, size=6, length=3, pool=None, key=jax.random.key(0))
    scores = bag_scores(nets[0], bags, gamma=0.99)
    np.testing.assert_allclose(cost_loss(scores, scores), np.log(2), rtol=1e-6)


def test_a_hopelessly_ranked_pair_has_a_finite_loss_and_a_gradient():
    value, grad = jax.value_and_grad(lambda n: cost_loss(n, jnp.array([500.0])))(jnp.array([0.0]))
    np.testing.assert_allclose(value, 500.0)
    np.testing.assert_allclose(grad, [-1.0])


SIZE, POOL = 16, 32


@pytest.fixture(scope="module")
def scores(nets, dataset):
    """Scores of many bags, one an update, with a pool and without."""

    def score(pool):
        def one(key):
            bags = sample_bags(dataset.unlabeled, bags=1, size=SIZE, length=3, pool=pool, key=key)
            return bag_scores(nets[0], bags, gamma=0.99)[0]

        return np.asarray(jax.jit(jax.vmap(one))(jax.random.split(jax.random.key(0), 4000)))

    return score(POOL), score(None)


def test_pooled_and_independent_bags_agree_in_expectation(scores):
    pooled, independent = scores
    error = np.sqrt((pooled.var() + independent.var()) / len(pooled))
    assert abs(pooled.mean() - independent.mean()) < 4 * error


def test_the_variance_of_a_pooled_score_is_that_of_bag_and_pool(scores):
    pooled, independent = scores
    np.testing.assert_allclose(pooled.var() / independent.var(), 1 + (SIZE - 1) / POOL, rtol=0.12)


def test_segment_weights_fall_with_the_cost():
    weights = segment_weights(
        first_observation, segments_with_costs([[0.0], [0.5], [1.0]]), gamma=1.0, beta=0.5
    )
    np.testing.assert_allclose(weights[:, 0] / weights[0, 0], np.exp([0, -1, -2]), rtol=1e-6)


def test_weights_of_long_expensive_segments_do_not_underflow():
    costs = jnp.stack([jnp.ones(1000), 0.9 * jnp.ones(1000)])  # Σ = 1000 and 900: exp(−Σ/β) is 0 in float32
    weights = segment_weights(first_observation, segments_with_costs(costs), gamma=1.0, beta=0.5)
    np.testing.assert_allclose(weights[:, 0], [0, 1], atol=1e-6)


def test_transition_weights_are_one_minus_the_cost():
    weights = transition_weights(first_observation, segments_with_costs([[0.2, 0.7]], mask=[[1, 0]]))
    np.testing.assert_allclose(weights, [[0.8, 0.0]], rtol=1e-6)


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        # episodes cost 0 + γ·1 = 0.5 and 1 + 0 = 1
        (Config(weighting="episode", gamma=0.5, beta=0.5), [1, 1, np.exp(-1), np.exp(-1)]),
        (Config(weighting="threshold", gamma=0.5, threshold=0.7), [1, 1, 0, 0]),
        (Config(weighting="transition"), [1, 0, 0, 1]),
        # segments of one step cost what the step does, segments of two what the episode does
        (Config(weighting="segment", length=1, beta=0.5), np.exp([0, -2, -2, 0])),
        (Config(weighting="segment", length=2, gamma=0.5, beta=0.5), [1, 1, np.exp(-1), np.exp(-1)]),
        (Config(weighting="segment", length="full", gamma=0.5, beta=0.5), [1, 1, np.exp(-1), np.exp(-1)]),
        # from each step on: 0.5, 1, 1, 0, and the least of them is 0
        (Config(weighting="cost-to-go", gamma=0.5, beta=0.5), np.exp([-1, -2, -2, 0])),
    ],
)
def test_whole_episodes_are_weighed_by_their_scheme(config, expected):
    pile = pile_with_costs([0, 1, 1, 0], lengths=[2, 2])
    weigh = jax.jit(lambda pile: pile_weights(config, pile.observations[:, 0], pile))
    np.testing.assert_allclose(weigh(pile).each, expected, rtol=1e-5)


def test_a_step_weighs_as_the_segments_it_is_in_do_on_average():
    """Segments of two steps in one episode of three and one of one: costs 0 + 1, 1 + 0 and 3."""
    pile = pile_with_costs([0, 1, 0, 3], lengths=[3, 1])
    config = Config(weighting="segment", length=2, gamma=1.0, beta=1.0)
    weights = jax.jit(lambda pile: pile_weights(config, pile.observations[:, 0], pile))(pile)
    np.testing.assert_allclose(weights.each, [1, 1, 1, np.exp(-2)], rtol=1e-5)
    config = dataclasses.replace(config, gamma=0.5)  # now 0.5, 1 and 3
    weights = jax.jit(lambda pile: pile_weights(config, pile.observations[:, 0], pile))(pile)
    low = np.exp(-0.5)
    np.testing.assert_allclose(weights.each, [1, (1 + low) / 2, low, np.exp(-2.5)], rtol=1e-5)


def test_steps_by_weight_are_segments_by_weight_in_expectation(nets):
    """Single steps drawn by weight, and segments weighed within a batch as in Algorithm 1: one mixture."""
    rng = np.random.default_rng(0)
    pile = pile_with_costs(rng.uniform(size=40), lengths=[20, 20])
    config = Config(weighting="segment", length=4, beta=0.7)
    each = jax.jit(lambda pile: pile_weights(config, pile.observations[:, 0], pile).each)(pile)
    segments = jax.jit(lambda pile: sample_segments(pile, 40_000, 4, jax.random.key(0)))(pile)
    weights = segment_weights(first_observation, segments, config.gamma, config.beta)
    found = np.zeros(40)
    np.add.at(found, np.asarray(segments.rows).ravel(), np.asarray(weights).ravel())
    inner = np.r_[3:17, 23:37]  # each of these steps is in four segments
    np.testing.assert_allclose(found[inner] / found[inner].sum(), each[inner] / each[inner].sum(), rtol=0.05)


def test_steps_are_drawn_as_often_as_they_weigh():
    reach = jnp.cumsum(jnp.array([1.0, 0.0, 3.0, 0.0]))
    counts = np.bincount(draw_steps(reach, 40_000, jax.random.key(0)), minlength=4)
    np.testing.assert_allclose(counts / 40_000, [0.25, 0, 0.75, 0], atol=0.01)


def test_whole_episode_weights_do_not_underflow():
    pile = pile_with_costs([1.0] * 500 + [0.9] * 500, lengths=[500, 500])
    config = Config(weighting="episode", gamma=1.0)
    weights = jax.jit(lambda pile: pile_weights(config, pile.observations[:, 0], pile))(pile)
    np.testing.assert_allclose([weights.each[0], weights.each[-1]], [0, 1], atol=1e-6)


@pytest.mark.parametrize("loss", ["nll", "mse"])
def test_an_infinite_beta_is_plain_bc(nets, segments, loss):
    cost, policy = nets
    weights = segment_weights(cost, segments, gamma=0.99, beta=1e9)
    losses = bc_losses(policy, segments.observations, segments.actions, loss)
    plain = (losses * segments.mask).sum() / segments.mask.sum()
    np.testing.assert_allclose(policy_loss(policy, segments, weights, loss), plain, rtol=1e-5)


def test_padding_never_changes_a_loss(nets, segments):
    cost, policy = nets
    garbage = jnp.where(segments.mask[..., None] > 0, segments.observations, 1e3)
    spoilt = segments._replace(observations=garbage)
    assert (segments.mask == 0).any()
    for weigh in (lambda s: segment_weights(cost, s, 0.99, 0.5), lambda s: transition_weights(cost, s)):
        np.testing.assert_allclose(
            policy_loss(policy, spoilt, weigh(spoilt), "nll"),
            policy_loss(policy, segments, weigh(segments), "nll"),
        )
    np.testing.assert_allclose(segment_costs(cost, spoilt, 0.99), segment_costs(cost, segments, 0.99))


def test_a_batch_without_any_weight_teaches_nothing(nets, segments):
    loss = policy_loss(nets[1], segments, jnp.zeros_like(segments.mask), "nll")
    assert float(loss) == 0


def test_no_gradient_flows_from_the_policy_into_the_cost(nets, segments):
    grads = jax.grad(
        lambda cost: policy_loss(nets[1], segments, segment_weights(cost, segments, 0.99, 0.5), "nll")
    )(nets[0])
    assert all((leaf == 0).all() for leaf in jax.tree.leaves(grads))


@pytest.mark.parametrize("which", ["cost", "policy"])
def test_gradients_agree_with_finite_differences(nets, segments, dataset, which):
    cost, policy = nets
    bags_n = sample_bags(dataset.nonpreferred, bags=4, size=8, length=3, pool=12, key=jax.random.key(1))
    bags_u = sample_bags(dataset.unlabeled, bags=4, size=8, length=3, pool=12, key=jax.random.key(2))
    weights = segment_weights(cost, segments, 0.99, 0.5)
    if which == "cost":
        net, loss = cost, lambda net: cost_loss(bag_scores(net, bags_n, 0.99), bag_scores(net, bags_u, 0.99))
    else:
        net, loss = policy, lambda net: policy_loss(net, segments, weights, "nll")
    check_grads(jax.jit(loss), (net,), order=1, modes="rev", eps=1e-2, rtol=2e-2, atol=1e-3)


SMALL = Config(
    updates=6, cost_updates=4, members=4, cost_batch=8, batch=2, bag_size=4, pool=4, policy_batch=4, length=3,
    hidden_cost=(8, 8), hidden_policy=(8, 8),
)  # fmt: skip


def updated(config, dataset):
    """The states before and after each update, and the metrics of each update."""
    update = jax.jit(partial(safemil.update, config))
    states, logged = [jax.jit(partial(safemil.init, config))(dataset, jax.random.key(0))], []
    for step in range(config.updates):
        state, metrics = update(states[-1], dataset, jnp.array(step), jax.random.key(step))
        states.append(state)
        logged.append(metrics)
    return states, logged


@pytest.fixture(scope="module")
def training(dataset):
    return updated(SMALL, dataset)


def same(a, b):
    return all(bool((x == y).all()) for x, y in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True))


def test_the_cost_learns_first_and_then_the_policy(training):
    states, logged = training
    assert [bool(metrics["loss/cost"] != NOT_COMPUTED) for metrics in logged] == [True] * 4 + [False] * 2
    assert [bool(metrics["loss/policy"] != NOT_COMPUTED) for metrics in logged] == [False] * 4 + [True] * 2
    assert same(states[0].policy, states[4].policy)
    assert not same(states[4].policy, states[5].policy)


def test_the_cost_learns_only_as_long_as_it_is_told(training):
    states, _ = training
    assert not same(states[3].cost, states[4].cost)
    assert same(states[4].cost, states[6].cost)
    assert not same(states[5].policy, states[6].policy)


def test_the_policy_clones_the_episodes_that_rank_lowest_out_of_bag(training, dataset):
    state = training[0][4]
    ranking, lengths = state.cost.ranking, dataset.unlabeled.lengths
    kept = np.asarray(state.weights.kept)
    assert 0 < kept.sum() < len(lengths)
    assert ranking.unlabeled[kept].max() < ranking.unlabeled[~kept].min()
    np.testing.assert_allclose(state.weights.effective, lengths[kept].sum() / lengths.sum(), rtol=1e-6)


WEIGHTINGS = typing.get_args(safemil.Weighting)


@pytest.mark.parametrize(
    ("weighting", "cost_updates"), [*((each, None) for each in WEIGHTINGS), ("threshold", 4), ("episode", 4)]
)
def test_weights_of_a_checkpoint_are_computed_again_to_the_same_bits(weighting, cost_updates, dataset):
    threshold = 0.5 if weighting == "threshold" else None
    config = dataclasses.replace(
        SMALL, weighting=weighting, threshold=threshold, cost_updates=cost_updates, refresh=2, updates=5
    )
    algorithm = find("safemil")
    state = loop.init(algorithm, config, dataset, [0, 1])
    state = loop.fit(algorithm, config, dataset, [0, 1], state, interval=5)
    derived = loop.derive(algorithm, config, loop.compact(algorithm, state), dataset, done=5)
    assert same(derived, state)


def test_bags_and_policy_learn_in_turns_as_in_algorithm_one(dataset):
    config = dataclasses.replace(SMALL, cost_updates=None, weighting="segment", draw="segments", updates=2)
    states, logged = updated(config, dataset)
    assert all(np.isfinite(value) for metrics in logged for value in metrics.values())
    for before, after in itertools.pairwise(states):
        assert not same(before.cost, after.cost)
        assert not same(before.policy, after.policy)


def test_the_paper_preset_computes_what_version_0_1_did():
    """Cost and action after 20 updates, recorded with version 0.1 at 18ec44f."""
    rng = np.random.default_rng(0)

    def pile(episodes: int, shift: float) -> Trajectories:
        lengths = rng.integers(12, 20, episodes)
        steps = int(lengths.sum())
        observations = rng.normal(size=(steps, 3)) + shift
        return Trajectories(observations, np.clip(rng.normal(size=(steps, 2)), -1, 1), lengths)

    incidents, logs = pile(4, 1.0), pile(8, 0.0)
    data = Dataset.of(Scaler.of(logs), logs, incidents)
    config = dataclasses.replace(
        safemil.PRESETS["paper"], updates=20, bag_size=4, batch=3, hidden_cost=(8, 8), hidden_policy=(8,),
        lr_cost=1e-3, lr_policy=1e-3, policy_batch=5,
    )  # fmt: skip
    algorithm = find("safemil")
    states = loop.fit(algorithm, config, data, [3], loop.init(algorithm, config, data, [3]), interval=10)
    state = jax.tree.map(lambda leaf: leaf[0], states)
    observation, action = jnp.array([[0.5, -0.2, 1.0]]), jnp.array([[0.1, 0.3]])
    np.testing.assert_allclose(safemil.cost(state, observation, action), [0.50971925], rtol=1e-6)
    np.testing.assert_allclose(safemil.act(state, observation), [[0.14070736, -0.08867025]], rtol=1e-5)


@pytest.mark.parametrize("members", [0, 1, 3])
def test_half_of_the_networks_leave_an_episode_out_so_their_number_is_even(members):
    with pytest.raises(InputError, match=f"members must be an even number, 2 or more, got {members}"):
        Config(members=members)


def test_bags_rank_no_episodes_out_of_bag_so_a_threshold_must_be_given():
    with pytest.raises(InputError, match="needs a threshold where the cost is learned from bags"):
        Config(cost_updates=None)


def test_bags_of_segments_longer_than_every_episode_are_refused(dataset):
    bags = Config(length=10, cost_updates=None, weighting="segment")
    with pytest.raises(InputError, match="longer than every non-preferred episode"):
        safemil.init(bags, dataset, jax.random.key(0))


def test_the_default_takes_a_length_beyond_every_episode(dataset):
    learner = safemil.init(dataclasses.replace(SMALL, length=1000), dataset, jax.random.key(0)).cost
    np.testing.assert_array_equal(learner.moments.counts, dataset.nonpreferred.lengths)


def test_each_round_needs_an_update():
    with pytest.raises(InputError, match="cost_updates must be 2 or more"):
        Config(cost_updates=1)


@pytest.mark.parametrize(
    "setting",
    ["updates", "bag_size", "length", "batch", "pool", "policy_batch", "beta", "lr_cost", "lr_policy"],
)
@pytest.mark.parametrize("value", [0, -1])
def test_settings_that_must_be_positive_are_refused_otherwise(setting, value):
    with pytest.raises(InputError, match=f"{setting} must be above 0, got {value}"):
        dataclasses.replace(Config(), **{setting: value})


def test_lemma_one_agrees_with_simulation():
    rng = np.random.default_rng(0)
    share, size = 0.1, 16
    bags = rng.random((20_000, size)) < share
    np.testing.assert_allclose(bags.any(axis=1).mean(), 1 - (1 - share) ** size, atol=0.01)
    assert preferred_share_needed(size, 1 - (1 - share) ** size) == pytest.approx(share)


def test_advice_warns_where_bags_are_too_small():
    bags = safemil.PRESETS["paper"]
    assert len(advice(bags, preferred_share=0.5)) == 1
    lines = advice(dataclasses.replace(bags, bag_size=8), preferred_share=0.1)
    assert "holds a preferred episode with 99% probability if at least 43.8%" in lines[0]
    assert "warning: with 10.0% preferred it does so with 57%; set bag_size=44 or more" in lines[1]
    assert "no bag size helps" in advice(bags, preferred_share=0.0)[1]
    assert advice(Config(), preferred_share=0.0) == []  # the calibrated cost has no bags


def test_the_paper_preset_is_table_two():
    paper = safemil.PRESETS["paper"]
    assert (paper.updates, paper.batch, paper.bag_size, paper.length) == (1_000_000, 32, 128, 5)
    assert (paper.gamma, paper.beta, paper.weight_decay) == (0.99, 0.5, 0.01)
    assert (paper.lr_cost, paper.lr_policy) == (1e-5, 1e-5)
    assert (paper.hidden_cost, paper.hidden_policy) == ((50, 256, 256), (256, 256))
    assert (paper.pool, paper.cost_updates, paper.weighting) == (None, None, "segment")
