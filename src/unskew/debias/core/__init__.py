"""What every method stands on: its declaration, its training over O and D, its propensities, its files."""
