"""Rows to grouped points, checked as metrics check them. Knows nothing of any calibrator."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from unskew.base.errors import DataError
from unskew.base.numbers import parts_of
from unskew.metrics.cell_sums import both
from unskew.metrics.chunks import Names, wrong_score
from unskew.metrics.score_cells import ScoreCells, cells_of, exact_cells
from unskew.metrics.sketch import CalibrationSketch

Vector = NDArray[np.float64]

NAMES = Names(weight="sample_weight")


class Grouped(NamedTuple):
    """Rows of one score merged; scores ascend and are distinct.

    ``score`` s_j, ``total`` Σw, ``positive`` Σw·o, ``rows`` n and ``positive_rows`` Σo of each group.
    """

    score: Vector
    total: Vector
    positive: Vector
    rows: Vector
    positive_rows: Vector

    @classmethod
    def unweighted(cls, score: Vector, total: Vector, positive: Vector) -> Grouped:
        """Return groups whose weights are their rows."""
        return cls(score, total, positive, total, positive)

    @property
    def base_rate(self) -> float:
        """Σ w·o / Σ w."""
        return float(self.positive.sum() / self.total.sum())

    def take(self, which: NDArray[np.bool_] | NDArray[np.intp]) -> Grouped:
        """Return some of the groups."""
        return Grouped(*(part[which] for part in self))


def group(score: Any, outcome: Any, sample_weight: Any, *, exact_below: int) -> Grouped:
    """Group rows into points: by distinct score up to ``exact_below`` rows, else by sketch.

    Points themselves are given back: whoever fits many calibrators groups once.
    """
    if isinstance(score, Grouped):
        return score
    if isinstance(score, CalibrationSketch):
        return _sketch_points(score, outcome, sample_weight)
    if outcome is None:
        raise DataError("outcome is missing", remedy="give outcome= beside the scores, or fit on a sketch")
    scores = numeric(score, "score")
    if len(scores) > exact_below:
        sketch = CalibrationSketch().update(scores, outcome, sample_weight, names=NAMES)
        return _sketch_points(sketch, None, None)
    cells = exact_cells(scores, outcome, sample_weight, NAMES)
    return _of_cells(cells)


def regroup(parts: list[Grouped]) -> Grouped:
    """Merge several sets of points into one."""
    distinct, cell = np.unique(np.concatenate([part.score for part in parts]), return_inverse=True)

    sums = [np.concatenate(column) for column in zip(*(part[1:] for part in parts), strict=True)]
    return Grouped(distinct, *(sum_by(cell, values, len(distinct)) for values in sums))


def sum_by(cell: NDArray[np.intp], values: Vector, cells: int) -> Vector:
    """Σ of the values of each cell."""
    return np.asarray(np.bincount(cell, values, minlength=cells), dtype=np.float64)


def numeric(values: Any, name: str) -> NDArray[Any]:
    """Return a one-dimensional numeric array, without a copy where none is needed."""
    parts = parts_of(values, name)
    return parts[0] if len(parts) == 1 else np.concatenate(parts)


def check_scores(scores: Vector, *, first_row: int = 0) -> None:
    """Raise an error that names the first row whose score is missing or outside [0, 1]."""
    if len(scores) == 0 or (scores.min() >= 0 and scores.max() <= 1):
        return
    row = int(np.argmin((scores >= 0) & (scores <= 1)))
    raise wrong_score(float(scores[row]), f"column 'score', row {first_row + row}")


def _sketch_points(sketch: CalibrationSketch, outcome: Any, sample_weight: Any) -> Grouped:
    if outcome is not None or sample_weight is not None:
        raise DataError(
            "a sketch already holds its outcomes and weights", remedy="fit on the sketch alone: fit(sketch)"
        )
    cells = cells_of(sketch)
    return _of_cells(cells)


def _of_cells(cells: ScoreCells) -> Grouped:
    rows = cells.rows.astype(np.float64)
    return Grouped(cells.score, cells.total, cells.positive, both(rows), rows[:, 1])


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
    """Return whether there are positives and negatives."""
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
