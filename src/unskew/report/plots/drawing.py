"""Figures as SVG without matplotlib, which takes longer to load than an audit: panels, lines, steps.

Colours are the page's variables, so that figures follow it into the dark. What is drawn is elsewhere.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
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

PANEL_WIDTH = 420.0
"""Units of a panel. Panels stand beside each other on a wide page and below each other on a narrow one, where
their letters are still ten pixels high."""

LEFT, RIGHT, TOP, BOTTOM = 60.0, 14.0, 30.0, 44.0
"""Room around the inside of a panel, for its title and the names of its axes."""

LETTER = 12.5

LOOKS: Mapping[str, Series] = {**SERIES, "training": SERIES["raw"], "validation": SERIES["calibrated"]}
"""How a series looks, by its name; others look like the calibrated one."""


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
    """One pair of axes and what is drawn on them, as a picture of its own; ``height`` is of the inside."""

    title: str
    x: Axis
    y: Axis
    height: float = 250.0
    parts: list[str] = field(default_factory=list)
    named: list[str] = field(default_factory=list)

    def at(self, x: Any, y: Any) -> list[Point]:
        """Where values are in the picture."""
        across = LEFT + (PANEL_WIDTH - LEFT - RIGHT) * self.x.share(x)
        down = TOP + self.height * (1 - self.y.share(y))
        return list(zip(np.atleast_1d(across).tolist(), np.atleast_1d(down).tolist(), strict=True))

    def line(self, x: Array, y: Array, name: str, tips: Sequence[str] = ()) -> None:
        """A series, with a marker where there is something to read: one of ``tips`` for each. What is above
        or below the axis is a triangle at its end that points there."""
        series = LOOKS.get(name, SERIES["calibrated"])
        points = [point for point in self.at(x, y) if math.isfinite(sum(point))]
        drawn = [polyline(points, series.colour.name, 1.8, f'fill="none"{_dashes(series)}')]
        for point, value, tip in zip(self.at(x, y), y, tips, strict=False):
            beyond = -1 if value > self.y.high else 1 if value < self.y.low else 0
            mark = _triangle(point, series, beyond) if beyond else _marker(point, series)
            drawn.append(f'<g class="point"><title>{escape(tip)}</title>{mark}</g>')
        self._put(name, drawn)
        self.named.append(name)

    def intervals(self, x: Array, low: Array, high: Array, name: str) -> None:
        """Upright lines from low to high."""
        colour = LOOKS.get(name, SERIES["calibrated"]).colour.name
        look = 'fill="none" opacity="0.65"'
        ends = zip(self.at(x, low), self.at(x, high), strict=True)
        self._put(name, [polyline(pair, colour, 1.5, look) for pair in ends])

    def band(self, x: Array, low: Array, high: Array, name: str) -> None:
        """The area between two lines."""
        colour = LOOKS.get(name, SERIES["calibrated"]).colour.name
        edge = [*self.at(x, high), *reversed(self.at(x, low))]
        self._put(name, [polyline(edge, colour, 0, f'fill="var(--{colour})" opacity="0.18"')])

    def steps(self, values: Array, edges: Array, name: str) -> None:
        """A histogram: its outline over a light area."""
        series = LOOKS.get(name, SERIES["calibrated"])
        colour = series.colour.name
        points = self.at(np.repeat(edges, 2)[1:-1], np.repeat(values, 2))
        floor = TOP + self.height
        area = [(points[0][0], floor), *points, (points[-1][0], floor)]
        light = polyline(area, colour, 0, f'fill="var(--{colour})" opacity="0.16"')
        outline = polyline(points, colour, 1.8, f'fill="none"{_dashes(series)}')
        hover = []
        for value, low, high, left, right in zip(
            values, edges[:-1], edges[1:], points[::2], points[1::2], strict=True
        ):
            tip = escape(f"{name}, {low:.3g} to {high:.3g}: {self.y.written(value)}")
            bar = rectangle(left[0], left[1], right[0] - left[0], floor - left[1], 'fill="transparent"')
            hover.append(f'<g class="point"><title>{tip}</title>{bar}</g>')
        self._put(name, [light, outline, *hover])
        self.named.append(name)

    def rule(self, start: Point, end: Point, *, words: str = "") -> None:
        """A straight line between two pairs of values; with ``words``, dashed, and named at its upper end."""
        pair = self.at([start[0], end[0]], [start[1], end[1]])
        dashes = ' stroke-dasharray="3 3"' if words else ""
        self.parts.append(polyline(pair, "ink" if words else "muted", 1.2, f'fill="none"{dashes}'))
        if words:
            x, y = min(pair, key=lambda point: point[1])
            leftwards = x > PANEL_WIDTH / 2
            place = (x - 5, "end") if leftwards else (x + 5, "start")
            halo = ' paint-order="stroke" stroke="var(--surface)" stroke-width="4"'
            self.parts.append(text(words, place[0], y + LETTER, anchor=place[1], colour="ink", more=halo))

    def drawn(self, title: str) -> str:
        """The picture: grid, names of the axes, what was drawn; ``title`` is for those who hear it."""
        right, bottom = PANEL_WIDTH - RIGHT, TOP + self.height
        parts = [text(self.title, LEFT - 44, TOP - 13, colour="ink", size=13, more=' font-weight="700"')]
        for tick in self.x.ticks():
            ((x, _),) = self.at(tick, self.y.low)
            parts.append(polyline([(x, TOP), (x, bottom)], "line", 0.9))
            parts.append(text(self.x.written(tick), x, bottom + LETTER + 4, anchor="middle", size=11.5))
        for tick in self.y.ticks():
            ((_, y),) = self.at(self.x.low, tick)
            parts.append(polyline([(LEFT, y), (right, y)], "line", 0.9))
            parts.append(text(self.y.written(tick), LEFT - 6, y + 4, anchor="end", size=11.5))
        parts.append(polyline([(LEFT, TOP), (LEFT, bottom), (right, bottom)], "muted", 1, 'fill="none"'))
        parts.append(text(self.x.label, (LEFT + right) / 2, bottom + 2 * LETTER + 9, anchor="middle"))
        x, middle = LETTER, TOP + self.height / 2
        turned = f' transform="rotate(-90 {x:.1f} {middle:.1f})"'
        parts.append(text(self.y.label, x, middle, anchor="middle", more=turned))
        return picture([*parts, *self.parts], PANEL_WIDTH, bottom + BOTTOM, title)

    def _put(self, name: str, drawn: Iterable[str]) -> None:
        """Parts of one series, which the page can switch off."""
        self.parts.append(f'<g class="of-{name}">{"".join(drawn)}</g>')


def nothing(title: str, why: str) -> str:
    """A picture that says why it is empty."""
    words = text(why, PANEL_WIDTH / 2, 70, anchor="middle")
    heading = text(title, LEFT - 44, TOP - 13, colour="ink", size=13, more=' font-weight="700"')
    return picture([heading, words], PANEL_WIDTH, 120, title)


def sample(name: str) -> str:
    """The line and the marker of a series, for a legend."""
    series = LOOKS.get(name, SERIES["calibrated"])
    line = polyline([(1, 7), (29, 7)], series.colour.name, 1.8, f'fill="none"{_dashes(series)}')
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 30 14" width="30" height="14"'
        f' aria-hidden="true">{line}{_marker((15, 7), series)}</svg>'
    )


def _dashes(series: Series) -> str:
    if isinstance(series.dashes, str):
        return "" if series.dashes == "-" else ' stroke-dasharray="8 2 2 2"'
    return f' stroke-dasharray="{" ".join(f"{1.6 * each:g}" for each in series.dashes[1])}"'


def _triangle(point: Point, series: Series, downwards: int) -> str:
    """A marker that points down (1) or up (−1)."""
    x, y = point
    corners = [
        (x - 5, y - 4 * downwards),
        (x + 5, y - 4 * downwards),
        (x, y + 5 * downwards),
        (x - 5, y - 4 * downwards),
    ]
    return polyline(corners, series.colour.name, 1.5, 'fill="var(--surface)"')


def _marker(point: Point, series: Series) -> str:
    x, y = point
    if not math.isfinite(x + y):
        return ""
    face = "surface" if series.colour is BEFORE else series.colour.name
    look = f'fill="var(--{face})" stroke="var(--{series.colour.name})" stroke-width="1.5"'
    if series.marker == "s":
        return rectangle(x - 2.8, y - 2.8, 5.6, 5.6, look)
    return f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" {look}/>'
