"""Figures of a monitor: the heat map of all segments, and each segment over time."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from unskew.base.plain_text import plain
from unskew.report.plots.axes import Axis, new_panel, set_axis
from unskew.report.style import (
    AFTER,
    BEFORE,
    FIGURE_WIDTH,
    INK,
    LINE,
    MUTED,
    PANEL_WIDTH,
    SURFACE,
    new_figure,
    styled,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from unskew.audit.monitor import SegmentHistory

MOST_PERIODS = 120
"""Periods that are drawn, the latest."""
MOST_SEGMENTS = 40
"""Rows of the heat map."""
FULL_COLOUR = 0.5
"""Weight-calibration error beyond noise at which a field has its full colour."""
SHADES = 10
"""Steps of a colour of the heat map."""
LEAST_RANGE, MOST_RANGE = math.log(1.25), math.log(4.0)
"""How far the figures of segments reach from 1 in both directions, as logarithms."""
HALF = 0.46
"""Half the width of a field."""
LETTER = 0.085
"""Inches of a letter of a name."""


@styled
def heat_map(histories: Sequence[SegmentHistory], periods: Sequence[str]) -> Figure:
    """Return segments × periods, coloured by the weight-calibration error beyond noise: orange where weights
    are too large, blue where too small. A frame is what was found to be off, a dot an open period."""
    from matplotlib.patches import Rectangle

    rows, drawn = histories[:MOST_SEGMENTS], list(periods[-MOST_PERIODS:])
    column = {period: number for number, period in enumerate(drawn)}
    names = [_cut(history.name, 28) for history in rows]
    margin = LETTER * max(map(len, names), default=0)
    width = min(max(0.3 + margin + 0.3 * len(drawn), PANEL_WIDTH), FIGURE_WIDTH)
    figure = new_figure(0.6 + 0.26 * len(rows), width)
    axes = figure.add_subplot()
    fields: dict[tuple[str, int], list[tuple[float, float]]] = {}
    waiting = []
    for row, history in enumerate(rows):
        for period in (period for period in history.periods if period.period in column):
            centre = column[period.period], row
            strength = min(max(period.wce - period.floor, 0.0) / FULL_COLOUR, 1.0)
            colour = BEFORE if period.ratio >= 1 else AFTER
            fields.setdefault((LINE.light, SHADES // 2), []).append(centre)
            fields.setdefault((colour.light, round(SHADES * strength)), []).append(centre)
            if not period.closed:
                waiting.append(centre)
        for first, last in _spans(history, column, periods):
            size = last - first + 1.0, 1.0
            frame = Rectangle((first - 0.5, row - 0.5), *size, fill=False, edgecolor=INK.light)
            axes.add_patch(frame).set(linewidth=1.8, zorder=3, clip_on=False)
    for (shade, strength), centres in fields.items():
        _fill(axes, centres, shade, strength / SHADES)
    axes.plot(*np.reshape(waiting, (-1, 2)).T, "o", color=MUTED.light, markersize=3)
    axes.grid(visible=False)
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)
    axes.set(xlim=(-0.5, max(len(drawn), 1) - 0.5), ylim=(max(len(rows), 1) - 0.5, -0.5))
    axes.set_yticks(range(len(rows)), names, color=INK.light)
    _name_periods(axes, drawn, most=max(1, int((width - margin) / 1.1)))
    return figure


def _fill(axes: Axes, centres: Sequence[tuple[float, float]], colour: str, alpha: float) -> None:
    """Draw fields of one shade as one path, which keeps the page small."""
    from matplotlib.patches import PathPatch
    from matplotlib.path import Path

    corners = ((-HALF, -HALF), (HALF, -HALF), (HALF, HALF), (-HALF, HALF), (-HALF, -HALF))
    points = [(x + across, y + down) for x, y in centres for across, down in corners]
    codes = [Path.MOVETO, *[Path.LINETO] * 3, Path.CLOSEPOLY] * len(centres)
    axes.add_patch(PathPatch(Path(points, codes), facecolor=colour, alpha=alpha, linewidth=0))


def _name_periods(axes: Axes, periods: Sequence[str], most: int) -> None:
    """Name as many periods as there is room for, the first among them."""
    ticks = range(0, len(periods), max(1, math.ceil(len(periods) / most)))
    axes.set_xticks(list(ticks), [_cut(periods[tick], 13) for tick in ticks])


@styled
def history_figure(
    history: SegmentHistory, periods: Sequence[str], *, tolerance: float, reach: float
) -> Figure:
    """Return mean o/p of a segment over time with its 95 % interval. A band is the tolerance, a shade a
    break, a hollow point an open period."""
    drawn = list(periods[-MOST_PERIODS:])
    column = {period: number for number, period in enumerate(drawn)}
    figure, axes = new_panel(_cut(history.name, 38), 1.9)
    ends = math.exp(-reach), math.exp(reach)
    set_axis(axes, "y", Axis(*ends, "log", "mean o/p"))
    axes.axhspan(1 / (1 + tolerance), 1 + tolerance, color=LINE.light, linewidth=0)
    for first, last in _spans(history, column, periods):
        axes.axvspan(first - 0.5, last + 0.5, color=BEFORE.light, alpha=0.22, linewidth=0)
    size = min(4.5, max(1.5, 130.0 / max(len(drawn), 1)))
    for closed in (True, False):
        here = [period for period in history.periods if period.period in column and period.closed == closed]
        at = [column[period.period] for period in here]
        low, high, ratio = (
            np.clip([getattr(period, name) for period in here], *ends) for name in ("low", "high", "ratio")
        )
        axes.vlines(at, low, high, color=AFTER.light, alpha=0.45, linewidth=0.5 * size)
        face = AFTER.light if closed else SURFACE.light
        axes.plot(at, ratio, "o", color=AFTER.light, markerfacecolor=face, markersize=size, clip_on=False)
    axes.set_xlim(-0.7, max(len(drawn), 1) - 0.3)
    _name_periods(axes, drawn, most=3)
    return figure


def shared_reach(histories: Sequence[SegmentHistory]) -> float:
    """Return how far from 1, as a logarithm, the means o/p of several segments reach: one scale for all."""
    ratios = [period.ratio for history in histories for period in history.periods]
    levels = [1.1 * abs(math.log(ratio)) for ratio in ratios if 0 < ratio < math.inf]
    return min(max([*levels, LEAST_RANGE]), MOST_RANGE)


def _spans(
    history: SegmentHistory, column: Mapping[str, int], periods: Sequence[str]
) -> list[tuple[int, int]]:
    """Return the first and the last column of each break, of those that are drawn."""
    spans = []
    for broken in history.breaks:
        first, last = periods.index(broken.first), periods.index(broken.last)
        shown = [column[period] for period in periods[first : last + 1] if period in column]
        spans += [(shown[0], shown[-1])] if shown else []
    return spans


def _cut(words: str, most: int) -> str:
    clean = plain(words)
    return clean if len(clean) <= most else f"{clean[: most - 1]}…"
