"""Rows to grouped points, with every check a user's arrays need. Knows nothing of any calibrator."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from unskew.errors import DataError

Vector = NDArray[np.float64]

SCORE_REMEDY = "give probabilities in [0, 1]; turn logits into probabilities with the sigmoid first"


class Grouped(NamedTuple):
    """Rows of one score told together; scores ascend and are distinct.

    ``score`` s_j, ``total`` Σw, ``positive`` Σw·o and ``rows`` n of each group.
    """

    score: Vector
    total: Vector
    positive: Vector
    rows: Vector

    @property
    def base_rate(self) -> float:
        """Σ w·o / Σ w."""
        return float(self.positive.sum() / self.total.sum())

    def take(self, which: NDArray[np.bool_] | NDArray[np.intp]) -> Grouped:
        """Some of the groups."""
        return Grouped(self.score[which], self.total[which], self.positive[which], self.rows[which])


def group(score: Any, outcome: Any, sample_weight: Any, *, exact_below: int) -> Grouped:
    """Points of a sketch, or of rows: by distinct score up to ``exact_below`` rows, else by sketch."""
    if hasattr(score, "points"):
        return _sketch_points(score, outcome, sample_weight)
    if outcome is None:
        raise DataError("outcome is missing", remedy="give outcome= beside the scores, or fit on a sketch")
    scores = numeric(score, "score")
    outcomes = numeric(outcome, "outcome")
    weights = None if sample_weight is None else numeric(sample_weight, "sample_weight")
    for name, array in (("outcome", outcomes), ("sample_weight", weights)):
        if array is not None and len(array) != len(scores):
            raise DataError(f"{name} has {len(array)} rows where score has {len(scores)}")
    if len(scores) == 0:
        raise DataError(
            "there are no rows to fit on", where="score", remedy="give at least a few rows of each class"
        )
    if len(scores) > exact_below:
        from unskew.metrics.sketch import CalibrationSketch

        return _sketch_points(
            CalibrationSketch.of(score=scores, outcome=outcomes, weight=weights), None, None
        )
    scores = scores.astype(np.float64)
    outcomes = outcomes.astype(np.float64)
    check_scores(scores)
    _check_outcomes(outcomes)
    weights = np.ones(len(scores)) if weights is None else weights.astype(np.float64)
    _check_weights(weights)
    distinct, cell = np.unique(scores, return_inverse=True)
    points = Grouped(
        score=distinct,
        total=sum_by(cell, weights, len(distinct)),
        positive=sum_by(cell, weights * outcomes, len(distinct)),
        rows=np.bincount(cell).astype(np.float64),
    )
    return _with_weight(points)


def regroup(parts: list[Grouped]) -> Grouped:
    """Several sets of points as one."""
    distinct, cell = np.unique(np.concatenate([part.score for part in parts]), return_inverse=True)

    def summed(values: list[Vector]) -> Vector:
        return sum_by(cell, np.concatenate(values), len(distinct))

    return Grouped(
        score=distinct,
        total=summed([part.total for part in parts]),
        positive=summed([part.positive for part in parts]),
        rows=summed([part.rows for part in parts]),
    )


def sum_by(cell: NDArray[np.intp], values: Vector, cells: int) -> Vector:
    """Σ of the values of each cell."""
    return np.asarray(np.bincount(cell, values, minlength=cells), dtype=np.float64)


def numeric(values: Any, name: str) -> NDArray[Any]:
    """A one-dimensional numeric array of whatever was given, without a copy where there is none to make."""
    if hasattr(values, "detach"):
        values = values.detach().cpu().numpy()
    array = np.asarray(values)
    if array.ndim != 1:
        raise DataError(f"{name} must be one-dimensional, not of shape {array.shape}")
    if array.dtype.kind in "biuf":
        return array
    try:
        return array.astype(np.float64)
    except (TypeError, ValueError):
        raise DataError(f"{name} holds {array.dtype} values, not numbers", where=name) from None


def check_scores(scores: Vector, *, first_row: int = 0) -> None:
    """An error that names the first row whose score is missing or outside [0, 1]."""
    if len(scores) == 0 or (scores.min() >= 0 and scores.max() <= 1):
        return
    row = int(np.flatnonzero(~((scores >= 0) & (scores <= 1)))[0])
    if np.isnan(scores[row]):
        raise DataError(
            "score is NaN", where=f"score, row {first_row + row}", remedy="drop or fill such rows"
        )
    raise DataError(
        f"score {scores[row]:g} is outside [0, 1]", where=f"score, row {first_row + row}", remedy=SCORE_REMEDY
    )


def _check_outcomes(outcomes: Vector) -> None:
    wrong = np.flatnonzero(~((outcomes == 0) | (outcomes == 1)))
    if len(wrong):
        shown = "NaN" if np.isnan(outcomes[wrong[0]]) else f"{outcomes[wrong[0]]:g}, not 0 or 1"
        raise DataError(
            f"outcome is {shown}", where=f"outcome, row {wrong[0]}", remedy="encode outcomes as 0 and 1"
        )


def _check_weights(weights: Vector) -> None:
    wrong = np.flatnonzero(~(np.isfinite(weights) & (weights >= 0)))
    if len(wrong):
        raise DataError(
            f"weight {weights[wrong[0]]:g} is not a finite number of at least 0",
            where=f"sample_weight, row {wrong[0]}",
        )


def _sketch_points(sketch: Any, outcome: Any, sample_weight: Any) -> Grouped:
    if outcome is not None or sample_weight is not None:
        raise DataError(
            "a sketch already holds its outcomes and weights", remedy="fit on the sketch alone: fit(sketch)"
        )
    points = sketch.points()
    if len(points.score) == 0:
        raise DataError("the sketch is empty", remedy="update it with rows before fitting on it")
    return _with_weight(
        Grouped(
            *(
                np.asarray(part, dtype=np.float64)
                for part in (points.score, points.total, points.positive, points.rows)
            )
        )
    )


def _with_weight(points: Grouped) -> Grouped:
    weighted = points.total > 0
    if not weighted.any():
        raise DataError(
            "every row has weight 0", where="sample_weight", remedy="give some rows a weight above 0"
        )
    return points if weighted.all() else points.take(weighted)
