"""Metrics of calibration, ranking and weights: NumPy in, numbers out; no torch.

Each is a function of ``score=`` and ``outcome=`` arrays or of a :class:`CalibrationSketch`.
"""

from __future__ import annotations

from unskew.metrics.calibration import ece
from unskew.metrics.floor import noise_floor
from unskew.metrics.proper import auc, brier, nll
from unskew.metrics.reliability import ReliabilityCurve, reliability_curve
from unskew.metrics.sketch import CalibrationSketch, Points
from unskew.metrics.weight_calibration import mean_outcome_over_score, wce
from unskew.metrics.weights import WeightDiagnostics, weight_diagnostics

__all__ = [
    "CalibrationSketch",
    "Points",
    "ReliabilityCurve",
    "WeightDiagnostics",
    "auc",
    "brier",
    "ece",
    "mean_outcome_over_score",
    "nll",
    "noise_floor",
    "reliability_curve",
    "wce",
    "weight_diagnostics",
]
