"""The compiled passes over rows: cells of a sketch, and ECE alone. Validation is part of the pass.

Rows go through in blocks of :data:`BLOCK`. A first loop over the block is free of branches and of
memory dependencies, so that the compiler turns it into SIMD; a second one scatters the block into
the cells.

Each pass returns a row at or before the first bad one, within a block, or −1; the caller looks at the
chunk itself to name the row (:func:`unskew.metrics.chunks.validate`). Imported where a pass begins: numba is
slow to load.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from unskew.base.compiled import compiled
from unskew.metrics.limits import LIKELIHOOD_FLOOR, OFFSET_BITS, SMALLEST

BLOCK = 512
"""Rows a block: its buffers stay in the first-level cache."""

_FLUSH_EVERY = 16
_FLUSH_BELOW = 1e-50
"""Every 16 blocks the running products of likelihoods below 1e-50 give way to their logarithm: 16
factors of at least 2^-52 cannot bring 1e-50 to underflow."""

_UNPACK_EVERY = 127
"""Blocks before packed cells are read: 127 · 512 rows < 2^16, which is what the count has room for."""

_COUNT_SHIFT = 48
_COUNT_MASK = (1 << 16) - 1
_FRACTION_BITS = 24
"""Position within an equal-width bin, in fixed point: where it is near 0 or 1, the bin is found exactly."""

_ROUNDED = 2.0**52
"""Added to a number from 0 to 2^51, it leaves that number, rounded, in the mantissa's bits: a conversion that
SIMD has, where it lacks one from float64 to int64."""

_LOWEST_INVERSE = 2.0**30
"""Inverse of the lowest score, or of the least that one lacks to 1, with a cell of its own (the grid's
``LOWEST_EXPONENT``)."""


@compiled(error_model="numpy")
def _last_cell(shift: Any, base: Any) -> Any:
    """The cell of the score 1: twice that of 1/2."""
    return 2 * ((np.float64(0.5).view(np.int64) >> shift) - base)


@compiled(error_model="numpy")
def _cell(p: Any, shift: Any, base: Any) -> Any:
    """The cell of a score: 0 for 0, 1 for what lies below the lowest exponent; mirrored above 1/2."""
    tail = 1.0 - p if p > 0.5 else p
    cell = (np.float64(tail).view(np.int64) >> shift) - base
    cell = cell if cell > 1 else 1
    cell = cell if tail > 0.0 else 0
    return _last_cell(shift, base) - cell if p > 0.5 else cell


@compiled(error_model="numpy")
def _left(p: Any, edges: Any, bins: Any) -> Any:
    """The bin [lo, hi) of a score: p · bins may round to the wrong side of an edge, comparison may not."""
    below = np.int64(p * bins)
    below = below if below < bins else bins - 1
    return below + (p >= edges[below + 1]) - (p < edges[below])


@compiled(error_model="numpy")
def _right(p: Any, edges: Any, bins: Any) -> Any:
    """The bin (lo, hi] of a score."""
    below = np.int64(p * bins)
    below = below if below < bins else bins - 1
    return below + (p > edges[below + 1]) - (p <= edges[below])


@compiled(error_model="numpy")
def _both(p: Any, edges: Any, bins: Any) -> Any:
    """``_left + _right``."""
    below = np.int64(p * bins)
    below = below if below < bins else bins - 1
    low, high = edges[below], edges[below + 1]
    return 2 * below + (p >= high) + (p > high) - (p < low) - (p <= low)


@compiled(error_model="numpy")
def _slack(bins: Any) -> Any:
    """Fixed-point distance from an edge within which a bin is found exactly: 2^-30 of a score, and rounding.

    A place is so near if ``(place + slack) & fraction`` is at most twice it. That includes the scores below
    2^-30 and above 1 − 2^-30, whose cells are found exactly too.
    """
    return 2 + np.int64(bins * 2.0**_FRACTION_BITS / _LOWEST_INVERSE)


@compiled(error_model="numpy")
def _unpack(packed: Any, lower: Any, unit: Any, rows: Any, score_sum: Any) -> None:
    """Add packed counts and positions to the rows and Σp of each (cell, outcome); empty the packed cells."""
    for at in range(len(packed)):
        if packed[at] == 0:
            continue
        count = (packed[at] >> _COUNT_SHIFT) & _COUNT_MASK
        offset = packed[at] & ((np.int64(1) << _COUNT_SHIFT) - 1)
        rows[at] += count
        score_sum[at] += np.float64(count) * lower[at] + np.float64(offset) * unit[at]
        packed[at] = 0


@compiled(error_model="numpy")
def fill_cells(
    score: Any,
    outcome: Any,
    edges: Any,
    bins: int,
    shift: int,
    base: int,
    lower: Any,
    unit: Any,
    rows: Any,
    score_sum: Any,
    inverse_sum: Any,
    totals: Any,
) -> int:
    """Add rows to n and Σp of ``[id · 2 + outcome]``, Σo/p of ``[id]``, and Σ(o − p)², −Σ log-lik.

    ``lower`` and ``unit`` say what a packed position means: p = lower + position · unit.
    """
    packed = np.zeros(len(rows), np.int64)
    # Two buffers for four arrays: the compiler proves that parts of one do not overlap, and vectorises.
    whole = np.empty(2 * BLOCK, np.int64)
    position, packed_row = whole[:BLOCK], whole[BLOCK:]
    real = np.ones(2 * BLOCK)
    product, square = real[:BLOCK], real[BLOCK:]
    square[:] = 0.0
    positives = np.empty(BLOCK + 1, np.int64)
    loss = 0.0
    scale = np.float64(bins) * 2.0**_FRACTION_BITS
    fraction, mantissa = np.uint64((1 << _FRACTION_BITS) - 1), np.uint64((1 << 52) - 1)
    slack, reach = np.uint64(_slack(bins)), np.uint64(2 * _slack(bins))
    logical_shift, fraction_bits = np.uint64(shift), np.uint64(_FRACTION_BITS)
    cut = np.uint64(shift - OFFSET_BITS)
    within = np.uint64((1 << shift) - 1)
    half = np.uint64(1 << (shift - OFFSET_BITS - 1))
    one = np.int64(1) << _COUNT_SHIFT
    last = _last_cell(shift, base)
    for block in range((len(score) + BLOCK - 1) // BLOCK):
        start = block * BLOCK
        size = min(BLOCK, len(score) - start)
        scores = score[start : start + size]
        outcomes = outcome[start : start + size]
        bad = 0
        near = 0
        for i in range(size):
            p = np.float64(scores[i])
            o = np.float64(outcomes[i])
            bad += 0 if ((p >= 0.0) & (p <= 1.0) & ((o == 0.0) | (o == 1.0))) else 1
            rest = 1.0 - p
            fit = p if o > 0.5 else rest
            real[i] *= fit if fit > LIKELIHOOD_FLOOR else LIKELIHOOD_FLOOR
            real[BLOCK + i] += (o - p) * (o - p)
            place = np.float64(p * scale + _ROUNDED).view(np.uint64) & mantissa
            near += 1 if ((place + slack) & fraction) <= reach else 0
            # Shifts of unsigned numbers: for signed ones there is no such instruction.
            bits = np.float64(rest if rest < p else p).view(np.uint64)
            cell = np.int64(bits >> logical_shift) - base
            cell = last - cell if rest < p else cell
            whole[i] = 2 * (cell + 2 * np.int64(place >> fraction_bits)) + (1 if o > 0.5 else 0)
            whole[BLOCK + i] = np.int64(((bits & within) + half) >> cut) + one
        if bad:
            return start
        if near:
            for i in range(size):
                p = np.float64(scores[i])
                at = 2 * (_cell(p, shift, base) + _both(p, edges, bins)) + np.int64(outcomes[i])
                position[i] = at
                if p * _LOWEST_INVERSE < 1.0 or (1.0 - p) * _LOWEST_INVERSE < 1.0:
                    packed_row[i] = 0
                    rows[at] += 1
                    score_sum[at] += p
        count = 0
        for i in range(size):
            at = np.uint64(position[i])
            packed[at] += packed_row[i]
            positives[np.uint64(count)] = i
            count += position[i] & 1
        for j in range(count):
            row = np.uint64(positives[j])
            p = np.float64(scores[row])
            if p > 0.0:
                inverse_sum[np.uint64(position[row] >> 1)] += 1.0 / (p if p > SMALLEST else SMALLEST)
        if block % _FLUSH_EVERY == _FLUSH_EVERY - 1:
            lowest = 1.0
            for i in range(BLOCK):
                lowest = product[i] if product[i] < lowest else lowest
            if lowest < _FLUSH_BELOW:
                for i in range(BLOCK):
                    loss -= np.log(product[i])
                    product[i] = 1.0
        if block % _UNPACK_EVERY == _UNPACK_EVERY - 1:
            _unpack(packed, lower, unit, rows, score_sum)
    _unpack(packed, lower, unit, rows, score_sum)
    for i in range(BLOCK):
        loss -= np.log(product[i])
    totals[0] += square.sum()
    totals[1] += loss
    return -1


@compiled(error_model="numpy")
def fill_weighted_cells(
    score: Any,
    outcome: Any,
    weight: Any,
    edges: Any,
    bins: int,
    shift: int,
    base: int,
    rows: Any,
    weight_sum: Any,
    score_sum: Any,
    square_sum: Any,
    inverse_sum: Any,
    totals: Any,
) -> int:
    """Add rows to n, Σw, Σwp and Σw² of ``[id · 2 + outcome]``, Σwo/p of ``[id]``, and the totals."""
    square = 0.0
    loss = 0.0
    for row in range(len(score)):
        p = np.float64(score[row])
        o = np.float64(outcome[row])
        w = np.float64(weight[row])
        if not ((p >= 0.0) & (p <= 1.0) & ((o == 0.0) | (o == 1.0)) & (w >= 0.0) & (w < np.inf)):
            return row
        cell = _cell(p, shift, base) + _both(p, edges, bins)
        at = 2 * cell + np.int64(o)
        rows[at] += 1
        weight_sum[at] += w
        score_sum[at] += w * p
        square_sum[at] += w * w
        if o > 0.5 and p > 0.0:
            inverse_sum[cell] += w / max(p, SMALLEST)
        square += w * (o - p) ** 2
        loss -= w * np.log(max(p if o > 0.5 else 1.0 - p, LIKELIHOOD_FLOOR))
    totals[0] += square
    totals[1] += loss
    return -1


@compiled(error_model="numpy")
def fill_gaps(score: Any, outcome: Any, edges: Any, bins: int, right_closed: bool, gap: Any) -> int:
    """Add o − p of every row to its equal-width bin: ``gap[copy, bin]``, four copies to be summed."""
    position = np.empty(BLOCK, np.int64)
    error = np.empty(BLOCK)
    scale = np.float64(bins) * 2.0**_FRACTION_BITS
    fraction = (np.int64(1) << _FRACTION_BITS) - 1
    slack = _slack(bins)
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
            place = np.int64(p * scale)
            near += 1 if ((place + slack) & fraction) <= 2 * slack else 0
            position[i] = place >> _FRACTION_BITS
        if bad:
            return start
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


@compiled(error_model="numpy")
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
