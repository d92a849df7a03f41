"""Figures of an audit alone: weights by size from sketches, and segments side by side."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from unskew import plain_text
from unskew.metrics import CalibrationSketch
from unskew.metrics.score_cells import cells_of
from unskew.report.plots.axes import LOWEST_SHOWN, set_log_ticks
from unskew.report.plots.weights import RATIO_RANGE, draw_propensities, draw_weights
from unskew.report.style import INK, MUTED, SERIES, new_figure, styled

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from unskew.audit.segments import Segment

SEGMENTS_DRAWN = 20
LONGEST_LABEL = 40


@styled
def score_histogram_figure(
    sketches: Mapping[str, CalibrationSketch], *, p_min: float | None = None
) -> Figure:
    """Histograms of all scores, and of the weights that the rows with outcome 1 would get."""
    figure = new_figure(3.3)
    left, right = figure.subplots(1, 2)
    draw_propensities(left, sketches, p_min=p_min)
    left.set_title("Scores of all rows")
    left.set_ylabel("share of rows")
    weights = {}
    for name, sketch in sketches.items():
        cells = cells_of(sketch=sketch)
        cells = cells.take((cells.positive > 0) & (cells.score > 0))
        inverse = np.minimum(cells.inverse_sum / cells.positive, 1 / LOWEST_SHOWN)
        weights[name] = (inverse, cells.rows[:, 1].astype(np.float64))
    draw_weights(right, weights, of="clicked rows", limit="clip", p_min=p_min)
    right.set_title("Weights of the clicked rows")
    return figure


@styled
def segments_figure(segments: Sequence[Segment], clear: Sequence[bool]) -> Figure:
    """The mean of o/p̂ of each segment with its 95 % interval, the first at the top; 1 is honest.

    Parameters
    ----------
    segments
        Those to draw, at most :data:`SEGMENTS_DRAWN` of them.
    clear
        Whether each is off beyond chance: a filled marker.
    """
    shown = list(zip(segments, clear, strict=True))[:SEGMENTS_DRAWN]
    figure = new_figure(0.9 + 0.24 * len(shown))
    axes = figure.subplots()
    axes.axvline(1.0, color=MUTED.light, linewidth=0.9, zorder=1)
    series = SERIES["raw"]
    for place, (segment, off) in enumerate(shown):
        low, middle, high = np.clip(
            [segment.low, segment.mean_outcome_over_score, segment.high], *RATIO_RANGE
        )
        axes.hlines(place, low, high, color=series.colour.light, linewidth=1.3, alpha=0.75)
        face = series.colour.light if off else "none"
        axes.plot(middle, place, marker="o", markeredgecolor=series.colour.light, markerfacecolor=face)
    ends = np.clip([end for s, _ in shown for end in (s.low, s.high)], *RATIO_RANGE)
    axes.set_xscale("log")
    axes.set_xlim(0.92 * min(0.8, ends.min()), 1.08 * max(1.25, ends.max()))
    set_log_ticks(axes, "x")
    axes.set_ylim(len(shown) - 0.4, -0.6)
    labels = [_shortened(f"{s.column} = {s.value}") for s, _ in shown]
    axes.set_yticks(range(len(shown)), labels, color=INK.light)
    axes.grid(axis="y", visible=False)
    axes.set_xlabel("sum of weights ÷ rows, the mean of o/p (log axis): below 1 the scores are overstated")
    return figure


def _shortened(label: str) -> str:
    label = plain_text.plain(label)
    return label if len(label) <= LONGEST_LABEL else f"{label[: LONGEST_LABEL - 1]}…"
