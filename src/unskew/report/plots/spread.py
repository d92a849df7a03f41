"""How far members or passes disagree, by propensity."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from unskew.report.plots.axes import LOWEST_SHOWN, set_log_ticks
from unskew.report.style import MUTED, SERIES, new_figure, say_nothing_to_show, styled

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

BAND = 0.2
"""Opacity of the band between the quartiles."""


@styled
def spread_figure(curve: Sequence[Mapping[str, float]]) -> Figure:
    """The standard deviation over members or passes by propensity: the median and the quartiles of a group.

    Parameters
    ----------
    curve
        Groups of rows: ``"propensity"`` (their mean), and ``"low"``, ``"middle"``, ``"high"``, the quartiles
        of their spread.
    """
    figure = new_figure(3.0)
    draw_spread(figure.subplots(), curve)
    return figure


def draw_spread(axes: Axes, curve: Sequence[Mapping[str, float]]) -> None:
    """The spread by propensity, on logarithmic axes, beside what a constant share of it would be."""
    values = {key: np.array([each[key] for each in curve]) for key in ("propensity", "low", "middle", "high")}
    shown = values["middle"] > 0 if len(curve) else np.zeros(0, dtype=bool)
    if not shown.any():
        say_nothing_to_show(axes, "members do not disagree")
        return
    p, low, middle, high = (np.maximum(each[shown], LOWEST_SHOWN) for each in values.values())
    series = SERIES["raw"]
    axes.fill_between(p, low, high, color=series.colour.light, alpha=BAND, linewidth=0, label="quartiles")
    axes.plot(p, middle, label="median", **series.line())
    edges = np.array([p.min(), p.max()])
    for share, dashes in ((1.0, (0, (1, 2))), (0.1, (0, (4, 2)))):
        axes.plot(
            edges,
            share * edges,
            color=MUTED.light,
            linewidth=0.9,
            linestyle=dashes,
            label=f"{share:.0%} of p",
        )
    axes.set_xscale("log")
    axes.set_yscale("log")
    set_log_ticks(axes, "x")
    set_log_ticks(axes, "y")
    axes.set_xlabel("raw propensity p (log axis)")
    axes.set_ylabel("standard deviation (log axis)")
    axes.legend(loc="upper left")
