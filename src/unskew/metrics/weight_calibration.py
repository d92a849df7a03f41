"""Calibration of inverse-propensity weights: is the mean of o/p̂ equal to 1, everywhere?"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from unskew.metrics._cells import Cells, Spacing, bin_sums, cells_of
from unskew.metrics.sketch import CalibrationSketch

Array = NDArray[np.float64]

DEFAULT_WEIGHT_BINS = 20
"""Equal-mass bins of WCE: enough to see the shape, few enough for positives in each at a low base rate."""


def mean_outcome_over_score(
    *,
    score: Any = None,
    outcome: Any = None,
    weight: Any = None,
    sketch: CalibrationSketch | None = None,
) -> float:
    r"""Mean of o/p̂: 1 for honest propensities.

    .. math::
        \frac1n \sum_i \frac{o_i}{\hat p_i} = \frac{1}{|D|} \sum_{O} \frac{1}{\hat p}

    Over a whole population it is the weight check. 1.4 says that the weights are 40 % too large in
    sum, 0.7 that they are 30 % too small. A row with outcome 0 counts 0, whatever its score; outcome 1
    at score 0 is an infinite weight, and so is the result.

    Examples
    --------
    >>> mean_outcome_over_score(score=[0.5, 0.5, 0.25, 0.25], outcome=[1, 0, 1, 0])
    1.5
    """
    cells = cells_of(score=score, outcome=outcome, weight=weight, sketch=sketch)
    return float(inverse_of(cells).sum() / cells.total.sum())


def wce(
    *,
    score: Any = None,
    outcome: Any = None,
    weight: Any = None,
    sketch: CalibrationSketch | None = None,
    bins: int = DEFAULT_WEIGHT_BINS,
    spacing: Spacing = "mass",
) -> float:
    r"""Weight-calibration error: how far inverse-propensity weights are from honest, bin by bin.

    .. math::
        S_b = \frac{1}{n_b} \sum_{i \in b} \frac{o_i}{\hat p_i} - 1, \qquad
        \mathrm{WCE}_1 = \sum_b \frac{n_b}{n} |S_b|

    n_b are the rows (the weight) of bin b. Use it for propensities that become weights: it follows the
    bias of IPS where ECE does not, because it counts errors relative to the score.

    Examples
    --------
    >>> wce(score=[0.5, 0.5, 0.25, 0.25], outcome=[1, 0, 1, 0], bins=2)
    0.5
    """
    cells = cells_of(score=score, outcome=outcome, weight=weight, sketch=sketch)
    index = cells.bin_index(bins=bins, spacing=spacing)
    total = bin_sums(cells.total, index)
    excess = bin_sums(inverse_of(cells), index) - total
    return float(np.abs(excess).sum() / total.sum())


def inverse_of(cells: Cells) -> Array:
    """Σ w·o/p of each cell; infinite where a score of 0 meets an outcome of 1."""
    return np.where((cells.score == 0) & (cells.positive > 0), np.inf, cells.inverse_sum[:, 1])
