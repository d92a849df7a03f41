"""How far members or passes disagree, by propensity."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from unskew.report.plots.axes import LOWEST_SHOWN
from unskew.report.plots.drawing import Axis, Panel, nothing
from unskew.report.words import brief

TITLE = "How far members disagree"
ROOM = 1.3
"""A factor between the outermost values and the ends of an axis."""


def spread_panel(curve: Sequence[Mapping[str, float]]) -> str:
    """The standard deviation over members or passes by propensity: the median and the quartiles of a group,
    beside what 10 % and all of the propensity would be.

    Parameters
    ----------
    curve
        Groups of rows: ``"propensity"`` (their mean), and ``"low"``, ``"middle"``, ``"high"``, the quartiles
        of their spread.
    """
    values = {key: np.array([each[key] for each in curve]) for key in ("propensity", "low", "middle", "high")}
    shown = values["middle"] > 0 if len(curve) else np.zeros(0, dtype=bool)
    if not shown.any():
        return nothing(TITLE, "members do not disagree")
    p, low, middle, high = (np.maximum(each[shown], LOWEST_SHOWN) for each in values.values())
    x = Axis(float(p.min()) / ROOM, float(p.max()) * ROOM, "log", "raw propensity p (log axis)")
    y = Axis(
        float(min(low.min(), 0.1 * p.min())) / ROOM,
        float(max(high.max(), p.max())) * ROOM,
        "log",
        "standard deviation (log axis)",
    )
    panel = Panel(TITLE, x, y)
    for share, words in ((1.0, "all of p"), (0.1, "10 % of p")):
        panel.rule((p.min(), share * p.min()), (p.max(), share * p.max()), words=words)
    panel.band(p, low, high, "raw")
    tips = [
        f"p = {brief(at)}: median {brief(half)}, quartiles {brief(least)} and {brief(most)}"
        for at, least, half, most in zip(p, low, middle, high, strict=True)
    ]
    panel.line(p, middle, "raw", tips)
    return panel.drawn(TITLE)
