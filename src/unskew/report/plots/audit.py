"""Figures of an audit, from its sketches: reliability, weights by score and by size, segments."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from unskew import plain_text
from unskew.metrics import CalibrationSketch, reliability_curve
from unskew.metrics.score_cells import cells_of
from unskew.report.plots.axes import LOWEST_SHOWN, linear_limit, logit_limits, plain
from unskew.report.plots.drawing import FIGURE_WIDTH, Axis, Panel, picture, text
from unskew.report.plots.reliability import CURVE_BINS
from unskew.report.plots.weights import RATIO_RANGE, log_edges, weight_curve

if TYPE_CHECKING:
    from unskew.audit.segments import Segment

Array = NDArray[np.float64]

SEGMENTS_DRAWN = 20
LONGEST_LABEL = 40
HALF = 400.0
"""Width of the inside of one of two panels."""
LEFTS = (66.0, 66.0 + HALF + 88.0)


def reliability_picture(sketches: Mapping[str, CalibrationSketch], title: str) -> str:
    """Reliability of several scores on linear and on logit axes, with 95 % intervals."""
    curves = {
        name: reliability_curve(sketch=sketch, bins=CURVE_BINS, spacing="mass")
        for name, sketch in sketches.items()
    }
    shown = [values for curve in curves.values() for values in (curve.score, curve.frequency)]
    below = logit_limits(*shown)
    names = ("predicted probability of a click", "share that was clicked")
    limits = {"linear": (0.0, linear_limit(*shown)), "logit": below}
    titles = ("Linear axes: the large ones", "Logit axes: the small ones")
    panels = []
    for left, (scale, (low, high)), heading in zip(LEFTS, limits.items(), titles, strict=True):
        x, y = (Axis(low, high, scale, label) for label in names)  # type: ignore[arg-type]
        panel = Panel(left, 30.0, HALF, 330.0, x, y, heading)
        panel.rule((low, low), (high, high))
        for name, curve in curves.items():
            panel.intervals(curve.score, curve.low, curve.high, name)
            panel.line(curve.score, curve.frequency, name)
        panels.append(panel)
    return picture([part for each in panels for part in each.drawn()], FIGURE_WIDTH, 402.0, title)


def weights_picture(sketches: Mapping[str, CalibrationSketch], title: str) -> str:
    """Whether the weights add up, by score: the mean of o/p̂ in each bin, with intervals; 1 is honest."""
    curves = {name: weight_curve(sketch) for name, sketch in sketches.items()}
    score = np.concatenate([np.maximum(curve.score, LOWEST_SHOWN) for curve in curves.values()])
    ends = np.concatenate([v[np.isfinite(v)] for c in curves.values() for v in (c.low, c.high)])
    x = Axis(*_around(score), "log", "score (log axis)")
    low = max(RATIO_RANGE[0], 0.9 * min(ends.min(initial=0.8), 0.8))
    high = min(RATIO_RANGE[1], 1.1 * max(ends.max(initial=1.25), 1.25))
    panel = Panel(66.0, 30.0, FIGURE_WIDTH - 90.0, 220.0, x, Axis(low, high, "log", "sum of weights ÷ rows"))
    panel.rule((x.low, 1.0), (x.high, 1.0))
    for name, curve in curves.items():
        panel.intervals(curve.score, curve.low, curve.high, name)
        panel.line(curve.score, curve.ratio, name)
    return picture(panel.drawn(), FIGURE_WIDTH, 292.0, title)


def histograms_picture(
    sketches: Mapping[str, CalibrationSketch], title: str, *, p_min: float | None = None
) -> str:
    """Histograms of all scores, and of the weights that the rows with outcome 1 would get."""
    points = {name: sketch.points() for name, sketch in sketches.items()}
    scores = {name: (np.maximum(each.score, LOWEST_SHOWN), each.total) for name, each in points.items()}
    left = _histogram(
        LEFTS[0], "Scores of all rows", scores, "score (log axis)", "share of rows", shares=True
    )
    if p_min is not None and left.x.low < p_min < left.x.high:
        left.rule((p_min, left.y.low), (p_min, left.y.high), words=f"p_min {plain(p_min)}")
    weights = {name: found for name, sketch in sketches.items() if len((found := _weights_of(sketch))[0])}
    heading = "Weights of the clicked rows"
    if not weights:
        nothing = text("no clicked rows", LEFTS[1] + HALF / 2, 150.0, anchor="middle")
        return picture([*left.drawn(), nothing], FIGURE_WIDTH, 322.0, title)
    right = _histogram(LEFTS[1], heading, weights, "weight 1/p (log axis)", "clicked rows (log axis)")
    if p_min and right.x.low < 1 / p_min <= right.x.high:
        right.rule((1 / p_min, right.y.low), (1 / p_min, right.y.high), words=f"clip {plain(1 / p_min)}")
    return picture([*left.drawn(), *right.drawn()], FIGURE_WIDTH, 322.0, title)


def segments_picture(segments: Sequence[Segment], clear: Sequence[bool], title: str) -> str:
    """The mean of o/p̂ of each segment with its 95 % interval, the first at the top; 1 is honest.

    Parameters
    ----------
    segments
        Those to draw, at most :data:`SEGMENTS_DRAWN` of them.
    clear
        Whether each is off beyond chance: a filled marker.
    """
    shown = list(zip(segments, clear, strict=True))[:SEGMENTS_DRAWN]
    ends = np.clip([end for s, _ in shown for end in (s.low, s.high)], *RATIO_RANGE)
    about = "sum of weights ÷ rows, the mean of o/p (log axis): below 1 the scores are overstated"
    x = Axis(0.92 * min(0.8, float(ends.min())), 1.08 * max(1.25, float(ends.max())), "log", about)
    labels = [_shortened(f"{s.column} = {s.value}") for s, _ in shown]
    tall = 24.0 * len(shown)
    # The first segment is at the top: the axis runs from the last to the first.
    y = Axis(0.0, float(len(shown)), label="")
    panel = Panel(290.0, 12.0, FIGURE_WIDTH - 314.0, tall, x, y)
    panel.rule((1.0, y.low), (1.0, y.high))
    for place, (segment, off) in enumerate(shown):
        level = len(shown) - place - 0.5
        panel.intervals(
            np.array([level]), np.array([segment.low]), np.array([segment.high]), "raw", across=True
        )
        panel.mark(segment.mean_outcome_over_score, level, "raw", filled=off)
    names = [
        text(label, 282.0, 12.0 + 24.0 * (place + 0.5) + 4, anchor="end", colour="ink")
        for place, label in enumerate(labels)
    ]
    return picture([*panel.drawn(), *names], FIGURE_WIDTH, tall + 56.0, title)


def _histogram(
    left: float,
    heading: str,
    values: Mapping[str, tuple[Array, Array]],
    across: str,
    up: str,
    *,
    shares: bool = False,
) -> Panel:
    """Values and how many rows have each, as shares of all or as counts on a logarithmic axis."""
    edges = log_edges([each for each, _ in values.values()])
    counts = {name: np.histogram(each, bins=edges, weights=rows)[0] for name, (each, rows) in values.items()}
    if shares:
        counts = {name: each / each.sum() for name, each in counts.items()}
    most = max(float(each.max()) for each in counts.values())
    y = Axis(0.0, 1.08 * most, "linear", up, _percent) if shares else Axis(0.7, 2.2 * most, "log", up)
    panel = Panel(left, 30.0, HALF, 250.0, Axis(float(edges[0]), float(edges[-1]), "log", across), y, heading)
    for name, each in counts.items():
        panel.steps(each, edges, name)
    return panel


def _weights_of(sketch: CalibrationSketch) -> tuple[Array, Array]:
    cells = cells_of(sketch=sketch)
    cells = cells.take((cells.positive > 0) & (cells.score > 0))
    inverse = np.minimum(cells.inverse_sum / cells.positive, 1 / LOWEST_SHOWN)
    return inverse, cells.rows[:, 1].astype(np.float64)


def _percent(share: float) -> str:
    return f"{100 * share:.3g} %"


def _around(values: Array) -> tuple[float, float]:
    """Limits of a logarithmic axis, with a margin."""
    low, high = float(values.min()), float(values.max())
    margin = max((high / low) ** 0.03, 1.05)
    return low / margin, high * margin


def _shortened(label: str) -> str:
    label = plain_text.plain(label)
    return label if len(label) <= LONGEST_LABEL else f"{label[: LONGEST_LABEL - 1]}…"
