"""The compiled passes over rows: cells of a sketch, and ECE alone. Validation is part of the pass.

Rows go through in blocks of :data:`BLOCK`. A first loop over the block is free of branches and of
memory dependencies, so that the compiler turns it into SIMD; a second one scatters the block into
the cells. ``unskew.metrics._reference`` does the same in plain NumPy.

Each kernel returns the first row of the first block that holds a bad value, or −1; the caller looks
at the block itself to name the row (:func:`unskew.metrics._inputs.reject`).
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

LIKELIHOOD_FLOOR = float(np.finfo(np.float64).eps)
"""Likelihoods are floored here before the logarithm, as in scikit-learn's ``log_loss``."""

SMALLEST = 1e-300
"""1/p is taken at p of at least this, so that it and its sums stay finite."""

BLOCK = 512
"""Rows a block: its buffers stay in the first-level cache."""

_LANES = 32
"""Independent partial sums and products, so that neither waits for the one before."""

_FLUSH_BELOW = 1e-50
"""Take the logarithm of the running product below this: one block multiplies it by at least
``LIKELIHOOD_FLOOR ** (BLOCK / _LANES)`` ≈ 1e-251, so it cannot underflow."""

_NEAR_EDGE = 0.4999999
"""|position in the bin − ½| above this: the rounding of p · bins could choose the wrong side."""


@njit(cache=True, nogil=True, error_model="numpy")
def _cell(p: Any, shift: Any, base: Any) -> Any:
    """The log-spaced cell of a score: 0 for 0, 1 for what lies below the lowest exponent."""
    cell = (np.float64(p).view(np.int64) >> shift) - base
    at_least_one = cell if cell > 1 else 1
    return at_least_one if p > 0.0 else 0


@njit(cache=True, nogil=True, error_model="numpy")
def _left(p: Any, edges: Any, bins: Any) -> Any:
    """The bin [lo, hi) of a score: p · bins may round to the wrong side of an edge, comparison may not."""
    below = np.int64(p * bins)
    below = below if below < bins else bins - 1
    return below + (p >= edges[below + 1]) - (p < edges[below])


@njit(cache=True, nogil=True, error_model="numpy")
def _right(p: Any, edges: Any, bins: Any) -> Any:
    """The bin (lo, hi] of a score."""
    below = np.int64(p * bins)
    below = below if below < bins else bins - 1
    return below + (p > edges[below + 1]) - (p <= edges[below])


@njit(cache=True, nogil=True, error_model="numpy")
def fill_cells(
    score: Any, outcome: Any, edges: Any, bins: int, shift: int, base: int, table: Any, totals: Any
) -> int:
    """Add rows to ``table[id · 2 + outcome] = (n, Σp, Σ1/p)`` and ``totals = (Σ(o − p)², −Σ log-lik)``."""
    position = np.empty(BLOCK, np.int64)
    probability = np.empty(BLOCK)
    inverse = np.empty(BLOCK)
    likelihood = np.empty(BLOCK)
    product = np.ones(_LANES)
    square = np.zeros(_LANES)
    loss = 0.0
    scale = np.float64(bins)
    rows = len(score)
    for start in range(0, rows, BLOCK):
        size = min(BLOCK, rows - start)
        scores = score[start : start + size]
        outcomes = outcome[start : start + size]
        bad = 0
        near = 0
        for i in range(size):
            p = np.float64(scores[i])
            o = np.float64(outcomes[i])
            bad += 0 if ((p >= 0.0) & (p <= 1.0) & ((o == 0.0) | (o == 1.0))) else 1
        if bad:
            return start
        for i in range(size):
            p = np.float64(scores[i])
            o = np.float64(outcomes[i])
            fit = 1.0 - abs(o - p)
            probability[i] = p
            likelihood[i] = fit if fit > LIKELIHOOD_FLOOR else LIKELIHOOD_FLOOR
            inverse[i] = 1.0 / (p if p > SMALLEST else SMALLEST) if p > 0.0 else 0.0
            place = p * scale
            below = np.int64(place)
            near += 1 if abs(place - np.float64(below) - 0.5) > _NEAR_EDGE else 0
            position[i] = 2 * (_cell(p, shift, base) + 2 * below) + np.int64(o)
        if near:
            for i in range(size):
                p = probability[i]
                bin_ids = _left(p, edges, bins) + _right(p, edges, bins)
                position[i] = 2 * (_cell(p, shift, base) + bin_ids) + np.int64(outcomes[i])
        for i in range(size):
            at = np.uint64(position[i])
            table[at, 0] += 1.0
            table[at, 1] += probability[i]
            table[at, 2] += inverse[i]
        if size < BLOCK:
            for i in range(size):
                loss -= np.log(likelihood[i])
                square[0] += (outcomes[i] - probability[i]) ** 2
            break
        for group in range(0, BLOCK, _LANES):
            fits = likelihood[group : group + _LANES]
            probabilities = probability[group : group + _LANES]
            outcomes_here = outcomes[group : group + _LANES]
            for i in range(_LANES):
                product[i] *= fits[i]
                error = np.float64(outcomes_here[i]) - probabilities[i]
                square[i] += error * error
        lowest = 1.0
        for i in range(_LANES):
            lowest = product[i] if product[i] < lowest else lowest
        if lowest < _FLUSH_BELOW:
            for i in range(_LANES):
                loss -= np.log(product[i])
                product[i] = 1.0
    for i in range(_LANES):
        loss -= np.log(product[i])
    totals[0] += square.sum()
    totals[1] += loss
    return -1


@njit(cache=True, nogil=True, error_model="numpy")
def fill_weighted_cells(
    score: Any,
    outcome: Any,
    weight: Any,
    edges: Any,
    bins: int,
    shift: int,
    base: int,
    table: Any,
    totals: Any,
) -> int:
    """Add rows to ``table[id · 2 + outcome] = (n, Σw, Σwp, Σw/p, Σw²)`` and the two weighted totals."""
    square = 0.0
    loss = 0.0
    for row in range(len(score)):
        p = np.float64(score[row])
        o = np.float64(outcome[row])
        w = np.float64(weight[row])
        if not ((p >= 0.0) & (p <= 1.0) & ((o == 0.0) | (o == 1.0)) & (w >= 0.0) & (w < np.inf)):
            return row
        bin_ids = _left(p, edges, bins) + _right(p, edges, bins)
        at = 2 * (_cell(p, shift, base) + bin_ids) + np.int64(o)
        table[at, 0] += 1.0
        table[at, 1] += w
        table[at, 2] += w * p
        table[at, 3] += w / max(p, SMALLEST) if p > 0.0 else 0.0
        table[at, 4] += w * w
        square += w * (o - p) ** 2
        loss -= w * np.log(max(1.0 - abs(o - p), LIKELIHOOD_FLOOR))
    totals[0] += square
    totals[1] += loss
    return -1


@njit(cache=True, nogil=True, error_model="numpy")
def fill_gaps(score: Any, outcome: Any, edges: Any, bins: int, right_closed: bool, gap: Any) -> int:
    """Add o − p of every row to its equal-width bin: ``gap[copy, bin]``, four copies to be summed."""
    position = np.empty(BLOCK, np.int64)
    error = np.empty(BLOCK)
    scale = np.float64(bins)
    rows = len(score)
    first, second, third, fourth = gap[0], gap[1], gap[2], gap[3]
    for start in range(0, rows, BLOCK):
        size = min(BLOCK, rows - start)
        scores = score[start : start + size]
        outcomes = outcome[start : start + size]
        bad = 0
        near = 0
        for i in range(size):
            p = np.float64(scores[i])
            o = np.float64(outcomes[i])
            bad += 0 if ((p >= 0.0) & (p <= 1.0) & ((o == 0.0) | (o == 1.0))) else 1
            error[i] = o - p
        if bad:
            return start
        for i in range(size):
            place = np.float64(scores[i]) * scale
            below = np.int64(place)
            near += 1 if abs(place - np.float64(below) - 0.5) > _NEAR_EDGE else 0
            position[i] = below
        if near:
            for i in range(size):
                p = np.float64(scores[i])
                position[i] = _right(p, edges, bins) if right_closed else _left(p, edges, bins)
        whole = size - size % 4
        for i in range(0, whole, 4):
            first[np.uint64(position[i])] += error[i]
            second[np.uint64(position[i + 1])] += error[i + 1]
            third[np.uint64(position[i + 2])] += error[i + 2]
            fourth[np.uint64(position[i + 3])] += error[i + 3]
        for i in range(whole, size):
            first[np.uint64(position[i])] += error[i]
    return -1


@njit(cache=True, nogil=True, error_model="numpy")
def fill_weighted_gaps(
    score: Any, outcome: Any, weight: Any, edges: Any, bins: int, right_closed: bool, gap: Any
) -> int:
    """Add w · (o − p) of every row to ``gap[0, bin]``."""
    for row in range(len(score)):
        p = np.float64(score[row])
        o = np.float64(outcome[row])
        w = np.float64(weight[row])
        if not ((p >= 0.0) & (p <= 1.0) & ((o == 0.0) | (o == 1.0)) & (w >= 0.0) & (w < np.inf)):
            return row
        at = _right(p, edges, bins) if right_closed else _left(p, edges, bins)
        gap[0, at] += w * (o - p)
    return -1
