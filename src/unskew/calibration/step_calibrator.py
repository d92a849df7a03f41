"""Maps that are constant between edges, and edges that lie well between scores. No fitting."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from unskew.calibration import sql
from unskew.calibration.calibrator import Calibrator
from unskew.calibration.grouping import Vector

BUCKET_SHIFT = 16
"""A bucket is the top 16 bits of the float32 score, as in the sketch: 16,257 of them cover [0, 1]."""

SKETCH_BINS = 100
MANTISSA_BITS = 52
FINEST_MANTISSA_BITS = 14
"""The finest cells that a sketch can have; its default are 7 bits."""

BUCKETS = (int(np.float32(1.0).view(np.uint32)) >> BUCKET_SHIFT) + 1


def edges_between(left: Vector, right: Vector) -> Vector:
    """Return an edge in (left, right] for each pair of neighbours: the roundest number there is.

    Hundredths first, then the shortest binary fraction, from 1/2 on that of 1 − p. Between the mean scores
    of two neighbouring cells of a sketch (spaced in the logit, split at hundredths) that is the edge of the
    cells themselves, so that every row gets the value of its own cell and sums over rows stay exact.
    """
    # Cells above 1/2 are those of 1 − p in reverse order: they begin right after 1 − edge.
    mirrored = np.nextafter(1.0 - _roundest(1.0 - right, 1.0 - left), 1.0)
    edge = np.where(left >= 0.5, np.minimum(mirrored, right), _roundest(left, right))
    hundredths = width_edges(SKETCH_BINS)
    hundredth = hundredths[np.searchsorted(hundredths, right, side="right") - 1]
    edge = np.where(hundredth > left, hundredth, edge)
    # A sketch keeps scores that equal a hundredth in a cell of their own, which ends right after it.
    on_one = (hundredths[np.searchsorted(hundredths, left)] == left) & (left > 0)
    return np.where(on_one, np.nextafter(left, 1.0), edge)


def _roundest(left: Vector, right: Vector) -> Vector:
    """Return the number in (left, right] with the fewest bits, or else their middle."""
    middle = left + (right - left) / 2
    edge = np.where(middle > left, middle, right)
    # The right neighbour with 0, 1, … bits of its fraction left: the first that fits.
    dropped = MANTISSA_BITS - np.arange(FINEST_MANTISSA_BITS + 1)[:, None]
    rounded = ((right.view(np.int64) >> dropped) << dropped).view(np.float64)
    fits = (rounded > left) & (rounded <= right)
    shortest = np.take_along_axis(rounded, fits.argmax(axis=0)[None], axis=0)[0]
    return np.where(fits.any(axis=0), shortest, edge)


@lru_cache(maxsize=16)
def width_edges(bins: int) -> Vector:
    """0, …, 1 in equal steps, to the last bit those of the sketch and of ECE."""
    edges = np.linspace(0.0, 1.0, bins + 1)
    edges.flags.writeable = False
    return edges


def block_starts(labels: NDArray[np.intp]) -> NDArray[np.intp]:
    """Return where each run of equal labels begins."""
    return np.concatenate([[0], np.flatnonzero(np.diff(labels)) + 1]).astype(np.intp)


def smooth_extremes(frequency: Vector, total: Vector, smoothing: float) -> Vector:
    """Smooth frequencies of 0 and 1 as s/(n+2s) and (n+s)/(n+2s); the others as they are."""
    if smoothing == 0:
        return frequency
    smoothed = (frequency * total + smoothing) / (total + 2 * smoothing)
    return np.where((frequency == 0) | (frequency == 1), smoothed, frequency)


@dataclass(kw_only=True, eq=False, repr=False)
class StepCalibrator(Calibrator):
    """q(p̂) = ``values_[k]``, where k is the number of ``edges_`` at or below p̂."""

    learned: ClassVar[tuple[str, ...]] = ("edges_", "values_")

    def _predict(self, score: Vector) -> Vector:
        return self.values_.take(np.searchsorted(self.edges_, score, side="right"))

    def _sql(self, score: str, safe: str, dialect: sql.Dialect) -> str:
        return sql.steps(score, self.edges_.tolist(), [sql.double(value) for value in self.values_])

    def _set_steps(self, edges: Vector, values: Vector) -> None:
        self.edges_, self.values_ = edges, values

    def _check_learned(self) -> None:
        edges, values = np.atleast_1d(self.edges_), np.atleast_1d(self.values_)
        if len(values) != len(edges) + 1 or (np.diff(edges) < 0).any() or (edges < 0).any():
            raise ValueError(f"{len(edges)} edges, which must ascend, and {len(values)} values are no steps")
        super()._check_learned()


def bucket_of(score: Vector) -> NDArray[np.intp]:
    """Return the bucket of each score: ascends with the score."""
    # −0.0 is a score too, and its sign would be a bucket far beyond the last.
    bits = np.abs(score, dtype=np.float32, casting="same_kind").view(np.uint32)
    return (bits >> np.uint32(BUCKET_SHIFT)).astype(np.intp)
