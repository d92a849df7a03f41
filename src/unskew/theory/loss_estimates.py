"""Estimates of the ideal loss from clicked pairs; how far off they are in expectation is in bias.py."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from unskew.base.errors import DataError, ParameterError
from unskew.theory._arrays import Floats, clicks, numbers, same_length, used_propensity


def ideal_loss(error: Any) -> float:
    r"""Return the loss over the whole population, known only where every error is.

    .. math:: L = \frac{1}{|D|} \sum_{(u,i) \in D} e_{u,i}

    Examples
    --------
    >>> ideal_loss([[0.2, 0.4], [0.6, 0.8]])
    0.5
    """
    return float(numbers(error, "error").mean())


def naive_estimate(*, click: Any, error: Any) -> float:
    r"""Return the mean error of the clicked pairs O.

    .. math:: \hat L_{naive} = \frac{1}{|O|} \sum_{(u,i) \in O} e_{u,i}

    The paper divides by |D| instead, which measures the share of clicks as much as the loss; the mean is
    what its code minimises. Biased whenever clicks and errors go together. Errors without a click are not
    read and may be NaN.

    Examples
    --------
    >>> naive_estimate(click=[1, 0, 1], error=[0.2, float("nan"), 0.4])
    0.30000000000000004
    """
    clicked, observed = _observed(click, error)
    _require_click(clicked)
    return float(observed.mean())


def ips_estimate(*, click: Any, propensity: Any, error: Any, population_size: int | None = None) -> float:
    r"""Estimate the loss by inverse propensity scoring.

    .. math:: \hat L_{IPS} = \frac{1}{|D|} \sum_{(u,i) \in O} \frac{e_{u,i}}{\hat p_{u,i}}

    Unbiased if ``propensity`` is the true one and was not fitted to these clicks; see
    :func:`unskew.theory.ips_bias` for what else. With the constant |O|/|D| it *is* the naive estimate.

    Parameters
    ----------
    click, propensity, error
        One value per pair, errors read only where clicked. Clip propensities before, not after.
    population_size
        |D|, when only the clicked pairs are given (``click`` all 1); by default the pairs given.

    Examples
    --------
    >>> ips_estimate(click=[1, 0, 1, 0], propensity=[0.5] * 4, error=[0.2, 0.3, 0.4, 0.5])
    0.30000000000000004
    >>> ips_estimate(click=[1, 1], propensity=[0.5, 0.5], error=[0.2, 0.4], population_size=4)
    0.30000000000000004
    """
    clicked, observed = _observed(click, error)
    weight = _weights(clicked, propensity)
    size = len(clicked) if population_size is None else population_size
    if size < len(clicked):
        raise ParameterError(
            f"population_size {size} is smaller than the {len(clicked)} pairs given",
            remedy="give the number of all pairs, at least those given",
        )
    return float((weight * observed).sum() / size)


def snips_estimate(*, click: Any, propensity: Any, error: Any) -> float:
    r"""Estimate the loss by self-normalised inverse propensity scoring.

    .. math:: \hat L_{SNIPS} = \sum_{O} \frac{e_{u,i}}{\hat p_{u,i}} \Big/ \sum_{O} \frac{1}{\hat p_{u,i}}

    Blind to the scale of the propensities, of smaller variance than IPS, biased by O(1/|O|).

    Examples
    --------
    >>> snips_estimate(click=[1, 0, 1], propensity=[0.25, 0.5, 0.5], error=[0.5, 0.3, 0.125])
    0.375
    """
    clicked, observed = _observed(click, error)
    _require_click(clicked)
    weight = _weights(clicked, propensity)
    return float((weight * observed).sum() / weight.sum())


def dr_estimate(*, click: Any, propensity: Any, error: Any, imputed: Any) -> float:
    r"""Estimate the loss doubly robustly.

    .. math::
        \hat L_{DR} = \frac{1}{|D|} \sum_{D} \hat e_{u,i}
        + \frac{1}{|D|} \sum_{O} \frac{e_{u,i} - \hat e_{u,i}}{\hat p_{u,i}}

    Unbiased if the propensities are true *or* the imputed errors are.

    Examples
    --------
    >>> dr_estimate(click=[1, 0], propensity=[0.5, 0.5], error=[0.2, 0.6], imputed=[0.2, 0.6])
    0.4
    """
    clicked, observed = _observed(click, error)
    guess = numbers(imputed, "imputed")
    same_length(click=clicked, imputed=guess)
    correction = _weights(clicked, propensity) * (observed - guess[clicked])
    return float(guess.mean() + correction.sum() / len(clicked))


def _observed(click: Any, error: Any) -> tuple[NDArray[np.bool_], Floats]:
    clicked = clicks(click)
    every = np.asarray(error, dtype=np.float64).ravel()
    same_length(click=clicked, error=every)
    unknown = clicked & ~np.isfinite(every)
    if unknown.any():
        raise DataError(
            f"error is NaN or infinite where click is 1 ({int(unknown.sum())} such pairs)",
            where=f"error, pair {int(np.flatnonzero(unknown)[0])}",
            remedy="give the error of every clicked pair; clip predictions away from 0 and 1",
        )
    return clicked, every[clicked]


def _require_click(clicked: NDArray[np.bool_]) -> None:
    if not clicked.any():
        raise DataError("no pair is clicked", remedy="a mean over clicked pairs needs at least one click")


def _weights(clicked: NDArray[np.bool_], propensity: Any) -> Floats:
    p = np.asarray(propensity, dtype=np.float64).ravel()
    same_length(click=clicked, propensity=p)
    if not clicked.any():
        return np.empty(0)
    return 1.0 / used_propensity(p[clicked], "propensity of the clicked pairs")
