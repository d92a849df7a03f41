"""Figures of a monitor, as SVG that follows its page into the dark: a heat map, and a small figure a segment.

Plain rectangles and lines, written here rather than drawn by matplotlib: the page is made every morning, and
matplotlib alone takes longer to load than a store to be read.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING
from xml.sax.saxutils import escape

from unskew.plain_text import plain
from unskew.report.plots.drawing import picture, polyline, rectangle, text
from unskew.report.words import number, percent

if TYPE_CHECKING:
    from unskew.audit.monitor import Break, PeriodFigures, SegmentHistory

MOST_PERIODS = 120
"""Periods that are drawn, the latest."""
MOST_SEGMENTS = 40
"""Rows of the heat map."""

FULL_COLOUR = 0.5
"""Weight-calibration error beyond noise at which a field has its full colour."""

LEAST_RANGE, MOST_RANGE = math.log(1.25), math.log(4.0)
"""How far the small figures reach from 1 in both directions, as logarithms."""

_TICKS = (0.25, 0.5, 0.8, 1.0, 1.25, 2.0, 4.0)


def heat_map(histories: Sequence[SegmentHistory], periods: Sequence[str], title: str) -> str:
    """Segments × periods: colour is the weight-calibration error beyond noise, orange where weights are too
    large and blue where they are too small; a frame is what was found to be off; a dot is an open period."""
    rows, drawn = list(histories[:MOST_SEGMENTS]), list(periods[-MOST_PERIODS:])
    names = [_cut(history.name, 28) for history in rows]
    width, top, height = 960.0, 8.0, 20.0
    left = 20.0 + 6.6 * max(map(len, names), default=0)
    # The frame of the last period is drawn around it.
    step = min((width - left - 2) / max(len(drawn), 1), 44.0)
    place = {period: number for number, period in enumerate(drawn)}
    parts = []
    for row, history in enumerate(rows):
        y = top + row * (height + 2)
        parts.append(text(names[row], left - 8, y + 14, anchor="end", colour="ink"))
        parts += [
            _field(history.name, each, left + place[each.period] * step, y, step - 1, height)
            for each in history.periods
            if each.period in place
        ]
        for found in history.breaks:
            shown = _within(found, place, periods)
            if shown:
                x, span = left + shown[0] * step, (shown[-1] - shown[0] + 1) * step
                frame = 'fill="none" stroke="var(--ink)" stroke-width="2"'
                parts.append(rectangle(x - 1.5, y - 1.5, span + 2, height + 3, frame))
    bottom = top + len(rows) * (height + 2)
    every = max(1, math.ceil(86 / step))
    for number_, period in enumerate(drawn):
        if number_ % every == 0 and left + number_ * step + 70 <= width + 10:
            parts.append(text(_cut(period, 13), left + number_ * step, bottom + 14))
    return picture(parts, width, bottom + 22, title)


def history_figure(
    history: SegmentHistory, periods: Sequence[str], *, tolerance: float, reach: float, title: str
) -> str:
    """Mean o/p̂ of a segment over time with its 95 % interval; a band is the tolerance, a shade a break."""
    width, height, left, top = 300.0, 132.0, 34.0, 20.0
    inner, tall = width - left - 6, height - top - 20
    drawn = list(periods[-MOST_PERIODS:])
    place = {period: number for number, period in enumerate(drawn)}
    step = inner / max(len(drawn), 1)

    def x(number: float) -> float:
        return left + (number + 0.5) * step

    def y(ratio: float) -> float:
        level = math.log(min(max(ratio, 1e-9), 1e9))
        return top + tall / 2 * (1 - min(max(level / reach, -1.0), 1.0))

    band = y(1 / (1 + tolerance)) - y(1 + tolerance)
    parts = [
        text(_cut(history.name, 40), 0, 12, colour="ink", size=12.5),
        rectangle(left, y(1 + tolerance), inner, band, 'fill="var(--line)"'),
    ]
    for tick in _TICKS:
        if abs(math.log(tick)) <= reach + 1e-9:
            parts.append(text(f"{tick:g}", left - 5, y(tick) + 4, anchor="end", size=10.5))
            parts.append(polyline([(left, y(tick)), (left + inner, y(tick))], "line", 0.8))
    for found in history.breaks:
        shown = _within(found, place, periods)
        if shown:
            span = (shown[-1] - shown[0] + 1) * step
            shade = 'fill="var(--before)" opacity="0.22"'
            parts.append(rectangle(x(shown[0] - 0.5), top, span, tall, shade))
    here = [each for each in history.periods if each.period in place]
    for each in here:
        at = x(place[each.period])
        dashed = "" if each.closed else ' stroke-dasharray="2 2"'
        parts.append(
            f"<g><title>{escape(_tells(history.name, each))}</title>"
            f'<line x1="{at:.1f}" x2="{at:.1f}" y1="{y(each.low):.1f}" y2="{y(each.high):.1f}"'
            f' stroke="var(--after)" stroke-width="{min(step * 0.5, 3):.1f}" opacity="0.45"{dashed}/>'
            f'<circle cx="{at:.1f}" cy="{y(each.ratio):.1f}" r="{min(max(step * 0.32, 1.2), 3):.1f}"'
            f' fill="var(--{"after" if each.closed else "surface"})" stroke="var(--after)"/></g>'
        )
    if drawn:
        parts.append(text(_cut(drawn[0], 13), left, height - 4, size=10.5))
        parts.append(text(_cut(drawn[-1], 13), left + inner, height - 4, anchor="end", size=10.5))
    return picture(parts, width, height, title)


def shared_reach(histories: Sequence[SegmentHistory]) -> float:
    """How far from 1, as a logarithm, the means o/p̂ of several segments reach: one scale for all."""
    levels = [
        abs(math.log(each.ratio))
        for history in histories
        for each in history.periods
        if 0 < each.ratio < math.inf
    ]
    return min(max([1.1 * level for level in levels] + [LEAST_RANGE]), MOST_RANGE)


def _within(found: Break, place: Mapping[str, int], periods: Sequence[str]) -> list[int]:
    """The places of a break's periods, of those that are drawn."""
    first, last = periods.index(found.first), periods.index(found.last)
    return [place[each] for each in periods[first : last + 1] if each in place]


def _field(name: str, each: PeriodFigures, x: float, y: float, width: float, height: float) -> str:
    beyond = max(each.wce - each.floor, 0.0)
    strength = min(beyond / FULL_COLOUR, 1.0)
    colour = "before" if each.ratio >= 1 else "after"
    ground = rectangle(x, y, width, height, 'fill="var(--line)" opacity="0.5"')
    over = rectangle(x, y, width, height, f'fill="var(--{colour})" opacity="{strength:.2f}"')
    dot = (
        ""
        if each.closed
        else f'<circle cx="{x + width / 2:.1f}" cy="{y + height / 2:.1f}" r="2" fill="var(--muted)"/>'
    )
    return f"<g><title>{escape(_tells(name, each))}</title>{ground}{over}{dot}</g>"


def _tells(name: str, each: PeriodFigures) -> str:
    still = "" if each.closed else "; open"
    return (
        f"{plain(name)}, {plain(each.period)}: mean o/p̂ {number(each.ratio, 3)} ({number(each.low, 3)} to"
        f" {number(each.high, 3)}), WCE {percent(each.wce)}, noise alone {percent(each.floor)},"
        f" {each.rows:,} rows{still}"
    )


def _cut(words: str, most: int) -> str:
    clean = plain(words)
    return clean if len(clean) <= most else f"{clean[: most - 1]}…"
