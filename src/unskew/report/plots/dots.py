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
    LETTER,
    TITLE_LENGTH,
    Axis,
    key_below,
    new_panel,
    nothing,
    set_axis,
    share,
    wrapped,
)
from unskew.report.style import INK, MUTED, SERIES, SURFACE, styled

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

LONG_NAME = 24
"""Letters of a name that stands over its row, since there is no room beside it."""
LONGEST_NAME = 44
ROW, LANE, NAME = 0.28, 0.14, 0.2
"""Inches of a row, of each further dot in it, and of a name over it."""
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
    """One line: its name, its dots from above, and what stands to the right of them."""

    name: str
    dots: Sequence[Dot]
    aside: str = ""

    @property
    def known(self) -> list[Dot]:
        """Return the dots that have a value."""
        return [dot for dot in self.dots if not math.isnan(dot.value)]


@dataclass(frozen=True)
class DotChart:
    """A chart of rows that share an axis.

    Attributes
    ----------
    rule, rule_words
        Where a line is drawn through all rows, and what it is.
    note
        Stands below the axis.
    keys
        What series are called, where a row has several.
    empty
        What is said where no row has a value.
    """

    title: str
    axis: Axis
    rows: Sequence[DotRow]
    rule: float | None = None
    rule_words: str = ""
    note: str = ""
    keys: Mapping[str, str] = field(default_factory=dict)
    empty: str = "undefined"

    @property
    def names_above(self) -> bool:
        """Return whether names are so long that they stand over their rows."""
        return any(len(row.name) > LONG_NAME for row in self.rows)

    @property
    def below(self) -> str:
        """Return what stands below the axis."""
        return "\n".join(wrapped(text, LABEL_LENGTH) for text in (self.axis.label, self.note) if text)

    @styled
    def figure(self) -> Figure:
        """Return the chart as a panel of its own."""
        if not any(row.known for row in self.rows):
            return nothing(self.title, self.empty)
        lines = len(wrapped(self.title, TITLE_LENGTH).splitlines()), len(self.below.splitlines())
        around = 0.4 + 0.18 * lines[0] + 0.17 * lines[1]
        around += 0.22 * bool(self.rule_words) + 0.25 * len(self.keys) ** 0.5
        figure, axes = new_panel(self.title, around + sum(map(self._height, self.rows)))
        self._draw(axes)
        for look, called in self.keys.items():
            axes.plot([], [], label=called, **SERIES.get(look, SERIES["calibrated"]).line())
        if len(self.keys) < 2:
            figure.supxlabel(self.below, color=MUTED.light)
        return key_below(figure, axes, title=self.below)

    def _height(self, row: DotRow) -> float:
        return ROW + LANE * (max(len(row.known), 1) - 1) + self.names_above * NAME

    def _draw(self, axes: Axes) -> None:
        """Draw the rows from above, in inches."""
        beside = [0 if self.names_above else len(row.name) + len(row.aside) for row in self.rows]
        set_axis(axes, "x", self.axis, room=max(270.0 - LETTER * max(beside, default=0), 90.0))
        axes.spines[["top", "right", "left"]].set_visible(False)
        axes.grid(axis="y", visible=False)
        axes.tick_params(axis="y", length=0, labelcolor=INK.light)
        top, centres = 0.0, []
        for row in self.rows:
            height = self._height(row)
            centres.append(top + (height + self.names_above * NAME) / 2)
            self._write_names(axes, row, top, height)
            for number, dot in enumerate(row.known):
                self._draw_dot(axes, dot, centres[-1] + LANE * (number - (len(row.known) - 1) / 2))
            top += height
        axes.set_ylim(max(top, 0.1), 0.0)
        axes.set_yticks(centres, ["" if self.names_above else row.name for row in self.rows])
        if self.rule is not None:
            axes.axvline(self.rule, color=MUTED.light, linewidth=1.2, zorder=1.5)
            at = share(self.axis, self.rule)
            align = "left" if at < 0.3 else "right" if at > 0.7 else "center"
            where: dict[str, Any] = {
                "xytext": (0, 2),
                "textcoords": "offset points",
                "ha": align,
                "va": "bottom",
            }
            axes.annotate(self.rule_words, (self.rule, 1.0), xycoords=axes.get_xaxis_transform(), **where)
        axes.set_xlabel("")

    def _write_names(self, axes: Axes, row: DotRow, top: float, height: float) -> None:
        across = axes.get_yaxis_transform()
        aside: dict[str, Any] = {"transform": across, "va": "center", "color": MUTED.light}
        if not self.names_above:
            axes.text(1.02, top + height / 2, row.aside, ha="left", **aside)
            return
        name = row.name if len(row.name) <= LONGEST_NAME else f"{row.name[: LONGEST_NAME - 1]}…"
        axes.text(0.0, top + 0.13, name, va="center", transform=across, color=INK.light, bbox=GROUND)
        axes.text(1.0, top + 0.13, row.aside, ha="right", **aside)

    def _draw_dot(self, axes: Axes, dot: Dot, y: float) -> None:
        series = SERIES.get(dot.look, SERIES["calibrated"])
        colour = series.colour.light
        face = colour if dot.filled else SURFACE.light
        low, high = self.axis.low, self.axis.high
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
        elif dot.value < low:
            axes.text(low, y, f"◂ {brief(dot.value, 2)}", ha="left", va="center", bbox=GROUND)
        else:
            axes.text(high, y, f"{brief(dot.value, 2)} ▸", ha="right", va="center", bbox=GROUND)
