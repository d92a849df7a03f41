"""Rows counted by cell of the score and outcome: one pass of NumPy, and the sums that a sketch keeps."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from unskew.metrics.chunks import ScoreChunk
from unskew.metrics.limits import LIKELIHOOD_FLOOR, SMALLEST
from unskew.metrics.sketch_grid import SketchGrid, ids

Codes = NDArray[np.int64]
Array = NDArray[np.float64]

DENSE = 1 << 22
"""Codes up to here are added up in an array that holds all of them; larger ones are sorted first."""


def both(by_outcome: NDArray[Any]) -> NDArray[Any]:
    """Sum values ``[cell, outcome]`` over outcomes: ten times as fast as ``sum`` over so short an axis."""
    return np.asarray(by_outcome[:, 0] + by_outcome[:, 1])


@dataclass(frozen=True, eq=False)
class CellSums:
    """Sums of cells: ``rows, weight, score, square`` are n, Σw, Σwp, Σw² by ``[cell, outcome]``.

    ``inverse`` is Σ wo/p by ``[cell]``, ``totals`` is (Σ w(o − p)², −Σ w log-likelihood) of all rows.
    """

    rows: NDArray[np.int64]
    weight: NDArray[np.float64]
    score: NDArray[np.float64]
    square: NDArray[np.float64]
    inverse: NDArray[np.float64]
    totals: NDArray[np.float64]

    @classmethod
    def empty(cls, size: int) -> CellSums:
        """Return sums of no rows."""
        by_outcome = (size, 2)
        return cls(
            rows=np.zeros(by_outcome, dtype=np.int64),
            weight=np.zeros(by_outcome),
            score=np.zeros(by_outcome),
            square=np.zeros(by_outcome),
            inverse=np.zeros(size),
            totals=np.zeros(2),
        )

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Return the arrays by name."""
        return {field.name: getattr(self, field.name) for field in fields(self)}

    def add(self, other: CellSums) -> None:
        """Add other sums of the same cells."""
        for name, values in self.arrays().items():
            values += getattr(other, name)

    def add_codes(self, code: NDArray[np.int64], sums: NDArray[np.float64]) -> None:
        """Add the sums ``[7, code]`` of one key that :func:`count` returns."""
        rows, weight, square, score, inverse, brier, log_loss = sums
        # A sum of doubles holds every count up to 2^53.
        self.rows.reshape(-1)[code] += np.rint(rows).astype(np.int64)
        self.weight.reshape(-1)[code] += weight
        self.square.reshape(-1)[code] += square
        self.score.reshape(-1)[code] += score
        clicked = code % 2 == 1
        self.inverse[code[clicked] // 2] += inverse[clicked]
        self.totals[:] += brier.sum(), log_loss.sum()

    def take(self, ids: NDArray[np.int64]) -> CellSums:
        """Return the sums of some of the cells."""
        # `take` is ten times as fast as an index where rows are two numbers long.
        arrays = self.arrays().items()
        return CellSums(**{name: v if name == "totals" else v.take(ids, axis=0) for name, v in arrays})


def count(
    grid: SketchGrid,
    chunk: ScoreChunk,
    key: NDArray[np.integer[Any]] | None = None,
    *,
    rows: Array | None = None,
    square: Array | None = None,
) -> tuple[Codes, Array]:
    """Count rows: return distinct codes ``(key · size + cell) · 2 + outcome``, sorted, and their sums.

    ``rows`` and ``square`` (n and Σw²) are given where a row of the chunk is a group of rows.
    """
    p, clicked, w = chunk
    code = ids(p, edges=grid.edges, bins=grid.bins, shift=grid.shift, base=grid.base)
    if key is not None:
        code += key.astype(np.int64) * grid.size
    code *= 2
    code += clicked
    inverse = np.divide(1.0, np.maximum(p, SMALLEST), out=np.zeros_like(p), where=p > 0)
    brier = np.where(clicked, 1.0 - p, p)
    np.square(brier, out=brier)
    log_loss = np.where(clicked, p, 1.0 - p)
    np.log(np.maximum(log_loss, LIKELIHOOD_FLOOR, out=log_loss), out=log_loss)
    np.negative(log_loss, out=log_loss)
    if w is None:
        return added_up(code, [None, None, None, p, inverse, brier, log_loss])
    square = w * w if square is None else square
    return added_up(code, [rows, w, square, *(w * each for each in (p, inverse, brier, log_loss))])


def added_up(code: Codes, columns: Sequence[Array | None] | Array) -> tuple[Codes, Array]:
    """Return the distinct codes, sorted, and the sums of each column over them; None counts."""
    if int(code.max(initial=0)) < DENSE:
        rows = np.bincount(code)
        distinct = np.flatnonzero(rows)
    else:
        distinct, code, rows = np.unique(code, return_inverse=True, return_counts=True)
    counted = (rows[distinct] if len(rows) > len(distinct) else rows).astype(np.float64)
    sums = np.empty((len(columns), len(distinct)))
    for place, values in enumerate(columns):
        if values is None:
            sums[place] = counted
        else:
            added = np.bincount(code, values, minlength=len(rows))
            sums[place] = added[distinct] if len(added) > len(distinct) else added
    return distinct, sums
