"""Binned calibration errors: how far mean outcomes are from mean scores, bin by bin.

Proper scores, weight calibration, tests, intervals and curves have files of their own beside this one.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from unskew.metrics import _kernel, _reference
from unskew.metrics import sketch as sketch_module
from unskew.metrics._cells import bin_sums, cells_of, require_arrays, require_rows
from unskew.metrics._grid import Rule, bin_edges, check_bins, check_rule
from unskew.metrics._inputs import DEFAULT_NAMES, chunks, reject
from unskew.metrics.sketch import DEFAULT_BINS, CalibrationSketch


def ece(
    *,
    score: Any = None,
    outcome: Any = None,
    weight: Any = None,
    sketch: CalibrationSketch | None = None,
    bins: int | None = None,
    rule: Rule = "paper",
) -> float:
    r"""Expected calibration error over equal-width bins, of the positive class.

    .. math::
        \mathrm{ECE}_M = \sum_{m=1}^{M} \frac{n_m}{n}
        \left|\bar o_m - \bar p_m\right| = \frac1n \sum_m \Big|\sum_{i \in m} (o_i - p_i)\Big|

    n_m are the rows (the weight) of bin m, ō_m and p̄_m its mean ``outcome`` and mean ``score``.
    Use it to compare with the literature, beside its noise floor (:func:`unskew.metrics.noise_floor`):
    it is biased upwards, and blind where scores are small. For propensities that become weights,
    :func:`unskew.metrics.wce` is the number to look at.

    Parameters
    ----------
    bins
        M; 100 by default, as in the paper, or what the sketch keeps.
    rule
        ``"paper"``: bins (lo, hi], a score of 0 in the first. ``"netcal"``: bins [lo, hi), a score
        of 1 in the last. They differ only for scores that equal an edge.

    Examples
    --------
    >>> round(ece(score=[0.1, 0.1, 0.9, 0.9], outcome=[0, 0, 1, 0], bins=10), 6)
    0.25
    """
    check_rule(rule)
    if sketch is not None:
        cells = cells_of(score=score, outcome=outcome, weight=weight, sketch=sketch)
        gap = bin_sums(cells.gap, cells.bin_index(bins=bins, rule=rule))
        return float(np.abs(gap).sum() / cells.total.sum())
    require_arrays(score, outcome)
    return _ece_of_arrays(score, outcome, weight, check_bins(DEFAULT_BINS if bins is None else bins), rule)


def _ece_of_arrays(score: Any, outcome: Any, weight: Any, bins: int, rule: Rule) -> float:
    """ECE in one pass that fills nothing but Σ(o − p) of each bin."""
    edges, right_closed = bin_edges(bins), rule == "paper"
    gap: NDArray[np.float64] = np.zeros((4, bins))
    total = 0.0
    for chunk in chunks(score, outcome, weight):
        if not sketch_module.USE_NUMBA:
            bad = _reference.fill_gaps(chunk.score, chunk.outcome, chunk.weight, bins, right_closed, gap)
        elif chunk.weight is None:
            bad = _kernel.fill_gaps(chunk.score, chunk.outcome, edges, bins, right_closed, gap)
        else:
            bad = _kernel.fill_weighted_gaps(
                chunk.score, chunk.outcome, chunk.weight, edges, bins, right_closed, gap
            )
        if bad >= 0:
            reject(chunk, DEFAULT_NAMES)
        total += len(chunk.score) if chunk.weight is None else float(chunk.weight.sum())
    require_rows(total)
    return float(np.abs(gap.sum(axis=0)).sum() / total)
