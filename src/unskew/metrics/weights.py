"""What inverse-propensity weights look like: their size, how many rows they leave, what clipping costs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from unskew.base.errors import DataError, ParameterError
from unskew.base.numbers import parts_of
from unskew.metrics.clip import Clip, resolve_clip


@dataclass(frozen=True)
class WeightDiagnostics:
    """Figures of the weights 1/max(p, p_min) of the clicked rows.

    Attributes
    ----------
    rows
        |O|, the clicked rows.
    smallest, median, largest
        Of the weights.
    effective_sample_size
        (Σw)² / Σw²: as many rows of equal weight carry the same information.
    clipped
        Share of clicked rows with p < p_min.
    weight_check
        Σ_O 1/p ÷ |D| before clipping, 1 for honest propensities; None without a population size.
    clipped_mass
        Σ_O (1/p − 1/max(p, p_min)) ÷ Σ_O 1/p: the share of the sum of the weights that the clip takes; 1
        where a clicked row has p = 0.
    p_min
        The clip, as a number.
    """

    rows: int
    smallest: float
    median: float
    largest: float
    effective_sample_size: float
    clipped: float
    weight_check: float | None
    clipped_mass: float
    p_min: float


def weight_diagnostics(
    *, propensity: Any, p_min: Clip, population_size: int | None = None
) -> WeightDiagnostics:
    r"""Figures of the inverse-propensity weights of the clicked rows.

    .. math::
        w = \frac{1}{\max(p, p_{\min})}, \quad
        \mathrm{ESS} = \frac{(\sum_O w)^2}{\sum_O w^2}, \quad
        \text{check} = \frac{1}{|D|} \sum_O \frac1p, \quad
        \text{clipped mass} = 1 - \frac{\sum_O w}{\sum_O 1/p}

    Look at it before weights are used: an effective sample size far below |O| means that few rows
    decide, a check far from 1 that the propensities are not honest, a clipped mass above 10 %
    (:func:`unskew.metrics.judgement.judge_clip`) that the clip decides. The share of *rows* below the clip
    says less: it is the rare rows of large weight that carry the mass.

    Parameters
    ----------
    propensity
        Propensities of the clicked rows alone, in [0, 1].
    p_min
        Propensities are clipped here; 0 for no clip, ``"auto"`` for the clip with the least error
        (:func:`least_error_clip`).
    population_size
        |D|: all pairs of the space, or all impressions.

    Examples
    --------
    >>> figures = weight_diagnostics(propensity=[0.5, 0.25, 0.01], p_min=0.05, population_size=30)
    >>> figures.largest, round(figures.clipped, 3), round(figures.weight_check, 3)
    (20.0, 0.333, 3.533)
    """
    p = np.concatenate([part.astype(np.float64) for part in parts_of(propensity, "propensity")])
    if p_min != "auto" and not 0 <= p_min <= 1:
        raise ParameterError(f"p_min must be 'auto' or in [0, 1], not {p_min!r}", remedy="use 'auto'")
    if population_size is not None and population_size < len(p):
        raise ParameterError(
            f"population_size {population_size} is less than the {len(p)} clicked rows",
            remedy="give |D|, the size of the whole space",
        )
    if not len(p):
        raise DataError("there are no clicked rows", remedy="give the propensities of the clicked rows")
    bad = ~((p >= 0) & (p <= 1))
    if bad.any():
        row = int(np.flatnonzero(bad)[0])
        raise DataError(
            f"propensity {p[row]:g} is not in [0, 1]",
            where=f"propensity, row {row}",
            remedy="give probabilities, not logits or weights, without missing values",
        )
    p_min = resolve_clip(p_min, propensity=p)
    if p_min == 0 and (p == 0).any():
        raise DataError(
            "propensity is 0: its weight is infinite",
            where=f"propensity, row {int(np.flatnonzero(p == 0)[0])}",
            remedy="clip with p_min > 0, or calibrate so that no clicked row has propensity 0",
        )
    weight = 1.0 / np.maximum(p, p_min)
    with np.errstate(divide="ignore"):
        unclipped = float((1.0 / p).sum())
    total = float(weight.sum())
    return WeightDiagnostics(
        rows=len(p),
        smallest=float(weight.min()),
        median=float(np.median(weight)),
        largest=float(weight.max()),
        effective_sample_size=total**2 / float(weight @ weight),
        clipped=float((p < p_min).mean()),
        weight_check=None if population_size is None else unclipped / population_size,
        clipped_mass=1.0 - total / unclipped,
        p_min=p_min,
    )
