"""Methods side by side: each metric with its seeds, and paired differences against the naive model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from unskew.metrics.judgement import differs
from unskew.metrics.promise import Promise
from unskew.metrics.registry import metric, shown_metrics
from unskew.report.finding import sampled
from unskew.report.plots.dot_charts import Dot, DotChart, DotRow, axis_of
from unskew.report.style import INK, SERIES, Series, say_nothing_to_show
from unskew.report.words import brief, method_name, method_parts, number, real, signed

if TYPE_CHECKING:
    from matplotlib.axes import Axes

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


def methods_charts(
    methods: Mapping[str, Any],
    rails: Mapping[str, Mapping[str, float]] | None = None,
    *,
    metrics: Sequence[str] | None = None,
) -> list[DotChart]:
    """One chart a metric, one row a method: every seed, the mean and its interval.

    Parameters
    ----------
    methods
        ``{method: {metric: {"mean", "std", "seeds"}}}``, as in ``metrics.json``.
    rails
        ``{"random": {metric: …}, "oracle": {metric: …}}``: what chance and hindsight reach.
    metrics
        Which, and in which order; by default those of the registry that are shown.
    """
    return [_metric_chart(methods, name, rails or {}) for name in metrics or shown_metrics(methods)]


def _metric_chart(
    methods: Mapping[str, Any], name: str, rails: Mapping[str, Mapping[str, float]]
) -> DotChart:
    about = metric(name)
    rows, ends = [], [1.0] if about.goal == "one" else []
    for key in methods:
        values = seed_values(methods, key, name)
        if not len(values):
            rows.append(DotRow(method_name(key), ()))
            continue
        mean, low, high = _interval(methods[key][name])
        ends += [low, high, float(values.min()), float(values.max())]
        spread = f" ({brief(low)} to {brief(high)} over {sampled(methods)})" if low < high else ""
        tip = f"{method_name(key)}: {about.label} {brief(mean, 4)}{spread}"
        seeds = tuple(values.tolist()) if len(values) > 1 else ()
        dot = Dot(mean, low, high, look=method_parts(key)[1], seeds=seeds, tip=tip)
        rows.append(DotRow(method_name(key), (dot,), brief(mean)))
    note = about.advice or _rails_note(about.rails(rails))
    rule = 1.0 if about.goal == "one" else None
    return DotChart(about.label, axis_of(ends), tuple(rows), rule=rule, note=note if ends else "undefined")


def promised_chart(promised: Mapping[str, Promise], came: float, where: str) -> DotChart:
    """Conversions that each method promises, with 95 % intervals, beside those that came."""
    rows, ends = [], [came]
    for key, each in promised.items():
        low, high = (came + excess for excess in (each.excess_low, each.excess_high))
        ends += [each.promised, low, high]
        count = number(each.promised, 0)
        tip = f"{method_name(key)}: {count} promised ({number(low, 0)} to {number(high, 0)})"
        dot = Dot(each.promised, low, high, look=method_parts(key)[1], tip=tip)
        rows.append(DotRow(method_name(key), (dot,), count))
    return DotChart(
        f"Conversions promised on {where}",
        axis_of(ends, "conversions"),
        tuple(rows),
        rule=came,
        rule_words=f"{number(came, 0)} came",
    )


def draw_methods(
    axes: Axes,
    methods: Mapping[str, Any],
    name: str,
    rails: Mapping[str, Mapping[str, float]] | None = None,
    *,
    names: bool = True,
) -> None:
    """Draw seeds, mean and interval of one metric."""
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
        mean, low, high = _interval(methods[key][name])
        axes.hlines(row, low, high, color=colour, linewidth=2.2)
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


def _interval(summary: Mapping[str, Any]) -> tuple[float, float, float]:
    """Return mean, low and high; the ends are the mean where the interval is not known."""
    values = np.array([real(value) for value in summary["seeds"]])
    mean = float(np.nanmean(values))
    low, high = (real(summary.get(end)) for end in ("low", "high"))
    return (mean, low, high) if np.isfinite(low) and np.isfinite(high) else (mean, mean, mean)


def _rails_note(known: Mapping[str, float | None]) -> str:
    parts = [f"{name} {brief(known[name])}" for name in ("random", "oracle") if known.get(name) is not None]
    return " · ".join(parts)


def differences_charts(comparison: Mapping[str, Any], methods: Mapping[str, Any]) -> list[DotChart]:
    """Paired differences against the naive model in per cent, with intervals: of the level, of the order.

    The two have axes of their own, since a level can be off by half where an order changes by a hundredth.
    Better is to the right; a marker is filled where it is beyond noise.

    Parameters
    ----------
    comparison
        ``{method: {metric: {"difference", "low", "high", "p_value", "p_holm"}}}``; of
        ``mean_over_rate`` the differences are of its distance from 1.
    methods
        As in :func:`methods_charts`; gives the naive values.
    """
    chosen = [m for m in shown_metrics(comparison) if _scale(methods, m)]
    groups = {
        "Level": [name for name in chosen if metric(name).level],
        "Ranking": [name for name in chosen if not metric(name).level],
    }
    return [_differences(title, comparison, methods, group) for title, group in groups.items() if group]


def _differences(
    title: str, comparison: Mapping[str, Any], methods: Mapping[str, Any], metrics: Sequence[str]
) -> DotChart:
    rows, ends = [], [0.0]
    for name in metrics:
        scale = metric(name).gain(100 / (_scale(methods, name) or np.nan))
        dots = []
        for key, found in ((key, of[name]) for key, of in comparison.items() if name in of):
            value = scale * real(found.get("difference"))
            low, high = sorted(scale * real(found.get(end)) for end in ("low", "high"))
            ends += [value, low, high]
            noise = "" if differs(found) else ", within noise"
            said = f"{signed(value)} % ({signed(low)} to {signed(high)}){noise}"
            tip = f"{method_name(key)}, {metric(name).label}: {said}"
            dots.append(Dot(value, low, high, look=method_parts(key)[1], filled=differs(found), tip=tip))
        rows.append(DotRow(metric(name).label, tuple(dots)))
    label = "difference from the naive model in %: left is worse, right is better"
    return DotChart(title, axis_of(ends, label), tuple(rows), rule=0.0)


def _scale(methods: Mapping[str, Any], name: str) -> float | None:
    """What a difference is a share of: the naive value, or 1 where that is the goal."""
    mean = real(methods.get("naive", {}).get(name, {}).get("mean"))
    if not np.isfinite(mean) or mean == 0:
        return None
    return 1.0 if metric(name).goal == "one" else mean
