"""Temperature scaling: one number that spreads or narrows the logits. Cannot move the base rate."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from unskew.base.estimator import require_above
from unskew.base.registry import register
from unskew.calibration import sql
from unskew.calibration.calibrator import LARGEST_LOGIT, Calibrator, logits, sigmoid
from unskew.calibration.grouping import Vector
from unskew.calibration.logistic_fit import fit_logistic


@register(order=30)
@dataclass(kw_only=True, eq=False, repr=False)
class Temperature(Calibrator):
    """q(p̂) = σ(logit p̂ / T), T > 0, at the greatest likelihood.

    T is ``temperature_``: above 1 it cools over-confident scores, below 1 it sharpens timid ones.

    Use it for scores whose level is right and whose spread is not. Not after negative sampling, nor for
    any score with the wrong base rate: σ(0) = ½ is a fixed point, so the level stays wrong. Platt has
    the intercept this one lacks.

    Parameters
    ----------
    largest_temperature
        The temperature given where the likelihood asks for a higher one (scores that rank backwards).

    Examples
    --------
    >>> Temperature().fit([0.05, 0.05, 0.95, 0.95], [0, 1, 0, 1]).predict([0.5])
    array([0.5])
    """

    name: ClassVar[str] = "temperature"
    monotone: ClassVar[bool] = True
    learned: ClassVar[tuple[str, ...]] = ("temperature_",)

    largest_temperature: float = 1e6

    def _check_parameters(self) -> None:
        super()._check_parameters()
        require_above(1, largest_temperature=self.largest_temperature)

    def _fit_points(self, score: Vector, total: Vector, positive: Vector) -> None:
        z = logits(score)
        if not z.any():
            self.temperature_ = 1.0
            self.message_ = "every score is ½, where no temperature has an effect: it is kept at 1"
            return
        smallest = 1 / self.largest_temperature
        fit = fit_logistic(z[:, None], total, positive, start=np.ones(1), lower=np.array([smallest]))
        self.temperature_ = float(1 / fit.coefficients[0])
        if fit.coefficients[0] == smallest:
            self.message_ = (
                "no temperature fits: the scores rank backwards, or their level is too far off;"
                " Platt scaling also sets the level"
            )

    def _predict(self, score: Vector) -> Vector:
        return sigmoid(logits(score) / self.temperature_)

    def _sql(self, score: str, safe: str, dialect: sql.Dialect) -> str:
        return sql.sigmoid(f"{sql.logit(safe)} / {sql.double(self.temperature_)}", LARGEST_LOGIT)
