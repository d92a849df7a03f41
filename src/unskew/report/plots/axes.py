"""Panels and their axes: limits and ticks that show small probabilities, with no two labels alike."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, logit

from unskew.report.style import MUTED, PANEL_WIDTH, new_figure, say_nothing_to_show

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Array = NDArray[np.float64]
Scale = Literal["linear", "log", "logit"]

LOGIT_TICKS = (1e-5, 1e-4, 0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 0.5, 0.7, 0.9, 0.97, 0.99, 0.999)
LOWEST_SHOWN = 1e-6
"""Probabilities below are drawn at the edge: a weight of a million is beyond any use."""
LOG_STEPS = (
    (1.0, 1.1, 1.2, 1.5, 2.0, 3.0, 4.0, 5.0, 7.0, 8.0, 9.0),
    (1.0, 1.5, 2.0, 3.0, 5.0, 7.0),
    (1.0, 2.0, 5.0),
    (1.0, 3.0),
    (1.0,),
)
LOGIT_APART = (0.11, 0.15, 0.2, 0.3)
"""Least distances of two ticks on a logit axis, as shares of the axis: the first that fits is taken."""
MOST_TICKS = 7
LETTER = 6.2
"""Points that a letter of a tick's label takes."""
GAP = 7.0
"""Points between the labels of two ticks."""
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


def axis_of(values: Array | list[float], label: str = "") -> Axis:
    """Return a linear axis that holds all finite values, with a margin."""
    known = np.array([value for value in values if np.isfinite(value)])
    low, high = (float(known.min()), float(known.max())) if len(known) else (0.0, 1.0)
    room = MARGIN * (high - low) or 0.1 * abs(high) or 0.1
    return Axis(low - room, high + room, "linear", label)


def log_axis_of(values: Array, label: str = "") -> Axis:
    """Return a logarithmic axis that holds all positive values, with a margin."""
    known = values[np.isfinite(values) & (values > 0)]
    low, high = (float(known.min()), float(known.max())) if len(known) else (0.5, 2.0)
    margin = max((high / low) ** 0.03, 1.05)
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
        return f"{value:,.0f}"
    # Adding 0 makes a zero of a negative zero.
    return np.format_float_positional(value + 0.0, precision=3, fractional=False, trim="-").replace("-", "−")


def ticks_of(axis: Axis, room: float, *, upright: bool = False) -> list[tuple[float, str]]:
    """Return ticks and their labels, no two alike, as many as fit so many points without touching.

    Parameters
    ----------
    upright
        Whether labels stand above each other, where each takes the height of a letter.
    """
    low, high = axis.low, axis.high
    choices = []
    if axis.scale == "log":
        choices = _log_ticks(low, high)
    elif axis.scale == "logit":
        inside = [tick for tick in LOGIT_TICKS if low <= tick <= high]
        choices = [_apart(inside, axis, least) for least in LOGIT_APART]
    named = [(ticks, [plain(tick) for tick in ticks]) for ticks in choices if len(ticks) > 1]
    named += [linear_ticks(low, high, about) for about in (5, 4, 3, 2, 1)]
    fitting = (each for each in named if _fit(axis, *each, room, upright=upright))
    return list(zip(*next(fitting, named[-1]), strict=True))


def _log_ticks(low: float, high: float) -> list[list[float]]:
    """Return ticks in round steps of each decade, the finest that are not too many first."""
    decades = np.arange(np.floor(np.log10(low)), np.ceil(np.log10(high)) + 1)
    choices = [np.sort(np.outer(10.0**decades, steps).ravel()) for steps in LOG_STEPS]
    choices += [10.0 ** decades[decades % step == 0] for step in (2, 3, 4)]
    inside = [each[(each >= low * 0.999) & (each <= high * 1.001)].tolist() for each in choices]
    return [ticks for ticks in inside if len(ticks) <= MOST_TICKS]


def linear_ticks(low: float, high: float, about: int = 5) -> tuple[list[float], list[str]]:
    """Return ticks in steps of 1, 2 or 5 times a power of ten, about so many, and their labels."""
    rough = (high - low) / about
    power = 10.0 ** np.floor(np.log10(rough))
    step = next(power * factor for factor in (1, 2, 5, 10) if power * factor >= 0.999 * rough)
    ticks = np.arange(np.ceil(low / step - 1e-9), np.floor(high / step + 1e-9) + 1) * step + 0.0
    ticks = np.clip(ticks, low, high)
    decimals = max(0, -int(np.floor(np.log10(step) + 1e-9)))
    return ticks.tolist(), [f"{tick:,.{decimals}f}".replace("-", "−") for tick in ticks]


def share(axis: Axis, value: float) -> float:
    """Return where a value is, from 0 at the lower limit to 1 at the upper; beyond, at the limit."""
    bent = {"linear": float, "log": np.log, "logit": logit}[axis.scale]
    low, high = bent(axis.low), bent(axis.high)
    return float((bent(min(max(value, axis.low), axis.high)) - low) / (high - low))


def _apart(ticks: list[float], axis: Axis, least: float) -> list[float]:
    """Return the ticks that are so far apart, as a share of the axis; the smaller of two stays."""
    chosen: list[float] = []
    for tick in ticks:
        if not chosen or share(axis, tick) - share(axis, chosen[-1]) >= least:
            chosen.append(tick)
    return chosen


def _fit(axis: Axis, ticks: list[float], labels: list[str], room: float, *, upright: bool) -> bool:
    """Say whether the labels of ticks do not touch."""
    centres = [room * share(axis, tick) for tick in ticks]
    halves = [LETTER if upright else LETTER * len(label) / 2 for label in labels]
    ends = zip(centres, halves, centres[1:], halves[1:], strict=False)
    return all(right - other - left - half >= (1.0 if upright else GAP) for left, half, right, other in ends)


def set_axis(axes: Axes, which: Literal["x", "y"], axis: Axis, room: float | None = None) -> None:
    """Give a panel an axis: its scale, limits, ticks and label; ``room`` are the points of an x-axis."""
    from matplotlib.ticker import FixedFormatter, FixedLocator, NullLocator

    figure, box = axes.get_figure(root=True), axes.get_position()
    width, height = figure.get_size_inches() * (box.width, box.height) if figure else (4.0, 3.0)
    if which == "x":
        ticks = ticks_of(axis, room or 65 * width)
        axes.set(xscale=axis.scale, xlim=axis[:2], xlabel=wrapped(axis.label, LABEL_LENGTH))
    else:
        ticks = ticks_of(axis, 60 * height, upright=True)
        axes.set(yscale=axis.scale, ylim=axis[:2], ylabel=wrapped(axis.label, UPRIGHT_LENGTH))
    of_axes = axes.xaxis if which == "x" else axes.yaxis
    of_axes.set_major_locator(FixedLocator([tick for tick, _ in ticks]))
    of_axes.set_major_formatter(FixedFormatter([label for _, label in ticks]))
    of_axes.set_minor_locator(NullLocator())


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
