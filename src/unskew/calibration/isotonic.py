"""Isotonic regression that never answers 0: the best non-decreasing map, safe to divide by."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal, NamedTuple

import numpy as np
from scipy.optimize import isotonic_regression
from scipy.special import logit

from unskew.base.estimator import require_at_least
from unskew.base.registry import register
from unskew.calibration import sql
from unskew.calibration.calibrator import inside
from unskew.calibration.grouping import Vector
from unskew.calibration.logistic_fit import fit_logistic
from unskew.calibration.step_calibrator import StepCalibrator, edges_between, smooth_extremes


class Blocks(NamedTuple):
    """Pooled neighbours: first and last score, weight and positive weight of each block, in order."""

    first: Vector
    last: Vector
    total: Vector
    positive: Vector


def pool_adjacent_violators(score: Vector, total: Vector, positive: Vector) -> Blocks:
    """Return the blocks of the isotonic regression of positive/total on score (weights ``total``)."""
    *starts, end = isotonic_regression(positive / total, weights=total).blocks.tolist()
    ends = np.array([*starts[1:], end]) - 1
    sums = (np.add.reduceat(column, starts) for column in (total, positive))
    return Blocks(score[starts], score[ends], *sums)


@register(order=60)
@dataclass(kw_only=True, eq=False, repr=False)
class Isotonic(StepCalibrator):
    r"""The non-decreasing q of least squared error, which is also that of greatest likelihood.

    .. math:: \min_{q_1 ≤ … ≤ q_J} Σ_j n_j (y_j/n_j − q_j)^2

    solved by pooling adjacent violators: q is the frequency y/n of each block. The first block may hold
    no positive and the last no negative; these two get s/(n+2s) and (n+s)/(n+2s) (s is ``smoothing``),
    no further than their neighbour, and all blocks then move together on the logit scale until the
    mean prediction is the base rate again. Every inverse weight is finite.

    Use it from some ten thousand rows on, when the reliability curve has a shape that no formula
    follows. Not below a thousand rows of the rarer class: it overfits, and ties lose ranking within a
    block.

    Parameters
    ----------
    smoothing
        Pseudo-rows of each class for the two end blocks (Laplace's 1); 0 is plain isotonic regression,
        whose zeros then become 1e-12. Sample weights count as repeated rows.
    interpolation
        ``"step"``: each block to its edge, which keeps the base rate through a sketch as well;
        ``"linear"``: straight lines across the gaps between blocks, as scikit-learn.

    Examples
    --------
    >>> isotonic = Isotonic().fit([0.1, 0.2, 0.3, 0.4], [0, 1, 0, 1])
    >>> isotonic.predict([0.1, 0.25, 0.9]).round(3)
    array([0.333, 0.5  , 0.667])
    """

    name: ClassVar[str] = "isotonic"
    monotone: ClassVar[bool] = True
    learned: ClassVar[tuple[str, ...]] = ("first_", "last_", "edges_", "values_")

    smoothing: float = 1.0
    interpolation: Literal["step", "linear"] = "step"

    def _check_parameters(self) -> None:
        super()._check_parameters()
        require_at_least(0, smoothing=self.smoothing)

    def _fit_points(self, score: Vector, total: Vector, positive: Vector) -> None:
        blocks = pool_adjacent_violators(score, total, positive)
        self.first_, self.last_ = blocks.first, blocks.last
        self.edges_ = edges_between(blocks.last[:-1], blocks.first[1:])
        self.values_ = _zero_safe(blocks, self.smoothing)

    def _predict(self, score: Vector) -> Vector:
        if self.interpolation == "step":
            return super()._predict(score)
        step = np.searchsorted(self.first_[1:], score, side="right")
        value = self.values_.take(step)
        following = np.minimum(step + 1, len(self.values_) - 1)
        last = self.last_.take(step)
        gap = np.maximum(self.first_.take(following) - last, np.finfo(np.float64).tiny)
        share = np.clip((score - last) / gap, 0.0, 1.0)
        value += share * (self.values_.take(following) - value)
        return value

    def _sql(self, score: str, safe: str, dialect: sql.Dialect) -> str:
        if self.interpolation == "step":
            return super()._sql(score, safe, dialect)
        following = [*range(1, len(self.values_)), len(self.values_) - 1]
        pieces = []
        for value, last, first, upper in zip(
            self.values_, self.last_, self.first_[following], self.values_[following], strict=True
        ):
            gap = max(first - last, np.finfo(np.float64).tiny)
            share = sql.between(0.0, f"({score} - {sql.double(last)}) / {sql.double(gap)}", 1.0)
            pieces.append(sql.line(upper - value, share, value))
        return sql.steps(score, self.first_[1:].tolist(), pieces)


def _zero_safe(blocks: Blocks, smoothing: float) -> Vector:
    frequency = blocks.positive / blocks.total
    if smoothing == 0 or (frequency[0] > 0 and frequency[-1] < 1):
        return frequency
    value = smooth_extremes(frequency, blocks.total, smoothing)
    if len(value) > 2:
        value[0] = min(value[0], value[1])
        value[-1] = max(value[-1], value[-2])
    else:
        value = np.maximum.accumulate(value)
    shift = fit_logistic(
        np.ones((len(value), 1)), blocks.total, blocks.positive, offset=logit(inside(value))
    ).coefficients
    return np.asarray(1 / (1 + np.exp(-(logit(inside(value)) + shift))))
