"""Which fields matter: what AUC loses when each is permuted, with its interval."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from unskew.metrics.judgement import excludes_zero
from unskew.report.style import INK, MUTED, SERIES, new_figure, say_nothing_to_show, styled

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MOST_FIELDS = 15
"""Fields that a panel shows, those that matter most."""
NAME_LENGTH = 24


@styled
def fields_figure(importances: Mapping[str, Mapping[str, Any]]) -> Figure:
    """One panel a model, one row a field: what AUC loses without it; grey where that may be nothing.

    Parameters
    ----------
    importances
        By title, what :meth:`unskew.fields.Importance.to_dict` gives.
    """
    most = max((len(each["fields"][:MOST_FIELDS]) for each in importances.values()), default=1)
    figure = new_figure(1.0 + 0.24 * max(most, 2))
    panels = figure.subplots(1, max(len(importances), 1), squeeze=False)[0]
    for axes, (title, importance) in zip(panels, importances.items(), strict=True):
        axes.set_title(title)
        draw_fields(axes, importance["fields"])
    return figure


def draw_fields(axes: Axes, fields: Sequence[Mapping[str, Any]]) -> None:
    """Mean and interval of each field, the one that matters most on top."""
    shown = fields[:MOST_FIELDS]
    if not shown:
        say_nothing_to_show(axes, "too few rows to tell")
        return
    for row, each in enumerate(shown):
        loss = each["auc"]
        colour = SERIES["calibrated"].colour.light if excludes_zero(loss) else MUTED.light
        axes.hlines(row, loss["low"], loss["high"], color=colour, linewidth=2.2)
        axes.plot(loss["mean"], row, "o", color=colour, markersize=5)
    axes.axvline(0.0, color=INK.light, linewidth=1.0, zorder=1)
    axes.set_ylim(len(shown) - 0.4, -0.6)
    axes.set_yticks(range(len(shown)), [_short(str(each["field"])) for each in shown])
    axes.tick_params(axis="y", length=0)
    axes.spines["left"].set_visible(False)
    axes.grid(axis="y", visible=False)
    axes.locator_params(axis="x", nbins=5)
    axes.set_xlabel("AUC lost when the field is permuted")


def _short(name: str) -> str:
    # A dollar would begin mathematics.
    plain = name.replace("$", r"\$")
    return plain if len(plain) <= NAME_LENGTH else plain[: NAME_LENGTH - 1] + "…"
