"""Figures over time: the heat map and the segments of a monitor, and the learning curves of a run."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from unskew.base.plain_text import plain
from unskew.report.plots.axes import Axis, axis_of, key_below, log_axis_of, new_panel, nothing, set_axis
from unskew.report.plots.scores import rule
from unskew.report.style import (
    AFTER,
    BEFORE,
    FIGURE_WIDTH,
    INK,
    LINE,
    MUTED,
    PANEL_WIDTH,
    SERIES,
    SURFACE,
    new_figure,
    styled,
)
from unskew.report.words import method_name

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from unskew.audit.monitor import Break, SegmentHistory

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
LOG_ABOVE = 8.0
"""The loss axis is logarithmic where the largest loss is so many times the smallest."""
MAIN_STEP = "prediction"
"""Of several training steps, the one whose loss is on the scale of the validation loss."""

Losses = NDArray[np.float64]


@styled
def heat_map(histories: Sequence[SegmentHistory], periods: Sequence[str]) -> Figure:
    """Return segments × periods, coloured by the weight-calibration error beyond noise: orange where weights
    are too large, blue where too small; a frame is what was found to be off, a dot an open period."""
    from matplotlib.patches import Rectangle

    rows, drawn = histories[:MOST_SEGMENTS], list(periods[-MOST_PERIODS:])
    names = [_cut(history.name, 28) for history in rows]
    place = {period: number for number, period in enumerate(drawn)}
    width = 0.3 + 0.085 * max(map(len, names), default=0) + 0.3 * len(drawn)
    width = min(max(width, PANEL_WIDTH), FIGURE_WIDTH)
    figure = new_figure(0.6 + 0.26 * len(rows), width)
    axes = figure.add_subplot()
    fields: dict[tuple[str, int], list[tuple[float, float]]] = {}
    waiting = []
    for row, history in enumerate(rows):
        for each in (each for each in history.periods if each.period in place):
            strength = min(max(each.wce - each.floor, 0.0) / FULL_COLOUR, 1.0)
            colour = BEFORE if each.ratio >= 1 else AFTER
            fields.setdefault((LINE.light, SHADES // 2), []).append((place[each.period], row))
            fields.setdefault((colour.light, round(SHADES * strength)), []).append((place[each.period], row))
            if not each.closed:
                waiting.append((place[each.period], row))
    for (shade, strength), corners in fields.items():
        _fill(axes, corners, shade, strength / SHADES)
    axes.plot(*zip(*waiting, strict=True) if waiting else ([], []), "o", color=MUTED.light, markersize=3)
    for row, history in enumerate(rows):
        for span in (_within(broken, place, periods) for broken in history.breaks):
            if span:
                size = (span[-1] - span[0] + 1.0, 1.0)
                frame = Rectangle((span[0] - 0.5, row - 0.5), *size, fill=False, edgecolor=INK.light)
                axes.add_patch(frame).set(linewidth=1.8, zorder=3, clip_on=False)
    axes.grid(visible=False)
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)
    axes.set(xlim=(-0.5, max(len(drawn), 1) - 0.5), ylim=(max(len(rows), 1) - 0.5, -0.5))
    axes.set_yticks(range(len(rows)), names, color=INK.light)
    _name_periods(axes, drawn, most=max(1, int((width - 0.085 * max(map(len, names), default=0)) / 1.1)))
    return figure


def _fill(axes: Axes, centres: Sequence[tuple[float, float]], colour: str, alpha: float) -> None:
    """Draw fields of one shade as one path, which keeps the page small."""
    from matplotlib.patches import PathPatch
    from matplotlib.path import Path

    half = 0.46
    corners = ((-half, -half), (half, -half), (half, half), (-half, half), (-half, -half))
    points = [(x + across, y + down) for x, y in centres for across, down in corners]
    codes = [Path.MOVETO, *[Path.LINETO] * 3, Path.CLOSEPOLY] * len(centres)
    axes.add_patch(PathPatch(Path(points, codes), facecolor=colour, alpha=alpha, linewidth=0))


def _name_periods(axes: Axes, periods: Sequence[str], most: int) -> None:
    """Name as many periods as there is room for, the first among them."""
    every = max(1, math.ceil(len(periods) / most))
    ticks = list(range(0, len(periods), every))
    axes.set_xticks(ticks, [_cut(periods[tick], 13) for tick in ticks])


@styled
def history_figure(
    history: SegmentHistory, periods: Sequence[str], *, tolerance: float, reach: float
) -> Figure:
    """Return mean o/p̂ of a segment over time with its 95 % interval; a band is the tolerance, a shade a
    break, a hollow point an open period."""
    drawn = list(periods[-MOST_PERIODS:])
    place = {period: number for number, period in enumerate(drawn)}
    figure, axes = new_panel(_cut(history.name, 38), 1.9)
    ends = math.exp(-reach), math.exp(reach)
    set_axis(axes, "y", Axis(*ends, "log", "mean o/p̂"))
    axes.axhspan(1 / (1 + tolerance), 1 + tolerance, color=LINE.light, linewidth=0)
    for span in (_within(broken, place, periods) for broken in history.breaks):
        if span:
            axes.axvspan(span[0] - 0.5, span[-1] + 0.5, color=BEFORE.light, alpha=0.22, linewidth=0)
    size = min(4.5, max(1.5, 130.0 / max(len(drawn), 1)))
    for closed in (True, False):
        here = [each for each in history.periods if each.period in place and each.closed == closed]
        at = [place[each.period] for each in here]
        low, high, ratio = (
            np.clip([getattr(each, name) for each in here], *ends) for name in ("low", "high", "ratio")
        )
        axes.vlines(at, low, high, color=AFTER.light, alpha=0.45, linewidth=0.5 * size)
        face = AFTER.light if closed else SURFACE.light
        axes.plot(at, ratio, "o", color=AFTER.light, markerfacecolor=face, markersize=size, clip_on=False)
    axes.set_xlim(-0.7, max(len(drawn), 1) - 0.3)
    _name_periods(axes, drawn, most=3)
    return figure


def shared_reach(histories: Sequence[SegmentHistory]) -> float:
    """Return how far from 1, as a logarithm, the means o/p̂ of several segments reach: one scale for all."""
    levels = [
        abs(math.log(each.ratio))
        for history in histories
        for each in history.periods
        if 0 < each.ratio < math.inf
    ]
    return min(max([1.1 * level for level in levels] + [LEAST_RANGE]), MOST_RANGE)


def _within(broken: Break, place: Mapping[str, int], periods: Sequence[str]) -> list[int]:
    """Return the places of a break's periods, of those that are drawn."""
    first, last = periods.index(broken.first), periods.index(broken.last)
    return [place[each] for each in periods[first : last + 1] if each in place]


def _cut(words: str, most: int) -> str:
    clean = plain(words)
    return clean if len(clean) <= most else f"{clean[: most - 1]}…"


@styled
def learning_figures(histories: Mapping[str, Mapping[str, Any]]) -> list[Figure]:
    """Return panels of each model: the median over seeds as a line, all seeds as a band, the kept epoch.

    Losses of different things have panels of their own: the error that an imputation model predicts and the
    loss of validation are not on one scale.

    Parameters
    ----------
    histories
        ``{model: {"train": {step: [[R] per epoch]}, "validation": [[R] per epoch], "best_epoch": [R]}}``.
    """
    drawn = []
    for name, history in histories.items():
        model = "Propensity" if name == "propensity" else method_name(name)
        groups = _groups(history)
        if not groups:
            drawn.append(nothing(model, "no losses were kept"))
        for what, losses in groups.items():
            title = f"{model}: {what}" if what else model
            drawn.append(_learning(title, losses, history.get("best_epoch")))
    return drawn


def _groups(history: Mapping[str, Any]) -> dict[str, dict[str, Losses]]:
    """Return losses that are on one scale, by what they are of."""
    train = {step: by_epoch(losses) for step, losses in (history.get("train") or {}).items()}
    train = {step: losses for step, losses in train.items() if np.isfinite(losses).any()}
    validation = by_epoch(history.get("validation"))
    judged = {"validation": validation} if np.isfinite(validation).any() else {}
    if len(train) < 2:
        only = next(iter(train.values()), None)
        both = judged if only is None else {"training": only, **judged}
        return {"": both} if both else {}
    groups = {step: {"training": losses} for step, losses in train.items()}
    if judged:
        groups.setdefault(MAIN_STEP if MAIN_STEP in groups else "validation", {}).update(judged)
    return groups


def _learning(title: str, lines: Mapping[str, Losses], best_epoch: Any) -> Figure:
    every = np.concatenate([losses[np.isfinite(losses)] for losses in lines.values()])
    low, high = float(every.min()), float(every.max())
    figure, axes = new_panel(title, 2.5)
    is_log = low > 0 and high > LOG_ABOVE * low
    set_axis(axes, "y", log_axis_of(every, "loss (log axis)") if is_log else axis_of([low, high], "loss"))
    last = max(len(losses) for losses in lines.values())
    set_axis(axes, "x", Axis(1.0, max(float(last), 2.0), "linear", "epoch"))
    for name, losses in lines.items():
        series = SERIES["raw" if name == "training" else "calibrated"]
        epoch = np.arange(1, len(losses) + 1, dtype=np.float64)
        there = np.isfinite(losses).any(axis=1)
        least, middle, most = np.nanquantile(losses[there], [0.0, 0.5, 1.0], axis=1)
        axes.fill_between(epoch[there], least, most, color=series.colour.light, alpha=0.18, linewidth=0)
        axes.plot(epoch[there], middle, label=name, **(series.line() | {"markersize": 3.0}))
    kept = [epoch + 1 for epoch in best_epoch or [] if epoch is not None]
    if kept:
        at = float(np.quantile(kept, 0.5, method="lower"))
        rule(axes, at, f"kept: {at:g}")
    return key_below(figure, axes)


def by_epoch(losses: Any) -> Losses:
    """Return losses ``[epoch, seed]``; missing ones are NaN."""
    rows = [np.atleast_1d(np.array(row, dtype=np.float64)) for row in losses or []]
    width = max((len(row) for row in rows), default=1)
    padded = [np.pad(row, (0, width - len(row)), constant_values=np.nan) for row in rows]
    return np.array(padded, dtype=np.float64).reshape(len(rows), width)
