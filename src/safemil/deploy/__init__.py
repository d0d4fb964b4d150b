"""Trained policies and costs without JAX: this package imports NumPy and nothing heavier.

model = safemil.deploy.load("policy.safetensors")   # written by `safemil export`
action = model.act(observation)
risk = model.risk(observation, action)
"""

from safemil.deploy.model import Model as Model

load = Model.load
