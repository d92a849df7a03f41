"""How far propensities can be trusted: calibration, discrimination and weights, side by side.

A constant propensity has a perfect ECE and debiases nothing, so ECE never stands alone here.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
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
from unskew.metrics.clip import Clip

CHANCE_ERRORS = 1.96
"""A propensity without any knowledge is so many standard errors above an AUC of one half in 1 of 40 cases."""


@dataclass(frozen=True)
class PropensityFigures:
    """One seed's figures: scores against clicks on held-out cells, weights on the clicked rows."""

    ece: float
    ece_floor: float
    """What ECE a perfect propensity would show at this sample size."""
    wce: float
    nll: float
    brier: float
    auc: float
    auc_of_chance: float
    """What AUC a propensity without any knowledge exceeds in 1 of 40 cases at this sample size."""
    mean_over_base_rate: float
    weight_check: float
    """Σ_O 1/p ÷ |D|; 1 for true propensities."""
    effective_sample_size: float
    clipped: float
    """Share of clicked rows with p below ``p_min``."""
    clipped_mass: float
    """Share of Σ_O 1/p that the clip takes."""
    p_min: float
    """The clip."""


def propensity_figures(
    sketch: CalibrationSketch,
    on_clicks: NDArray[np.float64],
    *,
    p_min: Clip,
    population_size: int,
) -> PropensityFigures:
    """Figures from a sketch of held-out cells and the propensities of the clicked rows."""
    chance = auc_beyond_chance(sketch=sketch)
    weights = weight_diagnostics(propensity=on_clicks, p_min=p_min, population_size=population_size)
    return PropensityFigures(
        ece=ece(sketch=sketch),
        ece_floor=noise_floor(sketch=sketch),
        wce=wce(sketch=sketch),
        nll=nll(sketch=sketch),
        brier=brier(sketch=sketch),
        auc=chance.auc,
        auc_of_chance=0.5 + CHANCE_ERRORS * chance.standard_error,
        mean_over_base_rate=sketch.mean_score / sketch.base_rate,
        weight_check=math.nan if weights.weight_check is None else weights.weight_check,
        effective_sample_size=weights.effective_sample_size,
        clipped=weights.clipped,
        clipped_mass=weights.clipped_mass,
        p_min=weights.p_min,
    )


def average(figures: Sequence[PropensityFigures]) -> dict[str, Any]:
    """Means over seeds by name, and each seed's value under ``"per_seed"``."""
    rows = [asdict(each) for each in figures]
    result: dict[str, Any] = {name: float(np.mean([row[name] for row in rows])) for name in rows[0]}
    result["per_seed"] = {name: [float(row[name]) for row in rows] for name in rows[0]}
    return result
