"""The whole run in one wide picture: is the propensity honest, and what did that change?"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from unskew.metrics import CalibrationSketch
from unskew.report.plots.methods import draw_methods, shown_metrics
from unskew.report.plots.reliability import draw_reliability
from unskew.report.plots.truth import draw_estimates
from unskew.report.plots.weights import draw_weight_calibration
from unskew.report.style import new_figure, styled, svg
from unskew.report.words import filled, metric_name

if TYPE_CHECKING:
    from matplotlib.figure import Figure

OVERVIEW_BINS = 15
TITLE = "Reliability of the propensities before and after calibration, and what debiasing changed"


@styled
def overview_figure(*, metrics: Mapping[str, Any], sketches: Mapping[str, CalibrationSketch]) -> Figure:
    """Reliability before and after | estimates beside the truth | methods on the test set.

    The second panel is there where the truth is known, the third where there is a test set; without either,
    the weights stand beside the propensities.

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
    panels = max(1 + bool(truth) + bool(methods), 2)
    figure = new_figure(3.35)
    axes = figure.subplots(1, panels, squeeze=False, width_ratios=[1.0] + [0.8] * (panels - 1))[0]
    draw_reliability(axes[0], sketches, scale="logit", bins=OVERVIEW_BINS)
    axes[0].set_title("Propensities")
    axes[0].set_box_aspect(None)
    if truth:
        draw_estimates(axes[1], truth)
        axes[1].set_title("Estimates of the loss")
        axes[1].set_xlabel("estimated loss over all pairs")
    if not truth and not methods:
        draw_weight_calibration(axes[1], sketches)
        axes[1].set_title("Their weights")
    if methods:
        metric = shown_metrics(methods)[0]
        draw_methods(axes[-1], methods, metric, metrics.get("rails"))
        axes[-1].set_title(f"Models: {metric_name(metric)} on the test set")
    return figure


def overview_svg(*, metrics: Mapping[str, Any], sketches: Mapping[str, CalibrationSketch]) -> str:
    """:func:`overview_figure` as an SVG file of its own, for a README or a slide."""
    figure = overview_figure(metrics=metrics, sketches=sketches)
    return svg(figure, name="overview", title=TITLE, standalone=True)
