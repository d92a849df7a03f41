"""Intervals for metrics, by a bootstrap on the cells of a sketch: thousands of resamples in a second."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, get_args

import numpy as np
from numpy.typing import NDArray

from unskew.base.errors import DataError, ParameterError
from unskew.base.estimator import require_choice, require_range, require_share
from unskew.base.seeds import as_seed
from unskew.metrics.binned import DEFAULT_RELATIVE_BINS
from unskew.metrics.cell_sums import both
from unskew.metrics.proper import auc_of_groups
from unskew.metrics.score_cells import ScoreCells, Spacing, bin_sums, cells_of, occupied_bin
from unskew.metrics.sketch import DEFAULT_BINS, CalibrationSketch
from unskew.metrics.sketch_grid import DEFAULT_RESAMPLES, LIKELIHOOD_FLOOR, MOST_RESAMPLES, SMALLEST, Rule
from unskew.metrics.weight_calibration import DEFAULT_WEIGHT_BINS

Array = NDArray[np.float64]
BinnedMetric = Literal["ece", "adaptive_ece", "wce", "relative_error"]
MeanMetric = Literal["nll", "brier", "mean_outcome_over_score", "base_rate"]
IntervalMetric = Literal[BinnedMetric, MeanMetric, "auc"]

PSEUDO_ROWS = 1.0
"""Added to the positives and negatives of a bin, seen and expected, before their ratio becomes its rate."""

SURE = 2.5
"""A bin whose error exceeds so many standard deviations counts as wrong in the lower limit."""

_LARGEST_SCALE = 64.0
_HALVINGS = 24


class Interval(NamedTuple):
    """The metric as computed, and the limits for the true value."""

    value: float
    low: float
    high: float
    level: float


def interval(
    score: Any,
    outcome: Any = None,
    weight: Any = None,
    *,
    metric: IntervalMetric,
    bins: int | None = None,
    rule: Rule = "paper",
    resamples: int = DEFAULT_RESAMPLES,
    level: float = 0.95,
    seed: int = 0,
) -> Interval:
    r"""Return a bootstrap interval for a metric.

    .. math::
        \text{means: } \left[q_{\alpha/2}(\theta^*),\ q_{1-\alpha/2}(\theta^*)\right], \qquad
        \text{binned: } \left\{ \sum_b w_b |\delta_b| :\
        q_{\alpha/2} \le \sum_b w_b |d_b| \le q_{1-\alpha/2} \text{ of }
        \sum_b w_b |\delta_b + \varepsilon^*_b| \right\}

    For ``nll``, ``brier``, ``mean_outcome_over_score``, ``base_rate`` and ``auc`` groups of equal cell and
    outcome are resampled, n* ~ Poisson(n), and the limits are quantiles of the resampled metric θ*.
    ``ece``, ``adaptive_ece``, ``wce`` and ``relative_error`` sum absolute values, so noise only adds to
    them, and resampling adds it twice: quantiles would miss the true value. Here d_b is the error of bin
    b, ε*_b the noise of outcomes drawn cell by cell at the bin's own rate, and the limits are the smallest
    and largest true errors δ that explain the sum that was seen. The upper limit spreads the error over
    all bins in proportion to their noise, or to the errors seen, whichever allows more; the lower one puts
    it into the bins that are surely wrong, or in proportion to the errors seen, whichever allows less. So
    they hold for any pattern of errors, and cover ``level`` or more. **The metric
    itself may lie above its interval**: near its noise floor it mostly measures noise.

    Parameters
    ----------
    metric
        Its name.
    bins, rule
        Those of the metric; by default its own.
    level
        Coverage.

    Examples
    --------
    >>> import numpy as np
    >>> generator = np.random.default_rng(0)
    >>> score = generator.uniform(0.2, 0.8, 5000)
    >>> found = interval(metric="base_rate", score=score, outcome=generator.random(5000) < score)
    >>> found.low < 0.5 < found.high, round(found.high - found.low, 2)
    (True, 0.03)
    """
    known = [*get_args(BinnedMetric), *get_args(MeanMetric), "auc"]
    if metric not in known:
        raise ParameterError(
            f"there is no interval for the metric {metric!r}", remedy=f"use one of {', '.join(known)}"
        )
    require_share("level", level, "0.95")
    require_range("resamples", resamples, 1, MOST_RESAMPLES, f"for example {DEFAULT_RESAMPLES}")
    if not isinstance(score, CalibrationSketch):
        wanted_bins = bins if metric == "ece" and bins is not None else DEFAULT_BINS
        score, outcome, weight = CalibrationSketch.of(score, outcome, weight, bins=wanted_bins), None, None
    cells = cells_of(score, outcome, weight)
    generator = np.random.default_rng(as_seed(seed))
    tails = ((1 - level) / 2, (1 + level) / 2)
    if metric == "auc":
        value = float(auc_of_groups(cells.weight))
        drawn = np.concatenate([auc_of_groups(w) for w in _resampled_weights(cells, resamples, generator)])
        low, high = np.quantile(drawn, tails)
    elif metric in get_args(MeanMetric):
        value, low, high = _mean_interval(metric, cells, resamples, generator, tails)
    else:
        errors = _errors_of_bins(cells, metric, bins, rule)
        value, low, high = _absolute_interval(errors, cells, resamples, generator, tails)
    return Interval(value, float(low), float(high), level)


@dataclass(frozen=True, eq=False)
class _BinErrors:
    """The error of each bin; a cell's positive weight moves it by ``slope[cell] / denominator[bin]``."""

    index: NDArray[np.int64]
    slope: Array
    denominator: Array
    error: Array


def _loss_of_groups(cells: ScoreCells, metric: str) -> Array:
    """Return what a row adds to a mean over rows, ``[cell, outcome]``, at the cell's mean score."""
    p = cells.score
    if metric == "nll":
        loss = [-np.log(np.maximum(q, LIKELIHOOD_FLOOR)) for q in (1 - p, p)]
    elif metric == "brier":
        loss = [p**2, (1 - p) ** 2]
    elif metric == "base_rate":
        loss = [np.zeros_like(p), np.ones_like(p)]
    else:
        loss = [np.zeros_like(p), _inverse(cells)]
    return np.stack(loss, axis=1)


def _errors_of_bins(cells: ScoreCells, metric: str, bins: int | None, rule: Rule) -> _BinErrors:
    spacing: Spacing = "width" if metric == "ece" else "mass"
    usual = {"wce": DEFAULT_WEIGHT_BINS, "relative_error": DEFAULT_RELATIVE_BINS}.get(metric, DEFAULT_BINS)
    wanted = bins if bins is not None or metric == "ece" else usual
    index = cells.bin_index(bins=wanted, spacing=spacing, rule=rule)
    total, score_sum = bin_sums(cells.total, index), bin_sums(both(cells.score_sum), index)
    if metric == "wce":
        inverse = np.where(cells.positive > 0, _inverse(cells), 1.0 / np.maximum(cells.score, SMALLEST))
        slope = np.where(cells.score > 0, inverse, 0.0)
        return _BinErrors(index, slope, total, bin_sums(slope * cells.positive, index) / total - 1.0)
    ones = np.ones(len(cells.score))
    gap = bin_sums(cells.gap, index)
    if metric == "relative_error":
        expected = np.maximum(score_sum, SMALLEST)
        return _BinErrors(index, ones, expected, gap / expected)
    return _BinErrors(index, ones, total, gap / total)


def _inverse(cells: ScoreCells) -> Array:
    """Return the mean of 1/p over the positives of each cell."""
    if ((cells.score == 0) & (cells.positive > 0)).any():
        raise DataError(
            "a row has score 0 and outcome 1: its weight is infinite, and has no interval",
            remedy="clip the scores, or calibrate them so that none is 0",
        )
    return np.divide(
        cells.inverse_sum, cells.positive, out=np.zeros_like(cells.score), where=cells.positive > 0
    )


def _multipliers(cells: ScoreCells, resamples: int, generator: np.random.Generator) -> Iterator[Array]:
    """Draw how often each group ``[resample, cell, outcome]`` is taken: mean 1, variance Σw²/(Σw)²."""
    rows = np.divide(
        cells.weight**2, cells.square_sum, out=np.zeros_like(cells.weight), where=cells.square_sum > 0
    )
    few = rows < FEW_ROWS
    for start in range(0, resamples, BATCH):
        count = min(BATCH, resamples - start)
        drawn = np.empty((count, *rows.shape))
        drawn[:, few] = generator.poisson(rows[few], size=(count, int(few.sum())))
        drawn[:, few] /= np.maximum(rows[few], 1e-300)
        many = rows[~few]
        drawn[:, ~few] = 1.0 + generator.standard_normal((count, len(many))) / np.sqrt(many)
        yield np.maximum(drawn, 0.0)


def _resampled_weights(cells: ScoreCells, resamples: int, generator: np.random.Generator) -> Iterator[Array]:
    for multiplier in _multipliers(cells, resamples, generator):
        weight = cells.weight * multiplier
        yield weight[(weight.sum(axis=1) > 0).all(axis=-1)]


def _mean_interval(
    metric: str, cells: ScoreCells, resamples: int, generator: np.random.Generator, tails: tuple[float, float]
) -> tuple[float, float, float]:
    loss, total = _loss_of_groups(cells, metric), float(cells.total.sum())
    about = float((cells.weight * loss).sum())
    exact = {"nll": cells.log_loss_sum, "brier": cells.brier_sum}.get(metric, about)
    drawn = [
        (weight * loss).sum(axis=(1, 2)) / weight.sum(axis=(1, 2))
        for weight in _resampled_weights(cells, resamples, generator)
    ]
    low, high = np.quantile(np.concatenate(drawn), tails) + (exact - about) / total
    return exact / total, float(low), float(high)


def _noise(errors: _BinErrors, cells: ScoreCells, resamples: int, generator: np.random.Generator) -> Array:
    """Draw the noise of bins' errors, ``[resample, bin]``: outcomes at each bin's own, smoothed rate."""
    index, p = errors.index, cells.score
    rows = cells.effective_rows
    expected, seen = bin_sums(p * rows, index), bin_sums(cells.positive / cells.total * rows, index)
    other = bin_sums(rows, index) - np.stack([expected, seen])
    odds = (
        (seen + PSEUDO_ROWS)
        * (other[0] + PSEUDO_ROWS)
        / ((expected + PSEUDO_ROWS) * (other[1] + PSEUDO_ROWS))
    )
    times = odds[occupied_bin(index)]
    rate = p * times / (1.0 - p + p * times)
    rows, step = cells.equal_rows(rate)
    # As in the noise floor: what overflows is skewed.
    with np.errstate(over="ignore"):
        return drawn_noise(index, rows, rate, errors.slope * step, resamples, generator) / errors.denominator


def _absolute_interval(
    errors: _BinErrors,
    cells: ScoreCells,
    resamples: int,
    generator: np.random.Generator,
    tails: tuple[float, float],
) -> tuple[float, float, float]:
    """Return the limits of Σ w|δ| that explain the Σ w|d| that was seen, given the noise of each bin."""
    total = bin_sums(cells.total, errors.index)
    share, error = total / total.sum(), errors.error
    noise = _noise(errors, cells, resamples, generator)
    deviation = noise.std(axis=0)
    seen = float(share @ np.abs(error))

    def too_small(error: Array, tail: float) -> bool:
        """Return whether errors and noise stay below what was seen in more than ``tail`` of draws."""
        return float(np.mean(np.abs(noise + error) @ share < seen)) > tail

    def explained(pattern: Array, tail: float) -> float:
        """Return the Σ w|λ · pattern| whose quantile is what was seen."""
        size = float(share @ np.abs(pattern))
        if size == 0 or not too_small(np.zeros_like(pattern), tail):
            return 0.0
        low, high = 0.0, _LARGEST_SCALE * max(seen / size, 1.0)
        for _ in range(_HALVINGS):
            middle = (low + high) / 2
            low, high = (middle, high) if too_small(middle * pattern, tail) else (low, middle)
        return low * size

    sure = np.where(np.abs(error) > SURE * deviation, error, 0.0)
    if not sure.any():
        worst = np.argmax(share * np.abs(error))
        sure[worst] = error[worst]
    spread = np.where(error < 0, -deviation, deviation)
    low = min(explained(pattern, tails[1]) for pattern in (sure, error))
    high = max(explained(pattern, tails[0]) for pattern in (spread, error))
    return seen, low, high


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
    r"""Return the mean of a calibration error when the scores are true: it is not 0, and depends on n.

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
    r"""Draw the noise of Σ step · positives of each occupied bin, ``[draw, bin]``, its mean taken off.

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
    bin_of_cell = occupied_bin(index)
    few = skewed[bin_of_cell]
    if not few.any():
        return noise
    # Weights can make more rows of a row than a whole number holds.
    size, chance, move = np.minimum(rows[few], MOST_ROWS).astype(np.int64), rate[few], step[few]
    for start in range(0, draws, BATCH):
        rows_of_batch = slice(start, min(start + BATCH, draws))
        drawn = generator.binomial(size, chance, size=(rows_of_batch.stop - start, len(size))) - size * chance
        noise[rows_of_batch, skewed] = bin_sums(drawn * move, bin_of_cell[few])
    return noise
