"""Estimates of the loss beside the truth, and the two parts of their bias, where the truth is known."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from unskew.report.plots.dot_charts import Dot, DotChart, DotRow, axis_of
from unskew.report.plots.methods import method_series
from unskew.report.style import INK, say_nothing_to_show
from unskew.report.words import brief, method_name, method_parts, real, signed

if TYPE_CHECKING:
    from matplotlib.axes import Axes

STANDARD_ERRORS = 1.96
"""Half of the intervals of the estimates, in standard errors: 95 %."""


def deviation(estimate: Mapping[str, Any], name: str = "bias") -> float:
    """Estimate − truth on average: minus the paper's bias, which is truth − expected estimate."""
    return 0.0 - real(estimate.get(name))


def truth_charts(truth: Mapping[str, Any]) -> list[DotChart]:
    """Each estimate beside the ideal loss, and the two parts of how far it is off on average.

    Parameters
    ----------
    truth
        ``{"ideal_loss", "estimates": {name: {"estimate", "bias", "standard_error", "calibration_part",
        "refinement_part"}}}``; biases are truth − expected estimate, as in :mod:`unskew.theory`, and the
        parts may be missing.
    """
    return [estimates_chart(truth), _bias_chart(truth.get("estimates", {}))]


def estimates_chart(truth: Mapping[str, Any]) -> DotChart:
    """Estimates with intervals, and the ideal loss as a line."""
    ideal = real(truth.get("ideal_loss"))
    rows, ends = [], [ideal]
    for key, of in truth.get("estimates", {}).items():
        value, half = real(of.get("estimate")), STANDARD_ERRORS * real(of.get("standard_error"))
        ends += [value, value - half, value + half]
        tip = f"{method_name(key)}: {brief(value, 4)} ({brief(value - half)} to {brief(value + half)})"
        dot = Dot(value, value - half, value + half, look=method_parts(key)[1], tip=tip)
        rows.append(DotRow(method_name(key), (dot,), brief(value)))
    axis = axis_of(ends, "loss over all pairs, as estimated from the clicked ones")
    rule = ideal if np.isfinite(ideal) else None
    return DotChart("Estimates of the loss", axis, tuple(rows), rule=rule, rule_words=f"truth {brief(ideal)}")


def _bias_chart(estimates: Mapping[str, Any]) -> DotChart:
    """Calibration part and refinement part of each deviation as bars, and their sum as a marker."""
    rows, ends = [], [0.0]
    for key, of in estimates.items():
        look = method_parts(key)[1]
        dots = []
        for part, filled in (("calibration_part", True), ("refinement_part", False)):
            size = deviation(of, part)
            tip = f"{method_name(key)}: {part.replace('_', ' ')} {signed(size)}"
            dots.append(Dot(size, look=look, filled=filled, start=0.0, tip=tip))
            ends.append(size)
        total = deviation(of)
        ends.append(total)
        dots.insert(1, Dot(total, look="naive", tip=f"{method_name(key)}: off by {signed(total)} on average"))
        rows.append(DotRow(method_name(key), tuple(dots), signed(total)))
    axis = axis_of(ends, "estimate − truth, on average (right: too high)")
    note = "upper bar, filled: calibration part; lower bar, hatched: refinement part; marker: sum"
    return DotChart("How far off on average, and why", axis, tuple(rows), rule=0.0, note=note)


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
    _set_rows(axes, keys)
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


def _set_rows(axes: Axes, keys: list[str]) -> None:
    axes.set_ylim(len(keys) - 0.45, -0.75)
    axes.set_yticks(range(len(keys)), [method_name(key) for key in keys])
    axes.tick_params(axis="y", length=0, labelcolor=INK.light)
    axes.spines["left"].set_visible(False)
    axes.grid(axis="y", visible=False)
    axes.margins(x=0.08)
