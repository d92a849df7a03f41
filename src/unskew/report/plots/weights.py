"""Propensities and the weights they become: histograms, and whether the weights add up."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from unskew.metrics import CalibrationSketch
from unskew.metrics.reliability import frequency_rows, wilson
from unskew.metrics.score_cells import bin_sums, cells_of
from unskew.metrics.user_bootstrap import DEFAULT_LEVEL
from unskew.metrics.weight_calibration import DEFAULT_WEIGHT_BINS, inverse_of
from unskew.report.plots.axes import LOWEST_SHOWN, plain, set_log_ticks
from unskew.report.style import INK, MUTED, SERIES, Series, new_figure, say_nothing_to_show, styled

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Array = NDArray[np.float64]

HISTOGRAM_BINS = 40
FILL = 0.16
"""Opacity of the area of a histogram: two of them can be seen through each other."""
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


@styled
def histogram_figure(
    sketches: Mapping[str, CalibrationSketch],
    clicked: Mapping[str, Array],
    *,
    p_min: float | None = None,
) -> Figure:
    """Histograms of the propensities of all held-out pairs and of the weights of the clicked ones.

    Parameters
    ----------
    sketches
        Propensities of the population.
    clicked
        Propensities of the clicked rows, not clipped.
    p_min
        Where they are clipped before they become weights.
    """
    figure = new_figure(3.3)
    left, right = figure.subplots(1, 2)
    draw_propensities(left, sketches, p_min=p_min)
    left.set_title("Propensities of all pairs")
    floor = max(p_min or 0.0, LOWEST_SHOWN)
    inverse = {name: 1.0 / np.maximum(p[np.isfinite(p)], floor) for name, p in clicked.items()}
    weights = {name: (weight, np.ones(len(weight))) for name, weight in inverse.items()}
    draw_weights(right, weights, of="clicked pairs", limit="cap", p_min=p_min)
    right.set_title("Weights of the clicked pairs")
    return figure


def draw_propensities(
    axes: Axes, sketches: Mapping[str, CalibrationSketch], *, p_min: float | None = None
) -> None:
    """Share of rows by propensity, on a logarithmic axis."""
    points = {name: sketch.points() for name, sketch in sketches.items() if sketch.rows}
    if not points:
        say_nothing_to_show(axes, "no held-out scores")
        return
    values = {name: np.maximum(p.score, LOWEST_SHOWN) for name, p in points.items()}
    edges = log_edges(list(values.values()))
    for name, p in points.items():
        share = np.histogram(values[name], bins=edges, weights=p.total)[0] / p.total.sum()
        _draw_histogram(axes, share, edges, name)
    axes.set_xscale("log")
    axes.set_xlim(edges[0], edges[-1])
    set_log_ticks(axes, "x")
    axes.set_ylim(bottom=0)
    axes.yaxis.set_major_formatter(lambda share, _: f"{100 * share:g} %")
    axes.set_xlabel("propensity (log axis)")
    axes.set_ylabel("share of pairs")
    _draw_legend(axes)
    if p_min is not None and edges[0] < p_min < edges[-1]:
        _draw_limit(axes, p_min, f"p_min {plain(p_min)}")


def draw_weights(
    axes: Axes, weights: Mapping[str, Sequence[Array]], *, of: str, limit: str, p_min: float | None
) -> None:
    """Number of rows (``of`` what) by weight, on logarithmic axes; weights, and how many rows have each."""
    weights = {name: parts for name, parts in weights.items() if len(parts[0])}
    if not weights:
        say_nothing_to_show(axes, "no clicked rows")
        return
    edges = log_edges([parts[0] for parts in weights.values()])
    for name, (weight, rows) in weights.items():
        _draw_histogram(axes, np.histogram(weight, bins=edges, weights=rows)[0], edges, name)
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xlim(edges[0], edges[-1] * 1.05)
    axes.set_ylim(0.7, 2.2 * axes.get_ylim()[1])
    set_log_ticks(axes, "x")
    set_log_ticks(axes, "y")
    axes.set_xlabel("weight 1/p (log axis)")
    axes.set_ylabel(f"{of} (log axis)")
    _draw_legend(axes)
    if p_min and edges[0] < 1 / p_min <= edges[-1] * 1.05:
        _draw_limit(axes, 1 / p_min, f"{limit} {plain(1 / p_min)}")


@styled
def weight_calibration_figure(sketches: Mapping[str, CalibrationSketch]) -> Figure:
    """Whether the weights add up, by propensity: the mean of o/p̂ in each bin, with intervals."""
    figure = new_figure(3.0)
    draw_weight_calibration(figure.subplots(), sketches)
    return figure


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


def _draw_histogram(axes: Axes, values: Array, edges: Array, name: str) -> None:
    series: Series = SERIES.get(name, SERIES["calibrated"])
    colour = series.colour.light
    outline: dict[str, Any] = {"color": colour, "linewidth": 1.4, "linestyle": series.dashes}
    axes.stairs(values, edges, fill=True, color=colour, alpha=FILL, linewidth=0)
    axes.stairs(values, edges, label=name, **outline)


def _draw_legend(axes: Axes) -> None:
    """To the right of the title: a histogram leaves no corner free for sure."""
    axes.legend(loc="lower right", bbox_to_anchor=(1.0, 1.0), ncols=2, borderaxespad=0.1, columnspacing=1.2)


def _draw_limit(axes: Axes, at: float, text: str) -> None:
    axes.axvline(at, color=INK.light, linewidth=0.9, linestyle=(0, (2, 2)))
    axes.annotate(
        text,
        (at, 1.0),
        xycoords=("data", "axes fraction"),
        xytext=(-4, -3),
        textcoords="offset points",
        ha="right",
        va="top",
        color=INK.light,
        fontsize=8,
    )
