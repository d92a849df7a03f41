"""Segments of an audit on one axis: the mean of o/p̂ of each, with its interval."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from unskew import plain_text
from unskew.report.plots.dot_charts import Dot, DotChart, DotRow
from unskew.report.plots.drawing import Axis
from unskew.report.plots.weights import RATIO_RANGE
from unskew.report.words import brief, number

if TYPE_CHECKING:
    from unskew.audit.segments import Segment

SEGMENTS_DRAWN = 20
LONGEST_LABEL = 40


def segments_chart(segments: Sequence[Segment], clear: Sequence[bool]) -> DotChart:
    """The mean of o/p̂ of each segment with its 95 % interval, the first at the top; 1 is honest.

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
    rows = tuple(_row(each, off) for each, off in shown)
    return DotChart("", axis, rows, rule=1.0, rule_words="honest", aside_words="rows × error")


def _row(segment: Segment, clear: bool) -> DotRow:
    name = plain_text.plain(f"{segment.column} = {segment.value}")
    ratio = segment.mean_outcome_over_score
    said = f"{brief(ratio)} ({brief(segment.low)} to {brief(segment.high)})"
    tip = f"{name}: {said}, {number(segment.rows, 0)} rows{'' if clear else ', may be chance'}"
    dot = Dot(ratio, segment.low, segment.high, look="raw", filled=clear, tip=tip)
    label = name if len(name) <= LONGEST_LABEL else f"{name[: LONGEST_LABEL - 1]}…"
    error = segment.rows * segment.wce_debiased
    aside = f"{number(error, 0)}" if math.isfinite(error) else "∞"
    return DotRow(label, (dot,), aside)
