import json

import numpy as np
import pytest

from safemil.data import load, read_manifest, save_split, split
from safemil.data.splitting import kinds
from safemil.errors import InputError


def test_the_upper_corners_of_the_cost_return_plot_are_marked(graded):
    # Costs 0 to 7: quartiles at 1.75 and 5.25. Returns 0 to 10: midpoint at 5.
    found = kinds(*graded(returns=[10, 0, 9, 9, 9, 9, 5, 4], costs=[0, 1, 2, 3, 4, 5, 6, 7]))
    assert found.preferred.tolist() == [True, False, False, False, False, False, False, False]
    assert found.nonpreferred.tolist() == [False, False, False, False, False, False, True, False]
    assert (found.least_return, found.low_cost, found.high_cost) == (5, 1.75, 5.25)


def test_the_median_is_the_other_reading_of_above_half(graded):
    data = graded(returns=[0, 1, 2, 100], costs=[0, 10, 0, 10])
    assert kinds(*data, return_rule="midrange").nonpreferred.tolist() == [False, False, False, True]
    assert kinds(*data, return_rule="midrange").preferred.tolist() == [False, False, False, False]
    assert kinds(*data, return_rule="median").preferred.tolist() == [False, False, True, False]
    with pytest.raises(InputError, match='no return rule "mean"'):
        kinds(*data, return_rule="mean")


@pytest.mark.parametrize(
    ("costs", "preferred", "nonpreferred"),
    [
        ([0, 0, 0, 0, 0, 0, 0, 1], 7, 1),  # the quartiles coincide at the least cost,
        ([0, 1, 1, 1, 1, 1, 1, 1], 1, 7),  # at the greatest,
        ([0, 1, 1, 1, 1, 1, 1, 2], 1, 1),  # between: those tied are neither
        ([0, 0, 0, 0, 9, 9, 9, 9], 4, 4),
    ],
)
def test_ties_never_put_an_episode_on_both_sides(costs, preferred, nonpreferred, graded):
    found = kinds(*graded([1] * 8, costs))
    assert (found.preferred.sum(), found.nonpreferred.sum()) == (preferred, nonpreferred)
    assert not (found.preferred & found.nonpreferred).any()


def test_equal_costs_can_not_be_split(graded):
    with pytest.raises(InputError, match="all 4 episodes cost 3"):
        kinds(*graded([1] * 4, [3] * 4))


@pytest.fixture
def many(graded):
    """1200 episodes, each with a cost of its own."""
    rng = np.random.default_rng(0)
    return graded(rng.uniform(9, 10, 1200).tolist(), rng.permutation(1200).tolist())


@pytest.mark.parametrize("share", [0.0, 0.25, 0.5, 1.0])
def test_the_piles_have_the_sizes_asked_for_and_share_no_episode(share, many):
    trajectories, annotations = many
    piles = split(*many, preferred_share=share, return_rule="median", nonpreferred=20, unlabeled=80)
    costs = annotations.costs
    assert (len(piles.nonpreferred), len(piles.unlabeled)) == (20, 80)
    assert piles.unlabeled_is_preferred.mean() == share
    everything = np.concatenate([piles.nonpreferred_episodes, piles.unlabeled_episodes])
    assert len(np.unique(everything)) == 100
    assert (costs[piles.nonpreferred_episodes] >= 899).all()
    assert (costs[piles.unlabeled_episodes[piles.unlabeled_is_preferred]] <= 300).all()
    assert (costs[piles.unlabeled_episodes[~piles.unlabeled_is_preferred]] >= 899).all()
    np.testing.assert_array_equal(piles.unlabeled.ids, piles.unlabeled_episodes)
    np.testing.assert_array_equal(
        piles.unlabeled.observations, trajectories.take(piles.unlabeled_episodes).observations
    )


def test_the_seed_alone_decides_the_draw(many):
    def draw(seed):
        return split(*many, return_rule="median", nonpreferred=5, unlabeled=10, seed=seed)

    assert draw(1).unlabeled.content_hash() == draw(1).unlabeled.content_hash()
    assert draw(1).unlabeled.content_hash() != draw(2).unlabeled.content_hash()


def test_the_mixed_pile_is_mixed(many):
    kind = split(*many, return_rule="median", nonpreferred=5, unlabeled=100).unlabeled_is_preferred
    assert 0.2 < kind[:50].mean() < 0.8


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        (
            {"nonpreferred": 149, "unlabeled": 2},
            r"need 150 non-preferred episodes, but only 1 of 8 are; ask for smaller piles",
        ),
        ({"preferred_share": 1.0}, "need 200 preferred episodes, but only 1 of 8 are"),
        ({"nonpreferred": 0}, "at least one episode, asked for 0 and 200"),
        ({"preferred_share": 1.5}, "between 0 and 1, got 1.5"),
    ],
)
def test_what_can_not_be_drawn_is_refused(asked, message, graded):
    data = graded(returns=[10, 0, 9, 9, 9, 9, 5, 4], costs=[0, 1, 2, 3, 4, 5, 6, 7])
    with pytest.raises(InputError, match=message):
        split(*data, **asked)


def test_a_saved_split_has_two_stores_and_hides_what_it_knows(many, tmp_path):
    piles = split(*many, return_rule="median", nonpreferred=5, unlabeled=10)
    save_split(tmp_path / "out", piles, manifest={"seed": 0})
    assert load(tmp_path / "out/unlabeled").content_hash() == piles.unlabeled.content_hash()
    assert load(tmp_path / "out/nonpreferred").content_hash() == piles.nonpreferred.content_hash()
    assert read_manifest(tmp_path / "out/unlabeled") == {"seed": 0, "pile": "unlabeled"}
    noted = json.loads((tmp_path / "out/manifest.json").read_text())
    assert noted["unlabeled_is_preferred"] == piles.unlabeled_is_preferred.tolist()
    with pytest.raises(InputError, match="exists already"):
        save_split(tmp_path / "out", piles, manifest={})
    save_split(tmp_path / "out", piles, manifest={}, overwrite=True)


def test_a_folder_of_other_things_is_never_overwritten(many, tmp_path):
    (tmp_path / "thesis.txt").write_text("all of it")
    with pytest.raises(InputError, match="never overwritten"):
        save_split(tmp_path, split(*many, nonpreferred=1, unlabeled=1), manifest={}, overwrite=True)
    assert (tmp_path / "thesis.txt").exists()
