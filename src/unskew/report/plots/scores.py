"""Figures of scores, from their sketches: reliability, weights by score, histograms, spread of members."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from unskew.metrics import CalibrationSketch, ReliabilityCurve, reliability_curve
from unskew.metrics.reliability import frequency_rows, wilson
from unskew.metrics.score_cells import bin_sums, cells_of
from unskew.metrics.user_bootstrap import DEFAULT_LEVEL
from unskew.metrics.weight_calibration import DEFAULT_WEIGHT_BINS, inverse_of
from unskew.report.plots.axes import (
    LABEL_LENGTH,
    LOWEST_SHOWN,
    UPRIGHT_LENGTH,
    Axis,
    Scale,
    axis_of,
    key_below,
    new_panel,
    nothing,
    plain,
    rule,
    set_axis,
    wrapped,
)
from unskew.report.style import MUTED, SERIES, SURFACE, styled

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Array = NDArray[np.float64]
Sketches = Mapping[str, CalibrationSketch]
Weights = Mapping[str, tuple[Array, Array]]
"""Weights by the name of a series, and how many rows have each."""

NO_SCORES = "no held-out scores"
CURVE_BINS = 20
"""Points of a curve; of equal mass, so that each stands for as many rows."""
HISTOGRAM_BINS = 40
RATIO_RANGE = (0.1, 10.0)
"""Ratios beyond are drawn at the edge: whether weights are off by 10 or by 1,000 is no longer a matter."""


def _curves(sketches: Sketches, bins: int) -> dict[str, ReliabilityCurve]:
    return {
        name: reliability_curve(sketch, bins=bins, spacing="mass")
        for name, sketch in sketches.items()
        if sketch.rows
    }


@styled
def reliability_figures(
    sketches: Sketches,
    *,
    predicted: str = "predicted probability of a click",
    seen: str = "share that was clicked",
) -> list[Figure]:
    """Return the reliability diagram on linear and on logit axes, with 95 % intervals; none without rows.

    Use the logit panel to judge weights: 0.001 and 0.01 are far apart there, as they are in 1/p.
    """
    if not any(sketch.rows for sketch in sketches.values()):
        return []
    titles: dict[Scale, str] = {
        "linear": "Reliability, linear axes",
        "logit": "Reliability, logit axes (small scores)",
    }
    figures = []
    for scale, title in titles.items():
        figure, axes = new_panel(title, 3.5)
        draw_reliability(axes, sketches, reliability_axis(sketches, scale))
        axes.set(xlabel=wrapped(predicted, LABEL_LENGTH), ylabel=wrapped(seen, UPRIGHT_LENGTH))
        figures.append(key_below(figure, axes))
    return figures


def reliability_axis(sketches: Sketches, scale: Scale) -> Axis:
    """Return an axis that holds all curves."""
    curves = _curves(sketches, CURVE_BINS).values()
    shown = [value for curve in curves for values in (curve.score, curve.frequency) for value in values]
    axis = axis_of(shown, scale=scale)
    return axis if scale == "logit" else Axis(0.0, min(max(axis.high, 0.01), 1.04))


def draw_reliability(axes: Axes, sketches: Sketches, axis: Axis) -> None:
    """Draw curves with intervals around the diagonal, on one axis for both directions."""
    curves = _curves(sketches, CURVE_BINS)
    set_axis(axes, "x", axis._replace(label="predicted probability of a click"))
    set_axis(axes, "y", axis._replace(label="share that was clicked"))
    floor, top = axis.low, axis.high
    axes.plot((floor, top), (floor, top), color=MUTED.light, linewidth=0.9, zorder=1)
    for name, curve in curves.items():
        series = SERIES.get(name, SERIES["calibrated"])
        score, low, high, rate = (
            np.clip(values, floor, top) for values in (curve.score, curve.low, curve.high, curve.frequency)
        )
        axes.vlines(score, low, high, color=series.colour.light, linewidth=1.1, alpha=0.65, zorder=2)
        axes.plot(score, rate, label=name, zorder=3, **series.line())
        never = curve.frequency < floor
        if not never.any():
            continue
        look: dict[str, Any] = {"color": series.colour.light, "markerfacecolor": SURFACE.light, "zorder": 4}
        axes.plot(score[never], rate[never], linestyle="none", marker="v", clip_on=False, **look)


class WeightCurve(NamedTuple):
    """One entry for each bin: mean score, mean of o/p with its interval, and the number of rows."""

    score: Array
    ratio: Array
    low: Array
    high: Array
    rows: NDArray[np.int64]


def weight_curve(
    sketch: CalibrationSketch, *, bins: int = DEFAULT_WEIGHT_BINS, level: float = DEFAULT_LEVEL
) -> WeightCurve:
    r"""Return how much the weights of each equal-mass bin of the score add up to, relative to its rows.

    .. math::
        1 + S_b = \frac{1}{n_b} \sum_{i \in b} \frac{o_i}{\hat p_i}, \qquad
        \mathrm{WCE}_1 = \sum_b \frac{n_b}{n} |S_b|

    ``ratio`` is 1 + S_b: 1 for honest propensities, 1.4 where the weights are 40 % too large in sum. Its
    interval is Wilson's for the frequency of outcomes, in proportion (weights vary little within a bin).
    """
    cells = cells_of(sketch)
    index = cells.bin_index(bins=bins, spacing="mass")
    total = bin_sums(cells.total, index)
    score = bin_sums(cells.score_sum.sum(axis=1), index) / total
    frequency = bin_sums(cells.positive, index) / total
    ratio = bin_sums(inverse_of(cells), index) / total
    low, high = wilson(frequency, frequency_rows(cells, index), level)
    with np.errstate(divide="ignore", invalid="ignore"):
        scale = np.where(frequency > 0, ratio / frequency, 1.0 / score)
        interval = low * scale, high * scale
    rows = bin_sums(cells.rows.sum(axis=1).astype(np.float64), index).astype(np.int64)
    return WeightCurve(score, ratio, *interval, rows)


@styled
def weights_figure(sketches: Sketches, *, rows: str = "rows") -> Figure:
    """Return whether the weights add up, by score: the mean of o/p in each bin; 1 is right."""
    title = "Do the weights add up? 1 is right"
    curves = {name: weight_curve(sketch) for name, sketch in sketches.items() if sketch.rows}
    if not curves:
        return nothing(title, NO_SCORES)
    figure, axes = new_panel(title)
    scores = np.concatenate([np.maximum(curve.score, LOWEST_SHOWN) for curve in curves.values()])
    ends = np.concatenate([v[np.isfinite(v)] for c in curves.values() for v in (c.low, c.high)])
    low = max(RATIO_RANGE[0], 0.9 * min(ends.min(initial=0.8), 0.8))
    high = min(RATIO_RANGE[1], 1.1 * max(ends.max(initial=1.25), 1.25))
    set_axis(axes, "x", axis_of(scores, "score p (log axis)", "log"))
    set_axis(axes, "y", Axis(low, high, "log", f"sum of weights ÷ {rows}"))
    axes.axhline(1.0, color=MUTED.light, linewidth=0.9, zorder=1)
    for name, curve in curves.items():
        series = SERIES.get(name, SERIES["calibrated"])
        score = np.maximum(curve.score, LOWEST_SHOWN)
        ratio, least, most = (np.clip(v, low, high) for v in (curve.ratio, curve.low, curve.high))
        axes.vlines(score, least, most, color=series.colour.light, linewidth=1.1, alpha=0.65)
        axes.plot(score, ratio, label=name, **series.line())
    return key_below(figure, axes)


@styled
def histogram_figures(
    sketches: Sketches, *, p_min: float | None = None, rows: str = "rows", positive: str = "clicked"
) -> list[Figure]:
    """Return histograms of all scores, and of the weights of rows with outcome 1 (``positive`` names them),
    with the clip on both."""
    points = {name: sketch.points() for name, sketch in sketches.items() if sketch.rows}
    scores = {name: (np.maximum(each.score, LOWEST_SHOWN), each.total) for name, each in points.items()}
    weights = {name: _weights_of(sketch) for name, sketch in sketches.items()}
    weights = {name: parts for name, parts in weights.items() if len(parts[0])}
    titles = f"Scores of all {rows}", f"Weights of the {positive} {rows}"
    drawn = [nothing(titles[0], NO_SCORES), nothing(titles[1], f"no {positive} {rows}")]
    if scores:
        clip = None if p_min is None else (p_min, f"p_min {plain(p_min, 3)}")
        labels = "score p (log axis)", f"share of {rows} in %"
        drawn[0] = _histogram(titles[0], scores, labels, clip, shares=True)
    if weights:
        clip = (1 / p_min, f"clip {plain(1 / p_min, 3)}") if p_min else None
        labels = "weight 1/p (log axis)", f"{positive} {rows} (log axis)"
        drawn[1] = _histogram(titles[1], weights, labels, clip)
    return drawn


def _histogram(
    title: str,
    values: Weights,
    labels: tuple[str, str],
    clip: tuple[float, str] | None,
    *,
    shares: bool = False,
) -> Figure:
    """Draw values and how many rows have each, as shares of all or as counts on a logarithmic axis."""
    every = np.concatenate([height for height, _ in values.values()])
    low, high = float(every.min()), float(every.max())
    if high < low * 1.01:
        low, high = low / 2, high * 2
    edges = np.geomspace(low * 0.999, high * 1.001, HISTOGRAM_BINS + 1)
    counts = {
        name: np.histogram(height, bins=edges, weights=rows)[0] for name, (height, rows) in values.items()
    }
    if shares:
        counts = {name: 100 * height / height.sum() for name, height in counts.items()}
    most = max(float(height.max()) for height in counts.values())
    figure, axes = new_panel(title)
    set_axis(axes, "x", Axis(float(edges[0]), float(edges[-1]), "log", labels[0]))
    set_axis(
        axes,
        "y",
        Axis(0.0, 1.15 * most, "linear", labels[1]) if shares else Axis(0.7, 2.6 * most, "log", labels[1]),
    )
    for name, height in counts.items():
        series = SERIES.get(name, SERIES["calibrated"])
        look: dict[str, Any] = {"color": series.colour.light, "baseline": axes.get_ylim()[0]}
        axes.stairs(height, edges, fill=True, alpha=0.16, **look)
        axes.stairs(height, edges, linewidth=1.4, linestyle=series.dashes, label=name, **look)
    if clip is not None and edges[0] < clip[0] <= edges[-1]:
        rule(axes, clip[0], clip[1])
    return key_below(figure, axes)


def _weights_of(sketch: CalibrationSketch) -> tuple[Array, Array]:
    cells = cells_of(sketch)
    cells = cells.take((cells.positive > 0) & (cells.score > 0))
    inverse = np.minimum(cells.inverse_sum / cells.positive, 1 / LOWEST_SHOWN)
    return inverse, cells.rows[:, 1].astype(np.float64)
