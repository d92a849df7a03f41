"""Platt scaling: a straight line on the logit scale. The paper's calibrator and the default one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np
from scipy.special import logit

from unskew.base.estimator import require_above
from unskew.base.registry import register
from unskew.calibration import sql
from unskew.calibration.calibrator import LARGEST_LOGIT, ROUNDING, Calibrator, inside, logits, sigmoid
from unskew.calibration.grouping import Grouped, Vector, log_loss
from unskew.calibration.logistic_fit import LogisticFit, fit_logistic

SEPARATED_INFORMATION = 1e-6
"""Curvature below this share of base rate × (1 − base rate) says that the score separates the classes."""

FELL_BACK = "no fit better than Platt scaling was found: this is Platt scaling"
"""The message of a calibrator that contains Platt scaling and falls back to it."""


@register(order=20)
@dataclass(kw_only=True, eq=False, repr=False)
class Platt(Calibrator):
    r"""q(p̂) = σ(b·s + c), with s = logit p̂ (default) or s = p̂, at the greatest likelihood.

    .. math:: \min_{b>0,c} −Σ_j [y_j \log q_j + (n_j − y_j) \log(1 − q_j)]

    b is ``slope_``, c is ``intercept_``, n_j and y_j are the weight and positive weight of score j. The
    intercept makes the mean prediction equal the base rate on the calibration rows.

    Use it first: two parameters, safe from a few hundred rows of each class on. Not where the
    reliability curve bends on the logit scale: beta, spline or isotonic then. ``input="prob"`` is the
    paper's equation read literally; its output cannot leave [σ(c), σ(b+c)], so small probabilities
    stay wrong (scikit-learn #34312): for comparison only.

    Parameters
    ----------
    input
        ``"logit"`` or ``"prob"``.
    target_smoothing
        Platt's targets (N₊+1)/(N₊+2) and 1/(N₋+2) in place of 1 and 0: finite where scores separate
        the classes, at the price of a mean prediction a little off the base rate.
    smallest_slope
        The slope given where the likelihood asks for one below it: scores that rank backwards are
        flattened to the base rate, never reversed; ``message_`` says so.

    Examples
    --------
    >>> score, outcome = [0.1, 0.1, 0.4, 0.4, 0.8, 0.8], [0, 0, 0, 1, 0, 1]
    >>> platt = Platt().fit(score, outcome)
    >>> bool(abs(platt.predict(score).mean() - 1 / 3) < 1e-9)
    True
    """

    name: ClassVar[str] = "platt"
    monotone: ClassVar[bool] = True
    learned: ClassVar[tuple[str, ...]] = ("slope_", "intercept_")

    input: Literal["logit", "prob"] = "logit"
    target_smoothing: bool = False
    smallest_slope: float = 1e-6

    def _check_parameters(self) -> None:
        super()._check_parameters()
        require_above(0, smallest_slope=self.smallest_slope)

    def _fit_points(self, score: Vector, total: Vector, positive: Vector) -> None:
        s = self._scale(score)
        target = positive
        if self.target_smoothing:
            positives = float(positive.sum())
            negatives = float(total.sum()) - positives
            target = positive * (positives + 1) / (positives + 2) + (total - positive) / (negatives + 2)
        rate = float(target.sum() / total.sum())
        if s.min() == s.max():
            self.slope_, self.intercept_ = 1.0, float(logit(rate) - s[0])
            self.message_ = "every score is the same: the slope is kept at 1 and only the base rate is set"
            return
        # Centring decouples slope and intercept: Newton then starts near the optimum and stays well scaled.
        middle = float(total @ s / total.sum())
        features = np.column_stack([s - middle, np.ones_like(s)])
        fit = fit_logistic(
            features,
            total,
            target,
            start=np.array([self.smallest_slope, float(logit(rate))]),
            lower=np.array([self.smallest_slope, -np.inf]),
        )
        self.slope_ = float(fit.coefficients[0])
        if self.slope_ == self.smallest_slope:
            self.message_ = (
                "higher scores did not have more positives: the map is flattened to the base rate;"
                " check that the score is P(outcome = 1)"
            )
        elif separates(fit, rate):
            self.message_ = (
                "the score separates the classes: the likelihood has no finite optimum;"
                " target_smoothing=True gives a finite one"
            )
        elif not fit.converged:
            self.message_ = (
                "the steps to the greatest likelihood did not converge: judge this map before it is used"
            )
        self.intercept_ = float(fit.coefficients[-1] - self.slope_ * middle)

    def _predict(self, score: Vector) -> Vector:
        return sigmoid(self.slope_ * self._scale(score) + self.intercept_)

    def _sql(self, score: str, safe: str, dialect: sql.Dialect) -> str:
        scale = sql.logit(safe) if self.input == "logit" else score
        return sql.sigmoid(sql.line(self.slope_, scale, self.intercept_), LARGEST_LOGIT)

    def _scale(self, score: Vector) -> Vector:
        return logits(score) if self.input == "logit" else score


def separates(fit: LogisticFit, rate: float) -> bool:
    """Return whether the optimum ran away to a step: no curvature is left in the intercept."""
    return bool(fit.information[-1, -1] < SEPARATED_INFORMATION * rate * (1 - rate))


def worse_than_platt(calibrator: Calibrator, platt: Platt, points: Grouped) -> bool:
    """Return whether a calibrator fits its training rows worse than Platt scaling does.

    Probabilities are clipped before they are compared, as users see them: the greatest likelihood of
    unclipped ones can be the worse fit.
    """
    own, platts = (log_loss(points, inside(each._predict(points.score))) for each in (calibrator, platt))
    return own > platts * (1 + ROUNDING)
