"""Where a score or a model is off or depends: segments of an audit, and fields of a model, on one axis."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from unskew.base import plain_text
from unskew.metrics.judgement import excludes_zero
from unskew.report.plots.axes import Axis, axis_of
from unskew.report.plots.dots import Dot, DotChart, DotRow
from unskew.report.plots.scores import RATIO_RANGE
from unskew.report.words import number, signed_fixed

if TYPE_CHECKING:
    from unskew.audit.segments import Segment

SEGMENTS_DRAWN = 20
MOST_FIELDS = 15
"""Fields that a chart shows, those that matter most."""


def segments_chart(segments: Sequence[Segment], clear: Sequence[bool]) -> DotChart:
    """Return the mean of o/p̂ of each segment with its 95 % interval, the first at the top; 1 is honest.

    Parameters
    ----------
    segments
        Those to draw, at most :data:`SEGMENTS_DRAWN` of them. What is beyond the axis becomes an arrow.
    clear
        Whether each is off beyond chance and tolerance: a filled marker.
    """
    shown = list(zip(segments, clear, strict=True))[:SEGMENTS_DRAWN]
    ends = np.clip([end for each, _ in shown for end in (each.low, each.high)], *RATIO_RANGE)
    axis = Axis(
        0.92 * min(0.8, float(ends.min(initial=0.8))),
        1.08 * max(1.25, float(ends.max(initial=1.25))),
        "log",
        "sum of weights ÷ rows (log axis): left of 1 the scores are overstated, right of it understated",
    )
    rows = []
    for each, is_clear in shown:
        dot = Dot(each.mean_outcome_over_score, each.low, each.high, look="raw", filled=is_clear)
        error = each.rows * each.wce_debiased
        aside = number(error, 0) if math.isfinite(error) else "∞"
        rows.append(DotRow(plain_text.plain(f"{each.column} = {each.value}"), (dot,), aside))
    return DotChart("", axis, tuple(rows), rule=1.0, rule_words="honest")


def fields_charts(importances: Mapping[str, Mapping[str, Any]]) -> list[DotChart]:
    """Return one chart a model, one row a field: what AUC loses without it; hollow where that may be nothing.

    Parameters
    ----------
    importances
        By title, what :meth:`unskew.run.fields.Importance.to_dict` gives.
    """
    charts = []
    for title, importance in importances.items():
        fields = importance["fields"][:MOST_FIELDS]
        ends = [0.0, *(each["auc"][end] for each in fields for end in ("low", "high"))]
        rows = []
        for each in fields:
            loss = each["auc"]
            dot = Dot(loss["mean"], loss["low"], loss["high"], filled=excludes_zero(loss))
            rows.append(DotRow(plain_text.plain(each["field"]), (dot,), signed_fixed(loss["mean"])))
        axis = axis_of(ends, "AUC lost when the field is permuted")
        charts.append(DotChart(title, axis, tuple(rows), rule=0.0, empty="too few rows to tell"))
    return charts
