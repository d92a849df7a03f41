"""The reliability curve with intervals, as numbers; ``unskew.report`` draws it."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr, ndtri

from unskew.base.estimator import require_share
from unskew.metrics.cell_sums import both
from unskew.metrics.score_cells import ScoreCells, Spacing, bin_sums, cells_of, occupied_bin
from unskew.metrics.sketch import CalibrationSketch
from unskew.metrics.sketch_grid import Rule

Array = NDArray[np.float64]

DEFAULT_CURVE_BINS = 20
"""Bins of a curve that people look at, as in the plots of the paper's code."""


class ReliabilityCurve(NamedTuple):
    """One entry for each bin that holds rows.

    ``score`` and ``frequency`` are the mean score and mean outcome, ``low`` and ``high`` the interval of
    the frequency, ``rows`` the number of rows, ``edges`` the ends of the bin as ``[bin, 2]``.
    """

    score: Array
    frequency: Array
    low: Array
    high: Array
    rows: NDArray[np.int64]
    edges: Array


def reliability_curve(
    score: Any,
    outcome: Any = None,
    weight: Any = None,
    *,
    bins: int | None = None,
    spacing: Spacing = "width",
    rule: Rule = "paper",
    level: float = 0.95,
) -> ReliabilityCurve:
    r"""Compute the mean outcome against mean score, bin by bin, with Wilson's interval.

    .. math::
        \bar o_b \pm: \quad
        \frac{\bar o_b + \frac{z^2}{2 n_b} \pm z \sqrt{\frac{\bar o_b (1 - \bar o_b)}{n_b} +
        \frac{z^2}{4 n_b^2}}}{1 + z^2 / n_b}

    With weights n_b is the effective number of rows Σw/ω, ω = (1 − ō)·w₁ + ō·w₀, with w₁ and w₀
    the Σw²/Σw of rows with outcome 1 and 0: equal weights leave the rows. Calibrated scores lie on the
    diagonal.

    Parameters
    ----------
    bins
        20 by default; for a sketch and ``spacing="width"`` the bins that it keeps.
    spacing
        ``"width"``: equal width. ``"mass"``: equal weight. ``"log"``: equal ratio, for small scores.
    level
        Coverage of each interval.

    Examples
    --------
    >>> curve = reliability_curve(score=[0.1, 0.1, 0.9, 0.9], outcome=[0, 0, 1, 0], bins=2)
    >>> curve.frequency, curve.rows
    (array([0. , 0.5]), array([2, 2]))
    """
    require_share("level", level, "0.95")
    own_bins = isinstance(score, CalibrationSketch) and spacing == "width"
    wanted = DEFAULT_CURVE_BINS if bins is None and not own_bins else bins
    cells = cells_of(score, outcome, weight, bins=wanted)
    index = cells.bin_index(bins=wanted, spacing=spacing, rule=rule)
    total = bin_sums(cells.total, index)
    frequency = bin_sums(cells.positive, index) / total
    low, high = wilson(frequency, frequency_rows(cells, index), level)
    return ReliabilityCurve(
        score=bin_sums(both(cells.score_sum), index) / total,
        frequency=frequency,
        low=low,
        high=high,
        rows=np.add.reduceat(both(cells.rows), np.flatnonzero(np.diff(index, prepend=-1))),
        edges=_edges(cells, index, wanted, spacing),
    )


def frequency_rows(cells: ScoreCells, index: NDArray[np.int64]) -> Array:
    """Return the effective rows behind the frequency of each occupied bin: Σw / ω at that frequency."""
    total, positive = bin_sums(cells.total, index), bin_sums(cells.positive, index)
    rate = (positive / total)[occupied_bin(index)]
    return np.asarray(total**2 / bin_sums(cells.total * cells.row_weight(rate), index))


def wilson(frequency: Array, rows: Array, level: float) -> tuple[Array, Array]:
    """Return Wilson's score interval of a frequency over a number of rows."""
    z = float(ndtri(0.5 + level / 2))
    centre = frequency + z**2 / (2 * rows)
    half = z * np.sqrt(frequency * (1 - frequency) / rows + z**2 / (4 * rows**2))
    norm = 1 + z**2 / rows
    low, high = (centre - half) / norm, (centre + half) / norm
    return np.clip(low, 0.0, frequency), np.clip(high, frequency, 1.0)


def _edges(cells: Any, index: NDArray[np.int64], bins: int | None, spacing: Spacing) -> Array:
    occupied = np.unique(index)
    if spacing == "mass":
        first = np.flatnonzero(np.diff(index, prepend=-1))
        last = np.append(first[1:], len(index)) - 1
        return np.stack([cells.score[first], cells.score[last]], axis=1)
    count = bins if bins is not None else cells.sketch.bins
    edges = np.linspace(0.0, 1.0, count + 1) if spacing == "width" else cells.log_edges(count)
    return np.stack([edges[occupied], edges[occupied + 1]], axis=1)


class Promise(NamedTuple):
    """Outcomes that scores promise (their sum), that came, and the interval of what was to come."""

    promised: float
    came: float
    low: float
    high: float

    @property
    def excess(self) -> float:
        """Promised beyond what came; below 0, too few."""
        return self.promised - self.came

    @property
    def excess_low(self) -> float:
        """The lower end of the interval of :attr:`excess`."""
        return self.promised - self.high

    @property
    def excess_high(self) -> float:
        """Its upper end."""
        return self.promised - self.low


def promise(sketch: CalibrationSketch, *, level: float = 0.95) -> Promise:
    r"""Return the sums of scores and of outcomes, and the interval that chance leaves to the latter.

    .. math:: \sum_i w_i \hat p_i, \qquad \sum_i w_i o_i, \qquad
              W \cdot \mathrm{Wilson}\Bigl(\tfrac{1}{W} \sum_i w_i o_i\Bigr), \quad W = \sum_i w_i

    Wilson's interval is for rows of one rate; where rates differ it is a little too wide, never too narrow.
    Use it to say what a wrong level costs on this many rows. Errors that cancel out are not in it: those are
    what WCE and the reliability curve show.

    Examples
    --------
    >>> scores = np.full(1000, 0.3)
    >>> found = promise(CalibrationSketch.of(score=scores, outcome=np.arange(1000) < 200))
    >>> round(found.promised), round(found.came), round(found.excess_low), round(found.excess_high)
    (300, 200, 74, 124)
    """
    cells = cells_of(sketch)
    total = float(cells.total.sum())
    effective = frequency_rows(cells, np.zeros(len(cells.total), dtype=np.int64))
    return counted_promise(
        float(cells.score_sum.sum()),
        float(cells.positive.sum()),
        total,
        rows=float(effective[0]),
        level=level,
    )


def counted_promise(
    promised: float, came: float, total: float, *, rows: float | None = None, level: float = 0.95
) -> Promise:
    """Return the same from sums of scores, of outcomes and of weights; ``rows`` are effective ones."""
    require_share("level", level, "0.95")
    rate = np.array([came / total])
    low, high = wilson(rate, np.array([total if rows is None else rows]), level)
    return Promise(promised, came, total * float(low[0]), total * float(high[0]))


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
    r"""Run Kuiper's test: the range of the cumulative error along the scores (Arrieta-Ibarra et al., 2022).

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
    r"""Run Spiegelhalter's test: is the Brier score what honest scores would give?

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
