"""Table 1 of the paper (SafeMIL, arXiv:2511.08136, Appendix D): costs and returns of DSRL's episodes."""

from typing import NamedTuple


class Means(NamedTuple):
    """Mean cost and return of a task's demonstrations."""

    preferred_cost: float
    preferred_return: float
    nonpreferred_cost: float
    nonpreferred_return: float


TABLE = {
    "SafetyWalker2dVelocity-v1": Means(12.08, 2501.99, 324.70, 2941.42),
    "SafetySwimmerVelocity-v1": Means(9.94, 128.99, 166.64, 209.89),
    "SafetyAntVelocity-v1": Means(16.46, 1864.79, 221.30, 2864.90),
    "SafetyPointCircle2-v0": Means(11.97, 39.17, 255.14, 50.20),
    "SafetyPointGoal1-v0": Means(11.96, 22.70, 88.0, 22.97),
    "SafetyPointButton1-v0": Means(12.47, 27.67, 174.18, 30.10),
}
