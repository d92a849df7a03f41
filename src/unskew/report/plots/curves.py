"""Curves: losses by epoch, and the least difference that so many random impressions tell."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from unskew.metrics.registry import metric as registered
from unskew.report.facts import method_name
from unskew.report.plots.axes import (
    Array,
    Axis,
    axis_of,
    key_below,
    new_panel,
    nothing,
    rule,
    set_axis,
)
from unskew.report.style import MUTED, SERIES, new_figure, styled, svg

if TYPE_CHECKING:
    from matplotlib.figure import Figure

LOG_ABOVE = 8.0
"""The loss axis is logarithmic where the largest loss is so many times the smallest."""
MAIN_STEP = "prediction"
"""Of several training steps, the one whose loss is on the scale of the validation loss."""


@styled
def learning_figures(histories: Mapping[str, Mapping[str, Any]]) -> list[Figure]:
    """Return a panel of each model: the median over seeds as a line, all seeds as a band, the kept epoch.

    Parameters
    ----------
    histories
        ``{model: {"train": {step: [[R] per epoch]}, "validation": [[R] per epoch], "best_epoch": [R]}}``.
    """
    drawn = []
    for name, history in histories.items():
        title = "Propensity" if name == "propensity" else method_name(name)
        train = history.get("train") or {}
        main = train.get(MAIN_STEP) or next(iter(train.values()), None)
        lines = {"training": _by_epoch(main), "validation": _by_epoch(history.get("validation"))}
        lines = {label: losses for label, losses in lines.items() if np.isfinite(losses).any()}
        drawn.append(
            _learning(title, lines, history.get("best_epoch"))
            if lines
            else nothing(title, "no losses were kept")
        )
    return drawn


def _by_epoch(losses: Any) -> Array:
    """Return losses ``[epoch, seed]``; missing ones are NaN."""
    rows = [np.atleast_1d(np.array(row, dtype=np.float64)) for row in losses or []]
    width = max((len(row) for row in rows), default=1)
    padded = [np.pad(row, (0, width - len(row)), constant_values=np.nan) for row in rows]
    return np.array(padded, dtype=np.float64).reshape(len(rows), width)


def _learning(title: str, lines: Mapping[str, Array], best_epoch: Any) -> Figure:
    every = np.concatenate([losses[np.isfinite(losses)] for losses in lines.values()])
    low, high = float(every.min()), float(every.max())
    figure, axes = new_panel(title, 2.5)
    is_log = low > 0 and high > LOG_ABOVE * low
    set_axis(axes, "y", axis_of(every, "loss (log axis)", "log") if is_log else axis_of([low, high], "loss"))
    last = max(len(losses) for losses in lines.values())
    set_axis(axes, "x", Axis(1.0, max(float(last), 2.0), "linear", "epoch"))
    for name, losses in lines.items():
        series = SERIES["raw" if name == "training" else "calibrated"]
        epoch = np.arange(1, len(losses) + 1, dtype=np.float64)
        there = np.isfinite(losses).any(axis=1)
        least, middle, most = np.nanquantile(losses[there], [0.0, 0.5, 1.0], axis=1)
        axes.fill_between(epoch[there], least, most, color=series.colour.light, alpha=0.18, linewidth=0)
        axes.plot(epoch[there], middle, label=name, **(series.line() | {"markersize": 3.0}))
    best = [epoch + 1 for epoch in best_epoch or [] if epoch is not None]
    if best:
        at = float(np.quantile(best, 0.5, method="lower"))
        rule(axes, at, f"kept: {at:g}")
    return key_below(figure, axes)


@styled
def tuning_figure(losses: Sequence[float | None], judged_on: str) -> Figure:
    """Return the loss of every trial of a search as markers, and the least so far as a line."""
    values = np.array([np.nan if loss is None else loss for loss in losses])
    least = np.fmin.accumulate(values)
    figure, axes = new_panel(f"Trials, judged on {judged_on}", 2.5)
    set_axis(axes, "y", axis_of(values[np.isfinite(values)], "loss"))
    set_axis(axes, "x", Axis(1.0, max(float(len(values)), 2.0), "linear", "trial"))
    trial, series = np.arange(1, len(values) + 1), SERIES["raw"]
    axes.plot(trial, values, series.marker, color=series.colour.light, label="a trial", markersize=4)
    axes.plot(trial, least, color=SERIES["calibrated"].colour.light, linewidth=1.6, label="the least so far")
    return key_below(figure, axes)


def tuning_svg(losses: Sequence[float | None], judged_on: str) -> str:
    """Return :func:`tuning_figure` as an SVG file of its own."""
    return svg(tuning_figure(losses, judged_on), name="tune", title="Loss of every trial of a search")


PLAN_TITLE = "The least difference between two models by the number of random impressions"


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
    return svg(plan_figure(plan), name="plan", title=PLAN_TITLE)
