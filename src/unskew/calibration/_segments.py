"""Platt scaling of many segments at once under a common prior. Arrays in and out; no labels, no checks."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from unskew.calibration.calibrator import logits
from unskew.calibration.grouping import Vector, sum_by
from unskew.calibration.step_calibrator import BUCKETS, bucket_of

SMALLEST_SLOPE = 1e-6
"""A segment whose scores rank backwards is flattened, never reversed."""

NEWTON_STEPS = 60
SHORTEST_STEP = 1e-10
ROWS_AT_A_TIME = 1 << 18


class CodedRows(NamedTuple):
    """Rows, or cells of rows: code of the segment, score, weight, positive weight."""

    code: NDArray[np.intp]
    score: Vector
    total: Vector
    positive: Vector


class SegmentFit(NamedTuple):
    """Slope and intercept of each segment."""

    slope: Vector
    intercept: Vector


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
) -> SegmentFit:
    """Newton steps for all segments together, with a prior of ``strength`` rows of the rarer class."""
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
    return SegmentFit(slope=theta[0], intercept=theta[1] - theta[0] * middle)


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
