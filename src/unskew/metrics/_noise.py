"""Noise of sums over bins when outcomes are drawn cell by cell: used for floors and intervals."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from unskew.metrics._cells import bin_sums, occupied_bin

Array = NDArray[np.float64]

FEW_ROWS = 40.0
"""A sum that is as skewed as a count of this variance, or more, is drawn from its own law; a less skewed one
from the normal law that it tends to."""

MOST_ROWS = float(2**62)
"""Rows of a cell that a whole number can count."""

BATCH = 100
"""Draws at a time: bounds the extra memory."""


def drawn_noise(
    index: NDArray[np.int64],
    rows: Array,
    rate: Array,
    step: Array,
    draws: int,
    generator: np.random.Generator,
) -> Array:
    r"""Noise of Σ step · positives of each occupied bin, ``[draw, bin]``, its mean taken off.

    .. math:: \sum_{j \in b} s_j (Y_j - n_j r_j), \quad Y_j \sim \mathrm{Binomial}(n_j, r_j); \qquad
              \text{normal if } \sum_j s_j^3 v_j \Big/ \Big(\sum_j s_j^2 v_j\Big)^{3/2} < 40^{-1/2}, \quad
              v_j = n_j r_j (1 - r_j)

    ``index`` is the bin of each cell, ``rows`` n, ``rate`` r, ``step`` s. Where the skewness of a bin's noise
    is less than that (40 is :data:`FEW_ROWS`) one normal number is drawn for the bin, else one count for each
    of its cells: so large data cost no more than small.
    """
    count = rows * rate * (1.0 - rate)
    variance, third = bin_sums(step**2 * count, index), bin_sums(step**3 * count, index)
    skewed = third**2 * FEW_ROWS >= variance**3
    noise = generator.standard_normal((draws, len(variance))) * np.sqrt(np.where(skewed, 0.0, variance))
    place = occupied_bin(index)
    few = skewed[place]
    if not few.any():
        return noise
    # Weights can make more rows of a row than a whole number holds.
    size, chance, move = np.minimum(rows[few], MOST_ROWS).astype(np.int64), rate[few], step[few]
    for start in range(0, draws, BATCH):
        part = slice(start, min(start + BATCH, draws))
        drawn = generator.binomial(size, chance, size=(part.stop - start, len(size))) - size * chance
        noise[part, skewed] = bin_sums(drawn * move, place[few])
    return noise
