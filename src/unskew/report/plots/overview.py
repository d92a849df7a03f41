"""The whole run in a few panels, which begin its report and stand in a file of their own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from unskew.metrics import CalibrationSketch
from unskew.report.cost import promises
from unskew.report.facts import LEVEL, filled, tested_on
from unskew.report.plots.methods import estimates_chart, metric_charts, predicted_chart
from unskew.report.plots.scores import reliability_figures, weights_figure
from unskew.report.style import svg

if TYPE_CHECKING:
    from matplotlib.figure import Figure

TITLE = "Reliability of the propensities before and after calibration, and what debiasing changed"


def overview_figures(
    *, metrics: Mapping[str, Any], sketches: Mapping[str, CalibrationSketch]
) -> list[Figure]:
    """Return reliability before and after, and the level and the order of the models; without a test set,
    the estimates beside the truth, or else the weights.

    Parameters
    ----------
    metrics
        The dictionary of ``metrics.json``.
    sketches
        Held-out scores against clicks, ``"raw"`` and ``"calibrated"``.

    Examples
    --------
    >>> sketch = CalibrationSketch.of(score=[0.1, 0.2, 0.4, 0.6], outcome=[0, 0, 1, 1])
    >>> len(overview_figures(metrics={}, sketches={"raw": sketch}))
    2
    """
    methods, rails = filled(metrics.get("methods")), metrics.get("rails")
    predicted, truth = promises(metrics), metrics.get("truth") or {}
    charts = []
    if predicted:
        came = next(iter(predicted.values())).came
        charts.append(predicted_chart(predicted, came, tested_on(metrics)))
    elif any(LEVEL in of for of in methods.values()):
        charts += metric_charts(methods, rails, metrics=[LEVEL])
    if any("auc" in of for of in methods.values()):
        charts += metric_charts(methods, rails, metrics=["auc"])
    if truth.get("estimates") and not charts:
        charts.append(estimates_chart(truth))
    others = [chart.figure() for chart in charts] or [weights_figure(sketches)]
    return [*reliability_figures(sketches)[1:], *others]


def overview_svg(*, metrics: Mapping[str, Any], sketches: Mapping[str, CalibrationSketch]) -> str:
    """Return the overview as an SVG file."""
    figures = overview_figures(metrics=metrics, sketches=sketches)
    return svg(*figures, name="overview", title=TITLE)
