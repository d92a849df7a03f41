"""Figures as functions of predictions: sketches, arrays and plain dictionaries, never of our models.

Names are loaded when they are first used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from unskew.report.plots.learning import draw_learning, learning_figure
    from unskew.report.plots.methods import differences_figure, draw_differences, draw_methods, methods_figure
    from unskew.report.plots.overview import overview_figure, overview_svg
    from unskew.report.plots.reliability import draw_reliability, reliability_figure
    from unskew.report.plots.spread import draw_spread, spread_figure
    from unskew.report.plots.truth import draw_bias_parts, draw_estimates, truth_figure
    from unskew.report.plots.weights import (
        draw_propensities,
        draw_weight_calibration,
        draw_weights,
        histogram_figure,
        weight_calibration_figure,
    )

_HOME = {
    "learning": ("draw_learning", "learning_figure"),
    "methods": ("differences_figure", "draw_differences", "draw_methods", "methods_figure"),
    "overview": ("overview_figure", "overview_svg"),
    "reliability": ("draw_reliability", "reliability_figure"),
    "spread": ("draw_spread", "spread_figure"),
    "truth": ("draw_bias_parts", "draw_estimates", "truth_figure"),
    "weights": (
        "draw_propensities",
        "draw_weight_calibration",
        "draw_weights",
        "histogram_figure",
        "weight_calibration_figure",
    ),
}
_MODULE_OF = {name: module for module, names in _HOME.items() for name in names}

__all__ = [
    "differences_figure",
    "draw_bias_parts",
    "draw_differences",
    "draw_estimates",
    "draw_learning",
    "draw_methods",
    "draw_propensities",
    "draw_reliability",
    "draw_spread",
    "draw_weight_calibration",
    "draw_weights",
    "histogram_figure",
    "learning_figure",
    "methods_figure",
    "overview_figure",
    "overview_svg",
    "reliability_figure",
    "spread_figure",
    "truth_figure",
    "weight_calibration_figure",
]


def __getattr__(name: str) -> Any:
    if name in _MODULE_OF:
        return getattr(import_module(f"{__name__}.{_MODULE_OF[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
