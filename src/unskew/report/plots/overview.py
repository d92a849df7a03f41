"""The whole run in one wide picture, for a README or a slide."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from unskew.metrics import CalibrationSketch
from unskew.metrics.registry import shown_metrics
from unskew.report.facts import LEVEL, filled
from unskew.report.plots.methods import estimates_chart, metric_charts
from unskew.report.plots.scores import draw_reliability, draw_weights
from unskew.report.style import new_figure, styled, svg

if TYPE_CHECKING:
    from matplotlib.figure import Figure

OVERVIEW_BINS = 15
TITLE = "Reliability of the propensities before and after calibration, and what debiasing changed"


@styled
def overview_figure(*, metrics: Mapping[str, Any], sketches: Mapping[str, CalibrationSketch]) -> Figure:
    """Return reliability before and after | estimates beside the truth | level and order of the models.

    The second is there where the truth is known, the third where there is a test set; without either, the
    weights stand beside the propensities.

    Parameters
    ----------
    metrics
        The dictionary of ``metrics.json``.
    sketches
        Held-out scores against clicks, ``"raw"`` and ``"calibrated"``.

    Examples
    --------
    >>> sketch = CalibrationSketch.of(score=[0.1, 0.2, 0.4, 0.6], outcome=[0, 0, 1, 1])
    >>> len(overview_figure(metrics={}, sketches={"raw": sketch}).axes)
    2
    """
    truth, methods = filled(metrics.get("truth")), filled(metrics.get("methods"))
    figure = new_figure(4.0)
    columns = max(1 + bool(truth) + bool(methods), 2)
    grid = figure.add_gridspec(1, columns, width_ratios=[1.0, 0.9, 1.0][:columns])
    left = figure.add_subplot(grid[0])
    left.set_title("Propensities")
    draw_reliability(left, sketches, scale="logit", bins=OVERVIEW_BINS)
    if truth:
        middle = figure.add_subplot(grid[1])
        middle.set_title("Estimates of the loss", pad=20)
        estimates_chart(truth).draw(middle)
    if methods:
        known = [name for name in (LEVEL, "auc") if any(name in of for of in methods.values())]
        charts = metric_charts(methods, metrics.get("rails"), metrics=known or shown_metrics(methods)[:1])
        rows = grid[columns - 1].subgridspec(len(charts), 1)
        for row, chart in enumerate(charts):
            panel = figure.add_subplot(rows[row])
            panel.set_title(chart.title)
            chart.draw(panel)
    if not truth and not methods:
        right = figure.add_subplot(grid[1])
        right.set_title("Their weights")
        draw_weights(right, sketches)
    if any(sketch.rows for sketch in sketches.values()):
        left.legend(loc="upper left")
    return figure


def overview_svg(*, metrics: Mapping[str, Any], sketches: Mapping[str, CalibrationSketch]) -> str:
    """Return :func:`overview_figure` as an SVG file of its own."""
    return svg(overview_figure(metrics=metrics, sketches=sketches), name="overview", title=TITLE)
