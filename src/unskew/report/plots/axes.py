"""Panels and their axes: limits and ticks that show small probabilities, with no two labels alike."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING, Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import expit, logit

from unskew.report.numbers import number
from unskew.report.style import INK, MUTED, PANEL_WIDTH, SURFACE, new_figure

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
LETTER = 7.0
"""Points that a letter of a tick's label takes, and half of a gap between two labels."""
MARGIN = {"linear": 0.08, "log": 0.04, "logit": 0.04}
"""Margin at both ends of an axis, as a share of what it holds."""
LABEL_LENGTH, TITLE_LENGTH, UPRIGHT_LENGTH = 44, 42, 24
"""Letters of a line under a panel, over it, and beside it."""


class Axis(NamedTuple):
    """Values between two limits, on a scale."""

    low: float
    high: float
    scale: Scale = "linear"
    label: str = ""


def axis_of(values: ArrayLike, label: str = "", scale: Scale = "linear") -> Axis:
    """Return an axis that holds all finite values (that its scale can show), with a margin."""
    known = np.ravel(np.asarray(values, dtype=np.float64))
    known = known[np.isfinite(known)]
    if scale != "linear":
        known = known[known > (LOWEST_SHOWN if scale == "logit" else 0.0)]
    if scale == "logit":
        known = known[known < 1]
    bend, back = {"linear": (np.array, float), "log": (np.log, np.exp), "logit": (logit, expit)}[scale]
    low, high = (bend(known.min()), bend(known.max())) if len(known) else (bend(0.3), bend(0.7))
    room = MARGIN[scale] * (high - low) or 0.1 * abs(high) or 0.1
    room = max(room, {"linear": 0.0, "log": 0.05, "logit": 0.35}[scale])
    return Axis(float(back(low - room)), float(back(high + room)), scale, label)


def plain(value: float, digits: int = 10) -> str:
    """Return a number without exponent or trailing zeros, for an axis."""
    if abs(value) >= 1000:
        return number(value, 0)
    # Adding 0 makes a zero of a negative zero.
    return np.format_float_positional(round(value, 12) + 0.0, digits, fractional=False, trim="-").replace(
        "-", "−"
    )


def ticks_of(axis: Axis, room: float, *, upright: bool = False) -> list[float]:
    """Return as many ticks as have labels that fit so many points without touching."""
    from matplotlib.ticker import MaxNLocator

    low, high = axis.low, axis.high
    sets: list[Array] = []
    if axis.scale == "log":
        decades = 10.0 ** np.arange(np.floor(np.log10(low)), np.ceil(np.log10(high)) + 1)
        sets = [np.sort(np.outer(decades, steps).ravel()) for steps in LOG_STEPS]
        sets += [decades[::2], decades[::3]]
    elif axis.scale == "logit":
        inner = np.array([tick for tick in LOGIT_TICKS if low <= tick <= high])
        sets = [inner[::step] for step in (1, 2, 3, 4)]
    bend = {"linear": np.array, "log": np.log, "logit": logit}[axis.scale]
    least = 1 if axis.scale == "linear" else 2
    sets += [np.asarray(MaxNLocator(n, steps=[1, 2, 5, 10]).tick_values(low, high)) for n in (5, 4, 3, 2, 1)]
    ticks: Array = np.empty(0)
    for some in sets:
        ticks = some[(some >= low) & (some <= high)]
        if len(ticks) < least:
            continue
        centres = room * (bend(ticks) - bend(low)) / (bend(high) - bend(low))
        halves = np.array([LETTER if upright else LETTER * (len(plain(tick)) + 1) / 2 for tick in ticks])
        labels = {plain(tick) for tick in ticks}
        if len(labels) == len(ticks) and (np.diff(centres) >= halves[1:] + halves[:-1]).all():
            break
        least = 1
    return [float(tick) for tick in ticks]


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
    side.set_ticks(ticks, [plain(tick) for tick in ticks])


def rule(axes: Axes, x: float, words: str, *, above: bool = False) -> None:
    """Draw a dashed upright line, named at its upper end where there is room; or only name one that is there,
    ``above`` the panel."""
    if not above:
        axes.axvline(x, color=INK.light, linewidth=1.0, linestyle=(0, (3, 3)), zorder=1.5)
    share = float(axes.transAxes.inverted().transform(axes.transData.transform((x, axes.get_ylim()[0])))[0])
    right = share > 0.5
    side = "right" if right else "left"
    axes.annotate(
        words,
        (x, 1.0),
        xycoords=axes.get_xaxis_transform(),
        xytext=(0, 2) if above else (-4 if right else 4, -2),
        textcoords="offset points",
        ha="center" if above and 0.2 < share < 0.8 else side,
        va="bottom" if above else "top",
        bbox={"facecolor": SURFACE.light, "edgecolor": "none", "pad": 1.0, "alpha": 0.8},
    )


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
    axes.set_axis_off()
    axes.text(0.5, 0.5, why, ha="center", va="center", color=MUTED.light, transform=axes.transAxes)
    return figure


def key_below(figure: Figure, axes: Axes, title: str = "") -> Figure:
    """Name the series of a figure below it and a title, where there are several; return the figure."""
    handles, labels = axes.get_legend_handles_labels()
    if len(labels) > 1:
        columns = max(1, min(len(labels), int(TITLE_LENGTH / (6 + max(map(len, labels))))))
        key = figure.legend(handles, labels, loc="outside lower center", ncols=columns, title=title or None)
        key.get_title().set(multialignment="center", color=MUTED.light)
    return figure
