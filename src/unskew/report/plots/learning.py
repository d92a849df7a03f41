"""Learning curves: training and validation losses by epoch, over seeds, with the epochs that were kept."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from unskew.report.plots.axes import set_log_ticks
from unskew.report.style import (
    AFTER,
    BEFORE,
    CONSTANT,
    INK,
    PLAIN,
    TRUE,
    new_figure,
    say_nothing_to_show,
    styled,
)
from unskew.report.words import method_name

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

PANELS_A_ROW = 4
LOG_ABOVE = 8.0
"""The loss axis is logarithmic where the largest loss is so many times the smallest."""
TRAIN_LINES = (
    (BEFORE, (0, (4.0, 1.6))),
    (PLAIN, (0, (1.2, 1.2))),
    (CONSTANT, "-."),
    (TRUE, (0, (6, 1, 1, 1))),
)


@styled
def learning_figure(histories: Mapping[str, Mapping[str, Any]]) -> Figure:
    """One panel a model: the median over seeds as a line, all seeds as a band, kept epochs as ticks.

    Parameters
    ----------
    histories
        ``{model: {"train": {step: [[R] per epoch]}, "validation": [[R] per epoch], "best_epoch": [R]}}``.
    """
    columns = min(PANELS_A_ROW, max(len(histories), 1))
    rows = max(-(-len(histories) // columns), 1)
    figure = new_figure(2.55 * rows)
    panels = figure.subplots(rows, columns, squeeze=False)
    for axes in panels.flat[len(histories) :]:
        axes.set_axis_off()
    for place, (name, history) in enumerate(histories.items()):
        draw_learning(panels.flat[place], history)
        panels.flat[place].set_title("Propensity" if name == "propensity" else method_name(name))
        if place % columns:
            panels.flat[place].set_ylabel("")
    entries = {
        label: handle
        for axes in panels.flat
        for handle, label in zip(*axes.get_legend_handles_labels(), strict=True)
    }
    if entries:
        figure.legend(list(entries.values()), list(entries), loc="outside upper right", ncols=4)
    return figure


def draw_learning(axes: Axes, history: Mapping[str, Any]) -> None:
    """Losses of one model by epoch, the first epoch being 1; the legend is left to the caller."""
    lines: list[tuple[str, NDArray[np.float64], str, Any]] = []
    training = history.get("train") or {}
    for place, (step, losses) in enumerate(training.items()):
        shade, pattern = TRAIN_LINES[place % len(TRAIN_LINES)]
        label = "training" if len(training) == 1 else f"training: {step}"
        lines.append((label, by_epoch(losses), shade.light, pattern))
    lines.append(("validation", by_epoch(history.get("validation")), AFTER.light, "-"))
    lines = [line for line in lines if np.isfinite(line[1]).any()]
    if not lines:
        say_nothing_to_show(axes, "no losses were kept")
        return
    for label, losses, colour, dashes in lines:
        epochs = np.arange(1, len(losses) + 1)
        there = np.isfinite(losses).any(axis=1)
        low, middle, high = np.nanquantile(losses[there], [0.0, 0.5, 1.0], axis=1)
        axes.fill_between(epochs[there], low, high, color=colour, alpha=0.16, linewidth=0)
        axes.plot(epochs[there], middle, color=colour, linestyle=dashes, label=label)
    every = np.concatenate([losses[np.isfinite(losses)] for _, losses, _, _ in lines])
    if every.min() > 0 and every.max() > LOG_ABOVE * every.min():
        axes.set_yscale("log")
        set_log_ticks(axes, "y")
    _draw_best(axes, history.get("best_epoch"))
    axes.set_xlabel("epoch")
    axes.set_ylabel("loss")
    axes.locator_params(axis="x", nbins=5, integer=True)


def by_epoch(losses: Any) -> NDArray[np.float64]:
    """Losses ``[epoch, seed]``; missing ones are NaN."""
    rows = [np.atleast_1d(np.array(row, dtype=np.float64)) for row in losses or []]
    width = max((len(row) for row in rows), default=1)
    padded = [np.pad(row, (0, width - len(row)), constant_values=np.nan) for row in rows]
    return np.array(padded, dtype=np.float64).reshape(len(rows), width)


def _draw_best(axes: Axes, best_epoch: Any) -> None:
    kept = np.array([epoch for epoch in best_epoch or [] if epoch is not None], dtype=np.float64) + 1
    if not len(kept):
        return
    middle = float(np.median(kept))
    axes.axvline(middle, color=INK.light, linewidth=0.9, linestyle=(0, (2, 2)))
    axes.plot(
        kept,
        np.zeros(len(kept)),
        "|",
        color=INK.light,
        markersize=8,
        transform=axes.get_xaxis_transform(),
        clip_on=False,
    )
