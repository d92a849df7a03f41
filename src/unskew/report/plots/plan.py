"""The least difference of two models that so many random impressions tell."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from unskew.metrics.registry import metric as registered
from unskew.report.plots.axes import axis_of, set_axis
from unskew.report.style import MUTED, SERIES, new_figure, styled, svg

if TYPE_CHECKING:
    from matplotlib.figure import Figure

TITLE = "The least difference between two models by the number of random impressions"


@styled
def plan_figure(plan: Mapping[str, Any]) -> Figure:
    """Return a panel for each metric: the detectable difference as a line; the difference to tell, and what
    it takes, as a marker.

    Parameters
    ----------
    plan
        The dictionary of :meth:`unskew.offpolicy.plan.RandomPlan.to_dict`.
    """
    figure = new_figure(3.8)
    sizes, mark = np.array(plan["sizes"]), SERIES["raw"]
    panels = figure.subplots(1, len(plan["metrics"]), squeeze=False)[0]
    for axes, (name, needs) in zip(panels, plan["metrics"].items(), strict=True):
        detectable = np.array(plan["detectable"][name])
        shown, needed, difference = [detectable], needs["impressions"], needs["difference"]
        axes.set_title(registered(name).label)
        if difference and needed and sizes[0] <= needed <= sizes[-1]:
            shown.append(np.array([difference]))
            axes.axhline(difference, color=MUTED.light, linewidth=0.9, linestyle=(0, (4, 2)))
            axes.plot([needed], [difference], mark.marker, color=mark.colour.light, markersize=6, zorder=3)
            beside: dict[str, Any] = {"xytext": (6, 6), "textcoords": "offset points", "color": MUTED.light}
            axes.annotate(f"{needed:,.0f}", (needed, difference), **beside)
        axes.plot(sizes, detectable, color=SERIES["calibrated"].colour.light, linewidth=1.6)
        set_axis(axes, "x", axis_of(sizes, "random impressions (log axis)", "log"))
        set_axis(axes, "y", axis_of(np.concatenate(shown), "least detectable difference (log axis)", "log"))
    return figure


def plan_svg(plan: Mapping[str, Any]) -> str:
    """Return :func:`plan_figure` as an SVG file of its own."""
    return svg(plan_figure(plan), name="plan", title=TITLE)
