"""Estimates of the ideal loss from clicks, their bias and variance where propensities are known."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from unskew.base.errors import DataError
from unskew.base.estimator import require_at_least
from unskew.theory._arrays import (
    Floats,
    Groups,
    NumberRecord,
    clicks,
    numbers,
    same_length,
    true_propensity,
    used_propensity,
)

DEFAULT_BINS = 100
"""Equal-mass bins that stand for the level sets of continuous propensities."""


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
    require_at_least(len(clicked), population_size=size)
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


@dataclass(frozen=True)
class Bias(NumberRecord):
    """The expected miss of an estimate.

    Attributes
    ----------
    signed
        Ideal loss − expected estimate, the sign of the paper's ∇: positive when the estimate is too low.
    absolute
        Its size, the paper's 𝓔.
    bound
        E_D[|∇| |e|], the largest it can be when nothing cancels. This, unlike the bias itself, does fall
        whenever every |∇| falls.
    """

    signed: float
    absolute: float
    bound: float


@dataclass(frozen=True)
class BiasSplit(NumberRecord):
    """The signed bias of IPS in two parts: ``total = calibration + refinement``, exactly.

    Attributes
    ----------
    total
        Ideal loss − expected estimate.
    calibration
        What a perfect recalibration of these propensities would remove.
    refinement
        What no recalibration can remove: pairs of equal propensity whose clicks and errors go together.
    discretisation
        How much of ``refinement`` would count as calibration if, within each bin, the frequency of clicks
        were a line in the propensity instead of off by a constant; 0 for level sets. Small beside the two
        parts: there were bins enough.
    groups
        Level sets or bins the population was grouped into.
    exact
        Whether the groups are level sets.
    """

    total: float
    calibration: float
    refinement: float
    discretisation: float
    groups: int
    exact: bool


def ips_bias(*, propensity_true: Any, propensity_used: Any, error: Any) -> Bias:
    r"""Compute the bias (Lemma 1) of IPS with any propensities.

    .. math::
        L - E[\hat L_{IPS}] = \frac{1}{|D|} \sum_D \nabla_{u,i} e_{u,i}, \qquad
        \nabla_{u,i} = 1 - \frac{p_{u,i}}{\hat p_{u,i}}

    p is ``propensity_true``, p̂ ``propensity_used`` (after clipping), e ``error``, all over D. Holds for p̂
    that do not depend on these clicks: fitted in sample they do, and the lemma is silent (cross-fit them).

    Examples
    --------
    >>> ips_bias(propensity_true=[0.25, 0.75], propensity_used=[0.5, 0.5], error=[1.0, 2.0]).signed
    -0.25
    """
    p, q, e = _known(propensity_true, propensity_used, error)
    return _bias((1 - p / q) * e)


def dr_bias(*, propensity_true: Any, propensity_used: Any, error: Any, imputed: Any) -> Bias:
    r"""Return the bias of the doubly robust estimate: Lemma 1 with e − ê in the place of e.

    .. math:: L - E[\hat L_{DR}] = \frac{1}{|D|} \sum_D \nabla_{u,i} (e_{u,i} - \hat e_{u,i})

    Unlike e, the deviation e − ê has no sign, so its terms cancel or not as they please: a smaller |∇|
    everywhere need not mean a smaller bias even when all ∇ have one sign.

    Examples
    --------
    >>> dr_bias(propensity_true=[0.1], propensity_used=[0.2], error=[1.0], imputed=[1.0]).signed
    0.0
    """
    deviation = _deviation(error, imputed)
    return ips_bias(propensity_true=propensity_true, propensity_used=propensity_used, error=deviation)


def snips_bias(*, propensity_true: Any, propensity_used: Any, error: Any) -> Bias:
    r"""Return the bias of SNIPS to first order (a ratio of expectations; the rest is O(1/|O|)).

    .. math::
        L - \frac{E_D[(p/\hat p)\, e]}{E_D[p/\hat p]} = E_D[\nabla' e], \qquad
        \nabla' = 1 - \frac{p/\hat p}{E_D[p/\hat p]}

    With constant propensities it is the bias of the naive estimate, −Cov(p, e)/p̄.

    Examples
    --------
    >>> snips_bias(propensity_true=[0.25, 0.75], propensity_used=[1, 1], error=[1.0, 2.0]).signed
    -0.25
    """
    p, q, e = _known(propensity_true, propensity_used, error)
    return _bias((1 - (p / q) / (p / q).mean()) * e)


def ips_variance(*, propensity_true: Any, propensity_used: Any, error: Any) -> float:
    r"""Return the variance of IPS over the draw of independent clicks.

    .. math:: V = \frac{1}{|D|^2} \sum_D \frac{p(1-p)}{\hat p^2} e^2

    Examples
    --------
    >>> ips_variance(propensity_true=[0.5, 0.5], propensity_used=[0.5, 0.5], error=[1.0, 1.0])
    0.5
    """
    p, q, e = _known(propensity_true, propensity_used, error)
    return float((p * (1 - p) * (e / q) ** 2).sum() / len(p) ** 2)


def dr_variance(*, propensity_true: Any, propensity_used: Any, error: Any, imputed: Any) -> float:
    r"""Return the variance of the doubly robust estimate: that of IPS with e − ê in the place of e.

    .. math:: V = \frac{1}{|D|^2} \sum_D \frac{p(1-p)}{\hat p^2} (e - \hat e)^2

    Examples
    --------
    >>> dr_variance(propensity_true=[0.5], propensity_used=[0.5], error=[1.0], imputed=[1.0])
    0.0
    """
    deviation = _deviation(error, imputed)
    return ips_variance(propensity_true=propensity_true, propensity_used=propensity_used, error=deviation)


def snips_variance(*, propensity_true: Any, propensity_used: Any, error: Any) -> float:
    r"""Return the variance of SNIPS to first order (delta method).

    .. math::
        V \approx \frac{1}{|D|^2 w^2} \sum_D \frac{p(1-p)}{\hat p^2} (e - \mu)^2, \qquad
        w = E_D[p/\hat p], \quad \mu = E_D[(p/\hat p)\, e] / w

    With constant propensities it is the variance of the naive estimate.

    Examples
    --------
    >>> snips_variance(propensity_true=[0.5, 0.5], propensity_used=[1, 1], error=[1.0, 1.0])
    0.0
    """
    p, q, e = _known(propensity_true, propensity_used, error)
    scale = (p / q).mean()
    centre = (p / q * e).mean() / scale
    return ips_variance(propensity_true=p, propensity_used=q, error=e - centre) / float(scale) ** 2


def split_bias(
    *, propensity_true: Any, propensity_used: Any, error: Any, bins: int | None = DEFAULT_BINS
) -> BiasSplit:
    r"""Split the bias of IPS into what calibration can remove and what it cannot.

    .. math::
        E_D\Bigl[\Bigl(1 - \frac pq\Bigr) e\Bigr]
        = \underbrace{E_D\Bigl[\frac{q - c(q)}{q}\, \bar e(q)\Bigr]}_{calibration}
        \; \underbrace{- E_D\Bigl[\frac{\mathrm{Cov}(p, e \mid q)}{q}\Bigr]}_{refinement}

    with q ``propensity_used``, c(q) = E[p | q] the true frequency of clicks where q is used, and ē(q) =
    E[e | q]. For level sets of q this is the sum above, term by term. Continuous q hardly ever repeat, so
    equal-mass bins g of q stand for level sets, and the same algebra (E[ab] = E[a]E[b] + Cov(a, b) with
    a = q − p, b = e/q) keeps the sum exact:

    .. math::
        calibration = \sum_g \frac{n_g}{n} (\bar q_g - \bar p_g) \overline{(e/q)}_g, \qquad
        refinement = \sum_g \frac{n_g}{n} \mathrm{Cov}_g(q - p,\; e/q)

    Both formulas agree when q is constant in g. Where it is not, the binned parts differ from those of the
    level sets by Σ_g (n_g/n) Cov_g(q − c(q), e/q), nothing if q is off by a constant within the bin;
    ``discretisation`` is this term with c(q) replaced by the least-squares line of p on q in g.

    Parameters
    ----------
    bins
        Equal-mass bins where there are more distinct propensities than this; None for level sets always.

    Examples
    --------
    A constant propensity is perfectly calibrated, and all of its bias is refinement:

    >>> split = split_bias(propensity_true=[0.25, 0.75], propensity_used=[0.5, 0.5], error=[1.0, 2.0])
    >>> split.calibration, split.refinement
    (0.0, -0.25)
    """
    p, q, e = _known(propensity_true, propensity_used, error)
    groups = Groups.of(q, bins)
    weighted_error = e / q
    calibration = groups.share * groups.mean(q - p) * groups.mean(weighted_error)
    refinement = groups.share * groups.covariance(q - p, weighted_error)
    discretisation = 0.0
    if not groups.exact:
        spread = groups.covariance(q, q)
        slope = np.divide(groups.covariance(p, q), spread, out=np.ones_like(spread), where=spread > 0)
        lost = groups.share * (1 - slope) * groups.covariance(q, weighted_error)
        discretisation = float(lost.sum())
    return BiasSplit(
        total=float(((1 - p / q) * e).mean()),
        calibration=float(calibration.sum()),
        refinement=float(refinement.sum()),
        discretisation=discretisation,
        groups=len(groups.rows),
        exact=groups.exact,
    )


def _bias(contribution: Floats) -> Bias:
    signed = float(contribution.mean())
    return Bias(signed=signed, absolute=abs(signed), bound=float(np.abs(contribution).mean()))


def _deviation(error: Any, imputed: Any) -> Floats:
    e, guess = numbers(error, "error"), numbers(imputed, "imputed")
    same_length(error=e, imputed=guess)
    return e - guess


def _known(propensity_true: Any, propensity_used: Any, error: Any) -> tuple[Floats, Floats, Floats]:
    p, q = true_propensity(propensity_true), used_propensity(propensity_used)
    e = numbers(error, "error")
    same_length(propensity_true=p, propensity_used=q, error=e)
    return p, q, e
