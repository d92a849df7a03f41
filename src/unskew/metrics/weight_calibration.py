"""Calibration of inverse-propensity weights: is the mean of o/p̂ equal to 1, everywhere?"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import chdtrc

from unskew.errors import ParameterError
from unskew.metrics._cells import Cells, Spacing, bin_sums, cells_of, occupied_bin
from unskew.metrics._limits import SMALLEST
from unskew.metrics.sketch import CalibrationSketch

Array = NDArray[np.float64]

DEFAULT_WEIGHT_BINS = 20
"""Equal-mass bins of WCE: enough to see the shape, few enough for positives in each at a low base rate."""

MIN_EXPECTED = 10.0
"""Expected positives of a bin of the χ² test; twice the usual 5, because o/p is more skewed than o."""

MIN_SAMPLED = 40.0
"""Expected negatives of such a bin where they were sampled (weigh more than positives): its size itself then
varies, and 40 rows know it to 16 %."""


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
    debiased: bool = False,
    squared: bool = False,
) -> float:
    r"""Weight-calibration error: how far inverse-propensity weights are from honest, bin by bin.

    .. math::
        S_b = \frac{1}{n_b} \sum_{i \in b} \frac{o_i}{\hat p_i} - 1, \qquad
        \mathrm{WCE}_1 = \sum_b \frac{n_b}{n} |S_b|, \qquad
        \mathrm{WCE}_2^2 = \sum_b \frac{n_b}{n} \left(S_b^2 - V_b\right), \quad
        V_b = \frac{1}{n_b^2} \sum_{i \in b} \frac{1 - \hat p_i}{\hat p_i}

    n_b are the rows (the weight) of bin b; with weights a row adds w·ω·(1 − p̂)/p̂ to V_b's sum, with
    ω = (1 − p̂)·w₁ + p̂·w₀ and w₁, w₀ the Σw²/Σw of rows with outcome 1 and 0. S_b is, but for its sign,
    the derivative of the bias of IPS in the weights of bin b. V_b is the variance of S_b if the
    scores are true, so the debiased form has mean 0 then, without any resampling. Use it
    for propensities that become weights: it follows the bias of IPS where ECE does not, because it
    counts errors relative to the score.

    Parameters
    ----------
    bins, spacing
        20 bins of equal mass by default; ``"log"`` for bins of equal ratio.
    debiased
        WCE₂, or 0 where its square is negative, instead of WCE₁.
    squared
        The square itself, with its sign (with ``debiased`` only).

    Examples
    --------
    >>> wce(score=[0.5, 0.5, 0.25, 0.25], outcome=[1, 0, 1, 0], bins=2)
    0.5
    >>> wce(score=[0.5, 0.5, 0.25, 0.25], outcome=[1, 0, 1, 0], bins=2, debiased=True, squared=True)
    -0.5
    """
    if squared and not debiased:
        raise ParameterError("squared=True needs debiased=True", remedy="give debiased=True too")
    cells = cells_of(score=score, outcome=outcome, weight=weight, sketch=sketch)
    index = cells.bin_index(bins=bins, spacing=spacing)
    total = bin_sums(cells.total, index)
    excess = bin_sums(inverse_of(cells), index) / total - 1.0
    share = total / total.sum()
    if not debiased:
        return float(share @ np.abs(excess))
    square = float(share @ (excess**2 - bin_sums(inverse_variance(cells), index) / total**2))
    return square if squared else float(np.sqrt(max(square, 0.0)))


class WeightTest(NamedTuple):
    """χ², its degrees of freedom, and the chance of as much under honest scores."""

    statistic: float
    dof: int
    p_value: float


def wce_test(
    *,
    score: Any = None,
    outcome: Any = None,
    weight: Any = None,
    sketch: CalibrationSketch | None = None,
    bins: int = DEFAULT_WEIGHT_BINS,
    spacing: Spacing = "mass",
    min_expected: float = MIN_EXPECTED,
) -> WeightTest:
    r"""Are the weights honest? A χ² test of weight calibration.

    .. math::
        \chi^2 = \sum_b \frac{S_b^2}{V_b} \sim \chi^2_B \quad \text{if } o_i \sim \mathrm{Bernoulli}(\hat p_i)

    S_b and V_b as in :func:`wce`. Neighbouring bins are joined until each expects ``min_expected``
    positives, and 40 negatives where these were sampled, since S_b is not normal with fewer. Rows of
    score 0 are left out if their outcome is 0, and refute the scores if it is 1. With millions
    of rows it rejects for errors that do not matter: look at
    :func:`wce` too.

    Examples
    --------
    >>> import numpy as np
    >>> score = np.full(1000, 0.3)
    >>> wce_test(score=score, outcome=np.arange(1000) < 300).p_value > 0.9
    True
    >>> wce_test(score=score, outcome=np.arange(1000) < 400).p_value < 1e-6
    True
    """
    cells = cells_of(score=score, outcome=outcome, weight=weight, sketch=sketch)
    impossible = bool(((cells.score == 0) & (cells.positive > 0)).any())
    cells = cells.take(cells.score > 0)
    if not len(cells.score):
        return WeightTest(np.inf if impossible else 0.0, 0, 0.0 if impossible else 1.0)
    index = joined_bins(cells, cells.bin_index(bins=bins, spacing=spacing), min_expected)
    excess = bin_sums(cells.inverse_sum - cells.total, index)
    variance = bin_sums(inverse_variance(cells), index)
    # A bin of scores 1 has no variance: any outcome of 0 refutes it, and none says nothing.
    certain = np.where(np.abs(excess) > 1e-9 * bin_sums(cells.total, index), np.inf, 0.0)
    terms = np.divide(excess**2, variance, out=certain, where=variance > 0)
    statistic = np.inf if impossible else float(terms.sum())
    dof = int((variance > 0).sum())
    return WeightTest(statistic, dof, float(chdtrc(dof, statistic)) if dof else float(statistic == 0))


def inverse_variance(cells: Cells) -> Array:
    r"""Variance of Σ w(o/p − 1) of each cell if its scores are true; 0 where p is 0.

    .. math:: W \left[p (1/p - 1)^2 w_1 + (1 - p) w_0\right] = W \, \omega \, (1 - p) / p

    W is the cell's Σw, w₁ and w₀ the Σw²/Σw of its rows of each outcome, ω = (1 − p)·w₁ + p·w₀.
    """
    squares = cells.total * cells.row_weight()
    return np.where(cells.score > 0, squares * (1.0 - cells.score) / np.maximum(cells.score, SMALLEST), 0.0)


def joined_bins(
    cells: Cells, index: NDArray[np.int64], min_expected: float = MIN_EXPECTED, *, times: float = 1.0
) -> NDArray[np.int64]:
    """The bins, joined upwards until each expects enough rows of both outcomes; a rest joins the last.

    ``times`` stands for as many times the rows.
    """
    expected = bin_sums(cells.expected_rows.T, index) * times
    joined = np.empty(expected.shape[1], dtype=np.int64)
    enough = np.array([MIN_SAMPLED, min_expected])
    current, seen = 0, np.zeros(2)
    for position, rows in enumerate(expected.T):
        joined[position] = current
        seen = seen + rows
        if (seen >= enough).all():
            current, seen = current + 1, np.zeros(2)
    if seen.any() and current > 0:
        joined[joined == current] = current - 1
    return np.asarray(joined[occupied_bin(index)])


def inverse_of(cells: Cells) -> Array:
    """Σ w·o/p of each cell; infinite where a score of 0 meets an outcome of 1."""
    return np.where((cells.score == 0) & (cells.positive > 0), np.inf, cells.inverse_sum)
