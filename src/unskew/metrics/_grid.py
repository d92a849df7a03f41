"""The cells of a sketch: log-spaced in the score, and split at the edges of the equal-width bins.

The id of a score is ``cell + left + right``: ``cell`` counts the log-spaced cells below it, ``left``
and ``right`` the interior bin edges ≤ it and < it. Each of the three grows with the score, so ids are
ordered, and no two scores that differ in any of the three share one. A score that equals an edge has
an id of its own: that is what makes both rules of ECE exact from one table.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from unskew.errors import ParameterError
from unskew.metrics._limits import OFFSET_BITS, SMALLEST

Rule = Literal["paper", "netcal"]
"""``"paper"``: bins (lo, hi], 0 in the first. ``"netcal"``: bins [lo, hi), 1 in the last."""

LOWEST_EXPONENT = -30
"""Positive scores below 2^-30 ≈ 1e-9 share the first cell: a weight of 1e9 is no use to anyone."""

MOST_BINS = 100_000
MOST_MANTISSA_BITS = 14

_MANTISSA = 52
_EXPONENT_BIAS = 1023


@dataclass(frozen=True, eq=False)
class Grid:
    """Where scores fall.

    ``left_bin`` and ``right_bin`` give the equal-width bin of each id; ``lower`` and ``unit``, for each
    ``id · 2 + outcome``, the lowest score of its cell and the step of a packed position within it.
    """

    bins: int
    mantissa_bits: int
    edges: NDArray[np.float64]
    shift: int
    base: int
    size: int
    left_bin: NDArray[np.int64]
    right_bin: NDArray[np.int64]
    lower: NDArray[np.float64]
    unit: NDArray[np.float64]

    def bin_of_id(self, rule: Rule) -> NDArray[np.int64]:
        """The equal-width bin of every id under a rule."""
        return self.right_bin if check_rule(rule) == "paper" else self.left_bin


def check_rule(rule: str) -> Rule:
    """The rule, or an error."""
    if rule not in ("paper", "netcal"):
        raise ParameterError(f"rule must be 'paper' or 'netcal', not {rule!r}", remedy="give one of these")
    return rule  # type: ignore[return-value]


def check_bins(bins: Any) -> int:
    """The number of bins, or an error."""
    if not isinstance(bins, (int, np.integer)) or isinstance(bins, bool) or not 1 <= bins <= MOST_BINS:
        raise ParameterError(
            f"bins must be a whole number from 1 to {MOST_BINS:,}, not {bins!r}",
            remedy="give a number of this range",
        )
    return int(bins)


@lru_cache(maxsize=64)
def bin_edges(bins: int) -> NDArray[np.float64]:
    """``linspace(0, 1, bins + 1)``, its ends moved out so that 0 and 1 stay in the first and last bin."""
    edges = np.linspace(0.0, 1.0, bins + 1)
    edges[0], edges[-1] = -1.0, 2.0
    edges.flags.writeable = False
    return edges


@lru_cache(maxsize=16)
def grid(bins: int, mantissa_bits: int) -> Grid:
    """The grid for a number of bins and of mantissa bits."""
    bins = check_bins(bins)
    if not isinstance(mantissa_bits, int) or not 0 <= mantissa_bits <= MOST_MANTISSA_BITS:
        raise ParameterError(
            f"mantissa_bits must be a whole number from 0 to {MOST_MANTISSA_BITS}, not {mantissa_bits!r}",
            remedy="give a number of this range",
        )
    shift = _MANTISSA - mantissa_bits
    base = ((_EXPONENT_BIAS + LOWEST_EXPONENT) << mantissa_bits) - 1
    last_cell = (_EXPONENT_BIAS << mantissa_bits) - base
    size = last_cell + 1 + 2 * (bins - 1)
    lower = (np.arange(base + 1, base + last_cell + 1) << shift).view(np.float64)
    edges = bin_edges(bins)
    inner = edges[1:-1]
    start = np.unique(np.concatenate([[0.0, SMALLEST], lower, inner, np.nextafter(inner, 1.0)]))
    identity = ids(start, edges=edges, bins=bins, shift=shift, base=base)
    left, right = (np.full(size, -1, dtype=np.int64) for _ in range(2))
    left[identity] = width_bin(start, bins=bins, rule="netcal")
    right[identity] = width_bin(start, bins=bins, rule="paper")
    bottom, step = np.zeros(size), np.zeros(size)
    cell = identity - left[identity] - right[identity]
    bottom[identity] = np.concatenate([[0.0], lower])[cell]
    step[identity] = np.spacing(bottom[identity]) * 2.0 ** (shift - OFFSET_BITS)
    return Grid(
        bins, mantissa_bits, edges, shift, base, size, left, right, np.repeat(bottom, 2), np.repeat(step, 2)
    )


def width_bin(score: NDArray[np.float64], *, bins: int, rule: Rule) -> NDArray[np.int64]:
    """The equal-width bin of each score under a rule."""
    edges = bin_edges(bins)
    below = np.minimum((score * bins).astype(np.int64), bins - 1)
    low, high = edges[below], edges[below + 1]
    if check_rule(rule) == "paper":
        return np.asarray(below + (score > high) - (score <= low))
    return np.asarray(below + (score >= high) - (score < low))


def ids(
    score: NDArray[np.float64], *, edges: NDArray[np.float64], bins: int, shift: int, base: int
) -> NDArray[np.int64]:
    """The id of each score."""
    cell = np.where(score > 0, np.maximum((score.view(np.int64) >> shift) - base, 1), 0)
    below = np.minimum((score * bins).astype(np.int64), bins - 1)
    low, high = edges[below], edges[below + 1]
    above = (score >= high).astype(np.int64) + (score > high) - (score < low) - (score <= low)
    return np.asarray(cell + 2 * below + above)
