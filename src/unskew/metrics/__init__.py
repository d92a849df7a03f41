"""Metrics of calibration, ranking and weights: NumPy in, numbers out; no torch.

The calibration metrics are functions of ``score=`` and ``outcome=`` arrays or of a
:class:`CalibrationSketch`.
"""

from __future__ import annotations

from unskew.metrics.binned import adaptive_ece, debiased_ece, ece, mce, relative_error, smooth_ece
from unskew.metrics.cells import Cells
from unskew.metrics.intervals import Interval, interval, noise_floor
from unskew.metrics.proper import (
    BrierDecomposition,
    ChanceTest,
    auc,
    auc_beyond_chance,
    brier,
    brier_decomposition,
    nll,
)
from unskew.metrics.ranking import ranking_metrics, ranking_rails, user_auc
from unskew.metrics.reliability import (
    KuiperTest,
    ReliabilityCurve,
    SpiegelhalterTest,
    kuiper,
    reliability_curve,
    spiegelhalter,
)
from unskew.metrics.significance import PairedTest, holm, paired_test
from unskew.metrics.sketch import CalibrationSketch, Points
from unskew.metrics.weight_calibration import WeightTest, mean_outcome_over_score, wce, wce_test
from unskew.metrics.weights import WeightDiagnostics, least_error_clip, weight_diagnostics

__all__ = [
    "BrierDecomposition",
    "CalibrationSketch",
    "Cells",
    "ChanceTest",
    "Interval",
    "KuiperTest",
    "PairedTest",
    "Points",
    "ReliabilityCurve",
    "SpiegelhalterTest",
    "WeightDiagnostics",
    "WeightTest",
    "adaptive_ece",
    "auc",
    "auc_beyond_chance",
    "brier",
    "brier_decomposition",
    "debiased_ece",
    "ece",
    "holm",
    "interval",
    "kuiper",
    "least_error_clip",
    "mce",
    "mean_outcome_over_score",
    "nll",
    "noise_floor",
    "paired_test",
    "ranking_metrics",
    "ranking_rails",
    "relative_error",
    "reliability_curve",
    "smooth_ece",
    "spiegelhalter",
    "user_auc",
    "wce",
    "wce_test",
    "weight_diagnostics",
]
