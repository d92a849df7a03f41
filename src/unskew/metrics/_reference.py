"""The passes of ``_kernel`` in plain NumPy: the same ids and counts, sums equal to rounding."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from unskew.metrics._grid import Rule, SketchGrid, ids, width_bin
from unskew.metrics._limits import LIKELIHOOD_FLOOR, SMALLEST

Array = NDArray[np.float64]

CHUNK = 1 << 16
"""Rows a chunk: bounds the extra memory."""


def _valid(p: Array, o: Array, w: Array | None) -> bool:
    fine = (p >= 0) & (p <= 1) & ((o == 0) | (o == 1))
    if w is not None:
        fine &= (w >= 0) & (w < np.inf)
    return bool(fine.all())


def _chunks(score: Any, outcome: Any, weight: Any) -> Any:
    for start in range(0, len(score), CHUNK):
        part = slice(start, start + CHUNK)
        yield (
            start,
            score[part].astype(np.float64),
            outcome[part].astype(np.float64),
            None if weight is None else weight[part].astype(np.float64),
        )


def fill_cells(
    score: Any,
    outcome: Any,
    weight: Any,
    grid: SketchGrid,
    rows: NDArray[np.int64],
    weight_sum: Array,
    score_sum: Array,
    square_sum: Array,
    inverse_sum: Array,
    totals: Array,
) -> int:
    """Both ``fill_cells`` and ``fill_weighted_cells``; without weights they are 1."""
    for start, p, o, given in _chunks(score, outcome, weight):
        if not _valid(p, o, given):
            return int(start)
        w = np.ones_like(p) if given is None else given
        cell = ids(p, edges=grid.edges, bins=grid.bins, shift=grid.shift, base=grid.base)
        at = 2 * cell + o.astype(np.int64)
        rows += np.bincount(at, minlength=len(rows))
        for sums, values in ((weight_sum, w), (score_sum, w * p), (square_sum, w * w)):
            sums += np.bincount(at, weights=values, minlength=len(sums))
        inverse = np.where((o == 1) & (p > 0), w / np.maximum(p, SMALLEST), 0.0)
        inverse_sum += np.bincount(cell, weights=inverse, minlength=len(inverse_sum))
        totals[0] += w @ (o - p) ** 2
        totals[1] -= w @ np.log(np.maximum(np.where(o == 1, p, 1.0 - p), LIKELIHOOD_FLOOR))
    return -1


def fill_gaps(score: Any, outcome: Any, weight: Any, bins: int, right_closed: bool, gap: Array) -> int:
    """Both ``fill_gaps`` and ``fill_weighted_gaps``, into ``gap[0, bin]``."""
    rule: Rule = "paper" if right_closed else "netcal"
    for start, p, o, w in _chunks(score, outcome, weight):
        if not _valid(p, o, w):
            return int(start)
        error = o - p if w is None else w * (o - p)
        gap[0] += np.bincount(width_bin(p, bins=bins, rule=rule), weights=error, minlength=bins)
    return -1
