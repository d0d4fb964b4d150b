"""Piles drawn from demonstrations."""

import numpy as np
import pytest

from safemil.data import Annotations, Trajectories
from safemil.data.piles import draw_piles
from safemil.errors import InputError


def demonstrate(reckless, rng, chance=0.5):
    """Two steps an episode; the second one of some reckless episodes costs."""
    costs = np.zeros((len(reckless), 2))
    costs[:, 1] = reckless & (rng.random(len(reckless)) < chance)
    steps = rng.random((costs.size, 1))
    lengths = np.full(len(reckless), 2)
    return Trajectories(steps, steps, lengths), Annotations(costs.ravel(), costs.ravel())


def test_rare_incidents_are_reckless_episodes_with_a_step_that_costs():
    piles = draw_piles(demonstrate, nonpreferred=7, unlabeled=40, preferred_share=0.25, rare_incidents=True)
    assert len(piles.nonpreferred) == 7
    assert piles.nonpreferred_marks.tolist() == 7 * [False, True]
    assert len(piles.careful) == 10
    np.testing.assert_array_equal(piles.unlabeled_bad, piles.unlabeled_truth.costs[1::2] > 0)
    assert 0 < piles.unlabeled_bad.sum() < 30
    assert (piles.heldout_bad <= piles.heldout_reckless).all()
    assert piles.heldout_reckless.sum() == 50 > piles.heldout_bad.sum()


def test_all_reckless_episodes_are_bad_unless_incidents_are_rare():
    piles = draw_piles(demonstrate, nonpreferred=40, unlabeled=40)
    assert 0 < piles.nonpreferred_marks.sum() < 40
    assert piles.unlabeled_bad.sum() == 20
    np.testing.assert_array_equal(piles.heldout_bad, piles.heldout_reckless)


def test_demonstrations_without_incidents_are_an_error_that_says_so():
    def harmless(reckless, rng):
        return demonstrate(reckless, rng, chance=0.0)

    with pytest.raises(InputError, match="expected 2 incidents in 200 reckless demonstrations, got 0"):
        draw_piles(harmless, nonpreferred=2, rare_incidents=True)
