"""The sketch of scores after a calibrator, from their sketch before it: no row is read again."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from unskew.metrics.cell_sums import CellSums
from unskew.metrics.limits import LIKELIHOOD_FLOOR
from unskew.metrics.sketch import CalibrationSketch
from unskew.metrics.sketch_grid import ids

Array = NDArray[np.float64]


def mapped(sketch: CalibrationSketch, probability: Array) -> CalibrationSketch:
    """The sketch of the same rows with each occupied cell's score replaced by a probability.

    Scores of one cell are within 0.8 % of each other, and get the probability of their mean.
    """
    return mapped_cells(occupied_cells([sketch]), probability, sketch)


def occupied_cells(sketches: Sequence[CalibrationSketch]) -> CellSums:
    """The occupied cells of several sketches, one sketch after the other."""
    kept = [sketch.sums.take(sketch.occupied()).arrays() for sketch in sketches]
    return CellSums(**{name: np.concatenate([sums[name] for sums in kept]) for name in kept[0]})


def mapped_cells(cells: CellSums, probability: Array, like: CalibrationSketch) -> CalibrationSketch:
    """A sketch with the grid of another, of cells whose scores are replaced by probabilities."""
    result = CalibrationSketch(bins=like.bins, mantissa_bits=like.mantissa_bits)
    grid = result.grid
    at = ids(probability, edges=grid.edges, bins=grid.bins, shift=grid.shift, base=grid.base)
    q = probability[:, None]
    inverse = np.divide(1.0, probability, out=np.zeros_like(probability), where=probability > 0)
    error = np.concatenate([q, 1 - q], axis=1)
    for target, values in (
        (result.sums.rows, cells.rows),
        (result.sums.weight, cells.weight),
        (result.sums.score, cells.weight * q),
        (result.sums.square, cells.square),
        (result.sums.inverse[:, None], (cells.weight[:, 1] * inverse)[:, None]),
    ):
        for column in range(target.shape[1]):
            target[:, column] = np.bincount(at, values[:, column], minlength=len(target))
    likelihood = np.maximum(1 - error, LIKELIHOOD_FLOOR)
    result.sums.totals[:] = (cells.weight * error**2).sum(), -(cells.weight * np.log(likelihood)).sum()
    return result
