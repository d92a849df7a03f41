"""A click tower before its held-out cells: the Platt map that mends it, the figures that judge it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from unskew.calibration import Platt
from unskew.debias.core.held_out import Cells
from unskew.debias.core.setting import Setting
from unskew.metrics import CalibrationSketch
from unskew.metrics.clip import least_error_clip
from unskew.propensity.diagnosis import average, propensity_figures

Scored = tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]
"""Score, click and weight of one replica's cells."""


MAP = "click map"
"""Slope and intercept of the Platt map ``[R, 1, 2]`` among what the setting remembers."""


def mapped(setting: Setting, logit: Tensor) -> Tensor:
    """b·z + c by the map of each replica; z as it is where there is none."""
    if MAP not in setting.state:
        return logit
    slope, intercept = setting.state[MAP].unbind(-1)
    return slope * logit + intercept


def identity_maps(cells: Cells) -> Tensor:
    """b = 1 and c = 0 for each replica ``[R, 1, 2]``."""
    return torch.tensor((1.0, 0.0), device=cells.weight.device).expand(len(cells.weight), 1, 2)


def platt_maps(cells: Cells, score: Tensor) -> Tensor:
    """Slope and intercept of each replica's Platt map ``[R, 1, 2]``, from its scores ``[R, n]`` of cells.

    Where a replica's cells are all clicked, or none is, it gets the identity.
    """
    maps = []
    for scored in _by_replica(cells, score):
        slope, intercept = 1.0, 0.0
        if _both_kinds(scored):
            fitted = Platt().fit(*scored)
            slope, intercept = fitted.slope_, fitted.intercept_
        maps.append((slope, intercept))
    return torch.tensor(maps, device=score.device).unsqueeze(1)


def chosen_floors(on_clicks: Tensor) -> Tensor:
    """The clip with the least error for each replica's propensities of clicks ``[R, m]``: ``[R, 1]``."""
    floors = [least_error_clip(propensity=line) for line in on_clicks.double().cpu().numpy()]
    return torch.tensor(floors, dtype=torch.float32, device=on_clicks.device).unsqueeze(1)


def tower_figures(
    cells: Cells, score: Tensor, on_clicks: Tensor, *, p_min: Sequence[float], density: float
) -> dict[str, Any] | None:
    """Means over seeds and each seed's figures, as :meth:`unskew.Propensity.diagnose` has them.

    Parameters
    ----------
    score
        The tower's propensities ``[R, n]`` of the cells.
    on_clicks
        Its propensities ``[R, m]`` of training clicks, for the figures about weights.
    p_min
        The clip of each replica.

    Returns
    -------
    dict or None
        None where the cells of some replica are all clicked, or none is.
    """
    by_replica = list(_by_replica(cells, score))
    if not all(_both_kinds(scored) for scored in by_replica):
        return None
    size = round(on_clicks.shape[1] / density)
    return average(
        [
            propensity_figures(
                CalibrationSketch.of(score=score_, outcome=click, weight=weight),
                clicked,
                p_min=floor,
                population_size=size,
            )
            for (score_, click, weight), clicked, floor in zip(
                by_replica, on_clicks.double().cpu().numpy(), p_min, strict=True
            )
        ]
    )


def _by_replica(cells: Cells, score: Tensor) -> Iterator[Scored]:
    for line in zip(score, cells.click, cells.weight, strict=True):
        kept = line[2] > 0
        scores, clicks, weights = (values[kept].double().cpu().numpy() for values in line)
        yield scores, clicks, weights


def _both_kinds(scored: Scored) -> bool:
    return len(np.unique(scored[1])) == 2
