"""The reliability diagram: predicted against actual rates, on linear and logit axes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from unskew.metrics import CalibrationSketch, ReliabilityCurve, reliability_curve
from unskew.metrics.user_bootstrap import DEFAULT_LEVEL
from unskew.report.plots.axes import LOWEST_SHOWN, Scale, linear_limit, logit_limits, set_logit
from unskew.report.style import MUTED, SERIES, SURFACE, say_nothing_to_show

if TYPE_CHECKING:
    from matplotlib.axes import Axes

CURVE_BINS = 20
"""Points of a curve; of equal mass, so that each stands for as many rows."""


def reaching(sketches: Mapping[str, CalibrationSketch]) -> list[str]:
    """How many intervals of each curve reach the diagonal, in words."""
    counts = []
    for name, sketch in sketches.items():
        if sketch.rows:
            curve = reliability_curve(sketch=sketch, bins=CURVE_BINS, spacing="mass")
            touching = int(((curve.low <= curve.score) & (curve.score <= curve.high)).sum())
            counts.append(f"{touching} of {len(curve.score)} {name} intervals reach it")
    return counts


def draw_reliability(
    axes: Axes,
    sketches: Mapping[str, CalibrationSketch],
    *,
    scale: Scale,
    bins: int = CURVE_BINS,
    level: float = DEFAULT_LEVEL,
) -> None:
    """Curves with intervals around the diagonal, on given axes."""
    curves = {
        name: reliability_curve(sketch=sketch, bins=bins, spacing="mass", level=level)
        for name, sketch in sketches.items()
        if sketch.rows
    }
    if not curves:
        say_nothing_to_show(axes, "no held-out scores")
        return
    shown = [values for c in curves.values() for values in (c.score, c.frequency)]
    if scale == "logit":
        limits = logit_limits(*shown)
        set_logit(axes, limits)
    else:
        limits = (0.0, linear_limit(*shown))
        axes.set(xlim=limits, ylim=limits)
    axes.axline((limits[0], limits[0]), (limits[1], limits[1]), color=MUTED.light, linewidth=0.9, zorder=1)
    for name, curve in curves.items():
        _draw_curve(axes, name, curve, limits)
    axes.set_xlabel("predicted probability of a click")
    axes.set_ylabel("share that was clicked")
    axes.set_box_aspect(0.86)
    axes.legend(loc="upper left")


def _draw_curve(axes: Axes, name: str, curve: ReliabilityCurve, limits: tuple[float, float]) -> None:
    series = SERIES.get(name, SERIES["calibrated"])
    floor = max(limits[0], LOWEST_SHOWN) if limits[0] > 0 else 0.0
    score = np.clip(curve.score, floor, limits[1])
    low, high = (np.clip(end, floor, limits[1]) for end in (curve.low, curve.high))
    axes.vlines(score, low, high, color=series.colour.light, linewidth=1.1, alpha=0.65, zorder=2)
    axes.plot(score, np.clip(curve.frequency, floor, limits[1]), label=name, zorder=3, **series.line())
    never = curve.frequency <= 0
    if never.any() and floor > 0:
        axes.plot(
            score[never],
            np.full(int(never.sum()), floor),
            linestyle="none",
            marker="v",
            color=series.colour.light,
            markerfacecolor=SURFACE.light,
            clip_on=False,
            zorder=4,
        )
