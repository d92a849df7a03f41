"""Panels and their axes: limits and ticks that show small probabilities, with no two labels alike."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from typing import TYPE_CHECKING, Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import expit, logit

from unskew.report.numbers import number
from unskew.report.style import MUTED, PANEL_WIDTH, new_figure, say_nothing_to_show

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Array = NDArray[np.float64]
Scale = Literal["linear", "log", "logit"]

LOGIT_TICKS = (1e-5, 1e-4, 0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 0.5, 0.7, 0.9, 0.97, 0.99, 0.999)
LOWEST_SHOWN = 1e-6
"""Probabilities below are drawn at the edge: a weight of a million is beyond any use."""
LOG_STEPS = ((1, 1.5, 2, 3, 5, 7), (1, 2, 5), (1, 3), (1,))
"""Ticks within a decade, the finest first."""
MOST_TICKS = 7
LETTER, GAP = 6.2, 7.0
"""Points that a letter of a tick's label takes, and that lie between two labels."""
LOGIT_MARGIN = 0.35
"""Margin of a logit axis at both ends, in units of the logit: a factor 1.4 for small probabilities."""
MARGIN = 0.08
"""Margin of a linear axis at both ends, as a share of what it holds."""
LABEL_LENGTH, TITLE_LENGTH, UPRIGHT_LENGTH = 44, 42, 24
"""Letters of a line under a panel, over it, and beside it."""


class Axis(NamedTuple):
    """Values between two limits, on a scale."""

    low: float
    high: float
    scale: Scale = "linear"
    label: str = ""


def axis_of(values: ArrayLike, label: str = "") -> Axis:
    """Return a linear axis that holds all finite values, with a margin."""
    known = np.asarray(values, dtype=np.float64)
    known = known[np.isfinite(known)]
    low, high = (float(known.min()), float(known.max())) if len(known) else (0.0, 1.0)
    room = MARGIN * (high - low) or 0.1 * abs(high) or 0.1
    return Axis(low - room, high + room, "linear", label)


def log_axis_of(values: Array, label: str = "", room: float = 1.05) -> Axis:
    """Return a logarithmic axis that holds all positive values, with a factor of room at both ends."""
    known = values[np.isfinite(values) & (values > 0)]
    low, high = (float(known.min()), float(known.max())) if len(known) else (0.5, 2.0)
    margin = max((high / low) ** 0.03, room)
    return Axis(low / margin, high * margin, "log", label)


def probability_axis(scale: Scale, *values: Array) -> Axis:
    """Return an axis of probabilities: linear from 0, or logit."""
    every = np.concatenate([np.ravel(v) for v in values]) if values else np.empty(0)
    if scale == "linear":
        every = every[np.isfinite(every)]
        most = float(every.max()) if len(every) else 0.0
        return Axis(0.0, min(1.04, 1.06 * most) if most > 0 else 1.04)
    inner = every[(every > LOWEST_SHOWN) & (every < 1)]
    if not len(inner):
        return Axis(0.001, 0.999, "logit")
    low = float(expit(logit(inner.min()) - LOGIT_MARGIN))
    return Axis(max(low, LOWEST_SHOWN), float(expit(logit(inner.max()) + LOGIT_MARGIN)), "logit")


def plain(value: float) -> str:
    """Return a number without exponent or trailing zeros, for an axis."""
    if value >= 1000:
        return number(value, 0)
    # Adding 0 makes a zero of a negative zero.
    return np.format_float_positional(value + 0.0, precision=3, fractional=False, trim="-").replace("-", "−")


def ticks_of(axis: Axis, room: float, *, upright: bool = False) -> list[tuple[float, str]]:
    """Return ticks and their labels, no two alike, as many as fit so many points without touching.

    Parameters
    ----------
    upright
        Whether labels stand above each other, where each takes the height of a letter.
    """
    named: list[tuple[float, str]] = []
    for ticks, labels in _choices(axis):
        centres = np.array([room * share(axis, tick) for tick in ticks])
        halves = np.array([LETTER if upright else LETTER * len(label) / 2 for label in labels])
        free = np.diff(centres) - halves[1:] - halves[:-1]
        named = list(zip(ticks, labels, strict=True))
        if (free >= (1.0 if upright else GAP)).all():
            break
    return named


def _choices(axis: Axis) -> Iterator[tuple[list[float], list[str]]]:
    """Yield ticks with their labels, the finest first."""
    from matplotlib.ticker import MaxNLocator

    low, high = axis.low, axis.high
    sets: list[Array] = []
    if axis.scale == "log":
        decades = 10.0 ** np.arange(np.floor(np.log10(low)), np.ceil(np.log10(high)) + 1)
        sets = [np.sort(np.outer(decades, steps).ravel()) for steps in LOG_STEPS]
        sets += [decades[::2], decades[::3]]
    elif axis.scale == "logit":
        every = np.array(LOGIT_TICKS)
        every = every[(low <= every) & (every <= high)]
        sets = [every[::step] for step in (1, 2, 3, 4)]
    for ticks in sets:
        inside = ticks[(ticks >= low * 0.999) & (ticks <= high * 1.001)]
        if 1 < len(inside) <= MOST_TICKS:
            yield inside.tolist(), [plain(tick) for tick in inside]
    for about in (5, 4, 3, 2, 1):
        ticks = np.asarray(MaxNLocator(about, steps=[1, 2, 5, 10], min_n_ticks=1).tick_values(low, high))
        step = ticks[1] - ticks[0]
        inside = np.clip(ticks[(ticks >= low - 1e-9 * step) & (ticks <= high + 1e-9 * step)], low, high)
        decimals = max(0, -int(np.floor(np.log10(step) + 1e-9)))
        if len(inside):
            yield inside.tolist(), [number(tick, decimals) for tick in inside]


def share(axis: Axis, value: float) -> float:
    """Return where a value is, from 0 at the lower limit to 1 at the upper; beyond, at the limit."""
    bent = {"linear": float, "log": np.log, "logit": logit}[axis.scale]
    low, high = bent(axis.low), bent(axis.high)
    return float((bent(min(max(value, axis.low), axis.high)) - low) / (high - low))


def set_axis(axes: Axes, which: Literal["x", "y"], axis: Axis, room: float | None = None) -> None:
    """Give a panel an axis: its scale, limits, ticks and label; ``room`` are the points of an x-axis."""
    figure, box = axes.get_figure(root=True), axes.get_position()
    width, height = figure.get_size_inches() * (box.width, box.height) if figure else (4.0, 3.0)
    if which == "x":
        axes.set(xscale=axis.scale, xlim=axis[:2], xlabel=wrapped(axis.label, LABEL_LENGTH))
        ticks = ticks_of(axis, room or 65 * width)
    else:
        axes.set(yscale=axis.scale, ylim=axis[:2], ylabel=wrapped(axis.label, UPRIGHT_LENGTH))
        ticks = ticks_of(axis, 60 * height, upright=True)
    side = axes.xaxis if which == "x" else axes.yaxis
    side.set_ticks([], minor=True)
    side.set_ticks([tick for tick, _ in ticks], [label for _, label in ticks])


def wrapped(text: str, length: int) -> str:
    """Return a text in lines of so many letters."""
    return "\n".join(textwrap.wrap(text, length))


def new_panel(title: str, height: float = 3.1) -> tuple[Figure, Axes]:
    """Return a figure of one panel, as wide as a telephone, and its axes."""
    figure = new_figure(height, PANEL_WIDTH)
    if title:
        figure.suptitle(wrapped(title, TITLE_LENGTH), x=0.0, ha="left")
    return figure, figure.add_subplot()


def nothing(title: str, why: str) -> Figure:
    """Return a panel that says why it is empty."""
    figure, axes = new_panel(title, 1.2)
    say_nothing_to_show(axes, why)
    return figure


def key_below(figure: Figure, axes: Axes, title: str = "") -> Figure:
    """Name the series of a figure below it and a title, where there are several; return the figure."""
    handles, labels = axes.get_legend_handles_labels()
    if len(labels) > 1:
        columns = max(1, min(len(labels), int(TITLE_LENGTH / (6 + max(map(len, labels))))))
        key = figure.legend(handles, labels, loc="outside lower center", ncols=columns, title=title or None)
        key.get_title().set(multialignment="center", color=MUTED.light)
    return figure
