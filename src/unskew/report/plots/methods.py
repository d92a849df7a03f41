"""Methods side by side: each metric with its seeds, and paired differences against the naive model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import stdtrit

from unskew.metrics.judgement import differs
from unskew.metrics.registry import metric, shown_metrics
from unskew.metrics.user_bootstrap import DEFAULT_LEVEL
from unskew.report.style import INK, MUTED, SERIES, SURFACE, Series, new_figure, say_nothing_to_show, styled
from unskew.report.words import brief, method_name, method_parts, real

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

PANELS_A_ROW = 3
BASE_MARKERS = ("o", "s", "^", "v", "P", "X", "p", "h")


def method_series(key: str, keys: Sequence[str]) -> Series:
    """Colour by the propensities a method used, marker by the method."""
    base, propensity = method_parts(key)
    series = SERIES.get(propensity, SERIES["calibrated"])
    bases = list(dict.fromkeys(b for b, p in map(method_parts, keys) if p != "naive"))
    if propensity == "naive" or len(bases) < 2:
        return series
    marker = BASE_MARKERS[bases.index(base) % len(BASE_MARKERS)]
    return Series(series.colour, marker, series.dashes)


def seed_values(methods: Mapping[str, Any], method: str, name: str) -> NDArray[np.float64]:
    """The finite values of a metric over seeds; empty where the method does not have it."""
    values = np.array([real(v) for v in methods[method].get(name, {}).get("seeds", [])], dtype=np.float64)
    return values[np.isfinite(values)]


@styled
def methods_figure(
    methods: Mapping[str, Any],
    rails: Mapping[str, Mapping[str, float]] | None = None,
    *,
    metrics: Sequence[str] | None = None,
) -> Figure:
    """One panel a metric, one row a method: every seed, the mean and its interval.

    Parameters
    ----------
    methods
        ``{method: {metric: {"mean", "std", "seeds"}}}``, as in ``metrics.json``.
    rails
        ``{"random": {metric: …}, "oracle": {metric: …}}``: what chance and hindsight reach.
    metrics
        Which, and in which order; by default those of the registry that are shown.
    """
    chosen = list(metrics or shown_metrics(methods))
    columns = min(PANELS_A_ROW, max(len(chosen), 1))
    rows = max(-(-len(chosen) // columns), 1)
    figure = new_figure(rows * (0.95 + 0.22 * max(len(methods), 2)))
    panels = figure.subplots(rows, columns, squeeze=False)
    for place, axes in enumerate(panels.flat):
        if place >= len(chosen):
            axes.set_axis_off()
            continue
        draw_methods(axes, methods, chosen[place], rails, names=place % columns == 0)
    return figure


def draw_methods(
    axes: Axes,
    methods: Mapping[str, Any],
    name: str,
    rails: Mapping[str, Mapping[str, float]] | None = None,
    *,
    names: bool = True,
    level: float = DEFAULT_LEVEL,
) -> None:
    """Seeds, mean and Student's interval of the mean of one metric."""
    keys = list(methods)
    about = metric(name)
    axes.set_title(about.label)
    if not any(len(seed_values(methods, key, name)) for key in keys):
        say_nothing_to_show(axes, "undefined")
        return
    for row, key in enumerate(keys):
        values = seed_values(methods, key, name)
        if not len(values):
            continue
        series = method_series(key, keys)
        colour = series.colour.light
        axes.plot(values, np.full(len(values), row), "|", color=colour, alpha=0.45, markersize=7)
        mean, half = float(values.mean()), half_interval(values, level)
        axes.hlines(row, mean - half, mean + half, color=colour, linewidth=2.2)
        axes.plot(mean, row, **series.line())
    axes.set_ylim(len(keys) - 0.4, -0.6)
    axes.set_yticks(range(len(keys)), [method_name(key) for key in keys] if names else [""] * len(keys))
    axes.tick_params(axis="y", length=0, labelcolor=axes.title.get_color())
    axes.spines["left"].set_visible(False)
    axes.grid(axis="y", visible=False)
    if about.goal == "one":
        axes.axvline(1.0, color=INK.light, linewidth=1.0, zorder=1)
    axes.locator_params(axis="x", nbins=4)
    note = about.advice or _rails_note(about.rails(rails or {}))
    if note:
        axes.set_xlabel(note, fontsize=7.5)


def half_interval(values: NDArray[np.float64], level: float) -> float:
    """Half of Student's interval of the mean; 0 for a single value, of which nothing is known."""
    if len(values) < 2:
        return 0.0
    spread = float(values.std(ddof=1)) / np.sqrt(len(values))
    return float(stdtrit(len(values) - 1, 0.5 + level / 2) * spread)


def _rails_note(known: Mapping[str, float | None]) -> str:
    parts = [f"{name} {brief(known[name])}" for name in ("random", "oracle") if known.get(name) is not None]
    return " · ".join(parts)


@styled
def differences_figure(
    comparison: Mapping[str, Any], methods: Mapping[str, Any], *, metrics: Sequence[str] | None = None
) -> Figure:
    """Paired differences against the naive model in per cent, with intervals: of the level, of the order.

    The two have axes of their own, since a level can be off by half where an order changes by a hundredth.

    Parameters
    ----------
    comparison
        ``{method: {metric: {"difference", "low", "high", "p_value", "p_holm", "users"}}}``; of
        ``mean_over_rate`` the differences are of its distance from 1.
    methods
        As in :func:`methods_figure`; gives the naive values.
    """
    chosen = [m for m in metrics or shown_metrics(comparison) if _scale(methods, m)]
    groups = {
        "Level": [name for name in chosen if metric(name).level],
        "Ranking": [name for name in chosen if not metric(name).level],
    }
    shown = {title: group for title, group in groups.items() if group} or {"": []}
    row = max(0.36, 0.13 * len(comparison))
    figure = new_figure(0.5 + sum(0.65 + row * max(len(group), 2) for group in shown.values()))
    heights = [max(len(group), 1) for group in shown.values()]
    panels = figure.subplots(len(shown), 1, squeeze=False, height_ratios=heights)[:, 0]
    for axes, (title, group) in zip(panels, shown.items(), strict=True):
        draw_differences(axes, comparison, methods, group)
        axes.set_title(title)
    if chosen and comparison:
        panels[-1].set_xlabel("difference from the naive model, in % (left: worse, right: better)")
        figure.legend(*panels[0].get_legend_handles_labels(), loc="outside upper right", ncols=4)
    return figure


def draw_differences(
    axes: Axes, comparison: Mapping[str, Any], methods: Mapping[str, Any], metrics: Sequence[str]
) -> None:
    """One row a metric, one point a method, better to the right; filled where it is beyond the noise of
    training and of test users."""
    keys = list(comparison)
    if not keys or not metrics:
        say_nothing_to_show(axes, "nothing was compared")
        return
    offsets = (np.arange(len(keys)) - (len(keys) - 1) / 2) * min(0.26, 0.7 / len(keys))
    for key, offset in zip(keys, offsets, strict=True):
        series = method_series(key, keys)
        colour = series.colour.light
        for row, name in enumerate(metrics):
            found = comparison[key].get(name)
            scale = metric(name).gain(100 / (_scale(methods, name) or np.nan))
            if found is None or not np.isfinite(real(found.get("difference"))):
                continue
            low, high = sorted(scale * real(found.get(end)) for end in ("low", "high"))
            if np.isfinite([low, high]).all():
                axes.hlines(row + offset, low, high, color=colour, linewidth=1.4)
            face = colour if differs(found) else SURFACE.light
            axes.plot(
                scale * real(found["difference"]),
                row + offset,
                marker=series.marker,
                linestyle="none",
                color=colour,
                markerfacecolor=face,
                markersize=5.5,
            )
        axes.plot([], [], marker=series.marker, linestyle="none", color=colour, label=method_name(key))
    axes.axvline(0.0, color=MUTED.light, linewidth=0.9, zorder=1)
    axes.set_ylim(len(metrics) - 0.5, -0.5)
    axes.set_yticks(range(len(metrics)), [metric(name).label for name in metrics])
    axes.tick_params(axis="y", length=0, labelcolor=axes.title.get_color())
    axes.spines["left"].set_visible(False)


def _scale(methods: Mapping[str, Any], name: str) -> float | None:
    """What a difference is a share of: the naive value, or 1 where that is the goal."""
    mean = real(methods.get("naive", {}).get(name, {}).get("mean"))
    if not np.isfinite(mean) or mean == 0:
        return None
    return 1.0 if metric(name).goal == "one" else mean
