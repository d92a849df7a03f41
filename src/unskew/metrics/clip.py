"""Where to clip propensities: the clip whose bias and variance together cost the least."""

from __future__ import annotations

from typing import Any, Literal, cast

import numpy as np
from numpy.typing import NDArray

from unskew.base.errors import ParameterError

Clip = float | Literal["auto"]
"""A number in (0, 1), or ``"auto"`` for :func:`least_error_clip`."""

EQUAL = 1e-12
"""Errors that differ relatively by less are equal; the larger clip is taken."""


def least_error_clip(*, propensity: Any, count: Any = None) -> float:
    r"""The clip of inverse-propensity weights with the least estimated error.

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
    kept = squares.sum() - np.cumsum(squares) + below * weight**2
    return cast(NDArray[np.float64], (lost / total) ** 2 + kept / total**2)


def resolve_clip(p_min: Clip, *, propensity: Any, count: Any = None) -> float:
    """A clip as a number: itself, or the least error's for these propensities of clicked rows."""
    return least_error_clip(propensity=propensity, count=count) if p_min == "auto" else float(p_min)


def require_clip(p_min: Clip) -> None:
    """Raise unless a clip is ``"auto"`` or a number in (0, 1)."""
    number = isinstance(p_min, int | float | np.number) and not isinstance(p_min, bool)
    if p_min != "auto" and not (number and 0.0 < float(p_min) < 1.0):
        raise ParameterError(
            f"p_min must be 'auto' or a number in (0, 1), not {p_min!r}", remedy="use 'auto'"
        )
