"""Figures as SVG without matplotlib, which takes longer to load than an audit: panels, lines, steps.

Colours are the page's variables, so that figures follow it into the dark. What is drawn is elsewhere.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, Literal
from xml.sax.saxutils import escape

import numpy as np
from numpy.typing import NDArray
from scipy.special import logit

from unskew.report.plots.axes import linear_ticks, log_ticks, logit_ticks, plain
from unskew.report.style import BEFORE, SERIES, Series

Array = NDArray[np.float64]
Point = tuple[float, float]

FIGURE_WIDTH = 960.0
"""Units of a figure that is as wide as the page; letters are 12 of them high."""

LETTER = 12.0
_WIDTH_OF_LETTER = 0.58
"""Of its height, at most, on average over a line: for room, not for layout."""


def text(
    words: str,
    x: float,
    y: float,
    *,
    anchor: str = "start",
    colour: str = "muted",
    size: float = LETTER,
    more: str = "",
) -> str:
    """A line of text."""
    style = f'font-family="inherit" font-size="{size:g}" fill="var(--{colour})"'
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" {style}{more}>{escape(words)}</text>'


def rectangle(x: float, y: float, width: float, height: float, look: str) -> str:
    """A rectangle; ``look`` are further attributes."""
    return f'<rect x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}" {look}/>'


def polyline(points: Iterable[Point], colour: str, width: float, look: str = 'fill="none"') -> str:
    """Points joined by lines."""
    path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    return f'<polyline points="{path}" stroke="var(--{colour})" stroke-width="{width:g}" {look}/>'


def picture(parts: Iterable[str], width: float, height: float, title: str) -> str:
    """An SVG of these parts."""
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} {height:g}" role="img">'
        f"<title>{escape(title)}</title>{''.join(parts)}</svg>\n"
    )


@dataclass(frozen=True)
class Axis:
    """Values between two limits, on a scale."""

    low: float
    high: float
    scale: Literal["linear", "log", "logit"] = "linear"
    label: str = ""
    written: Callable[[float], str] = plain

    def share(self, values: Any) -> Array:
        """Where values are, from 0 at the lower limit to 1 at the upper; beyond, at the limit."""
        bent = {"linear": np.asarray, "log": np.log, "logit": logit}[self.scale]
        low, high = bent(self.low), bent(self.high)
        inside = np.clip(np.asarray(values, dtype=np.float64), self.low, self.high)
        return np.asarray((bent(inside) - low) / (high - low))

    def ticks(self) -> list[float]:
        """Round values to be named."""
        if self.scale == "logit":
            return logit_ticks((self.low, self.high))
        return (log_ticks if self.scale == "log" else linear_ticks)(self.low, self.high)


@dataclass
class Panel:
    """A part of a figure with two axes; ``left``, ``top``, ``width``, ``height`` are those of its inside."""

    left: float
    top: float
    width: float
    height: float
    x: Axis
    y: Axis
    title: str = ""
    parts: list[str] = field(default_factory=list)
    named: list[str] = field(default_factory=list)

    def at(self, x: Any, y: Any) -> list[Point]:
        """Where values are in the figure."""
        across = self.left + self.width * self.x.share(x)
        down = self.top + self.height * (1 - self.y.share(y))
        return list(zip(np.atleast_1d(across).tolist(), np.atleast_1d(down).tolist(), strict=True))

    def line(self, x: Array, y: Array, name: str) -> None:
        """A series with its markers, named in the legend."""
        series = SERIES.get(name, SERIES["calibrated"])
        points = self.at(x, y)
        self.parts.append(polyline(points, series.colour.name, 1.8, f'fill="none"{_dashes(series)}'))
        self.parts += [_marker(point, series) for point in points]
        self.named.append(name)

    def intervals(self, x: Array, low: Array, high: Array, name: str, *, across: bool = False) -> None:
        """Lines from low to high, upright or across."""
        colour = SERIES.get(name, SERIES["calibrated"]).colour.name
        ends = (self.at(low, x), self.at(high, x)) if across else (self.at(x, low), self.at(x, high))
        look = 'fill="none" opacity="0.65"'
        self.parts += [polyline(pair, colour, 1.5, look) for pair in zip(*ends, strict=True)]

    def steps(self, values: Array, edges: Array, name: str) -> None:
        """A histogram: its outline over a light area."""
        series = SERIES.get(name, SERIES["calibrated"])
        colour = series.colour.name
        points = self.at(np.repeat(edges, 2)[1:-1], np.repeat(values, 2))
        floor = self.top + self.height
        area = [(points[0][0], floor), *points, (points[-1][0], floor)]
        self.parts.append(polyline(area, colour, 0, f'fill="var(--{colour})" opacity="0.16"'))
        self.parts.append(polyline(points, colour, 1.8, f'fill="none"{_dashes(series)}'))
        self.named.append(name)

    def rule(self, start: Point, end: Point, *, words: str = "") -> None:
        """A straight line between two pairs of values; with ``words``, dashed, and named at its upper end."""
        pair = self.at([start[0], end[0]], [start[1], end[1]])
        dashes = ' stroke-dasharray="3 3"' if words else ""
        self.parts.append(polyline(pair, "ink" if words else "muted", 1.2, f'fill="none"{dashes}'))
        if words:
            x, y = min(pair, key=lambda point: point[1])
            leftwards = x - self.left > self.width / 2
            place = (x - 5, "end") if leftwards else (x + 5, "start")
            self.parts.append(text(words, place[0], y + LETTER, anchor=place[1], colour="ink"))

    def mark(self, x: float, y: float, name: str, *, filled: bool) -> None:
        """A round marker."""
        colour = SERIES[name].colour.name
        ((across, down),) = self.at(x, y)
        face = colour if filled else "surface"
        look = f'fill="var(--{face})" stroke="var(--{colour})" stroke-width="1.6"'
        self.parts.append(f'<circle cx="{across:.1f}" cy="{down:.1f}" r="3.8" {look}/>')

    def drawn(self) -> list[str]:
        """The grid, the names of the axes, what was drawn, and the legend."""
        right, bottom = self.left + self.width, self.top + self.height
        parts = [text(self.title, self.left, self.top - 10, colour="ink", more=' font-weight="700"')]
        for tick in self.x.ticks():
            ((x, _),) = self.at(tick, self.y.low)
            parts.append(polyline([(x, self.top), (x, bottom)], "line", 0.9))
            parts.append(text(self.x.written(tick), x, bottom + LETTER + 4, anchor="middle", size=11))
        for tick in self.y.ticks() if self.y.label else ():
            ((_, y),) = self.at(self.x.low, tick)
            parts.append(polyline([(self.left, y), (right, y)], "line", 0.9))
            parts.append(text(self.y.written(tick), self.left - 6, y + 4, anchor="end", size=11))
        parts.append(polyline([(self.left, self.top), (self.left, bottom), (right, bottom)], "muted", 1))
        parts.append(text(self.x.label, self.left + self.width / 2, bottom + 2 * LETTER + 9, anchor="middle"))
        middle = self.top + self.height / 2
        x = self.left - 44
        turned = f' transform="rotate(-90 {x:.1f} {middle:.1f})"'
        parts.append(text(self.y.label, x, middle, anchor="middle", more=turned) if self.y.label else "")
        return [*parts, *self.parts, *self._legend(right)]

    def _legend(self, right: float) -> list[str]:
        """To the right of the title, where nothing is drawn."""
        parts, x = [], right
        for name in reversed(self.named):
            series = SERIES.get(name, SERIES["calibrated"])
            x -= _WIDTH_OF_LETTER * LETTER * len(name)
            parts.append(text(name, x, self.top - 10, colour="ink"))
            sample = [(x - 30, self.top - 14), (x - 5, self.top - 14)]
            parts.append(polyline(sample, series.colour.name, 1.8, f'fill="none"{_dashes(series)}'))
            x -= 46
        return parts


def _dashes(series: Series) -> str:
    if isinstance(series.dashes, str):
        return "" if series.dashes == "-" else ' stroke-dasharray="8 2 2 2"'
    return f' stroke-dasharray="{" ".join(f"{1.6 * each:g}" for each in series.dashes[1])}"'


def _marker(point: Point, series: Series) -> str:
    x, y = point
    face = "surface" if series.colour is BEFORE else series.colour.name
    look = f'fill="var(--{face})" stroke="var(--{series.colour.name})" stroke-width="1.5"'
    if not math.isfinite(x + y):
        return ""
    if series.marker == "s":
        return rectangle(x - 2.8, y - 2.8, 5.6, 5.6, look)
    return f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" {look}/>'
