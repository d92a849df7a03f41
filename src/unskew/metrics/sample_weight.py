"""Weights of rows for a model of one's own, from clicks and propensities: NumPy in, NumPy out."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import numpy as np
from numpy.typing import NDArray

from unskew.base.errors import DataError, ParameterError
from unskew.base.numbers import parts_of
from unskew.metrics.weights import Clip, require_clip, resolve_clip

if TYPE_CHECKING:
    from torch import Tensor

Numbers = TypeVar("Numbers", "Tensor", NDArray[np.float64])
WeightName = Literal["naive", "ips", "snips", "dr-jl", "mrdr", "dr-bias", "dr-mse"]


def inverse_weight(propensity: Numbers) -> Numbers:
    """1/p: every pair of D counts the same (IPS, DR-JL)."""
    return 1.0 / propensity


def variance_weight(propensity: Numbers) -> Numbers:
    """(1 − p)/p²: the share of a click in Var_DR, with o in the place of the unknown p (MRDR)."""
    return (1.0 - propensity) / propensity**2


def bias_weight(propensity: Numbers) -> Numbers:
    """(1 − p)²/p³: the share of a click in the squared bias of DR (DR-BIAS)."""
    return (1.0 - propensity) ** 2 / propensity**3


def error_weight(propensity: Numbers, *, bias_share: float = 0.5) -> Numbers:
    """λ·(1 − p)²/p³ + (1 − λ)·(1 − p)/p²: bias and variance together (DR-MSE)."""
    return bias_share * bias_weight(propensity) + (1.0 - bias_share) * variance_weight(propensity)


WEIGHTS: dict[str, Callable[[NDArray[np.float64]], NDArray[np.float64]]] = {
    "naive": np.ones_like,
    "ips": inverse_weight,
    "snips": inverse_weight,
    "dr-jl": inverse_weight,
    "mrdr": variance_weight,
    "dr-bias": bias_weight,
    "dr-mse": error_weight,
}


def sample_weight(
    click: Any,
    propensity: Any,
    *,
    method: WeightName = "ips",
    p_min: Clip | None = "auto",
    normalise: bool | None = None,
) -> NDArray[np.float64]:
    """w = o/max(p, p_min): what ``sample_weight=`` of LightGBM, scikit-learn or Keras should be.

    Rows without a click have weight 0, as their conversion is not known; drop them, or give them any label.
    Where p is true, Σ w·loss over clicks has the expectation of Σ loss over all rows.

    Parameters
    ----------
    click
        1 where a row was clicked, 0 elsewhere; None where every row is a click.
    propensity
        P(click = 1) of each row, or one number; not read without a click. A calibrated one that did not see
        the row: :meth:`unskew.Propensity.predict`, or ``unskew weights``.
    method
        ``"ips"``: 1/p. ``"snips"``: the same with mean 1 over clicks, so that learning rates, penalties and
        limits such as ``min_child_weight`` mean what they mean without weights. ``"naive"``: 1 for every
        click. For a model that imputes conversions: ``"dr-jl"`` 1/p, ``"mrdr"`` (1 − p)/p², ``"dr-bias"``
        (1 − p)²/p³, ``"dr-mse"`` the mean of the last two.
    p_min
        Propensities below are raised to it; ``"auto"`` is the clip with the least error
        (:func:`unskew.metrics.least_error_clip`), None does not clip.
    normalise
        Whether weights have mean 1 over clicks; by default all but ``"naive"`` and ``"ips"`` do.

    Returns
    -------
    ndarray
        One weight per row, float64.

    Examples
    --------
    >>> sample_weight([1, 0, 1], [0.5, 0.1, 0.25], p_min=None)
    array([2., 0., 4.])
    >>> sample_weight([1, 0, 1], [0.5, 0.1, 0.25], p_min=None, method="snips")
    array([0.66666667, 0.        , 1.33333333])
    """
    if method not in WEIGHTS:
        raise ParameterError(f"there are no weights {method!r}", remedy=f"use one of {', '.join(WEIGHTS)}")
    if p_min is not None:
        require_clip(p_min)
    clicked, p = _rows(click, propensity)
    p = p[clicked]
    _require_propensities(p, clicked, p_min)
    if p_min is not None:
        p = np.maximum(p, resolve_clip(p_min, propensity=p))
    weight = np.asarray(WEIGHTS[method](p), dtype=np.float64)
    if method not in ("naive", "ips") if normalise is None else normalise:
        mean = weight.mean()
        # Where every p is 1 a weight such as (1 − p)/p² is 0 on every row, and stays so.
        weight = weight / (mean if mean > 0 else 1.0)
    result = np.zeros(len(clicked))
    result[clicked] = weight
    return result


def _rows(click: Any, propensity: Any) -> tuple[NDArray[np.bool_], NDArray[np.float64]]:
    """Return which rows are clicked, and the propensity of every row."""
    one = np.ndim(propensity) == 0
    p = np.array([propensity]) if one else np.concatenate(parts_of(propensity, "propensity"))
    if click is None:
        if one:
            raise ParameterError(
                "one propensity for every row, and no clicks: there are no rows", remedy="give click="
            )
        return np.ones(len(p), dtype=bool), p.astype(np.float64)
    values = np.concatenate(parts_of(click, "click"))
    wrong = np.flatnonzero(~np.isin(values, (0, 1)))
    if len(wrong):
        raise DataError(
            f"click is {values[wrong[0]]}, not 0 or 1",
            where=f"click, row {wrong[0]}",
            remedy="give 1 for a click, 0 for none",
        )
    if one:
        p = np.full(len(values), p[0])
    if len(p) != len(values):
        raise DataError(
            f"there are {len(p)} propensities for {len(values)} rows", remedy="give one for each row"
        )
    if not values.any():
        raise DataError("no row is clicked", remedy="give rows with clicks: the others have no weight")
    return values.astype(bool), p.astype(np.float64)


def _require_propensities(p: NDArray[np.float64], clicked: NDArray[np.bool_], p_min: Clip | None) -> None:
    least = "[0, 1]" if p_min is not None else "(0, 1]"
    wrong = ~((p > 0 if p_min is None else p >= 0) & (p <= 1))
    if wrong.any():
        at = int(np.flatnonzero(wrong)[0])
        raise DataError(
            f"the propensity of a click is {p[at]:g}, not in {least}",
            where=f"propensity, row {int(np.flatnonzero(clicked)[at])}",
            remedy="give P(click = 1), as a probability",
        )
