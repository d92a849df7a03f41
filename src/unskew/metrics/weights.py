"""Figures of inverse-propensity weights: their size, the effective rows, what clipping costs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, cast

import numpy as np
from numpy.typing import NDArray

from unskew.base.errors import DataError, ParameterError
from unskew.base.numbers import parts_of


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
    r"""Return the figures of the inverse-propensity weights of the clicked rows.

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


Clip = float | Literal["auto"]
"""A number in (0, 1), or ``"auto"`` for :func:`least_error_clip`."""

EQUAL = 1e-12
"""Errors that differ relatively by less are equal; the larger clip is taken."""


def least_error_clip(*, propensity: Any, count: Any = None) -> float:
    r"""Return the clip of inverse-propensity weights with the least estimated error.

    .. math::
        p_{\min} = \arg\min_c \; B(c)^2 + V(c), \qquad
        B(c) = \frac{\sum_O \left(\frac1p - \frac1{\max(p, c)}\right)}{\sum_O \frac1p}, \qquad
        V(c) = \frac{\sum_O \max(p, c)^{-2}}{\left(\sum_O \frac1p\right)^2}

    A weighted mean of losses loses at most the share B of its weight to the clip, and has about the relative
    variance V = 1/ESS: their sum is the mean squared error of the estimate for losses of size 1. Both are
    shares, so the rule is the same at any density: on many rows it clips next to nothing, on few rows, or
    where a handful of weights outweighs all others, as much as pays. Candidates are the propensities
    themselves.

    Parameters
    ----------
    propensity
        Propensities of the clicked rows, in [0, 1]. Zeros count as the smallest that is not 0.
    count
        How many rows each stands for; by default one.

    Returns
    -------
    float
        In (0, 1]; at most 1/2, so that there is always a range of weights.

    Examples
    --------
    >>> even = least_error_clip(propensity=[0.02] * 5000 + [0.1] * 5000)
    >>> wild = least_error_clip(propensity=[0.02] * 5000 + [1e-7])
    >>> even, wild
    (0.02, 0.02)
    """
    p = np.asarray(propensity, dtype=np.float64).ravel()
    rows = np.ones_like(p) if count is None else np.asarray(count, dtype=np.float64).ravel()
    positive = p[(p > 0) & (rows > 0)]
    if not len(positive):
        raise ParameterError(
            "no clicked row has a propensity above 0, so that no clip can be chosen",
            remedy="give propensities of the clicked rows, or a p_min of your own",
        )
    p = np.maximum(p, positive.min())
    order = np.argsort(p)
    p, rows = p[order], rows[order]
    # In units of the largest weight, so that squares of weights over many decades stay finite.
    weight = p[0] / p
    error = _error(weight, rows)
    # Where one weight is all there is, clipping it or not is equally wrong to rounding: clip.
    least = np.flatnonzero(error <= error.min() * (1.0 + EQUAL))[-1]
    return float(min(p[least], 0.5))


def _error(weight: NDArray[np.float64], rows: NDArray[np.float64]) -> NDArray[np.float64]:
    """B² + V for a clip at each of the weights, which fall."""
    total = float(rows @ weight)
    below = np.cumsum(rows)
    lost = np.cumsum(rows * weight) - below * weight
    squares = rows * weight**2
    squares_left = squares.sum() - np.cumsum(squares) + below * weight**2
    return cast(NDArray[np.float64], (lost / total) ** 2 + squares_left / total**2)


def resolve_clip(p_min: Clip, *, propensity: Any, count: Any = None) -> float:
    """Return a clip as a number: itself, or the least error's for these propensities of clicked rows."""
    return least_error_clip(propensity=propensity, count=count) if p_min == "auto" else float(p_min)


def require_clip(p_min: Clip) -> None:
    """Raise unless a clip is ``"auto"`` or a number in (0, 1)."""
    number = isinstance(p_min, int | float | np.number) and not isinstance(p_min, bool)
    if p_min != "auto" and not (number and 0.0 < float(p_min) < 1.0):
        raise ParameterError(
            f"p_min must be 'auto' or a number in (0, 1), not {p_min!r}", remedy="use 'auto'"
        )
