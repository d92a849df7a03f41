"""Estimates of the loss beside the truth, and the two parts of their bias, where the truth is known."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from unskew.report.plots.methods import method_series
from unskew.report.style import INK, MUTED, SURFACE, new_figure, say_nothing_to_show, styled
from unskew.report.words import brief, method_name, real

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

STANDARD_ERRORS = 1.96
"""Half of the intervals of the estimates, in standard errors: 95 %."""
BAR = 0.34


def deviation(estimate: Mapping[str, Any], name: str = "bias") -> float:
    """Estimate − truth on average: minus the paper's bias, which is truth − expected estimate."""
    return 0.0 - real(estimate.get(name))


@styled
def truth_figure(truth: Mapping[str, Any]) -> Figure:
    """Each estimate beside the ideal loss, and the two parts of how far it is off on average.

    Parameters
    ----------
    truth
        ``{"ideal_loss", "estimates": {name: {"estimate", "bias", "standard_error", "calibration_part",
        "refinement_part"}}}``; biases are truth − expected estimate, as in :mod:`unskew.theory`, and the
        parts may be missing.
    """
    estimates = truth.get("estimates", {})
    figure = new_figure(1.25 + 0.36 * max(len(estimates), 2))
    left, right = figure.subplots(1, 2, width_ratios=(1.0, 1.0))
    draw_estimates(left, truth)
    left.set_title("Estimates of the loss")
    draw_bias_parts(right, estimates)
    right.set_title("How far off on average, and why")
    return figure


def draw_estimates(axes: Axes, truth: Mapping[str, Any]) -> None:
    """Estimates with intervals, and the ideal loss as a line."""
    estimates = truth.get("estimates", {})
    ideal = real(truth.get("ideal_loss"))
    if not estimates or not np.isfinite(ideal):
        say_nothing_to_show(axes, "the truth is not known")
        return
    keys = list(estimates)
    axes.axvline(ideal, color=INK.light, linewidth=1.0, zorder=1)
    for row, key in enumerate(keys):
        value = real(estimates[key].get("estimate"))
        error = real(estimates[key].get("standard_error"))
        series = method_series(key, keys)
        if np.isfinite(error):
            half = STANDARD_ERRORS * error
            axes.hlines(row, value - half, value + half, color=series.colour.light, linewidth=1.8)
        if np.isfinite(value):
            axes.plot(value, row, **{**series.line(), "markersize": 6})
    _set_rows(axes, keys, names=True)
    axes.annotate(
        f"truth {brief(ideal)}",
        (ideal, 1.0),
        xycoords=("data", "axes fraction"),
        xytext=(4, -1),
        textcoords="offset points",
        va="top",
        color=INK.light,
        fontsize=8,
    )
    axes.set_xlabel("loss over all pairs, as estimated from the clicked ones")
    axes.locator_params(axis="x", nbins=6)


def draw_bias_parts(axes: Axes, estimates: Mapping[str, Any]) -> None:
    """Calibration part and refinement part of each deviation, and their sum as a diamond."""
    keys = list(estimates)
    if not keys:
        say_nothing_to_show(axes, "the truth is not known")
        return
    axes.axvline(0.0, color=MUTED.light, linewidth=0.9, zorder=3)
    for row, key in enumerate(keys):
        parts = [deviation(estimates[key], part) for part in ("calibration_part", "refinement_part")]
        colour = method_series(key, keys).colour.light
        for part, offset, filled in zip(parts, (-BAR / 2, BAR / 2), (True, False), strict=True):
            if np.isfinite(part):
                axes.barh(
                    row + offset,
                    part,
                    height=BAR,
                    color=colour if filled else SURFACE.light,
                    edgecolor=colour,
                    hatch=None if filled else "/////",
                    linewidth=1.0,
                    zorder=2,
                )
        total = deviation(estimates[key])
        if np.isfinite(total):
            if not np.isfinite(parts).any():
                axes.hlines(row, 0.0, total, color=colour, linewidth=2.0, zorder=2)
            axes.plot(total, row, "D", color=INK.light, markersize=4.5, zorder=4)
    _set_rows(axes, keys, names=False)
    _draw_key(axes)
    axes.set_xlabel("estimate − truth, on average (right: too high)")
    axes.locator_params(axis="x", nbins=6)


def _draw_key(axes: Axes) -> None:
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    handles = [
        Patch(facecolor=MUTED.light, edgecolor=MUTED.light, label="calibration part"),
        Patch(facecolor=SURFACE.light, edgecolor=MUTED.light, hatch="/////", label="refinement part"),
        Line2D([], [], marker="D", linestyle="none", color=INK.light, label="sum"),
    ]
    axes.legend(handles=handles, loc="upper center", bbox_to_anchor=(0.5, -0.22), ncols=3)


def _set_rows(axes: Axes, keys: list[str], *, names: bool) -> None:
    axes.set_ylim(len(keys) - 0.45, -0.75)
    axes.set_yticks(range(len(keys)), [method_name(key) for key in keys] if names else [""] * len(keys))
    axes.tick_params(axis="y", length=0, labelcolor=INK.light)
    axes.spines["left"].set_visible(False)
    axes.grid(axis="y", visible=not names)
    axes.margins(x=0.08)
