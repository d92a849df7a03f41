"""Binned calibration errors: how far mean outcomes are from mean scores, bin by bin.

Proper scores, weight calibration, tests, intervals and curves have files of their own beside this one.
"""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from scipy.special import logit, ndtr

from unskew.base.errors import ParameterError
from unskew.metrics.cell_sums import both
from unskew.metrics.score_cells import ScoreCells, Spacing, bin_sums, cells_of
from unskew.metrics.sketch import DEFAULT_BINS
from unskew.metrics.sketch_grid import Rule

Array = NDArray[np.float64]

DEFAULT_RELATIVE_BINS = 20
"""Equal-mass bins of the relative error, as for WCE: positives in each at a low base rate."""


def ece(
    score: Any,
    outcome: Any = None,
    weight: Any = None,
    *,
    bins: int | None = None,
    rule: Rule = "paper",
) -> float:
    r"""Return the expected calibration error over equal-width bins, of the positive class.

    .. math::
        \mathrm{ECE}_M = \sum_{m=1}^{M} \frac{n_m}{n}
        \left|\bar o_m - \bar p_m\right| = \frac1n \sum_m \Big|\sum_{i \in m} (o_i - p_i)\Big|

    n_m are the rows (the weight) of bin m, ō_m and p̄_m its mean ``outcome`` and mean ``score``.
    Use it to compare with the literature, beside its noise floor (:func:`unskew.metrics.noise_floor`):
    it is biased upwards, and blind where scores are small. For propensities that become weights,
    :func:`unskew.metrics.wce` is the number to look at.

    Parameters
    ----------
    bins
        M; 100 by default, as in the paper, or what the sketch keeps.
    rule
        ``"paper"``: bins (lo, hi], a score of 0 in the first. ``"netcal"``: bins [lo, hi), a score
        of 1 in the last. They differ only for scores that equal an edge.

    Examples
    --------
    >>> round(ece(score=[0.1, 0.1, 0.9, 0.9], outcome=[0, 0, 1, 0], bins=10), 6)
    0.25
    """
    cells = cells_of(score, outcome, weight, bins=bins)
    return _mean_gap(cells, cells.bin_index(bins=bins, rule=rule))


def adaptive_ece(
    score: Any,
    outcome: Any = None,
    weight: Any = None,
    *,
    bins: int = DEFAULT_BINS,
) -> float:
    r"""Compute ECE over bins of equal mass.

    .. math::
        \mathrm{ECE}_{\text{mass}} = \sum_b \frac{n_b}{n} \left|\bar o_b - \bar p_b\right|,
        \qquad n_b \approx n / M

    Symbols as in :func:`ece`. Use it where most scores are small, and equal-width bins would put nearly
    all rows into one. Rows of one score are never split between bins.

    Examples
    --------
    >>> round(adaptive_ece(score=[0.01, 0.02, 0.03, 0.04], outcome=[0, 0, 1, 0], bins=2), 6)
    0.24
    """
    cells = cells_of(score, outcome, weight)
    return _mean_gap(cells, cells.bin_index(bins=bins, spacing="mass"))


def mce(
    score: Any,
    outcome: Any = None,
    weight: Any = None,
    *,
    bins: int | None = None,
    spacing: Spacing = "width",
    rule: Rule = "paper",
) -> float:
    r"""Compute the maximum calibration error: the worst bin.

    .. math::
        \mathrm{MCE} = \max_m \left|\bar o_m - \bar p_m\right|

    Over the bins that hold rows. Equal-width bins with a handful of rows are mostly noise: with
    ``spacing="mass"`` every bin has the same weight, and the maximum means something.

    Examples
    --------
    >>> round(mce(score=[0.1, 0.1, 0.9, 0.9], outcome=[0, 0, 1, 0], bins=10), 6)
    0.4
    """
    cells = cells_of(score, outcome, weight, bins=bins)
    index = cells.bin_index(bins=bins, spacing=spacing, rule=rule)
    return float(np.abs(bin_sums(cells.gap, index) / bin_sums(cells.total, index)).max())


def relative_error(
    score: Any,
    outcome: Any = None,
    weight: Any = None,
    *,
    bins: int = DEFAULT_RELATIVE_BINS,
    spacing: Spacing = "mass",
) -> float:
    r"""Compute the mean relative calibration error: by which share the scores of a bin are off.

    .. math::
        \mathrm{RE} = \sum_b \frac{n_b}{n} \left|\frac{\bar o_b}{\bar p_b} - 1\right|

    Symbols as in :func:`ece`. Use it to see errors of small scores, which ECE hides; where the scores
    become weights, :func:`unskew.metrics.wce` is closer to the bias. A bin of scores 0 counts 0 without
    positives and makes the result infinite with one.

    Examples
    --------
    >>> round(relative_error(score=[0.1] * 10 + [0.5] * 10, outcome=[1, 1] + [0] * 8 + [1] * 5 + [0] * 5), 6)
    0.5
    """
    cells = cells_of(score, outcome, weight)
    index = cells.bin_index(bins=bins, spacing=spacing)
    total, positive = bin_sums(cells.total, index), bin_sums(cells.positive, index)
    expected = bin_sums(both(cells.score_sum), index)
    certain = np.where(positive > 0, np.inf, 0.0)
    ratio = np.divide(positive - expected, expected, out=certain, where=expected > 0)
    return float(total @ np.abs(ratio) / total.sum())


def debiased_ece(
    score: Any,
    outcome: Any = None,
    weight: Any = None,
    *,
    norm: Literal["l1", "l2"] = "l2",
    bins: int = DEFAULT_BINS,
    spacing: Spacing = "mass",
    squared: bool = False,
) -> float:
    r"""Compute the calibration error without the part that noise alone produces (Kumar, Liang and Ma, 2019).

    .. math::
        \text{l2: } \sum_b \frac{n_b}{n} \left(d_b^2 - v_b\right), \qquad
        \text{l1: } \sum_b \frac{n_b}{n} \left(2 |d_b| - \mathbb{E}\,|N(d_b, v_b)|\right), \qquad
        d_b = \bar o_b - \bar p_b

    v_b is the estimated variance of d_b, s²_b/n_b, of o − p within the bin; for scores that are constant
    in a bin it is Kumar's ō(1 − ō)/(n_b − 1). The sum of ``"l2"`` is an unbiased estimate of the squared
    error of the binned scores, whatever the truth, and so may fall below 0; what is returned is its root,
    or 0. ``"l1"`` subtracts from ECE the bias that noise of this size adds to it (the folded normal mean
    in closed form, where Kumar's code resamples): less biased than ECE, not unbiased. Use them to compare
    data of different size.

    Parameters
    ----------
    norm
        ``"l2"`` or ``"l1"``.
    squared
        Return the unbiased square itself (``"l2"`` only).

    Examples
    --------
    >>> import numpy as np
    >>> score = np.tile([0.25, 0.75], 200)
    >>> outcome = np.repeat([0, 1, 0, 1], 100)
    >>> round(debiased_ece(score=score, outcome=outcome, bins=2), 3)
    0.247
    """
    if norm not in ("l1", "l2") or (squared and norm == "l1"):
        raise ParameterError(
            f"norm must be 'l1' or 'l2', and 'l2' with squared=True, not {norm!r}", remedy="give one of these"
        )
    cells = cells_of(score, outcome, weight)
    index = cells.bin_index(bins=bins, spacing=spacing)
    total = bin_sums(cells.total, index)
    gap, variance = bin_sums(cells.gap, index) / total, gap_variance(cells, index)
    share = total / total.sum()
    if norm == "l1":
        return float(max(share @ (2 * np.abs(gap) - folded_normal_mean(gap, variance)), 0.0))
    square = float(share @ (gap**2 - variance))
    return square if squared else float(np.sqrt(max(square, 0.0)))


def gap_variance(cells: ScoreCells, index: NDArray[np.int64]) -> Array:
    """Estimate the variance of the weighted mean of o − p in each occupied bin.

    From the spread of o − p within the bin, at the cells' mean scores; p(1 − p) where a bin has one row.
    """
    error = np.stack([-cells.score, 1.0 - cells.score], axis=1)
    first, second = (both(cells.square_sum * error**power) for power in (1, 2))
    squares, total = bin_sums(both(cells.square_sum), index), bin_sums(cells.total, index)
    mean = bin_sums(cells.gap, index) / total
    spread = bin_sums(second, index) - 2 * mean * bin_sums(first, index) + mean**2 * squares
    rows = bin_sums(both(cells.rows).astype(np.float64), index)
    model = bin_sums(cells.spread(), index)
    return np.asarray(np.where(rows > 1, spread * rows / np.maximum(rows - 1, 1), model) / total**2)


def folded_normal_mean(mean: Array, variance: Array) -> Array:
    r"""E\ |X| of X ~ N(mean, variance), elementwise."""
    deviation = np.sqrt(variance)
    ratio = np.divide(mean, deviation, out=np.zeros_like(mean), where=deviation > 0)
    folded = deviation * np.sqrt(2 / np.pi) * np.exp(-(ratio**2) / 2) + mean * (2 * ndtr(ratio) - 1)
    return np.where(deviation > 0, folded, np.abs(mean))


def _mean_gap(cells: ScoreCells, index: NDArray[np.int64]) -> float:
    return float(np.abs(bin_sums(cells.gap, index)).sum() / cells.total.sum())


LOGIT_CLIP = 1e-12
"""Scores are clipped here before the logit."""

NARROWEST, WIDEST = 1e-3, 1.0
"""Bandwidths between which the self-consistent one is sought; cells of a sketch are 0.004 to 0.008 wide."""

POINTS_PER_BANDWIDTH = 5
REACH = 6.0
"""The kernel ends after so many bandwidths: the rest of its mass is 2e-9."""

_STEPS = 18


def smooth_ece(
    score: Any,
    outcome: Any = None,
    weight: Any = None,
    *,
    bandwidth: float | None = None,
) -> float:
    r"""Compute the smooth calibration error on the logit scale (Błasiok and Nakkiran, 2024).

    .. math::
        \mathrm{smECE}_\sigma = \int \Big| \frac1n \sum_i (o_i - p_i)\,
        \varphi_\sigma\big(t - \operatorname{logit} p_i\big) \Big| \, dt, \qquad
        \sigma^*: \ \mathrm{smECE}_{\sigma^*} = \sigma^*

    φ_σ is the normal density with standard deviation ``bandwidth``. Without one, the self-consistent σ*
    is taken, at which the error is as large as the smoothing that reveals it. It has no bins to choose,
    changes continuously with the scores, and on the logit scale treats 0.001 and 0.002 as being as far
    apart as 0.3 and 0.46. From a sketch, scores of one cell (0.4 to 0.8 % wide) count as one.

    Examples
    --------
    >>> import numpy as np
    >>> round(smooth_ece(score=np.full(100, 0.2), outcome=np.arange(100) < 30), 4)
    0.1
    """
    if bandwidth is not None and not 0 < bandwidth < np.inf:
        raise ParameterError(
            f"bandwidth must be a positive number, not {bandwidth!r}", remedy="give a number above 0"
        )
    cells = cells_of(score, outcome, weight)
    position = logit(np.clip(cells.score, LOGIT_CLIP, 1 - LOGIT_CLIP))
    mass = cells.gap / cells.total.sum()
    if bandwidth is not None:
        return smoothed_mass(position, mass, bandwidth)
    low, high = np.log(NARROWEST), np.log(WIDEST)
    for _ in range(_STEPS):
        middle = (low + high) / 2
        if smoothed_mass(position, mass, float(np.exp(middle))) > np.exp(middle):
            low = middle
        else:
            high = middle
    return smoothed_mass(position, mass, float(np.exp((low + high) / 2)))


def smoothed_mass(logits: Array, mass: Array, bandwidth: float) -> float:
    """∫ |Σ mass · φ(t − place)| dt, on a grid of a fifth of the bandwidth.

    Each mass is shared between its two neighbours on the grid. That widens it by a variance of step²/6 on
    average, which the kernel gives back.
    """
    step = bandwidth / POINTS_PER_BANDWIDTH
    margin = int(np.ceil(REACH * POINTS_PER_BANDWIDTH)) + 1
    position = (logits - logits[0]) / step
    below = np.floor(position).astype(np.int64)
    upper = position - below
    size = int(below[-1]) + 2
    deposited = np.bincount(below, weights=mass * (1 - upper), minlength=size)
    deposited += np.bincount(below + 1, weights=mass * upper, minlength=size)
    offsets = np.arange(-margin, margin + 1) * step
    kernel = np.exp(-(offsets**2) / (2 * (bandwidth**2 - step**2 / 6)))
    kernel /= kernel.sum()
    length = 1 << (size + 2 * margin).bit_length()
    smoothed = np.fft.irfft(np.fft.rfft(deposited, length) * np.fft.rfft(kernel, length), length)
    return float(np.abs(smoothed).sum())
