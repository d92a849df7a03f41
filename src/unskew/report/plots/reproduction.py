"""The paper's figures as panels: reliability and histograms of each row, and ECE against performance."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from unskew.metrics import CalibrationSketch, ece
from unskew.report.plots.axes import Axis, axis_of, key_below, new_panel, set_axis
from unskew.report.plots.scores import draw_reliability, reliability_axis
from unskew.report.style import AFTER, BEFORE, INK, MUTED, styled

if TYPE_CHECKING:
    from matplotlib.figure import Figure

BINS = 20
MARKERS = "osD^vP*XdpH"
SHADES = (INK, AFTER, BEFORE, MUTED)


@styled
def reliability_grid(sketches: Mapping[str, CalibrationSketch]) -> list[Figure]:
    """Return one reliability diagram for each row, on common axes, with its ECE."""
    axis, figures = reliability_axis(sketches, "linear"), []
    for name, sketch in sketches.items():
        figure, axes = new_panel(f"{name}: ECE {ece(sketch):.4f}")
        draw_reliability(axes, {"calibrated": sketch}, axis)
        figures.append(figure)
    return figures


@styled
def histogram_grid(sketches: Mapping[str, CalibrationSketch]) -> list[Figure]:
    """Return one histogram for each row: propensities of clicked and of unclicked pairs."""
    top = max(float(sketch.points().score.max()) for sketch in sketches.values())
    edges = np.linspace(0.0, min(1.0, 1.02 * top), BINS + 1)
    figures = []
    for name, sketch in sketches.items():
        points, heights = sketch.points(), {}
        for label, rows in (("unclicked", points.total - points.positive), ("clicked", points.positive)):
            score, share = np.minimum(points.score, edges[-1]), rows / max(rows.sum(), 1e-300)
            heights[label] = np.histogram(score, edges, weights=share)[0]
        figure, axes = new_panel(name)
        set_axis(axes, "x", Axis(0.0, float(edges[-1]), "linear", "propensity"))
        set_axis(axes, "y", Axis(0.0, 1.1 * max(map(max, heights.values())), "linear", "share of pairs"))
        axes.stairs(heights["clicked"], edges, fill=True, color=AFTER.light, alpha=0.25)
        for (label, values), colour, dashes in zip(
            heights.items(), (BEFORE, AFTER), ("--", "-"), strict=True
        ):
            axes.stairs(values, edges, color=colour.light, linewidth=1.4, label=label, linestyle=dashes)
        figures.append(key_below(figure, axes))
    return figures


@dataclass(frozen=True)
class Cloud:
    """Points of one row: ECE and metrics, one value each per point."""

    name: str
    ece: Sequence[float]
    metrics: Mapping[str, Sequence[float]]


@styled
def ece_performance_figures(
    clouds: Sequence[Cloud], notes: Mapping[str, str], *, connected: bool = False
) -> list[Figure]:
    """Return each metric against ECE.

    Parameters
    ----------
    notes
        The title of each panel, by metric: its correlation.
    connected
        Whether the points of a cloud follow one another (an optimisation's path).
    """
    figures = []
    x = axis_of([value for cloud in clouds for value in cloud.ece], "ECE of the propensities")
    for metric, note in notes.items():
        figure, axes = new_panel(f"{metric}: {note}")
        set_axis(axes, "x", x)
        set_axis(axes, "y", axis_of([value for cloud in clouds for value in cloud.metrics[metric]], metric))
        for number, cloud in enumerate(clouds):
            colour = SHADES[number % len(SHADES)].light
            line = "-" if connected else "none"
            (points,) = axes.plot(
                cloud.ece, cloud.metrics[metric], color=colour, linestyle=line, label=cloud.name
            )
            points.set(linewidth=0.8, marker=MARKERS[number % len(MARKERS)], markersize=4.0)
            points.set_markerfacecolor("none" if number % 2 else colour)
        figures.append(figure)
    key_below(figures[-1], axes)
    return figures
