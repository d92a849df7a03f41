"""The cells of a sketch: spaced in the logit, and split at the edges of the equal-width bins.

For a score p of at most 1/2 a cell is the exponent and the first m mantissa bits of p, e = floor(log2(p)) and
k = floor((p / 2^e − 1) · 2^m); above 1/2 the same of 1 − p, in reverse order: as fine near 1 as near 0.

The id of a score is ``cell + left + right``: ``cell`` counts those cells below it, ``left`` and ``right`` the
interior bin edges ≤ it and < it. Each of the three grows with the score, so ids are
ordered, and no two scores that differ in any of the three share one. A score that equals an edge has
an id of its own: that is what makes both rules of ECE exact from one table.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from unskew.base.estimator import require_choice, require_whole

Rule = Literal["paper", "netcal"]
"""``"paper"``: bins (lo, hi], 0 in the first. ``"netcal"``: bins [lo, hi), 1 in the last."""

LOWEST_EXPONENT = -30
"""Positive scores below 2^-30 ≈ 1e-9 share the first cell: a weight of 1e9 is no use to anyone. So do, at the
other end, scores above 1 − 2^-30 but 1."""

OCTAVES = 2 - LOWEST_EXPONENT
"""A cell for scores of 0, one for each octave of (0, 1), one for scores of 1."""

MOST_BINS = 100_000
MOST_MANTISSA_BITS = 14

_MANTISSA = 52
_EXPONENT_BIAS = 1023


@dataclass(frozen=True, eq=False)
class SketchGrid:
    """Where scores fall.

    ``left_bin`` and ``right_bin`` give the equal-width bin of each id; ``octave`` its factor of two of the
    score, from 1 on: 0 for a score of 0, :data:`OCTAVES` − 1 for a score of 1; ``least`` its least score.
    """

    bins: int
    mantissa_bits: int
    edges: NDArray[np.float64]
    shift: int
    base: int
    size: int
    left_bin: NDArray[np.int64]
    right_bin: NDArray[np.int64]
    octave: NDArray[np.int64]
    least: NDArray[np.float64]

    def ids(
        self, score: NDArray[np.float64], *, within: tuple[SketchGrid, NDArray[np.int64]] | None = None
    ) -> NDArray[np.int64]:
        """Return the id of each score; ``within`` are the ids in another grid, which may tell them sooner."""
        if within is not None and self.bins == 1 and self.mantissa_bits <= within[0].mantissa_bits:
            return _coarser(within[0], self)[within[1]]
        return ids(score, edges=self.edges, bins=self.bins, shift=self.shift, base=self.base)

    def bin_of_id(self, rule: Rule) -> NDArray[np.int64]:
        """Return the equal-width bin of every id under a rule."""
        return self.right_bin if check_rule(rule) == "paper" else self.left_bin


def check_rule(rule: str) -> Rule:
    """Return the rule, or an error."""
    require_choice("rule", rule, get_args(Rule))
    return rule  # type: ignore[return-value]


def check_bins(bins: Any) -> int:
    """Return the number of bins, or an error."""
    require_whole(1, MOST_BINS, bins=bins)
    return int(bins)


@lru_cache(maxsize=64)
def bin_edges(bins: int) -> NDArray[np.float64]:
    """``linspace(0, 1, bins + 1)``, its ends moved out so that 0 and 1 stay in the first and last bin."""
    edges = np.linspace(0.0, 1.0, bins + 1)
    edges[0], edges[-1] = -1.0, 2.0
    edges.flags.writeable = False
    return edges


@lru_cache(maxsize=16)
def _coarser(fine: SketchGrid, coarse: SketchGrid) -> NDArray[np.int64]:
    """Return the id in a grid of one bin for each id in a finer grid."""
    return coarse.ids(fine.least)


@lru_cache(maxsize=16)
def grid(bins: int, mantissa_bits: int) -> SketchGrid:
    """Return the grid for a number of bins and of mantissa bits."""
    bins = check_bins(bins)
    require_whole(0, MOST_MANTISSA_BITS, mantissa_bits=mantissa_bits)
    shift = _MANTISSA - mantissa_bits
    base = ((_EXPONENT_BIAS + LOWEST_EXPONENT) << mantissa_bits) - 1
    half = half_cell(shift, base)
    size = 2 * half + 1 + 2 * (bins - 1)
    lower = (np.arange(base + 1, base + half + 1) << shift).view(np.float64)
    edges = bin_edges(bins)
    inner = edges[1:-1]
    # Where a cell or a bin begins; above 1/2 cells end at 1 − lower, and the next begins behind it.
    above = np.nextafter(np.concatenate([1.0 - lower, inner]), 1.0)
    start = np.unique(np.concatenate([[0.0, SMALLEST, 1.0], lower, inner, above]))
    identity = ids(start, edges=edges, bins=bins, shift=shift, base=base)
    left, right = (np.full(size, -1, dtype=np.int64) for _ in range(2))
    least = np.zeros(size)
    # The last of the scores that share an id is written first.
    least[identity[::-1]] = start[::-1]
    left[identity] = width_bin(start, bins=bins, rule="netcal")
    right[identity] = width_bin(start, bins=bins, rule="paper")
    octave = np.zeros(size, dtype=np.int64)
    exponent = np.clip(np.frexp(start)[1] - LOWEST_EXPONENT, 1, OCTAVES - 1)
    octave[identity] = np.where(start > 0, exponent, 0)
    return SketchGrid(bins, mantissa_bits, edges, shift, base, size, left, right, octave, least)


def half_cell(shift: int, base: int) -> int:
    """Return the cell of the score 1/2, the middle one."""
    return ((_EXPONENT_BIAS - 1) << (_MANTISSA - shift)) - base


def width_bin(score: NDArray[np.float64], *, bins: int, rule: Rule) -> NDArray[np.int64]:
    """Return the equal-width bin of each score under a rule."""
    edges = bin_edges(bins)
    below = np.minimum((score * bins).astype(np.int64), bins - 1)
    low, high = edges[below], edges[below + 1]
    if check_rule(rule) == "paper":
        return np.asarray(below + (score > high) - (score <= low))
    return np.asarray(below + (score >= high) - (score < low))


def ids(
    score: NDArray[np.float64], *, edges: NDArray[np.float64], bins: int, shift: int, base: int
) -> NDArray[np.int64]:
    """Return the id of each score."""
    tail = np.minimum(score, 1.0 - score)
    cell = np.where(tail > 0, np.maximum((tail.view(np.int64) >> shift) - base, 1), 0)
    cell = np.where(score > 0.5, 2 * half_cell(shift, base) - cell, cell)
    below = np.minimum((score * bins).astype(np.int64), bins - 1)
    low, high = edges[below], edges[below + 1]
    above = (score >= high).astype(np.int64) + (score > high) - (score < low) - (score <= low)
    return np.asarray(cell + 2 * below + above)


LIKELIHOOD_FLOOR = float(np.finfo(np.float64).eps)
"""Likelihoods are floored here before the logarithm, as in scikit-learn's ``log_loss``."""

SMALLEST = 1e-100
"""1/p is taken at p of at least this, so that it, its sums and their squares stay finite."""

DEFAULT_RESAMPLES = 2000
"""Resamples of a bootstrap that nobody gave a number of."""

MOST_RESAMPLES = 1_000_000
"""Resamples and draws that a number may be asked to rest on; beyond, they would fill the memory."""
