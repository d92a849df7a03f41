"""Grids of runs: datasets × propensities × calibrators × methods × seeds."""
