"""Pictures of scores, from their sketches: reliability, weights by score, histograms. Without matplotlib."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from unskew.metrics import CalibrationSketch, reliability_curve
from unskew.metrics.score_cells import cells_of
from unskew.report.plots.axes import LOWEST_SHOWN, linear_limit, logit_limits, plain
from unskew.report.plots.drawing import Axis, Panel, nothing
from unskew.report.plots.reliability import CURVE_BINS
from unskew.report.plots.weights import RATIO_RANGE, log_edges, weight_curve
from unskew.report.words import brief, number, percent

Array = NDArray[np.float64]
Weights = Mapping[str, tuple[Array, Array]]
"""Weights by the name of a series, and how many rows have each."""

NO_SCORES = "no held-out scores"


def reliability_panels(
    sketches: Mapping[str, CalibrationSketch],
    *,
    predicted: str = "predicted probability of a click",
    seen: str = "share that was clicked",
    rows: str = "rows",
) -> list[Panel]:
    """Reliability of several scores on linear and on logit axes, with 95 % intervals.

    Use the logit panel to judge weights: 0.001 and 0.01 are far apart there, as they are in 1/p.
    """
    curves = {
        name: reliability_curve(sketch=sketch, bins=CURVE_BINS, spacing="mass")
        for name, sketch in sketches.items()
        if sketch.rows
    }
    if not curves:
        return []
    shown = [values for curve in curves.values() for values in (curve.score, curve.frequency)]
    linear = Axis(0.0, linear_limit(*shown), "linear")
    logit = Axis(*logit_limits(*shown), "logit")
    titles = {"Linear axes: the large ones": linear, "Logit axes: small ones become large weights": logit}
    panels = []
    for title, axis in titles.items():
        x, y = (Axis(axis.low, axis.high, axis.scale, label) for label in (predicted, seen))
        panel = Panel(title, x, y, height=280.0)
        panel.rule((axis.low, axis.low), (axis.high, axis.high))
        for name, curve in curves.items():
            tips = [
                f"{name}: said {percent(said, 3)}, {percent(rate, 3)} came"
                f" ({percent(low, 3)} to {percent(high, 3)}), {number(count, 0)} {rows}"
                for said, rate, low, high, count in zip(
                    curve.score, curve.frequency, curve.low, curve.high, curve.rows, strict=True
                )
            ]
            panel.intervals(curve.score, curve.low, curve.high, name)
            panel.line(curve.score, curve.frequency, name, tips)
        panels.append(panel)
    return panels


def weight_panels(sketches: Mapping[str, CalibrationSketch], *, rows: str = "rows") -> list[Panel]:
    """Whether the weights add up, by score: the mean of o/p̂ in each bin, with intervals; 1 is honest."""
    curves = {name: weight_curve(sketch) for name, sketch in sketches.items() if sketch.rows}
    if not curves:
        return []
    score = np.concatenate([np.maximum(curve.score, LOWEST_SHOWN) for curve in curves.values()])
    ends = np.concatenate([v[np.isfinite(v)] for c in curves.values() for v in (c.low, c.high)])
    x = Axis(*_around(score), "log", "score p (log axis)")
    low = max(RATIO_RANGE[0], 0.9 * min(ends.min(initial=0.8), 0.8))
    high = min(RATIO_RANGE[1], 1.1 * max(ends.max(initial=1.25), 1.25))
    y = Axis(low, high, "log", f"sum of weights ÷ {rows}")
    panel = Panel("Do the weights add up? 1 is right", x, y)
    panel.rule((x.low, 1.0), (x.high, 1.0))
    for name, curve in curves.items():
        tips = [
            f"{name}: at p = {brief(at)} the weights add up to {brief(ratio)} times the {rows}"
            f" ({brief(least)} to {brief(most)}), {number(count, 0)} {rows}"
            for at, ratio, least, most, count in zip(*curve, strict=True)
        ]
        panel.intervals(curve.score, curve.low, curve.high, name)
        panel.line(curve.score, curve.ratio, name, tips)
    return [panel]


def histogram_panels(
    sketches: Mapping[str, CalibrationSketch],
    weights: Weights,
    *,
    p_min: float | None = None,
    rows: str = "rows",
    of: str = "clicked",
) -> list[str]:
    """Histograms of all scores, and of the weights of the clicked rows (or what ``of`` calls those with
    outcome 1), with the clip on both."""
    points = {name: sketch.points() for name, sketch in sketches.items() if sketch.rows}
    scores = {name: (np.maximum(each.score, LOWEST_SHOWN), each.total) for name, each in points.items()}
    weights = {name: parts for name, parts in weights.items() if len(parts[0])}
    titles = f"Scores of all {rows}", f"Weights of the {of} {rows}"
    drawn = [nothing(titles[0], NO_SCORES), nothing(titles[1], f"no {of} {rows}")]
    if scores:
        panel = _histogram(titles[0], scores, "score p (log axis)", f"share of {rows}", shares=True)
        if p_min is not None and panel.x.low < p_min < panel.x.high:
            panel.rule((p_min, panel.y.low), (p_min, panel.y.high), words=f"p_min {plain(p_min)}")
        drawn[0] = panel.drawn(titles[0])
    if weights:
        panel = _histogram(titles[1], weights, "weight 1/p (log axis)", f"{of} {rows} (log axis)")
        if p_min and panel.x.low < 1 / p_min <= panel.x.high:
            panel.rule((1 / p_min, panel.y.low), (1 / p_min, panel.y.high), words=f"clip {plain(1 / p_min)}")
        drawn[1] = panel.drawn(titles[1])
    return drawn


def sketched_weights(sketches: Mapping[str, CalibrationSketch]) -> Weights:
    """The weights of the rows with outcome 1, from the cells of their sketches."""
    return {name: _weights_of(sketch) for name, sketch in sketches.items()}


def clipped_weights(clicked: Mapping[str, Array], p_min: float | None) -> Weights:
    """The weights of clicked rows, from their propensities."""
    floor = max(p_min or 0.0, LOWEST_SHOWN)
    inverse = {name: 1.0 / np.maximum(p[np.isfinite(p)], floor) for name, p in clicked.items()}
    return {name: (weight, np.ones(len(weight))) for name, weight in inverse.items()}


def _histogram(title: str, values: Weights, across: str, up: str, *, shares: bool = False) -> Panel:
    """Values and how many rows have each, as shares of all or as counts on a logarithmic axis."""
    edges = log_edges([each for each, _ in values.values()])
    counts = {name: np.histogram(each, bins=edges, weights=rows)[0] for name, (each, rows) in values.items()}
    if shares:
        counts = {name: each / each.sum() for name, each in counts.items()}
    most = max(float(each.max()) for each in counts.values())
    y = Axis(0.0, 1.08 * most, "linear", up, _percent) if shares else Axis(0.7, 2.2 * most, "log", up)
    panel = Panel(title, Axis(float(edges[0]), float(edges[-1]), "log", across), y)
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
