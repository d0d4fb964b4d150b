"""Behaviour data: episodes of the shipped policies, made on the spot, or the DSRL files, downloaded.

>>> from safemil.behaviour.making import make
>>> trajectories, annotations, manifest = make("SafetyPointCircle2-v0", seed=1)  # doctest: +SKIP
"""
