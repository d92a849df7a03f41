"""No calibration: the score as it is. The row that every table of calibrators starts with."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from unskew.base.registry import register
from unskew.calibration import sql
from unskew.calibration.calibrator import Calibrator
from unskew.calibration.grouping import Vector


@register(order=10)
@dataclass(kw_only=True, eq=False, repr=False)
class Identity(Calibrator):
    """q(p̂) = p̂, kept 1e-12 away from 0 and 1.

    Use it as the baseline that a calibrator has to beat; in the registry it is called ``"none"``.

    Examples
    --------
    >>> Identity().fit([0.2, 0.7], [0, 1]).predict([0.2, 0.7])
    array([0.2, 0.7])
    """

    name: ClassVar[str] = "none"
    monotone: ClassVar[bool] = True
    needs_both_classes: ClassVar[bool] = False

    def _fit_points(self, score: Vector, total: Vector, positive: Vector) -> None:
        """Learn nothing."""

    def _predict(self, score: Vector) -> Vector:
        return score

    def _sql(self, score: str, safe: str, dialect: sql.Dialect) -> str:
        return score
