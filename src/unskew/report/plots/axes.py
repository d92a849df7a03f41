"""Axes of probabilities: ticks and limits that show small ones; what is drawn on them is elsewhere."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, logit

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Array = NDArray[np.float64]
Scale = Literal["linear", "logit"]

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
MOST_TICKS = 7
APART = 0.11
"""Least distance of two ticks on a logit axis, as a share of the axis."""
MARGIN = 0.35
"""Of a logit axis at both ends, in units of the logit: a factor 1.4 for small probabilities."""


def logit_limits(*values: Array) -> tuple[float, float]:
    """Limits that hold all probabilities strictly between 0 and 1, with a margin."""
    every = np.concatenate([np.ravel(v) for v in values]) if values else np.empty(0)
    inner = every[(every > LOWEST_SHOWN) & (every < 1)]
    if not len(inner):
        return 0.001, 0.999
    low = expit(logit(inner.min()) - MARGIN)
    high = expit(logit(inner.max()) + MARGIN)
    return float(max(low, LOWEST_SHOWN)), float(high)


def linear_limit(*values: Array) -> float:
    """The upper limit of a linear axis of probabilities from 0."""
    every = np.concatenate([np.ravel(v) for v in values]) if values else np.empty(0)
    every = every[np.isfinite(every)]
    return float(min(1.04, 1.06 * every.max())) if len(every) and every.max() > 0 else 1.04


def plain(value: float, _: int | None = None) -> str:
    """A number on an axis without exponent or trailing zeros."""
    if value >= 1000:
        return f"{value:,.0f}"
    # Adding 0 makes a zero of a negative zero.
    return np.format_float_positional(value + 0.0, precision=3, fractional=False, trim="-").replace("-", "−")


def set_logit(axes: Axes, limits: tuple[float, float]) -> None:
    """Both axes on a logit scale with plain decimals."""
    ticks = logit_ticks(limits)
    axes.set_xscale("logit")
    axes.set_xlim(*limits)
    axes.set_xticks(ticks, [plain(tick) for tick in ticks])
    axes.set_xticks([], minor=True)
    axes.set_yscale("logit")
    axes.set_ylim(*limits)
    axes.set_yticks(ticks, [plain(tick) for tick in ticks])
    axes.set_yticks([], minor=True)


def logit_ticks(limits: tuple[float, float]) -> list[float]:
    """Ticks of a logit axis whose labels do not touch; the smaller of two stays."""
    span = logit(limits[1]) - logit(limits[0])
    kept: list[float] = []
    for tick in (tick for tick in LOGIT_TICKS if limits[0] <= tick <= limits[1]):
        if not kept or (logit(tick) - logit(kept[-1])) / span >= APART:
            kept.append(tick)
    return kept


def set_log_ticks(axes: Axes, which: Literal["x", "y"]) -> None:
    """Plain decimals, as fine as :data:`MOST_TICKS` allow, in round steps of each decade."""
    from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

    axis = axes.xaxis if which == "x" else axes.yaxis
    low, high = axes.get_xlim() if which == "x" else axes.get_ylim()
    axis.set_major_locator(FixedLocator(log_ticks(low, high)))
    axis.set_minor_locator(NullLocator())
    axis.set_major_formatter(FuncFormatter(plain))


def log_ticks(low: float, high: float) -> list[float]:
    """Ticks of a logarithmic axis, as fine as :data:`MOST_TICKS` allow, in round steps of each decade."""
    decades = np.arange(np.floor(np.log10(low)), np.ceil(np.log10(high)) + 1)
    for steps in LOG_STEPS:
        ticks = np.sort(np.outer(10.0**decades, steps).ravel())
        ticks = ticks[(ticks >= low * 0.999) & (ticks <= high * 1.001)]
        if len(ticks) <= MOST_TICKS:
            break
    return [float(tick) for tick in ticks]


def linear_ticks(low: float, high: float, about: int = 5) -> list[float]:
    """Ticks of a linear axis in steps of 1, 2 or 5 times a power of ten, about so many of them."""
    rough = (high - low) / about
    power = 10.0 ** np.floor(np.log10(rough))
    step = next(power * factor for factor in (1, 2, 5, 10) if power * factor >= rough)
    return [float(tick) for tick in np.arange(np.ceil(low / step), np.floor(high / step) + 1) * step]
