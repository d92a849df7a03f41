"""Scaling-binning: Platt's curve, averaged within bins, so that its calibration error can be measured."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from unskew.base.estimator import require_at_least
from unskew.base.registry import register
from unskew.calibration.calibrator import inside
from unskew.calibration.grouping import Grouped, Vector
from unskew.calibration.histogram import equal_mass_starts
from unskew.calibration.platt import Platt
from unskew.calibration.step_calibrator import StepCalibrator, edges_between


@register(order=90)
@dataclass(kw_only=True, eq=False, repr=False)
class ScalingBinning(StepCalibrator):
    r"""q(p̂) = mean of g over the bin of p̂, with g(p̂) = σ(b·logit p̂ + c) fitted as in Platt scaling.

    Kumar, Liang and Ma (2019). The bins hold equal weight. Averaging g, not the outcomes, needs
    O(1/ε² + B) rows where histogram binning needs O(B/ε²); and since q takes at most B values, its
    calibration error can be estimated without the bias that continuous outputs hide. The mean prediction
    is the base rate.

    Use it where the calibration error must be proven afterwards. Not where ranking within a bin
    matters: Platt then.

    Parameters
    ----------
    bins
        B; 100, as many as the paper's ECE.

    Examples
    --------
    >>> score, outcome = [0.1, 0.1, 0.4, 0.4, 0.8, 0.8], [0, 0, 0, 1, 0, 1]
    >>> bool(abs(ScalingBinning(bins=2).fit(score, outcome).predict(score).mean() - 1 / 3) < 1e-9)
    True
    """

    name: ClassVar[str] = "scaling_binning"
    monotone: ClassVar[bool] = True

    bins: int = 100

    def _check_parameters(self) -> None:
        super()._check_parameters()
        require_at_least(1, bins=self.bins)

    def _fit_points(self, score: Vector, total: Vector, positive: Vector) -> None:
        scaling = Platt()._fit_on(Grouped.unweighted(score, total, positive))
        self.message_ = scaling.message_
        starts = equal_mass_starts(total, self.bins)
        scaled = inside(scaling._predict(score))
        edges = edges_between(score[starts[1:] - 1], score[starts[1:]])
        self._set_steps(edges, np.add.reduceat(total * scaled, starts) / np.add.reduceat(total, starts))
