"""Propensities as a debiaser takes them: an estimator, an array or a column; checked, clipped, counted."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from unskew.errors import DataError, ParameterError
from unskew.log import Log
from unskew.metrics import WeightDiagnostics, weight_diagnostics

if TYPE_CHECKING:
    pass

GivenPropensity = "Propensity | NDArray[Any] | str | float"


@dataclass(frozen=True)
class ClickedPropensities:
    """Propensities of the clicked rows, one line per seed, after clipping at ``p_min``."""

    values: NDArray[np.float64]
    """``[seeds, |O|]``, at least ``p_min``."""
    diagnostics: tuple[WeightDiagnostics, ...]
    """One per line: what was clipped and what that did."""


def clicked_propensities(
    log: Log, propensity: Any, seeds: tuple[int, ...], p_min: float, *, calibrated: bool = True
) -> ClickedPropensities:
    """Resolve ``propensity=`` for the clicked rows of a log.

    Accepts a fitted :class:`Propensity` (one line per seed where its seeds are ``seeds``, else its mean for
    all), an array ``[n]`` or ``[seeds, n]`` aligned with the log's rows, the name of one of its columns, or
    one number for all pairs.
    """
    if not 0.0 < p_min < 1.0:
        raise ParameterError(f"p_min must be in (0, 1), not {p_min}")
    rows = _aligned(log, propensity, seeds, calibrated)
    clicked = rows[:, log.clicked]
    _require_probabilities(clicked, log)
    diagnostics = tuple(
        weight_diagnostics(propensity=line, p_min=p_min, population_size=log.population_size)
        for line in clicked
    )
    values = np.broadcast_to(np.maximum(clicked, p_min), (len(seeds), clicked.shape[1]))
    return ClickedPropensities(values=values, diagnostics=diagnostics)


def _aligned(log: Log, propensity: Any, seeds: tuple[int, ...], calibrated: bool) -> NDArray[np.float64]:
    if hasattr(propensity, "predict_each"):
        if propensity.population == "sampled":
            raise ParameterError(
                "this propensity is of a sampled population (1:k negatives without the logit offset),"
                " not of D",
                remedy="fit it with population='D', which adds the offset log w",
            )
        if tuple(propensity.seeds_) == seeds:
            return np.asarray(propensity.predict_each(log, calibrated=calibrated))
        return np.asarray(propensity.predict(log, calibrated=calibrated))[None]
    if isinstance(propensity, str):
        if propensity not in log.columns:
            raise DataError(
                f"the log has no column '{propensity}'",
                remedy=f"keep it when the log is built; it has: {', '.join(log.columns) or 'none'}",
            )
        return np.asarray(log.columns[propensity], dtype=np.float64)[None]
    values = np.asarray(propensity, dtype=np.float64)
    if values.ndim == 0:
        return np.full((1, len(log)), float(values))
    if values.ndim == 1:
        values = values[None]
    if values.shape[1] != len(log) or values.shape[0] not in (1, len(seeds)):
        raise DataError(
            f"propensities of shape {values.shape} do not fit {len(log)} rows and {len(seeds)} seeds",
            remedy="give one number per row of the log (or per seed and row)",
        )
    return values


def _require_probabilities(clicked: NDArray[np.float64], log: Log) -> None:
    wrong = ~((clicked > 0.0) & (clicked <= 1.0))
    zero = clicked == 0.0
    wrong &= ~zero
    if wrong.any():
        line, column = np.argwhere(wrong)[0]
        raise DataError(
            f"propensity is {clicked[line, column]}, not a probability",
            where=f"row {int(log.clicked[column])}",
            remedy="give P(click = 1) for every clicked row, in [0, 1]",
        )
