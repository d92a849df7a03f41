"""Rows to grouped points, with every check a user's arrays need. Knows nothing of any calibrator."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from unskew.errors import DataError
from unskew.io.numbers import array_of

Vector = NDArray[np.float64]

SCORE_REMEDY = "give probabilities in [0, 1]; turn logits into probabilities with the sigmoid first"


ROUNDING_OF_A_MEAN = 1e-12
"""Relative error that the mean of ten million equal scores may have gathered."""


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
        """Groups whose weights are their rows."""
        return cls(score, total, positive, total, positive)

    @property
    def base_rate(self) -> float:
        """Σ w·o / Σ w."""
        return float(self.positive.sum() / self.total.sum())

    def take(self, which: NDArray[np.bool_] | NDArray[np.intp]) -> Grouped:
        """Some of the groups."""
        return Grouped(*(part[which] for part in self))


def group(score: Any, outcome: Any, sample_weight: Any, *, exact_below: int) -> Grouped:
    """Points of a sketch, or of rows: by distinct score up to ``exact_below`` rows, else by sketch.

    Points themselves are given back: whoever fits many calibrators groups once.
    """
    if isinstance(score, Grouped):
        return score
    if hasattr(score, "points"):
        return _sketch_points(score, outcome, sample_weight)
    if outcome is None:
        raise DataError("outcome is missing", remedy="give outcome= beside the scores, or fit on a sketch")
    scores = numeric(score, "score")
    outcomes = numeric(outcome, "outcome")
    weights = None if sample_weight is None else numeric(sample_weight, "sample_weight")
    for name, array in (("outcome", outcomes), ("sample_weight", weights)):
        if array is not None and len(array) != len(scores):
            raise DataError(
                f"{name} has {len(array)} rows where score has {len(scores)}",
                remedy="give one value for each score",
            )
    if len(scores) == 0:
        raise DataError(
            "there are no rows to fit on", where="score", remedy="give at least a few rows of each class"
        )
    if len(scores) > exact_below:
        from unskew.metrics.sketch import CalibrationSketch

        return _sketch_points(
            CalibrationSketch.of(score=scores, outcome=outcomes, weight=weights), None, None
        )
    # −0.0 becomes 0.0: one score with two signs would be an edge that bits cannot place.
    scores = scores.astype(np.float64) + 0.0
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
        rows=sum_by(cell, np.ones(len(scores)), len(distinct)),
        positive_rows=sum_by(cell, outcomes, len(distinct)),
    )
    return _with_weight(points)


def regroup(parts: list[Grouped]) -> Grouped:
    """Several sets of points as one."""
    distinct, cell = np.unique(np.concatenate([part.score for part in parts]), return_inverse=True)

    sums = [np.concatenate(column) for column in zip(*(part[1:] for part in parts), strict=True)]
    return Grouped(distinct, *(sum_by(cell, values, len(distinct)) for values in sums))


def sum_by(cell: NDArray[np.intp], values: Vector, cells: int) -> Vector:
    """Σ of the values of each cell."""
    return np.asarray(np.bincount(cell, values, minlength=cells), dtype=np.float64)


def numeric(values: Any, name: str) -> NDArray[Any]:
    """A one-dimensional numeric array of whatever was given, without a copy where there is none to make."""
    if hasattr(values, "detach"):
        values = values.detach().cpu()
        values = (values.float() if str(values.dtype) == "torch.bfloat16" else values).numpy()
    array = array_of(values, name)
    if array.ndim != 1:
        raise DataError(
            f"{name} must be one-dimensional, not of shape {array.shape}",
            remedy="give one value for each row",
        )
    if array.dtype.kind in "biuf":
        return array
    try:
        return array.astype(np.float64)
    except (TypeError, ValueError):
        raise DataError(
            f"{name} holds {array.dtype} values, not numbers", where=name, remedy="convert them to numbers"
        ) from None


def check_scores(scores: Vector, *, first_row: int = 0) -> None:
    """An error that names the first row whose score is missing or outside [0, 1]."""
    if len(scores) == 0 or (scores.min() >= 0 and scores.max() <= 1):
        return
    row = int(np.flatnonzero(~((scores >= 0) & (scores <= 1)))[0])
    if np.isnan(scores[row]):
        raise DataError(
            "score is missing (NaN)",
            where=f"column 'score', row {first_row + row}",
            remedy="drop or fill such rows",
        )
    raise DataError(
        f"score {scores[row]:g} is outside [0, 1]",
        where=f"column 'score', row {first_row + row}",
        remedy=SCORE_REMEDY,
    )


def _check_outcomes(outcomes: Vector) -> None:
    wrong = np.flatnonzero(~((outcomes == 0) | (outcomes == 1)))
    if len(wrong):
        shown = "missing (NaN)" if np.isnan(outcomes[wrong[0]]) else f"{outcomes[wrong[0]]:g}, not 0 or 1"
        raise DataError(
            f"outcome is {shown}",
            where=f"column 'outcome', row {wrong[0]}",
            remedy="encode outcomes as 0 and 1",
        )


def _check_weights(weights: Vector) -> None:
    wrong = np.flatnonzero(~(np.isfinite(weights) & (weights >= 0)))
    if len(wrong):
        raise DataError(
            f"weight {weights[wrong[0]]:g} is not a finite number of at least 0",
            where=f"column 'sample_weight', row {wrong[0]}",
            remedy="give how many rows of the population a row stands for",
        )


def _sketch_points(sketch: Any, outcome: Any, sample_weight: Any) -> Grouped:
    if outcome is not None or sample_weight is not None:
        raise DataError(
            "a sketch already holds its outcomes and weights", remedy="fit on the sketch alone: fit(sketch)"
        )
    points = sketch.points()
    if len(points.score) == 0:
        raise DataError("the sketch is empty", remedy="update it with rows before fitting on it")
    total, positive, rows = (
        np.asarray(column, dtype=np.float64) for column in (points.total, points.positive, points.rows)
    )
    score = _on_edges(np.asarray(points.score, dtype=np.float64), sketch.bins)
    return _with_weight(Grouped(score, total, positive, rows, _positive_rows(total, positive, rows)))


def _positive_rows(total: Vector, positive: Vector, rows: Vector) -> Vector:
    """Rows with a positive outcome of each cell; with weights, those that one weight for each class implies.

    n = Σw·o/w₁ + Σw·(1−o)/w₀ holds in every cell where the rows of a class weigh the same, as sampled
    negatives do: two unknowns, thousands of cells.
    """
    if np.array_equal(total, rows):
        return positive
    # Here, for it takes longer to load than any fit to make, and only weights need it.
    from scipy.optimize import nnls

    negative = total - positive
    (of_positive, _), _ = nnls(np.column_stack([positive, negative]), rows)
    return np.asarray(np.clip(np.rint(of_positive * positive), positive > 0, rows - (negative > 0)))


def _on_edges(score: Vector, bins: int) -> Vector:
    """Mean scores of the cells that hold one edge of the equal-width bins only, freed of their rounding."""
    edge = np.linspace(0.0, 1.0, bins + 1)[np.rint(score * bins).astype(np.intp)]
    moved = np.where(np.abs(score - edge) <= ROUNDING_OF_A_MEAN * edge, edge, score)
    kept = np.diff(moved, prepend=-1.0, append=2.0) > 0
    return np.where(kept[:-1] & kept[1:], moved, score)


def _with_weight(points: Grouped) -> Grouped:
    weighted = points.total > 0
    if not weighted.any():
        raise DataError(
            "every row has weight 0", where="sample_weight", remedy="give some rows a weight above 0"
        )
    return points if weighted.all() else points.take(weighted)
