"""The paper's figures: reliability and histograms as small multiples, and ECE against performance."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from unskew.metrics import CalibrationSketch, ece, reliability_curve
from unskew.report.plots.axes import probability_axis
from unskew.report.style import AFTER, BEFORE, INK, MUTED, SERIES, new_figure, styled

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

PANELS_ACROSS = 3
BINS = 20
MARKERS = "osD^vP*XdpH"


@styled
def reliability_grid(sketches: Mapping[str, CalibrationSketch], *, bins: int = BINS) -> Figure:
    """Return one reliability diagram for each row, on common axes, with its ECE."""
    curves = {
        name: reliability_curve(sketch=sketch, bins=bins, spacing="mass") for name, sketch in sketches.items()
    }
    shown = (values for curve in curves.values() for values in (curve.score, curve.frequency))
    limit = probability_axis("linear", *shown).high
    figure, panels = _panels(len(curves), 3.2)
    series = SERIES["calibrated"]
    for axes, (name, curve) in zip(panels, curves.items(), strict=False):
        axes.plot((0, limit), (0, limit), color=MUTED.light, linewidth=0.9)
        axes.vlines(curve.score, curve.low, curve.high, color=series.colour.light, linewidth=1.0, alpha=0.6)
        axes.plot(curve.score, curve.frequency, **series.line())
        axes.set(xlim=(0, limit), ylim=(0, limit))
        axes.set_title(f"{name}: ECE {ece(sketch=sketches[name]):.4f}")
    _label_edges(panels[: len(curves)], "predicted probability of a click", "share that was clicked")
    return figure


@styled
def histogram_grid(sketches: Mapping[str, CalibrationSketch], *, bins: int = BINS) -> Figure:
    """Return one histogram for each row: propensities of clicked and of unclicked pairs."""
    figure, panels = _panels(len(sketches), 2.9)
    top = max(float(sketch.points().score.max()) for sketch in sketches.values())
    edges = np.linspace(0.0, min(1.0, 1.02 * top), bins + 1)
    for number, (axes, (name, sketch)) in enumerate(zip(panels, sketches.items(), strict=False)):
        points = sketch.points()
        score = np.minimum(points.score, edges[-1])
        for weight, label, colour, dashes in (
            (points.total - points.positive, "unclicked", BEFORE, "--"),
            (points.positive, "clicked", AFTER, "-"),
        ):
            heights, _ = np.histogram(score, edges, weights=weight / max(weight.sum(), 1e-300))
            if label == "clicked":
                axes.stairs(heights, edges, fill=True, color=colour.light, alpha=0.25)
            axes.stairs(heights, edges, color=colour.light, linewidth=1.4, label=label, linestyle=dashes)
        axes.set_title(name)
        if number == 0:
            axes.legend(loc="upper center")
    _label_edges(panels[: len(sketches)], "propensity", "share of pairs")
    return figure


@dataclass(frozen=True)
class Cloud:
    """Points of one row: ECE and metrics, one value each per point."""

    name: str
    ece: Sequence[float]
    metrics: Mapping[str, Sequence[float]]


@styled
def ece_performance_figure(
    clouds: Sequence[Cloud], notes: Mapping[str, str], *, connected: bool = False
) -> Figure:
    """Return each metric against ECE.

    Parameters
    ----------
    notes
        The title of each panel, by metric: its correlation.
    connected
        Whether the points of a cloud follow one another (an optimisation's path).
    """
    metrics = list(notes)
    figure, panels = _panels(len(metrics), 3.2, legend=len(clouds) > 1)
    shades = [INK, AFTER, BEFORE, MUTED]
    for axes, metric in zip(panels, metrics, strict=False):
        for number, cloud in enumerate(clouds):
            axes.plot(
                cloud.ece,
                cloud.metrics[metric],
                linestyle="-" if connected else "none",
                linewidth=0.8,
                marker=MARKERS[number % len(MARKERS)],
                markersize=4.0,
                color=shades[number % len(shades)].light,
                markerfacecolor="none" if number % 2 else shades[number % len(shades)].light,
                label=cloud.name,
            )
        axes.set_title(f"{metric}: {notes[metric]}")
    _label_edges(panels[: len(metrics)], "ECE of the propensities", "on the test set")
    if len(clouds) > 1:
        handles, labels = panels[0].get_legend_handles_labels()
        panels[len(metrics)].legend(handles, labels, loc="upper left", ncols=2)
    return figure


def _panels(count: int, height: float, *, legend: bool = False) -> tuple[Figure, list[Axes]]:
    """Return axes for so many panels (and one for a legend); those that stay empty are switched off."""
    needed = count + int(legend)
    across = min(PANELS_ACROSS, needed)
    down = math.ceil(needed / across)
    figure = new_figure(height * down)
    panels = list(np.atleast_1d(figure.subplots(down, across)).ravel())
    for axes in panels[count:]:
        axes.set_axis_off()
    for axes in panels[needed:]:
        axes.remove()
    return figure, panels


def _label_edges(panels: Sequence[Axes], x: str, y: str) -> None:
    for number, axes in enumerate(panels):
        if number % PANELS_ACROSS == 0:
            axes.set_ylabel(y)
        if number + PANELS_ACROSS >= len(panels):
            axes.set_xlabel(x)
