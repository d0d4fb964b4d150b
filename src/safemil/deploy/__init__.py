"""Trained policies and costs without JAX: this package imports NumPy and nothing heavier.

model = safemil.deploy.load("policy.safetensors")   # written by `safemil export`
action = model.act(observation)
risk = model.risk(observation, action)

guard = safemil.deploy.Guard.load("guard.json")     # written by `safemil guard`
verdict = guard.step(observation, action)
"""

from safemil.deploy.guard import Guard as Guard
from safemil.deploy.guard import Verdict as Verdict
from safemil.deploy.model import Model as Model

load = Model.load
