"""Grids of (task, algorithm, setting, seed): run cell by cell, on this machine or on Ray, and tabulated."""
