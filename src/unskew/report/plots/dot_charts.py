"""Rows of values with their intervals on one axis, as plain HTML: as wide as the page, narrow or not.

Positions are shares of the width, so that the browser lays them out; ``templates/parts.html.j2`` writes them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from unskew.report.plots.axes import linear_ticks
from unskew.report.plots.drawing import Axis
from unskew.report.words import brief

MARGIN = 0.08
"""Of an axis at both ends, as a share of what it holds."""


FEW_TICKS = 3
LONG_NAME = 24
"""Letters of a name that stands above its plot on a narrow page."""


@dataclass(frozen=True)
class Dot:
    """A value with its interval.

    Attributes
    ----------
    look
        The series whose colour and marker it has.
    filled
        Whether it is beyond noise; otherwise its marker is hollow.
    seeds
        Values of single seeds, as ticks.
    start
        Draw a bar from here to the value, without a marker.
    tip
        What is said where a pointer rests on it.
    """

    value: float
    low: float = math.nan
    high: float = math.nan
    look: str = "calibrated"
    filled: bool = True
    seeds: tuple[float, ...] = ()
    start: float | None = None
    tip: str = ""


class DotRow(NamedTuple):
    """One line: its name, its dots from above, and what stands to the right of them."""

    name: str
    dots: tuple[Dot, ...]
    aside: str = ""


class Span(NamedTuple):
    """A part of a line, in per cent of its width."""

    left: float
    width: float


class Placed(NamedTuple):
    """A dot where it is drawn: its centre, its interval and its seeds in per cent, or beyond which end."""

    dot: Dot
    top: float
    at: float
    interval: Span | None
    ticks: tuple[float, ...]
    beyond: str


@dataclass(frozen=True)
class DotChart:
    """A chart of rows that share an axis.

    Attributes
    ----------
    rule, rule_words
        Where a line is drawn through all rows, and what it is.
    aside_words
        What stands to the right of the rows.
    note
        Stands below the axis.
    """

    title: str
    axis: Axis
    rows: tuple[DotRow, ...]
    rule: float | None = None
    rule_words: str = ""
    aside_words: str = ""
    note: str = ""

    @property
    def is_long(self) -> bool:
        """Whether names are so long that a narrow page has no room for them beside the plot."""
        return any(len(row.name) > LONG_NAME for row in self.rows)

    def written(self, value: float) -> str:
        """A value that has no place on the axis, in figures."""
        return brief(value, 2)

    def percent(self, value: float) -> float:
        """Where a value is, in per cent of the width."""
        return round(100 * float(self.axis.share(value)), 2)

    @property
    def ticks(self) -> list[tuple[float, str]]:
        """Places and names of the ticks; few, since a chart may be narrow."""
        axis = self.axis
        ticks = linear_ticks(axis.low, axis.high, FEW_TICKS) if axis.scale == "linear" else axis.ticks()
        ticks = ticks if len(ticks) > 1 else axis.ticks()
        return [(self.percent(tick), axis.written(tick)) for tick in ticks]

    def placed(self, row: DotRow) -> list[Placed]:
        """The dots of a row that have a value, from above."""
        known = [dot for dot in row.dots if not math.isnan(dot.value)]
        return [
            self._placed(dot, round(100 * (place + 0.5) / len(known), 1)) for place, dot in enumerate(known)
        ]

    def _placed(self, dot: Dot, top: float) -> Placed:
        ends = (dot.low, dot.high) if dot.start is None else sorted((dot.start, dot.value))
        interval = None
        if not any(map(math.isnan, ends)):
            left, right = (self.percent(end) for end in ends)
            interval = Span(left, round(right - left, 2))
        beyond = "left" if dot.value < self.axis.low else "right" if dot.value > self.axis.high else ""
        inside = tuple(self.percent(s) for s in dot.seeds if self.axis.low <= s <= self.axis.high)
        return Placed(dot, top, self.percent(dot.value), interval, inside, beyond)


def axis_of(values: Sequence[float], label: str = "") -> Axis:
    """A linear axis that holds all finite values, with a margin."""
    known = np.array([value for value in values if math.isfinite(value)])
    low, high = (float(known.min()), float(known.max())) if len(known) else (0.0, 1.0)
    room = MARGIN * (high - low) or 0.1 * abs(high) or 0.1
    return Axis(low - room, high + room, "linear", label)
