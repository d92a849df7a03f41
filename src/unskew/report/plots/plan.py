"""The least difference of two models that so many random impressions tell."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from unskew.metrics.registry import metric as registered
from unskew.report.plots.axes import plain, set_log_ticks
from unskew.report.style import MUTED, SERIES, new_figure, styled, svg

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

TITLE = "The least difference between two models by the number of random impressions"


@styled
def plan_figure(plan: Mapping[str, Any]) -> Figure:
    """A panel for each metric.

    Parameters
    ----------
    plan
        The dictionary of :meth:`unskew.offpolicy.plan.RandomPlan.to_dict`.
    """
    figure = new_figure(3.2)
    for place, name in enumerate(plan["metrics"]):
        axes = figure.add_subplot(1, len(plan["metrics"]), place + 1)
        draw_plan(axes, plan, name)
    return figure


def draw_plan(axes: Axes, plan: Mapping[str, Any], name: str) -> None:
    """The detectable difference as a line; the difference to tell, and what it takes, as a marker."""
    of = plan["metrics"][name]
    line = SERIES["calibrated"]
    axes.plot(plan["sizes"], plan["detectable"][name], color=line.colour.light, linewidth=1.6)
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.margins(0.03)
    needed = of["impressions"]
    if of["difference"] and needed and plan["sizes"][0] <= needed <= plan["sizes"][-1]:
        mark = SERIES["raw"]
        axes.axhline(of["difference"], color=MUTED.light, linewidth=0.9, linestyle=(0, (4, 2)))
        axes.plot([needed], [of["difference"]], mark.marker, color=mark.colour.light, markersize=6)
        axes.annotate(
            f"{needed:,.0f}",
            (needed, of["difference"]),
            xytext=(6, 6),
            textcoords="offset points",
            color=MUTED.light,
        )
    decades = [size for size in plan["sizes"] if math.log10(size).is_integer()]
    axes.set_xticks(decades, [plain(size) for size in decades])
    axes.set_xticks([], minor=True)
    set_log_ticks(axes, "y")
    axes.set_title(registered(name).label)
    axes.set_xlabel("random impressions (log axis)")
    axes.set_ylabel("least detectable difference (log axis)")


def plan_svg(plan: Mapping[str, Any]) -> str:
    """:func:`plan_figure` as an SVG file of its own."""
    return svg(plan_figure(plan), name="plan", title=TITLE)
