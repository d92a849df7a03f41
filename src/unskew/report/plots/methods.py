"""Charts of models: metrics with their seeds, differences, estimates beside the truth, candidates, fields."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from unskew.base.plain_text import plain
from unskew.metrics import CalibrationSketch
from unskew.metrics.judgement import differs, excludes_zero
from unskew.metrics.registry import metric, shown_metrics
from unskew.metrics.reliability import Promise
from unskew.report.facts import LEVEL, filled, method_name, method_parts, promises, tested_on
from unskew.report.numbers import brief, number, real, signed, signed_fixed
from unskew.report.plots.axes import axis_of
from unskew.report.plots.dots import Dot, DotChart, DotRow
from unskew.report.plots.scores import RATIO_RANGE, reliability_figures, weights_figure
from unskew.report.style import svg

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from unskew.audit.segments import Segment

NOISE = 1.96
"""Half of an interval of 95 %, in standard errors."""
MOST_FIELDS, SEGMENTS_DRAWN = 15, 20
"""Fields that a chart shows, those that matter most, and segments of an audit."""


def metric_charts(
    methods: Mapping[str, Any],
    rails: Mapping[str, Mapping[str, float]] | None = None,
    *,
    metrics: Sequence[str] | None = None,
) -> list[DotChart]:
    """Return one chart a metric, one row a method: every seed, the mean and its interval.

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
    about, rows = metric(name), []
    for key, by_metric in methods.items():
        summary = by_metric.get(name) or {}
        seeds = np.array([real(value) for value in summary.get("seeds", [])])
        seeds = seeds[np.isfinite(seeds)]
        if not len(seeds):
            rows.append(DotRow(method_name(key), ()))
            continue
        mean = float(seeds.mean())
        low, high = (real(summary.get(end)) for end in ("low", "high"))
        if not (np.isfinite(low) and np.isfinite(high)):
            low = high = mean
        dot = Dot(mean, low, high, method_parts(key)[1], seeds=tuple(seeds) if len(seeds) > 1 else ())
        rows.append(DotRow(method_name(key), (dot,), brief(mean)))
    known = about.rails(rails)
    between = [f"{end} {brief(known[end])}" for end in ("random", "oracle") if known.get(end) is not None]
    note = about.advice or " · ".join(between)
    return DotChart(about.label, rows, rule=1.0 if about.goal == "one" else None, note=note)


def predicted_chart(promised: Mapping[str, Promise], came: float, where: str) -> DotChart:
    """Return the conversions that each method predicts, with 95 % intervals, beside those that occurred."""
    rows = []
    for key, promise in promised.items():
        low, high = (came + excess for excess in (promise.excess_low, promise.excess_high))
        dot = Dot(promise.promised, low, high, look=method_parts(key)[1])
        rows.append(DotRow(method_name(key), (dot,), number(promise.promised, 0)))
    title, words = f"Conversions predicted on {where}", f"{number(came, 0)} occurred"
    return DotChart(title, rows, "conversions", rule=came, rule_words=words)


def difference_charts(comparison: Mapping[str, Any], methods: Mapping[str, Any]) -> list[DotChart]:
    """Return paired differences against the naive model in per cent, with intervals: of level, of order.

    The two have axes of their own, since a level can be off by half where an order changes by a hundredth.
    Better is to the right; a marker is filled where it is beyond noise.

    Parameters
    ----------
    comparison
        ``{method: {metric: {"difference", "low", "high", "p_value", "p_holm"}}}``; of
        ``mean_over_rate`` the differences are of its distance from 1.
    methods
        As in :func:`metric_charts`; gives the naive values.
    """
    chosen = [m for m in shown_metrics(comparison) if _scale(methods, m)]
    charts = []
    for title, level in (("Level", True), ("Ranking", False)):
        names = [name for name in chosen if metric(name).level == level]
        rows = []
        for name in names:
            scale = metric(name).gain(100 / (_scale(methods, name) or np.nan))
            dots = []
            for key, tested in ((key, of[name]) for key, of in comparison.items() if name in of):
                value = scale * real(tested.get("difference"))
                low, high = sorted(scale * real(tested.get(end)) for end in ("low", "high"))
                dots.append(Dot(value, low, high, look=method_parts(key)[1], filled=differs(tested)))
            rows.append(DotRow(metric(name).label, tuple(dots)))
        label = "difference from the naive model in %: left is worse, right is better"
        keys = {method_parts(key)[1]: method_name(key) for key in comparison}
        if names:
            charts.append(DotChart(title, rows, label, rule=0.0, keys=keys))
    return charts


def _scale(methods: Mapping[str, Any], name: str) -> float | None:
    """Return what a difference is a share of: the naive value, or 1 where that is the goal."""
    mean = real(methods.get("naive", {}).get(name, {}).get("mean"))
    if not np.isfinite(mean) or mean == 0:
        return None
    return 1.0 if metric(name).goal == "one" else mean


def estimates_chart(truth: Mapping[str, Any]) -> DotChart:
    """Return estimates with intervals, and the ideal loss as a line.

    Parameters
    ----------
    truth
        ``{"ideal_loss", "estimates": {name: {"estimate", "standard_error"}}}``.
    """
    ideal, rows = real(truth.get("ideal_loss")), []
    for key, estimate in truth.get("estimates", {}).items():
        value, half = real(estimate.get("estimate")), NOISE * real(estimate.get("standard_error"))
        dot = Dot(value, value - half, value + half, look=method_parts(key)[1])
        rows.append(DotRow(method_name(key), (dot,), brief(value)))
    label = "loss over all pairs, as estimated from the clicked ones"
    rule = ideal if np.isfinite(ideal) else None
    return DotChart("Estimates of the loss", rows, label, rule=rule, rule_words=f"truth {brief(ideal)}")


def search_chart(search: Mapping[str, Any]) -> DotChart:
    """Return a row for each candidate of ``auto``: how far the sample puts it ahead of the naive model;
    filled where that is beyond noise.

    Parameters
    ----------
    search
        ``"search"`` of ``metrics.json``.
    """
    rows = []
    role = "shipped" if len(search["shipped"]) == 1 else "in the mean that is shipped"
    for tried in search["tried"]:
        ahead, error = tried["advantage"], tried["standard_error"]
        if ahead is None or error is None:
            continue
        low, high = ahead - NOISE * error, ahead + NOISE * error
        name = f"{tried['name']} ({role})" if tried["name"] in search["shipped"] else tried["name"]
        dot = Dot(ahead, low, high, filled=low > 0 or high < 0)
        rows.append(DotRow(name, (dot,), signed(ahead)))
    label = metric(search["criterion"]).label
    return DotChart("Candidates", rows, f"{label} ahead of the naive model (random sample, 95 %)", rule=0.0)


def fields_charts(importances: Mapping[str, Mapping[str, Any]]) -> list[DotChart]:
    """Return one chart a model, one row a field: what AUC loses without it; hollow where that may be nothing.

    Parameters
    ----------
    importances
        By title, ``{"fields": [{"field", "auc": {"mean", "low", "high"}}]}``.
    """
    charts = []
    for title, importance in importances.items():
        rows = []
        for field in importance["fields"][:MOST_FIELDS]:
            loss = field["auc"]
            dot = Dot(loss["mean"], loss["low"], loss["high"], filled=excludes_zero(loss))
            rows.append(DotRow(plain(field["field"]), (dot,), signed_fixed(loss["mean"])))
        label = "AUC lost when the field is permuted"
        charts.append(DotChart(title, rows, label, rule=0.0, empty="too few rows to tell"))
    return charts


def segments_chart(segments: Sequence[Segment], clear: Sequence[bool]) -> DotChart:
    """Return the mean of o/p of each segment with its 95 % interval, the first at the top; 1 is right.

    Parameters
    ----------
    segments
        At most :data:`SEGMENTS_DRAWN` of them are drawn. What is beyond the axis becomes an arrow.
    clear
        Whether each is off beyond chance and tolerance: a filled marker.
    """
    shown = list(zip(segments, clear, strict=True))[:SEGMENTS_DRAWN]
    ends = np.clip([end for segment, _ in shown for end in (segment.low, segment.high)], *RATIO_RANGE)
    label = "sum of weights ÷ rows (log axis): left of 1 the scores are overstated, right of it understated"
    rows = []
    for segment, is_clear in shown:
        dot = Dot(segment.mean_outcome_over_score, segment.low, segment.high, look="raw", filled=is_clear)
        error = segment.rows * segment.wce_debiased
        aside = number(error, 0) if math.isfinite(error) else "∞"
        rows.append(DotRow(plain(f"{segment.column} = {segment.value}"), (dot,), aside))
    axis = axis_of([0.8, 1.25, *ends], scale="log")
    return DotChart("", rows, label, rule=1.0, rule_words="right", axis=axis)


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
    title = "Reliability of the propensities before and after calibration, and what debiasing changed"
    return svg(*overview_figures(metrics=metrics, sketches=sketches), name="overview", title=title)
