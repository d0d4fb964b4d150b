"""Benchmarks: grids of (task, algorithm, setting, seed), run on this machine or on Ray, and their results."""
