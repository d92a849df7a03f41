"""Noise of sums over bins when outcomes are drawn cell by cell, and the floor that it makes of an error."""

from __future__ import annotations

from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from unskew.base.estimator import require_choice, require_range
from unskew.base.seeds import as_seed
from unskew.metrics.limits import MOST_RESAMPLES, SMALLEST
from unskew.metrics.score_cells import bin_sums, cells_of, occupied_bin
from unskew.metrics.sketch_grid import Rule
from unskew.metrics.weight_calibration import DEFAULT_WEIGHT_BINS

Array = NDArray[np.float64]

FEW_ROWS = 40.0
"""A sum that is as skewed as a count of this variance, or more, is drawn from its own law; a less skewed one
from the normal law that it tends to."""

MOST_ROWS = float(2**62)
"""Rows of a cell that a whole number can count."""

BATCH = 100
"""Draws at a time: bounds the extra memory."""

FloorMetric = Literal["ece", "adaptive_ece", "wce"]


def noise_floor(
    score: Any,
    outcome: Any = None,
    weight: Any = None,
    *,
    metric: FloorMetric = "ece",
    bins: int | None = None,
    rule: Rule = "paper",
    draws: int = 100,
    seed: int = 0,
) -> float:
    r"""Mean of a calibration error when the scores are true: it is not 0, and depends on n.

    .. math::
        \text{floor} = \mathbb{E}\left[\mathrm{ECE}(p, o^*)\right], \qquad
        o^*_i \sim \mathrm{Bernoulli}(p_i)

    Outcomes are drawn for whole cells, at their mean score. Print it beside every ECE: an ECE near its
    floor says nothing against the scores.

    Parameters
    ----------
    metric
        ``"ece"``, ``"adaptive_ece"`` or ``"wce"``.
    bins, rule
        Those of the metric; by default its own.
    draws
        Simulated outcomes to average over.

    Examples
    --------
    >>> import numpy as np
    >>> score = np.linspace(0.01, 0.99, 1000)
    >>> 0.05 < noise_floor(score=score, outcome=np.arange(1000) % 2) < 0.15
    True
    """
    require_range("draws", draws, 1, MOST_RESAMPLES, "100, for example")
    require_choice("metric", metric, get_args(FloorMetric))
    cells = cells_of(score, outcome, weight, bins=bins)
    if metric == "wce":
        bins = DEFAULT_WEIGHT_BINS if bins is None else bins
    spacing: Literal["width", "mass"] = "width" if metric == "ece" else "mass"
    index = cells.bin_index(bins=bins, spacing=spacing, rule=rule)
    rows, step = cells.equal_rows()
    if metric == "wce":
        step = np.where(cells.score > 0, step / np.maximum(cells.score, SMALLEST), 0.0)
    generator = np.random.default_rng(as_seed(seed))
    # Cubes of 1/p of the smallest scores overflow: such noise is skewed, which is what an infinity says.
    with np.errstate(over="ignore"):
        noise = drawn_noise(index, rows, cells.score, step, draws, generator)
    return float(np.abs(noise).sum(axis=-1).mean() / cells.total.sum())


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
