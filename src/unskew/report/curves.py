"""The weight-calibration curve as numbers, for ``plots.weights`` to draw."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from unskew.metrics import CalibrationSketch
from unskew.metrics._cells import bin_sums, cells_of
from unskew.metrics.reliability import frequency_rows, wilson
from unskew.metrics.weight_calibration import DEFAULT_WEIGHT_BINS, inverse_of

Array = NDArray[np.float64]

DEFAULT_LEVEL = 0.95
"""Coverage of every interval in the figures."""


class WeightCurve(NamedTuple):
    """One entry for each bin: mean score, mean of o/p̂ with its interval, and the number of rows."""

    score: Array
    ratio: Array
    low: Array
    high: Array
    rows: NDArray[np.int64]


def weight_curve(
    sketch: CalibrationSketch, *, bins: int = DEFAULT_WEIGHT_BINS, level: float = DEFAULT_LEVEL
) -> WeightCurve:
    r"""How much the weights of each equal-mass bin of the score add up to, relative to its rows.

    .. math::
        1 + S_b = \frac{1}{n_b} \sum_{i \in b} \frac{o_i}{\hat p_i}, \qquad
        \mathrm{WCE}_1 = \sum_b \frac{n_b}{n} |S_b|

    ``ratio`` is 1 + S_b: 1 for honest propensities, 1.4 where the weights are 40 % too large in sum. Its
    interval is Wilson's for the frequency of outcomes, in proportion (weights vary little within a bin).

    Examples
    --------
    >>> sketch = CalibrationSketch.of(score=[0.5, 0.5, 0.25, 0.25], outcome=[1, 0, 1, 0])
    >>> weight_curve(sketch, bins=2).ratio
    array([2., 1.])
    """
    cells = cells_of(sketch=sketch)
    index = cells.bin_index(bins=bins, spacing="mass")
    total = bin_sums(cells.total, index)
    score = bin_sums(cells.score_sum.sum(axis=1), index) / total
    frequency = bin_sums(cells.positive, index) / total
    ratio = bin_sums(inverse_of(cells), index) / total
    low, high = wilson(frequency, frequency_rows(cells, index), level)
    with np.errstate(divide="ignore", invalid="ignore"):
        scale = np.where(frequency > 0, ratio / frequency, 1.0 / score)
        interval = low * scale, high * scale
    return WeightCurve(
        score=score,
        ratio=ratio,
        low=interval[0],
        high=interval[1],
        rows=bin_sums(cells.rows.sum(axis=1).astype(np.float64), index).astype(np.int64),
    )
