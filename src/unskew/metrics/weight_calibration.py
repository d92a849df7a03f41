"""Calibration of inverse-propensity weights: is the mean of o/p̂ equal to 1, everywhere? Errors, their tests,
and the power of these; what follows from them is decided in ``judgement``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import chdtrc, chdtri

from unskew.base.errors import ParameterError
from unskew.metrics.score_cells import ScoreCells, Spacing, bin_sums, cells_of, occupied_bin
from unskew.metrics.sketch import CalibrationSketch
from unskew.metrics.sketch_grid import SMALLEST

Array = NDArray[np.float64]

DEFAULT_WEIGHT_BINS = 20
"""Equal-mass bins of WCE: enough to see the shape, few enough for positives in each at a low base rate."""

MIN_EXPECTED = 10.0
"""Expected positives of a bin of the χ² test; twice the usual 5, because o/p is more skewed than o."""

MIN_SAMPLED = 40.0
"""Expected negatives of such a bin where they were sampled (weigh more than positives): its size itself then
varies, and 40 rows know it to 16 %."""

_DRAWS = 2000
_MOST_DOUBLINGS = 60
_HALVINGS = 12


def mean_outcome_over_score(score: Any, outcome: Any = None, weight: Any = None) -> float:
    r"""Return the mean of o/p̂: 1 for honest propensities.

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
    cells = cells_of(score, outcome, weight)
    return float(inverse_of(cells).sum() / cells.total.sum())


def wce(
    score: Any,
    outcome: Any = None,
    weight: Any = None,
    *,
    bins: int = DEFAULT_WEIGHT_BINS,
    spacing: Spacing = "mass",
    debiased: bool = False,
    squared: bool = False,
) -> float:
    r"""Compute the weight-calibration error: how far inverse-propensity weights are from honest, bin by bin.

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
    cells = cells_of(score, outcome, weight)
    share, excess, variance = errors_of_bins(cells, cells.bin_index(bins=bins, spacing=spacing))
    if not debiased:
        return float(share @ np.abs(excess))
    square = float(share @ (excess**2 - variance))
    return square if squared else float(np.sqrt(max(square, 0.0)))


class WeightTest(NamedTuple):
    """χ², its degrees of freedom, and the chance of as much under honest scores."""

    statistic: float
    dof: int
    p_value: float


def wce_test(
    score: Any,
    outcome: Any = None,
    weight: Any = None,
    *,
    bins: int = DEFAULT_WEIGHT_BINS,
    spacing: Spacing = "mass",
    min_expected: float = MIN_EXPECTED,
) -> WeightTest:
    r"""Test whether weights are honest: a χ² test of weight calibration.

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
    cells = cells_of(score, outcome, weight)
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


def errors_of_bins(cells: ScoreCells, index: NDArray[np.int64]) -> tuple[Array, Array, Array]:
    """n_b/n, S_b and V_b of each occupied bin, as in :func:`wce`."""
    total = bin_sums(cells.total, index)
    excess = bin_sums(inverse_of(cells), index) / total - 1.0
    return total / total.sum(), excess, bin_sums(inverse_variance(cells), index) / total**2


def wce_differences(candidates: Sequence[ScoreCells], rate: ScoreCells) -> tuple[Array, Array]:
    r"""Return by how much the first of two candidates has a larger WCE₂², and the standard error of that.

    .. math::
        d_{ac} = \sum_b \frac{n_b}{n} \left(S_{ab}^2 - V_{aab} - S_{cb}^2 + V_{ccb}\right), \qquad
        V_{acb} = \frac{1}{n_b^2} \sum_{i \in b} \frac{r_i (1 - r_i)}{\hat p_{ai} \, \hat p_{ci}}

    Candidates are scores of the same rows: their cells hold the same outcomes in the same order, so that the
    noise of the outcomes is common to both and mostly cancels. Bins are those of ``rate``, whose scores,
    scaled to the outcomes of each bin, are the true rates r. The standard error is that of
    :func:`surely_within`, with the covariance V of two candidates. Both results are ``[first, second]``.
    """
    index = joined_bins(rate, rate.bin_index(bins=DEFAULT_WEIGHT_BINS, spacing="mass"))
    share, _, _ = errors_of_bins(rate, index)
    scale = bin_sums(rate.positive, index) / bin_sums(rate.total * rate.score, index)
    true = np.clip(rate.score * scale[occupied_bin(index)], 0.0, 1.0)
    noise = (
        rate.total
        * rate.row_weight(true)
        * true
        * (1.0 - true)
        / bin_sums(rate.total, index)[occupied_bin(index)] ** 2
    )
    inverse = np.stack([1.0 / each.score for each in candidates])
    excess = np.stack([errors_of_bins(each, index)[1] for each in candidates])
    common = bin_sums(inverse[:, None] * inverse[None] * noise, index)
    own = np.einsum("aab->ab", common)
    square = (excess**2 - own) @ share
    linear = own * excess**2
    crossed = excess[:, None] * excess[None] * common
    variance = 4 * (linear[:, None] + linear[None] - 2 * crossed)
    variance += 2 * (own[:, None] ** 2 + own[None] ** 2 - 2 * common**2)
    error = np.sqrt(np.maximum(variance @ share**2, 0.0))
    return np.asarray(square[:, None] - square[None]), np.asarray(error)


def inverse_variance(cells: ScoreCells) -> Array:
    r"""Return the variance of Σ w(o/p − 1) of each cell if its scores are true; 0 where p is 0.

    .. math:: W \left[p (1/p - 1)^2 w_1 + (1 - p) w_0\right] = W \, \omega \, (1 - p) / p

    W is the cell's Σw, w₁ and w₀ the Σw²/Σw of its rows of each outcome, ω = (1 − p)·w₁ + p·w₀.
    """
    squares = cells.total * cells.row_weight()
    return np.where(cells.score > 0, squares * (1.0 - cells.score) / np.maximum(cells.score, SMALLEST), 0.0)


def joined_bins(
    cells: ScoreCells, index: NDArray[np.int64], min_expected: float = MIN_EXPECTED, *, times: float = 1.0
) -> NDArray[np.int64]:
    """Return the bins, joined upwards until each expects enough rows of both outcomes; a rest joins the last.

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


def inverse_of(cells: ScoreCells) -> Array:
    """Σ w·o/p of each cell; infinite where a score of 0 meets an outcome of 1."""
    return np.where((cells.score == 0) & (cells.positive > 0), np.inf, cells.inverse_sum)


def has_infinite_weight(sketch: CalibrationSketch) -> bool:
    """Return whether a row has score 0 and outcome 1."""
    cells = cells_of(sketch)
    return bool(((cells.score == 0) & (cells.positive > 0)).any())


def surely_within(sketch: CalibrationSketch, tolerance: float) -> bool:
    r"""Return whether the error of the weights, over all rows, is known to be within the tolerance.

    .. math:: \mathrm{WCE}_2^2 + 2\,\mathrm{SE} \le \text{tolerance}^2, \qquad
              \mathrm{SE}^2 = \sum_b \Big(\frac{n_b}{n}\Big)^2 \left(2 V_b^2 + 4 S_b^2 V_b\right)

    S_b and V_b as in :func:`unskew.metrics.wce`. A few bins may then be off by more: it does not matter. A
    WCE₂ that is small because its noise is large is not known to be.
    """
    cells = cells_of(sketch)
    index = cells.bin_index(bins=DEFAULT_WEIGHT_BINS, spacing="mass")
    share, excess, variance = errors_of_bins(cells, index)
    square = share @ (excess**2 - variance)
    error = np.sqrt(share**2 @ (2 * variance**2 + 4 * excess**2 * variance))
    return bool(square + 2 * error <= tolerance**2)


def beyond_tolerance(sketch: CalibrationSketch, tolerance: float) -> float:
    r"""Return the chance of such errors if the weights of every bin were within the tolerance of honest.

    .. math:: \chi^2 = \sum_b \frac{\max(|S_b| - \text{tolerance}, 0)^2}{(1 + \text{tolerance}) V_b},
              \qquad B \text{ degrees of freedom}

    S_b, V_b and the bins are those of :func:`unskew.metrics.wce_test`, which this is at a tolerance of 0.
    Where the tolerance is not used up the chance is less than this.
    """
    cells = _positive_scores(sketch)
    if not len(cells.score):
        return 1.0
    _, excess, variance = errors_of_bins(cells, _bins(cells))
    terms = _terms(excess, variance, tolerance)
    return float(chdtrc(max(int((variance > 0).sum()), 1), terms.sum()))


def power(
    sketch: CalibrationSketch, *, tolerance: float, significance: float, error: float, times: float = 1.0
) -> float:
    r"""Return the chance that :func:`beyond_tolerance` finds weights that are off by a factor everywhere.

    .. math:: P\left(\chi^2 > \chi^2_{B, 1 - \text{significance}}\right), \qquad
              S_b \sim N\left(f - 1,\ f V_b / \text{times}\right), \quad
              f \in \{\text{error}, 1/\text{error}\}

    The less of the two, over 2,000 draws of the errors S_b of the bins. ``times`` stands for as many times
    the rows, distributed like these.
    """
    cells = _positive_scores(sketch)
    if not len(cells.score):
        return 0.0
    return _power(cells, tolerance, significance, error, times)


def rows_needed(
    sketch: CalibrationSketch, *, tolerance: float, significance: float, error: float, least: float = 0.8
) -> int | None:
    """Return how many rows like these give a :func:`power` of ``least``; None if no number is enough."""
    cells = _positive_scores(sketch)

    def enough(times: float) -> bool:
        return _power(cells, tolerance, significance, error, times) >= least

    if not len(cells.score) or not (cells.score < 1).any():
        return None
    low, high = 1.0, 1.0
    for _ in range(_MOST_DOUBLINGS):
        if enough(high):
            break
        low, high = high, 2 * high
    else:
        return None
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        low, high = (low, middle) if enough(middle) else (middle, high)
    return int(np.ceil(high * sketch.rows))


def _power(cells: ScoreCells, tolerance: float, significance: float, error: float, times: float) -> float:
    variance = errors_of_bins(cells, _bins(cells, times))[2] / times
    variance = variance[variance > 0]
    if not len(variance):
        return 0.0
    critical = float(chdtri(len(variance), significance))
    normal = np.random.default_rng(0).standard_normal((_DRAWS, len(variance)))
    chances = []
    for factor in (error, 1 / error):
        excess = factor - 1 + normal * np.sqrt(factor * variance)
        chances.append(float((_terms(excess, variance, tolerance).sum(axis=-1) > critical).mean()))
    return min(chances)


def _terms(excess: Array, variance: Array, tolerance: float) -> Array:
    """Return what each bin's error adds to χ²."""
    beyond = np.maximum(np.abs(excess) - tolerance, 0.0)
    # A bin of scores 1 has no variance: within the tolerance it says nothing, beyond it everything.
    certain = np.where(beyond > 0, np.inf, 0.0)
    terms = np.divide(beyond**2, (1 + tolerance) * variance, out=certain, where=variance > 0)
    return np.asarray(terms)


def _positive_scores(sketch: CalibrationSketch) -> ScoreCells:
    cells = cells_of(sketch)
    return cells.take(cells.score > 0)


def _bins(cells: ScoreCells, times: float = 1.0) -> NDArray[np.int64]:
    return joined_bins(cells, cells.bin_index(bins=DEFAULT_WEIGHT_BINS, spacing="mass"), times=times)
