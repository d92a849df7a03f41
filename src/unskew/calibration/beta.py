"""Beta calibration: two slopes, one for each end of [0, 1]. Platt scaling with one more parameter."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np
from scipy.special import logit

from unskew.base.registry import register
from unskew.calibration import sql
from unskew.calibration.calibrator import LARGEST_LOGIT, Calibrator, inside, sigmoid
from unskew.calibration.grouping import Grouped, Vector
from unskew.calibration.logistic_fit import fit_logistic
from unskew.calibration.platt import FELL_BACK, Platt, worse_than_platt


@register(order=40)
@dataclass(kw_only=True, eq=False, repr=False)
class Beta(Calibrator):
    r"""logit q(p̂) = a·log p̂ − b·log(1 − p̂) + c, a, b ≥ 0, at the greatest likelihood.

    a, b, c are ``a_``, ``b_``, ``intercept_``. Kull, Silva Filho and Flach (2017): the exact map where
    the scores of each class follow a beta distribution. a = b is Platt scaling on logits.

    Use it where low and high scores are off in different ways, from some thousand rows on. At small
    propensities log(1 − p̂) hardly varies, so b is loosely determined: it then acts on the few high
    scores only.

    Parameters
    ----------
    variant
        ``"abm"``: all three; ``"am"``: a = b; ``"ab"``: c = (a − b)·log 2, so that q(½) = ½, which gives
        up the promise that the mean prediction equals the base rate.

    Examples
    --------
    >>> score, outcome = [0.1, 0.1, 0.4, 0.4, 0.8, 0.8], [0, 0, 0, 1, 0, 1]
    >>> bool(abs(Beta().fit(score, outcome).predict(score).mean() - 1 / 3) < 1e-9)
    True
    """

    name: ClassVar[str] = "beta"
    monotone: ClassVar[bool] = True
    learned: ClassVar[tuple[str, ...]] = ("a_", "b_", "intercept_")

    variant: Literal["abm", "am", "ab"] = "abm"

    def _fit_points(self, score: Vector, total: Vector, positive: Vector) -> None:
        low, high = _ends(score)
        if len(score) == 1 and self.variant != "ab":
            self.a_ = self.b_ = 1.0
            self.intercept_ = float(logit(self.base_rate_) - (low - high)[0])
            self.message_ = "every score is the same: the slopes are kept at 1 and only the base rate is set"
            return
        points = Grouped.unweighted(score, total, positive)
        platt = Platt()._fit_on(points)
        if self.variant == "ab":
            features = np.column_stack([low + np.log(2), -(high + np.log(2))])
            fit = fit_logistic(features, total, positive, start=np.ones(2), lower=np.zeros(2))
            self.a_, self.b_ = map(float, fit.coefficients)
            self.intercept_ = (self.a_ - self.b_) * float(np.log(2))
        else:
            slopes = np.column_stack([low, -high] if self.variant == "abm" else [low - high])
            middle = total @ slopes / total.sum()
            line = np.full(slopes.shape[1], platt.slope_)
            fit = fit_logistic(
                np.column_stack([slopes - middle, np.ones(len(score))]),
                total,
                positive,
                start=np.append(line, platt.intercept_ + middle @ line),
                lower=np.append(np.zeros(len(line)), -np.inf),
            )
            *fitted, centred = map(float, fit.coefficients)
            self.a_, self.b_ = fitted[0], fitted[-1]
            self.intercept_ = float(centred - middle @ np.array(fitted))
        contains_platt = self.variant != "ab"
        if not fit.converged or (contains_platt and worse_than_platt(self, platt, points)):
            self.a_ = self.b_ = platt.slope_
            self.intercept_ = platt.intercept_
            self.message_ = FELL_BACK

    def _predict(self, score: Vector) -> Vector:
        low, high = _ends(score)
        return sigmoid(self.a_ * low - self.b_ * high + self.intercept_)

    def _sql(self, score: str, safe: str, dialect: sql.Dialect) -> str:
        ends = f"LN({safe})", f"LN({sql.double(1.0)} - {safe})"
        low, high = (
            f"{sql.double(slope)} * {end}" for slope, end in zip((self.a_, self.b_), ends, strict=True)
        )
        return sql.sigmoid(f"{low} - {high} + {sql.double(self.intercept_)}", LARGEST_LOGIT)


def _ends(score: Vector) -> tuple[Vector, Vector]:
    safe = inside(score)
    high = np.log1p(-safe)
    return np.log(safe, out=safe), high
