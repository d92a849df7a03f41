"""Methods on the worlds of the battery: how far each is ahead of the naive ensemble."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from unskew.metrics.registry import metric as registered
from unskew.report.style import MUTED, SERIES, new_figure, styled, svg

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

TITLE = "How far each method is ahead of the naive ensemble, by world"
PANELS_A_ROW = 4
NOISE = 1.96


@styled
def battery_figure(battery: Mapping[str, Any]) -> Figure:
    """A panel for each world, a line for each method, with 95 % intervals over test users.

    Parameters
    ----------
    battery
        The dictionary of ``battery.json``.
    """
    worlds = battery["worlds"]
    found = dict.fromkeys(name for each in worlds.values() for name in each["methods"])
    # What auto ships stands below what it chooses among, as in the table.
    methods = sorted(found, key=lambda name: name.startswith("auto"))
    columns = min(PANELS_A_ROW, len(worlds))
    rows = -(-len(worlds) // columns)
    figure = new_figure(rows * (0.8 + 0.2 * len(methods)))
    panels = figure.subplots(rows, columns, squeeze=False)
    for place, axes in enumerate(panels.flat):
        if place >= len(worlds):
            axes.set_axis_off()
            continue
        world = list(worlds)[place]
        draw_world(axes, world, worlds[world]["methods"], methods, names=place % columns == 0)
        axes.set_xlabel(f"{registered(battery['settings']['criterion']).label} ahead of naive")
    return figure


def draw_world(
    axes: Axes, world: str, cells: Mapping[str, Any], methods: list[str], *, names: bool = True
) -> None:
    """One world; what auto ships is marked."""
    for row, name in enumerate(methods):
        if name not in cells:
            continue
        cell = cells[name]
        is_auto = name.startswith("auto")
        series = SERIES["raw" if is_auto else "naive" if name.startswith("naive") else "calibrated"]
        half = NOISE * cell["standard_error"]
        axes.hlines(
            row,
            cell["advantage"] - half,
            cell["advantage"] + half,
            color=series.colour.light,
            linewidth=2.2 if is_auto else 1.4,
        )
        axes.plot(cell["advantage"], row, **series.line())
    axes.axvline(0.0, color=MUTED.light, linewidth=0.9)
    axes.set_title(world)
    axes.set_ylim(len(methods) - 0.4, -0.6)
    axes.set_yticks(range(len(methods)), methods if names else [""] * len(methods))
    axes.tick_params(axis="y", length=0)
    axes.grid(axis="y", visible=False)
    axes.locator_params(axis="x", nbins=4)


def battery_svg(battery: Mapping[str, Any]) -> str:
    """:func:`battery_figure` as an SVG file of its own."""
    return svg(battery_figure(battery), name="battery", title=TITLE)
