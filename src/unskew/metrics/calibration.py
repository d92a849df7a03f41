"""Every calibration metric under one name; each lives in a file of its own beside this one."""

from __future__ import annotations

from unskew.metrics.binned import adaptive_ece, debiased_ece, ece, mce, relative_error
from unskew.metrics.floor import noise_floor
from unskew.metrics.hypothesis_tests import kuiper, spiegelhalter
from unskew.metrics.intervals import interval
from unskew.metrics.proper import auc, auc_beyond_chance, brier, brier_decomposition, nll
from unskew.metrics.reliability import reliability_curve
from unskew.metrics.smooth import smooth_ece
from unskew.metrics.weight_calibration import mean_outcome_over_score, wce, wce_test

__all__ = [
    "adaptive_ece",
    "auc",
    "auc_beyond_chance",
    "brier",
    "brier_decomposition",
    "debiased_ece",
    "ece",
    "interval",
    "kuiper",
    "mce",
    "mean_outcome_over_score",
    "nll",
    "noise_floor",
    "relative_error",
    "reliability_curve",
    "smooth_ece",
    "spiegelhalter",
    "wce",
    "wce_test",
]
