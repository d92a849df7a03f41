"""Random folds of grouped data, and log loss on them: what a choice by cross-validation needs."""

from __future__ import annotations

import numpy as np

from unskew.calibration.grouping import Grouped, Vector, regroup

COARSE_ABOVE = 4_000
"""More groups than a sketch has are merged into its cells for a choice; the fit that follows is exact."""

_CELL_SHIFT = 45
"""Float64 bits that a cell of the sketch leaves out: it keeps 7 of 52 mantissa bits."""


_ABOVE_ALL = 2 * ((1 << 62) >> _CELL_SHIFT)
"""More than twice any cell of a score of at most 1/2: what cells of scores above it are counted down from."""


def folds_of(points: Grouped, folds: int, seed: int) -> list[tuple[Grouped, Grouped]]:
    """(training, held-out) points of each fold.

    Sending every row to a fold at random is, for grouped rows, multinomial thinning of each group's
    positives and negatives: so a sketch is divided as its rows would have been. Rows of one group and
    outcome are taken to weigh the same.
    """
    coarse = _coarse(points) if len(points.score) > COARSE_ABOVE else points
    positives = np.rint(coarse.positive_rows).astype(np.int64)
    negatives = np.rint(coarse.rows).astype(np.int64) - positives
    weights = [
        mass / np.maximum(rows, 1)
        for mass, rows in ((coarse.positive, positives), (coarse.total - coarse.positive, negatives))
    ]
    random = np.random.default_rng(seed)
    share = np.full(folds, 1 / folds)
    parts = []
    for positive, negative in zip(
        random.multinomial(positives, share).T, random.multinomial(negatives, share).T, strict=True
    ):
        weight = weights[0] * positive
        part = Grouped(
            score=coarse.score,
            total=weight + weights[1] * negative,
            positive=weight,
            rows=(positive + negative).astype(np.float64),
            positive_rows=positive.astype(np.float64),
        )
        parts.append(part.take(part.total > 0))
    return [(regroup(parts[:i] + parts[i + 1 :]), parts[i]) for i in range(folds)]


def both_classes(points: Grouped) -> bool:
    """Whether there are positives and negatives."""
    return bool(0 < points.positive.sum() < points.total.sum())


def log_loss(points: Grouped, probability: Vector) -> float:
    """−Σ w·log-likelihood of the points under a probability for each."""
    negative = points.total - points.positive
    return float(-(points.positive @ np.log(probability) + negative @ np.log1p(-probability)))


def _coarse(points: Grouped) -> Grouped:
    upper = points.score > 0.5
    tail = np.where(upper, 1.0 - points.score, points.score).view(np.int64) >> _CELL_SHIFT
    _, starts = np.unique(np.where(upper, _ABOVE_ALL - tail, tail), return_index=True)
    total, *others = (np.add.reduceat(column, starts) for column in points[1:])
    return Grouped(np.add.reduceat(points.total * points.score, starts) / total, total, *others)
