"""Charts of rows of values with their intervals on one axis."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from unskew.report.numbers import brief
from unskew.report.plots.axes import (
    LABEL_LENGTH,
    TITLE_LENGTH,
    Axis,
    axis_of,
    key_below,
    new_panel,
    nothing,
    rule,
    set_axis,
    wrapped,
)
from unskew.report.style import INK, MUTED, SERIES, SURFACE, styled

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

LONGEST_NAME = 44
ROW, LANE = 0.46, 0.14
"""Inches of a row with its name over it, and of each further dot in it."""
GROUND = {"facecolor": SURFACE.light, "edgecolor": "none", "pad": 1.0}


class Dot(NamedTuple):
    """A value with its interval.

    Attributes
    ----------
    look
        The series whose colour and marker it has.
    filled
        Whether it is beyond noise; otherwise its marker is hollow.
    seeds
        Values of single seeds, drawn as ticks.
    start
        Draw a bar from here to the value, without a marker.
    """

    value: float
    low: float = math.nan
    high: float = math.nan
    look: str = "calibrated"
    filled: bool = True
    seeds: Sequence[float] = ()
    start: float | None = None


class DotRow(NamedTuple):
    """One line: its name, its dots from above, and what stands to the right of the name."""

    name: str
    dots: Sequence[Dot]
    aside: str = ""

    @property
    def known(self) -> list[Dot]:
        """Return the dots that have a value."""
        return [dot for dot in self.dots if not math.isnan(dot.value)]

    @property
    def height(self) -> float:
        """Return its inches."""
        return ROW + LANE * (max(len(self.known), 1) - 1)


@dataclass(frozen=True)
class DotChart:
    """A chart of rows that share an axis.

    Attributes
    ----------
    label
        What the axis shows.
    rule, rule_words
        Where a line is drawn through all rows, and what it is.
    note
        Stands below the axis.
    keys
        What series are called, where a row has several.
    empty
        What is said where no row has a value.
    axis
        By default one that holds all values and the rule.
    """

    title: str
    rows: Sequence[DotRow]
    label: str = ""
    rule: float | None = None
    rule_words: str = ""
    note: str = ""
    keys: Mapping[str, str] = field(default_factory=dict)
    empty: str = "undefined"
    axis: Axis | None = None

    @styled
    def figure(self) -> Figure:
        """Return the chart as a panel of its own."""
        dots = [dot for row in self.rows for dot in row.known]
        if not dots:
            return nothing(self.title, self.empty)
        ends = [end for dot in dots for end in (dot.value, dot.low, dot.high, dot.start, *dot.seeds)]
        axis = self.axis or axis_of([end for end in (*ends, self.rule) if end is not None])
        below = "\n".join(wrapped(text, LABEL_LENGTH) for text in (self.label, self.note) if text)
        lines = len(wrapped(self.title, TITLE_LENGTH).splitlines()), len(below.splitlines())
        around = 0.4 + 0.18 * lines[0] + 0.17 * lines[1] + 0.22 * bool(self.rule_words)
        around += 0.25 * len(self.keys) ** 0.5
        figure, axes = new_panel(self.title, around + sum(row.height for row in self.rows))
        self._draw(axes, axis)
        for look, called in self.keys.items():
            axes.plot([], [], label=called, **SERIES.get(look, SERIES["calibrated"]).line())
        if len(self.keys) < 2:
            figure.supxlabel(below, color=MUTED.light)
        return key_below(figure, axes, title=below)

    def _draw(self, axes: Axes, axis: Axis) -> None:
        """Draw the rows from above, in inches."""
        set_axis(axes, "x", axis, room=270.0)
        axes.set_yticks([])
        axes.spines[["top", "right", "left"]].set_visible(False)
        axes.grid(axis="y", visible=False)
        top, across = 0.0, axes.get_yaxis_transform()
        words: dict[str, Any] = {"va": "center", "transform": across, "bbox": GROUND}
        for row in self.rows:
            name = row.name if len(row.name) <= LONGEST_NAME else f"{row.name[: LONGEST_NAME - 1]}…"
            axes.text(0.0, top + 0.13, name, color=INK.light, **words)
            axes.text(1.0, top + 0.13, row.aside, ha="right", color=MUTED.light, **words)
            if self.rule is not None:
                # Not through the name.
                line: dict[str, Any] = {"color": INK.light, "linewidth": 1.0, "zorder": 1.5}
                axes.vlines(self.rule, top + 0.24, top + row.height, **line)
            for number, dot in enumerate(row.known):
                self._draw_dot(axes, axis, dot, top + 0.33 + LANE * number)
            top += row.height
        axes.set_ylim(top, 0.0)
        if self.rule is not None:
            rule(axes, self.rule, self.rule_words, above=True)

    def _draw_dot(self, axes: Axes, axis: Axis, dot: Dot, y: float) -> None:
        series = SERIES.get(dot.look, SERIES["calibrated"])
        colour = series.colour.light
        face = colour if dot.filled else SURFACE.light
        low, high = axis.low, axis.high
        look: dict[str, Any]
        if dot.start is not None:
            hatch = "" if dot.filled else "/////"
            look = {"facecolor": face, "edgecolor": colour, "hatch": hatch, "linewidth": 0.9, "zorder": 2}
            axes.barh(y, dot.value - dot.start, left=dot.start, height=0.7 * LANE, **look)
            return
        if not (math.isnan(dot.low) or math.isnan(dot.high)):
            axes.hlines(y, max(dot.low, low), min(dot.high, high), color=colour, linewidth=2.0, alpha=0.7)
        inside = [seed for seed in dot.seeds if low <= seed <= high]
        axes.plot(inside, np.full(len(inside), y), "|", color=colour, alpha=0.45, markersize=7)
        if low <= dot.value <= high:
            look = {"color": colour, "markerfacecolor": face, "markersize": 6.5, "zorder": 3}
            axes.plot(dot.value, y, series.marker, **look)
            return
        words = f"◂ {brief(dot.value, 2)}" if dot.value < low else f"{brief(dot.value, 2)} ▸"
        left = dot.value < low
        axes.text(low if left else high, y, words, ha="left" if left else "right", va="center", bbox=GROUND)
