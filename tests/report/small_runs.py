"""What small runs are made from."""

import numpy as np

from safemil.data import Annotations, Trajectories

HOSTILE = "<script>alert(1)</script>"
SMALL = [f"--set={each}" for each in ("updates=40", "cost_updates=20", "bag_size=8", "pool=8", "length=5")]
SMALL += ["--set=policy_batch=4", "--set=batch=4", "--set=hidden_cost=[8]", "--set=hidden_policy=[8]"]
SMALL += ["--log-every=10"]
QUICK = [f"--set={each}" for each in ("updates=40", "batch=4", "discriminator_batch=4")]  # of dwbc-nu
QUICK += ["--set=hidden_discriminator=[8]", "--set=hidden_policy=[8]", "--log-every=10"]


def episodes(ids: list[str], seed: int, risky: bool) -> tuple[Trajectories, Annotations]:
    """Walks of 30 steps; a step costs where its first column is above 1, which risky ones often reach."""
    rng = np.random.default_rng(seed)
    steps = 30 * len(ids)
    observations = rng.normal(1.5 if risky else 0.0, 1.0, (steps, 3))
    observations[: steps // 2, 0] -= 1.0
    held = Trajectories(observations, rng.uniform(-1, 1, (steps, 2)), [30] * len(ids), ids=ids)
    return held, Annotations(np.ones(steps), observations[:, 0] > 1)
