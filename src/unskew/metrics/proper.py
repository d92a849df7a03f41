"""Proper scores and discrimination: NLL, Brier with its decomposition, AUC and its test against chance."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr

from unskew.base.errors import DataError
from unskew.base.estimator import require_share
from unskew.metrics.score_cells import Spacing, bin_sums, cells_of
from unskew.metrics.sketch_grid import Rule

DEFAULT_CHANCE_SIGNIFICANCE = 0.01
"""Scores that know nothing pass as knowing something once in a hundred."""


def nll(score: Any, outcome: Any = None, weight: Any = None) -> float:
    r"""Compute the negative log-likelihood, the log loss.

    .. math::
        \mathrm{NLL} = -\frac1n \sum_i \left[o_i \log p_i + (1 - o_i) \log(1 - p_i)\right]

    Likelihoods are floored at 2^-52, as in scikit-learn: a certainty that proves wrong costs 36, not ∞.
    Use it to choose between calibrators: it punishes miscalibration and lost discrimination alike.

    Examples
    --------
    >>> round(nll(score=[0.5, 0.5], outcome=[0, 1]), 6)
    0.693147
    """
    cells = cells_of(score, outcome, weight)
    return cells.log_loss_sum / float(cells.total.sum())


def brier(score: Any, outcome: Any = None, weight: Any = None) -> float:
    r"""Compute the Brier score, the mean squared error of the probability.

    .. math::
        \mathrm{Brier} = \frac1n \sum_i (o_i - p_i)^2

    Use it beside NLL: it is bounded, and splits into parts (:func:`brier_decomposition`). Where outcomes
    are rare it barely sees the small scores; NLL does.

    Examples
    --------
    >>> brier(score=[0.5, 1.0], outcome=[0, 1])
    0.125
    """
    cells = cells_of(score, outcome, weight)
    return cells.brier_sum / float(cells.total.sum())


class BrierDecomposition(NamedTuple):
    """``brier = reliability − resolution + uncertainty + within``."""

    brier: float
    reliability: float
    resolution: float
    uncertainty: float
    within: float


def brier_decomposition(
    score: Any,
    outcome: Any = None,
    weight: Any = None,
    *,
    bins: int | None = None,
    spacing: Spacing = "width",
    rule: Rule = "paper",
) -> BrierDecomposition:
    r"""Compute Murphy's decomposition of the Brier score over bins.

    .. math::
        \mathrm{Brier} = \underbrace{\sum_b \frac{n_b}{n} (\bar p_b - \bar o_b)^2}_{\text{reliability}}
        - \underbrace{\sum_b \frac{n_b}{n} (\bar o_b - \bar o)^2}_{\text{resolution}}
        + \underbrace{\bar o (1 - \bar o)}_{\text{uncertainty}} + \text{within}

    ``within`` is what the bins hide: 0 if scores are constant within bins, small if bins are narrow. Use it
    to see whether a model loses by miscalibration (reliability: a calibrator mends it) or by not telling
    rows apart (resolution: it cannot).

    Examples
    --------
    >>> parts = brier_decomposition(score=[0.2, 0.2, 0.8, 0.8], outcome=[0, 1, 1, 1], bins=2)
    >>> round(parts.reliability, 6), round(parts.resolution, 6), parts.uncertainty
    (0.065, 0.0625, 0.1875)
    """
    cells = cells_of(score, outcome, weight, bins=bins)
    index = cells.bin_index(bins=bins, spacing=spacing, rule=rule)
    total, positive = bin_sums(cells.total, index), bin_sums(cells.positive, index)
    share, frequency = total / total.sum(), positive / total
    base_rate = float(positive.sum() / total.sum())
    reliability = float(share @ (bin_sums(cells.gap, index) / total) ** 2)
    resolution = float(share @ (frequency - base_rate) ** 2)
    uncertainty = base_rate * (1.0 - base_rate)
    score_of_all = cells.brier_sum / float(cells.total.sum())
    within = score_of_all - (reliability - resolution + uncertainty)
    return BrierDecomposition(score_of_all, reliability, resolution, uncertainty, within)


def auc(score: Any, outcome: Any = None, weight: Any = None) -> float:
    r"""Compute the area under the ROC curve: the chance that a positive scores higher; ties count half.

    .. math::
        \mathrm{AUC} = \frac{1}{P N} \sum_{i: o_i = 1} \sum_{j: o_j = 0}
        \left([p_i > p_j] + \tfrac12 [p_i = p_j]\right)

    P and N are the positives and negatives (their weights). Exact from arrays; from a sketch, scores of
    one cell count as ties. It says how well scores rank, nothing about their calibration.

    Examples
    --------
    >>> auc(score=[0.1, 0.4, 0.4, 0.8], outcome=[0, 0, 1, 1])
    0.875
    """
    return float(auc_of_groups(cells_of(score, outcome, weight, exact=True).weight))


class ChanceTest(NamedTuple):
    """AUC, its standard error if the scores knew nothing, the one-sided p-value, and whether it is beyond."""

    auc: float
    standard_error: float
    p_value: float
    beyond: bool


def auc_beyond_chance(
    score: Any,
    outcome: Any = None,
    weight: Any = None,
    *,
    significance: float = DEFAULT_CHANCE_SIGNIFICANCE,
) -> ChanceTest:
    r"""Do the scores tell positives from negatives at all? Mann and Whitney's test, with ties and weights.

    .. math::
        z = \frac{\mathrm{AUC} - \frac12}{\sigma}, \qquad
        \sigma^2 = \frac{n}{n - 1} \Big(\frac1{n_1} + \frac1{n_0}\Big)
        \sum_c h_c \left(R_c - \tfrac12\right)^2, \qquad \text{beyond} \iff \Phi(-z) < \text{significance}

    h_c is the share of the rows (the weight) with score c, R_c its middle rank from 0 to 1;
    n₁ and n₀ are the positives and negatives, (Σw)²/Σw² of each with weights, and n = n₁ + n₀. σ is the
    standard error of AUC if outcomes did not depend on scores. One-sided: an AUC below ½ is not beyond
    chance. Use it before calling a propensity good: a constant, or noise, can be calibrated, and debiases
    nothing. Both outcomes must occur.

    Examples
    --------
    >>> import numpy as np
    >>> clicked = np.arange(1000) % 10 == 0
    >>> auc_beyond_chance(score=np.where(clicked, 0.2, 0.1), outcome=clicked).beyond
    True
    >>> auc_beyond_chance(score=np.full(1000, 0.1), outcome=clicked).beyond
    False
    """
    require_share("significance", significance, "0.01")
    cells = cells_of(score, outcome, weight)
    value = float(auc_of_groups(cells.weight))
    share = cells.total / cells.total.sum()
    rank = np.cumsum(share) - share / 2
    effective = cells.weight.sum(axis=0) ** 2 / cells.square_sum.sum(axis=0)
    rows = float(effective.sum())
    variance = rows / (rows - 1) * float((1 / effective).sum()) * float(share @ (rank - 0.5) ** 2)
    error = float(np.sqrt(variance))
    p_value = float(ndtr((0.5 - value) / error)) if error > 0 else 1.0
    return ChanceTest(value, error, p_value, p_value < significance)


def auc_of_groups(weight: NDArray[np.float64]) -> NDArray[np.float64]:
    """Compute the AUC of weights ``[..., group, outcome]``, groups in order of score."""
    negative, positive = weight[..., 0], weight[..., 1]
    negatives, positives = negative.sum(axis=-1), positive.sum(axis=-1)
    _require_both_classes(float(np.min(positives)), float(np.min(negatives)))
    below = np.cumsum(negative, axis=-1) - negative / 2
    return np.asarray((positive * below).sum(axis=-1) / (positives * negatives))


def _require_both_classes(positives: float, negatives: float) -> None:
    if not (positives > 0 and negatives > 0):
        raise DataError(
            f"AUC needs both outcomes, but there is no {'positive' if negatives > 0 else 'negative'} row",
            remedy="give rows with outcome 0 and with outcome 1",
        )
