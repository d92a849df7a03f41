"""Whether the weights that propensities become add up."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from unskew.metrics import CalibrationSketch
from unskew.metrics.reliability import frequency_rows, wilson
from unskew.metrics.score_cells import bin_sums, cells_of
from unskew.metrics.user_bootstrap import DEFAULT_LEVEL
from unskew.metrics.weight_calibration import DEFAULT_WEIGHT_BINS, inverse_of
from unskew.report.plots.axes import LOWEST_SHOWN, set_log_ticks
from unskew.report.style import MUTED, SERIES, say_nothing_to_show

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Array = NDArray[np.float64]

HISTOGRAM_BINS = 40
RATIO_RANGE = (0.1, 10.0)
"""Ratios beyond are drawn at the edge: whether weights are off by 10 or by 1,000 is no longer a matter."""


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


def draw_weight_calibration(
    axes: Axes, sketches: Mapping[str, CalibrationSketch], *, level: float = DEFAULT_LEVEL
) -> None:
    """The mean of o/p̂ by propensity, on logarithmic axes; 1 is honest."""
    curves = {name: weight_curve(sketch, level=level) for name, sketch in sketches.items() if sketch.rows}
    if not curves:
        say_nothing_to_show(axes, "no held-out scores")
        return
    axes.axhline(1.0, color=MUTED.light, linewidth=0.9, zorder=1)
    for name, curve in curves.items():
        series = SERIES.get(name, SERIES["calibrated"])
        score = np.maximum(curve.score, LOWEST_SHOWN)
        ratio, low, high = (np.clip(v, *RATIO_RANGE) for v in (curve.ratio, curve.low, curve.high))
        axes.vlines(score, low, high, color=series.colour.light, linewidth=1.1, alpha=0.65)
        axes.plot(score, ratio, label=name, **series.line())
    inside = np.concatenate([v[np.isfinite(v)] for c in curves.values() for v in (c.low, c.high)])
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_ylim(
        max(RATIO_RANGE[0], 0.9 * min(inside.min(initial=0.8), 0.8)),
        min(RATIO_RANGE[1], 1.1 * max(inside.max(initial=1.25), 1.25)),
    )
    set_log_ticks(axes, "x")
    set_log_ticks(axes, "y")
    axes.set_xlabel("propensity (log axis)")
    axes.set_ylabel("sum of weights ÷ pairs")
    axes.legend(loc="upper right")


def log_edges(values: list[Array]) -> Array:
    """Edges of :data:`HISTOGRAM_BINS` bins of equal ratio that hold all values."""
    every = np.concatenate(values)
    low, high = float(every.min()), float(every.max())
    if high < low * 1.01:
        low, high = low / 2, high * 2
    return np.geomspace(low * 0.999, high * 1.001, HISTOGRAM_BINS + 1)
