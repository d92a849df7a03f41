"""Learning curves: losses by epoch, over seeds, with the epochs that were kept."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from unskew.report.plots.drawing import Axis, Panel, nothing
from unskew.report.words import brief, method_name

LOG_ABOVE = 8.0
"""The loss axis is logarithmic where the largest loss is so many times the smallest."""
MAIN_STEP = "prediction"
"""Of several training steps, the one whose loss is on the scale of the validation loss."""

Losses = NDArray[np.float64]


def learning_panels(histories: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """Panels of each model: the median over seeds as a line, all seeds as a band, kept epochs as ticks.

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
            drawn.append(_panel(title, losses, history.get("best_epoch")).drawn(f"Losses by epoch, {title}"))
    return drawn


def _groups(history: Mapping[str, Any]) -> dict[str, dict[str, Losses]]:
    """Losses that are on one scale, by what they are of."""
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


def _panel(title: str, lines: Mapping[str, Losses], best_epoch: Any) -> Panel:
    every = np.concatenate([losses[np.isfinite(losses)] for losses in lines.values()])
    low, high = float(every.min()), float(every.max())
    last = max(len(losses) for losses in lines.values())
    x = Axis(1.0, max(float(last), 2.0), "linear", "epoch", lambda epoch: f"{epoch:g}")
    if low > 0 and high > LOG_ABOVE * low:
        y = Axis(low / 1.1, high * 1.1, "log", "loss (log axis)")
    else:
        room = 0.06 * (high - low) or 0.1 * abs(high) or 0.1
        y = Axis(low - room, high + room, "linear", "loss", _loss)
    panel = Panel(title, x, y, height=200.0)
    for name, losses in lines.items():
        epoch = np.arange(1, len(losses) + 1, dtype=np.float64)
        there = np.isfinite(losses).any(axis=1)
        least, middle, most = np.nanquantile(losses[there], [0.0, 0.5, 1.0], axis=1)
        panel.band(epoch[there], least, most, name)
        tips = [
            f"{name}, epoch {at:g}: {brief(half, 4)}" for at, half in zip(epoch[there], middle, strict=True)
        ]
        panel.line(epoch[there], middle, name, tips)
    kept = [epoch + 1 for epoch in best_epoch or [] if epoch is not None]
    if kept:
        at = float(np.median(kept))
        panel.rule((at, y.low), (at, y.high), words=f"kept: {at:g}")
    return panel


def _loss(value: float) -> str:
    return f"{value:.4g}".replace("-", "−")


def by_epoch(losses: Any) -> Losses:
    """Losses ``[epoch, seed]``; missing ones are NaN."""
    rows = [np.atleast_1d(np.array(row, dtype=np.float64)) for row in losses or []]
    width = max((len(row) for row in rows), default=1)
    padded = [np.pad(row, (0, width - len(row)), constant_values=np.nan) for row in rows]
    return np.array(padded, dtype=np.float64).reshape(len(rows), width)
