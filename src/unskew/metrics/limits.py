"""Constants of the compiled passes that others share; importable without numba."""

from __future__ import annotations

import numpy as np

LIKELIHOOD_FLOOR = float(np.finfo(np.float64).eps)
"""Likelihoods are floored here before the logarithm, as in scikit-learn's ``log_loss``."""

SMALLEST = 1e-100
"""1/p is taken at p of at least this, so that it, its sums and their squares stay finite."""

DEFAULT_RESAMPLES = 2000
"""Resamples of a bootstrap that nobody gave a number of."""

MOST_RESAMPLES = 1_000_000
"""Resamples and draws that a number may be asked to rest on; beyond, they would fill the memory."""
