"""The chart of the segments of an audit."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from unskew.base.plain_text import plain
from unskew.report.numbers import number
from unskew.report.plots.axes import Axis
from unskew.report.plots.dots import Dot, DotChart, DotRow
from unskew.report.plots.scores import RATIO_RANGE

if TYPE_CHECKING:
    from unskew.audit.segments import Segment

SEGMENTS_DRAWN = 20


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
    low, high = 0.92 * min(0.8, float(ends.min(initial=0.8))), 1.08 * max(1.25, float(ends.max(initial=1.25)))
    rows = []
    for segment, is_clear in shown:
        dot = Dot(segment.mean_outcome_over_score, segment.low, segment.high, look="raw", filled=is_clear)
        error = segment.rows * segment.wce_debiased
        aside = number(error, 0) if math.isfinite(error) else "∞"
        rows.append(DotRow(plain(f"{segment.column} = {segment.value}"), (dot,), aside))
    return DotChart("", Axis(low, high, "log", label), rows, rule=1.0, rule_words="right")
