"""Random folds of grouped data, and log loss on them: what a choice by cross-validation needs."""

from __future__ import annotations

from collections.abc import Iterator

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
    dealt = (Grouped(coarse.score, *counts) for counts in thinned(*coarse[1:], folds, seed))
    parts = [part.take(part.total > 0) for part in dealt]
    return [(regroup(parts[:i] + parts[i + 1 :]), parts[i]) for i in range(folds)]


def thinned(
    total: Vector, positive: Vector, rows: Vector, positive_rows: Vector, folds: int, seed: int
) -> Iterator[tuple[Vector, Vector, Vector, Vector]]:
    """Yield the same four of each fold, if every row of a group falls into a fold by chance."""
    random, share = np.random.default_rng(seed), np.full(folds, 1 / folds)
    counts = [np.rint(positive_rows).astype(np.int64), np.rint(rows - positive_rows).astype(np.int64)]
    masses = zip((positive, total - positive), counts, strict=True)
    weights = [mass / np.maximum(count, 1) for mass, count in masses]
    drawn = [random.multinomial(count, share).T.astype(np.float64) for count in counts]
    for positives, negatives in zip(*drawn, strict=True):
        weight = weights[0] * positives
        yield weight + weights[1] * negatives, weight, positives + negatives, positives


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
