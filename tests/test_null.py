"""Trained costs find incidents, and find nothing in episodes drawn at random (a small benchmarks/null.py)."""

import jax
import numpy as np
import pytest

from safemil import loop, toy
from safemil.algorithms import find
from safemil.algorithms.calibrated import AGGREGATES
from safemil.algorithms.safemil import FIRST_ROUND, Config
from safemil.data import Trajectories
from safemil.data.sampling import Dataset, Scaler
from safemil.evidence import grade, rank_sum_p
from safemil.ranks import pairs_won

LENGTH = toy.STEPS * 4 // 5  # steps of the shortest episode: equal shapes are compiled once
FIRST = 150
CONFIG = Config(
    cost_updates=FIRST * FIRST_ROUND,
    members=6,
    cost_batch=128,
    lr_cost=5e-3,
    hidden_cost=(32, 32),
    hidden_policy=(8,),
)


@pytest.fixture(scope="module")
def piles():
    return toy.make_piles("speed", nonpreferred=40, unlabeled=140, heldout=2)


def trimmed(episodes: Trajectories) -> Trajectories:
    rows = (episodes.starts[:, None] + np.arange(LENGTH)).ravel()
    return Trajectories(episodes.observations[rows], episodes.actions[rows], np.full(len(episodes), LENGTH))


def graded(incidents: Trajectories, logs: Trajectories) -> str:
    """Grade of the evidence after the first round."""
    algorithm, data = find("safemil"), Dataset.of(Scaler.of(logs), trimmed(logs), trimmed(incidents))
    state = loop.init(algorithm, CONFIG, data, [0])
    state = loop.fit(algorithm, CONFIG, data, [0], state, until=FIRST, interval=FIRST)
    ranking = jax.tree.map(lambda leaf: leaf[0], state).cost.first_ranking
    ours, theirs = np.asarray(ranking.nonpreferred), np.asarray(ranking.unlabeled)
    return grade(float(pairs_won(ours, theirs)), rank_sum_p(ours, theirs, len(AGGREGATES)), None)


def test_incidents_are_evidence_and_random_episodes_are_none(piles):
    assert graded(piles.nonpreferred, piles.unlabeled.take(range(100))) == "strong"
    for seed in range(4):
        order = np.random.default_rng(seed).permutation(140)
        assert graded(piles.unlabeled.take(order[:40]), piles.unlabeled.take(order[40:])) == "none"
