"""Tests of calibration that need no bins: Kuiper's and Spiegelhalter's."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from scipy.special import ndtr

from unskew.metrics.score_cells import cells_of

_NEGLIGIBLE = 1e-3
"""Below this range of a Brownian motion its distribution function is 0 to every digit."""


class KuiperTest(NamedTuple):
    """The range of the cumulative error, the same in standard deviations, and its p-value."""

    distance: float
    statistic: float
    p_value: float


class SpiegelhalterTest(NamedTuple):
    """A standard normal statistic and its two-sided p-value."""

    statistic: float
    p_value: float


def kuiper(score: Any, outcome: Any = None, weight: Any = None) -> KuiperTest:
    r"""Kuiper's test: the range of the cumulative error along the scores (Arrieta-Ibarra et al., 2022).

    .. math::
        C_k = \frac1n \sum_{i \le k} (o_i - p_i), \qquad
        D = \max_{0 \le k \le n} C_k - \min_{0 \le k \le n} C_k, \qquad
        D / \sigma, \quad \sigma^2 = \frac{1}{n^2} \sum_i p_i (1 - p_i)

    Rows are in order of score. D is the error of the worst interval of scores (``distance``); under honest
    scores D/σ (``statistic``) is the range of a Brownian motion, 1.6 on average. Use it as a test without
    bins; it says that something is wrong, the reliability curve says where.

    Examples
    --------
    >>> import numpy as np
    >>> kuiper(score=np.full(400, 0.5), outcome=np.arange(400) % 2 == 0).p_value
    1.0
    >>> kuiper(score=np.full(400, 0.5), outcome=np.arange(400) < 300).p_value < 1e-9
    True
    """
    cells = cells_of(score, outcome, weight)
    total = float(cells.total.sum())
    path = np.concatenate([[0.0], np.cumsum(cells.gap)]) / total
    distance = float(path.max() - path.min())
    deviation = float(np.sqrt(cells.spread().sum())) / total
    if deviation == 0:
        certain = np.inf if distance > 0 else 0.0
        return KuiperTest(distance, certain, float(distance == 0))
    return KuiperTest(distance, distance / deviation, brownian_range_tail(distance / deviation))


def spiegelhalter(score: Any, outcome: Any = None, weight: Any = None) -> SpiegelhalterTest:
    r"""Spiegelhalter's test: is the Brier score what honest scores would give?

    .. math::
        Z = \frac{\sum_i (o_i - p_i)(1 - 2 p_i)}{\sqrt{\sum_i (1 - 2 p_i)^2 p_i (1 - p_i)}} \sim N(0, 1)

    Positive if scores are too extreme or, with rare outcomes, too low. One number that errors of opposite
    sign can cancel in: use it beside :func:`kuiper`, not alone.

    Examples
    --------
    >>> import numpy as np
    >>> test = spiegelhalter(score=np.full(100, 0.2), outcome=np.arange(100) < 30)
    >>> round(test.statistic, 6), round(test.p_value, 3)
    (2.5, 0.012)
    """
    cells = cells_of(score, outcome, weight)
    slope = 1.0 - 2.0 * cells.score
    numerator = float(cells.gap @ slope)
    deviation = float(np.sqrt(cells.spread() @ slope**2))
    if deviation == 0:
        certain = np.copysign(np.inf, numerator) if abs(numerator) > 0 else 0.0
        return SpiegelhalterTest(float(certain), float(numerator == 0))
    statistic = numerator / deviation
    return SpiegelhalterTest(statistic, float(2 * ndtr(-abs(statistic))))


def brownian_range_tail(x: float) -> float:
    r"""P(range of a standard Brownian motion on [0, 1] ≥ x) (Feller, 1951).

    .. math::
        P = 8 \sum_{k \ge 1} (-1)^{k-1} k \, \Phi(-k x)
    """
    if x < _NEGLIGIBLE:
        return 1.0
    terms = np.arange(1, int(10 / x) + 3)
    signs = np.where(terms % 2 == 1, 1.0, -1.0)
    return float(np.clip(8 * (signs * terms * ndtr(-terms * x)).sum(), 0.0, 1.0))
