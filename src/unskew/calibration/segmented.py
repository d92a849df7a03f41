"""Platt scaling for each segment, shrunk to the global map as far as the segment's rows leave it open."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from unskew.base.errors import DataError
from unskew.base.estimator import require_above
from unskew.calibration.calibrator import Calibrator, checked_chunks, inside, logits, sigmoid
from unskew.calibration.grouping import Grouped, Vector, numeric, sum_by
from unskew.calibration.platt import Platt
from unskew.calibration.step_calibrator import BUCKETS, bucket_of

SMALLEST_SLOPE = 1e-6
"""A segment whose scores rank backwards is flattened, never reversed."""

NEWTON_STEPS = 60
SHORTEST_STEP = 1e-10
ROWS_AT_A_TIME = 1 << 18


@dataclass(kw_only=True, eq=False, repr=False)
class Segmented(Calibrator):
    r"""q_g(p̂) = σ(b_g·logit p̂ + c_g) for segment g, with a Gaussian prior at the global (b, c).

    .. math:: \min_{b_g > 0, c_g} −\log L_g(b_g, c_g) + \tfrac{m}{2} (θ_g − θ)^⊤ I (θ_g − θ)

    I is the information that one row carries about θ = (b, c) in the global fit, and m the number of
    rows that hold ``strength`` rows of the rarer class: the prior counts as so many clicks. A segment
    with many more follows its own data, one with hardly any keeps the global map; a segment never seen
    in ``fit``, and a prediction without segments, get the global map itself.

    Use it where calibrated overall is not calibrated for each group of users or items (the worst
    segments of ``unskew audit``). Not for segments that were chosen by looking at the outcome.

    Parameters
    ----------
    strength
        20: ten events for each of two parameters (Peduzzi et al. 1996). Sample weights count as
        repeated rows.

    Attributes
    ----------
    slope_, intercept_
        b and c of the global map.
    segments_, slopes_, intercepts_
        The segments in order, and their b_g and c_g.

    Examples
    --------
    >>> random = np.random.default_rng(0)
    >>> score, segment = np.full(2000, 0.3), np.repeat(["new", "old"], 1000)
    >>> outcome = random.random(2000) < np.where(segment == "new", 0.1, 0.5)
    >>> segmented = Segmented().fit(score, outcome, segment=segment)
    >>> segmented.predict([0.3, 0.3, 0.3], segment=["new", "old", "never seen"]).round(1)
    array([0.1, 0.5, 0.3])
    """

    name: ClassVar[str] = "segmented"
    monotone: ClassVar[bool] = True
    learned: ClassVar[tuple[str, ...]] = ("slope_", "intercept_", "slopes_", "intercepts_")

    strength: float = 20.0

    def fit(self, score: Any, outcome: Any = None, sample_weight: Any = None, *, segment: Any = None) -> Self:
        """Learn the global map and one for each ``segment`` (text or whole numbers, one a row)."""
        super().fit(score, outcome, sample_weight)
        if segment is None:
            return self
        if outcome is None:
            raise DataError(
                "a sketch does not tell its segments", remedy="give arrays: score, outcome, segment="
            )
        scores, outcomes = numeric(score, "score"), numeric(outcome, "outcome")
        weights = np.ones(1) if sample_weight is None else numeric(sample_weight, "sample_weight")
        weights = np.broadcast_to(weights, scores.shape)
        self.segments_, code = np.unique(_labels(segment, len(scores)), return_inverse=True)
        if len(scores) > self.exact_below:
            rows = by_cell(code, scores, weights, outcomes)
        else:
            total = weights.astype(np.float64)
            rows = CodedRows(code, scores.astype(np.float64), total, total * outcomes)
        self.slopes_, self.intercepts_ = fit_segments(
            rows,
            len(self.segments_),
            slope=self.slope_,
            intercept=self.intercept_,
            strength=self.strength,
        )
        return self

    def predict(self, score: Any, segment: Any = None) -> NDArray[np.float64]:
        """Probabilities by each row's segment; the global map without ``segment``."""
        if segment is None:
            return super().predict(score)
        self._require_fitted("segments_")
        scores = numeric(score, "score")
        labels = _labels(segment, len(scores))
        if len(self.segments_) == 0:
            raise DataError("this Segmented was fitted without segments", remedy="call fit with segment=")
        if (labels.dtype.kind == "U") != (self.segments_.dtype.kind == "U"):
            expected = "text" if self.segments_.dtype.kind == "U" else "whole numbers"
            raise DataError(
                f"segments are {labels.dtype} here and were {expected} in fit",
                where="column 'segment'",
                remedy="give segments of the type that fit was given",
            )
        slope, intercept = np.append(self.slopes_, self.slope_), np.append(self.intercepts_, self.intercept_)
        probability = np.empty(len(scores))
        for rows, chunk in checked_chunks(scores):
            code = np.minimum(np.searchsorted(self.segments_, labels[rows]), len(self.segments_) - 1)
            code[self.segments_[code] != labels[rows]] = len(self.segments_)
            z = logits(chunk)
            z *= slope.take(code)
            z += intercept.take(code)
            inside(sigmoid(z), out=probability[rows])
        return probability

    def _check_parameters(self) -> None:
        super()._check_parameters()
        require_above(0, strength=self.strength)

    def _fit_points(self, score: Vector, total: Vector, positive: Vector) -> None:
        platt = Platt()._fit_on(Grouped.unweighted(score, total, positive))
        self.slope_, self.intercept_, self.message_ = platt.slope_, platt.intercept_, platt.message_
        self.segments_, self.slopes_, self.intercepts_ = np.empty(0, np.int64), np.empty(0), np.empty(0)

    def _predict(self, score: Vector) -> Vector:
        return sigmoid(self.slope_ * logits(score) + self.intercept_)

    def _learned_to_dict(self) -> dict[str, Any]:
        return super()._learned_to_dict() | {"segments_": self.segments_.tolist()}

    def _learned_from_dict(self, learned: Mapping[str, Any]) -> None:
        super()._learned_from_dict(learned)
        self.segments_ = np.array(learned["segments_"])
        if not self.segments_.shape == self.slopes_.shape == self.intercepts_.shape:
            raise ValueError("segments_, slopes_ and intercepts_ are of several lengths")


def _labels(segment: Any, rows: int) -> NDArray[Any]:
    labels = np.asarray(segment)
    if labels.dtype.kind in "OT":
        labels = labels.astype(str)
    if labels.shape != (rows,):
        raise DataError(
            f"segment has shape {labels.shape} where score has {rows} rows",
            where="column 'segment'",
            remedy="give one segment for each score",
        )
    if labels.dtype.kind not in "iubU":
        raise DataError(
            f"segments are {labels.dtype}", where="column 'segment'", remedy="give text or whole numbers"
        )
    return labels


class CodedRows(NamedTuple):
    """Rows, or cells of rows: code of the segment, score, weight, positive weight."""

    code: NDArray[np.intp]
    score: Vector
    total: Vector
    positive: Vector


def by_cell(code: NDArray[np.intp], score: Vector, weight: Vector, outcome: Vector) -> CodedRows:
    """Rows of one segment and one cell of the sketch merged; a chunk of them at a time."""
    parts = []
    for start in range(0, len(code), ROWS_AT_A_TIME):
        rows = slice(start, start + ROWS_AT_A_TIME)
        s, w = score[rows].astype(np.float64), weight[rows].astype(np.float64)
        key = code[rows] * BUCKETS + bucket_of(s)
        parts.append(_summed(key, np.stack([w, w * outcome[rows], w * s])))
    key, (total, positive, scores) = _summed(
        np.concatenate([key for key, _ in parts]), np.concatenate([sums for _, sums in parts], axis=1)
    )
    weighted = total > 0
    return CodedRows(
        (key // BUCKETS)[weighted], (scores[weighted] / total[weighted]), total[weighted], positive[weighted]
    )


def fit_segments(
    rows: CodedRows, segments: int, *, slope: float, intercept: float, strength: float
) -> tuple[Vector, Vector]:
    """Fit slope and intercept of each segment by Newton steps, with a prior of ``strength`` rows of the"
    " rarer class."""
    z = logits(rows.score)
    count = rows.total.sum()
    middle = float(rows.total @ z / count)
    z -= middle
    features = np.stack([z, np.ones_like(z)])
    centre = np.array([[slope], [intercept + slope * middle]])
    rate = float(rows.positive.sum() / count)
    curvature = rows.total * _variance(expit(centre[0] * z + centre[1]))
    prior = strength / min(rate, 1 - rate) / count * (features * curvature) @ features.T

    def eta_of(theta: Vector) -> Vector:
        return np.asarray(theta[0].take(rows.code) * z + theta[1].take(rows.code))

    def loss_of(theta: Vector) -> Vector:
        eta = eta_of(theta)
        pull = theta - centre
        loss = sum_by(rows.code, rows.total * np.logaddexp(0, eta) - rows.positive * eta, segments)
        return np.asarray(loss + 0.5 * (pull * (prior @ pull)).sum(axis=0))

    theta = np.repeat(centre, segments, axis=1)
    loss = loss_of(theta)
    for _ in range(NEWTON_STEPS):
        q = expit(eta_of(theta))
        residual, curvature = rows.total * q - rows.positive, rows.total * _variance(q)
        gradient = np.stack([sum_by(rows.code, residual * f, segments) for f in features])
        gradient += prior @ (theta - centre)
        zz, z1, one = (sum_by(rows.code, curvature * f, segments) for f in (z * z, z, features[1]))
        held = (theta[0] <= SMALLEST_SLOPE) & (gradient[0] > 0)
        step = _solve(zz + prior[0, 0], z1 + prior[0, 1], one + prior[1, 1], gradient, held)
        size = np.ones(segments)
        while True:
            candidate = theta - size * step
            candidate[0] = np.maximum(candidate[0], SMALLEST_SLOPE)
            candidate_loss = loss_of(candidate)
            worse = candidate_loss > loss + 1e-12 * np.abs(loss)
            if not worse.any() or size.min() < SHORTEST_STEP:
                break
            size[worse] /= 2
        moved = np.abs(candidate - theta).max()
        theta, loss = candidate, candidate_loss
        if moved < SHORTEST_STEP:
            break
    return theta[0], theta[1] - theta[0] * middle


def _solve(zz: Vector, z1: Vector, one: Vector, gradient: Vector, held: NDArray[np.bool_]) -> Vector:
    """2×2 Newton steps of all segments; a slope ``held`` at its bound does not move."""
    z1 = np.where(held, 0.0, z1)
    slope_gradient = np.where(held, 0.0, gradient[0])
    # Where every score is the same the slope has no curvature, and no gradient either.
    zz = zz + 1e-12 * one
    determinant = zz * one - z1 * z1
    return np.stack(
        [
            (one * slope_gradient - z1 * gradient[1]) / determinant,
            (zz * gradient[1] - z1 * slope_gradient) / determinant,
        ]
    )


def _summed(key: NDArray[np.intp], columns: Vector) -> tuple[NDArray[np.intp], Vector]:
    distinct, cell = np.unique(key, return_inverse=True)
    return distinct, np.stack([sum_by(cell, column, len(distinct)) for column in columns])


def _variance(probability: Vector) -> Vector:
    return probability * (1 - probability)
