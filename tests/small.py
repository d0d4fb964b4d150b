"""Settings that make a training of SafeMIL cheap, the same for all tests: one compiled program for all."""

SMALL = {
    "updates": 60,
    "cost_updates": 40,
    "batch": 4,
    "bag_size": 8,
    "pool": 8,
    "policy_batch": 4,
    "length": 3,
    "hidden_cost": [8],
    "hidden_policy": [8],
}
FLAGS = [f"--set={name}={value}" for name, value in SMALL.items()]
