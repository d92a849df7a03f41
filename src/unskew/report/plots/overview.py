"""The whole run in one wide picture: is the propensity honest, and what did that change?"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from unskew.metrics import CalibrationSketch
from unskew.metrics.registry import shown_metrics
from unskew.report.plots.methods import draw_methods
from unskew.report.plots.reliability import draw_reliability
from unskew.report.plots.truth import draw_estimates
from unskew.report.plots.weights import draw_weight_calibration
from unskew.report.style import new_figure, styled, svg
from unskew.report.words import filled

if TYPE_CHECKING:
    from matplotlib.figure import Figure

OVERVIEW_BINS = 15
LEVEL_AND_ORDER = ("mean_over_rate", "auc")
"""The metrics that stand for the level of the models and for their order."""
TITLE = "Reliability of the propensities before and after calibration, and what debiasing changed"


@styled
def overview_figure(*, metrics: Mapping[str, Any], sketches: Mapping[str, CalibrationSketch]) -> Figure:
    """Reliability before and after | estimates beside the truth | level and order of the models.

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
    figure = new_figure(3.35)
    columns = max(1 + bool(truth) + bool(methods), 2)
    grid = figure.add_gridspec(1, columns, width_ratios=[1.0, 0.9, 1.0][:columns])
    left = figure.add_subplot(grid[0])
    draw_reliability(left, sketches, scale="logit", bins=OVERVIEW_BINS)
    left.set_title("Propensities")
    left.set_box_aspect(None)
    if truth:
        middle = figure.add_subplot(grid[1])
        draw_estimates(middle, truth)
        middle.set_title("Estimates of the loss")
        middle.set_xlabel("estimated loss over all pairs")
    if methods:
        there = [metric for metric in LEVEL_AND_ORDER if any(metric in of for of in methods.values())]
        shown = there or shown_metrics(methods)[:1]
        places = grid[columns - 1].subgridspec(len(shown), 1)
        for place, metric in enumerate(shown):
            panel = figure.add_subplot(places[place])
            draw_methods(panel, methods, metric, metrics.get("rails"))
    if not truth and not methods:
        right = figure.add_subplot(grid[1])
        draw_weight_calibration(right, sketches)
        right.set_title("Their weights")
    return figure


def overview_svg(*, metrics: Mapping[str, Any], sketches: Mapping[str, CalibrationSketch]) -> str:
    """:func:`overview_figure` as an SVG file of its own, for a README or a slide."""
    figure = overview_figure(metrics=metrics, sketches=sketches)
    return svg(figure, name="overview", title=TITLE)
