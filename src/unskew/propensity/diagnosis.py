"""How far propensities can be trusted: calibration, discrimination and weights, side by side.

A constant propensity has a perfect ECE and debiases nothing, so ECE never stands alone here.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from unskew.metrics import (
    CalibrationSketch,
    auc_beyond_chance,
    brier,
    ece,
    nll,
    noise_floor,
    wce,
    weight_diagnostics,
)
from unskew.metrics.weights import Clip

CHANCE_ERRORS = 1.96
"""A propensity without any knowledge is so many standard errors above an AUC of one half in 1 of 40 cases."""


def propensity_figures(
    sketch: CalibrationSketch,
    on_clicks: NDArray[np.float64],
    *,
    p_min: Clip,
    population_size: int,
) -> dict[str, float]:
    """Return one seed's figures: scores against clicks on held-out cells, weights on the clicked rows."""
    chance = auc_beyond_chance(sketch)
    weights = weight_diagnostics(propensity=on_clicks, p_min=p_min, population_size=population_size)
    return {
        "ece": ece(sketch),
        # What ECE a perfect propensity would show at this sample size.
        "ece_floor": noise_floor(sketch),
        "wce": wce(sketch),
        "nll": nll(sketch),
        "brier": brier(sketch),
        "auc": chance.auc,
        # What AUC a propensity without any knowledge exceeds in 1 of 40 cases at this sample size.
        "auc_of_chance": 0.5 + CHANCE_ERRORS * chance.standard_error,
        "mean_over_base_rate": sketch.mean_score / sketch.base_rate,
        # Σ_O 1/p ÷ |D|; 1 for true propensities.
        "weight_check": math.nan if weights.weight_check is None else weights.weight_check,
        "effective_sample_size": weights.effective_sample_size,
        # The share of clicked rows below the clip, and of Σ_O 1/p that the clip takes.
        "clipped": weights.clipped,
        "clipped_mass": weights.clipped_mass,
        "p_min": weights.p_min,
    }


def average(figures: Sequence[dict[str, float]]) -> dict[str, Any]:
    """Return means over seeds by name, and each seed's value under ``"per_seed"``."""
    result: dict[str, Any] = {name: float(np.mean([row[name] for row in figures])) for name in figures[0]}
    result["per_seed"] = {name: [float(row[name]) for row in figures] for name in figures[0]}
    return result
