"""Bounds that hold, where the paper's do not, and what a log without true propensities can tell."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from unskew.base.estimator import require_at_least, require_in, require_share
from unskew.theory._arrays import (
    Groups,
    NumberRecord,
    clicks,
    numbers,
    same_length,
    true_propensity,
    used_propensity,
)
from unskew.theory.estimates import DEFAULT_BINS, split_bias

ECE_BINS = 100
"""Equal-width bins of the paper's ECE."""


@dataclass(frozen=True)
class EceBound(NumberRecord):
    """The corrected Corollary 2, term by term; see :func:`ece_bound`.

    Attributes
    ----------
    calibration
        The calibration part of the bias of IPS (signed), the quantity that is bounded.
    bound
        ``error_max / smallest_propensity · (ece + width + oscillation)``.
    ece
        ECE with the true propensities in the place of clicks: nothing of it is noise.
    width
        1/M, the most by which propensities differ within a bin.
    oscillation
        The most by which the frequency of clicks differs within a bin.
    """

    calibration: float
    bound: float
    ece: float
    width: float
    oscillation: float
    error_max: float
    smallest_propensity: float


@dataclass(frozen=True)
class GeneralisationBound(NumberRecord):
    """The corrected Theorem 2, term by term; see :func:`generalisation_bound`.

    Attributes
    ----------
    empirical_risk
        The IPS estimate of the chosen model's loss.
    bias
        Δ · E_D|1 − p/p̃|.
    deviation
        What chance may add, over all models that were chosen from.
    total
        The sum: the ideal loss is below it with probability at least 1 − η.
    """

    empirical_risk: float
    bias: float
    deviation: float
    total: float


@dataclass(frozen=True)
class EstimableParts(NumberRecord):
    """The parts of the bias of IPS that clicks alone can estimate; see :func:`estimable_parts`.

    Attributes
    ----------
    weight_check
        Σ_O 1/q ÷ |D|, 1 in expectation for true propensities; 1 − it estimates E_D[1 − p/q] without bias.
    weight_check_standard_error
        An upper estimate of its standard error, √(Σ_O 1/q²) ÷ |D|.
    calibration_bound
        Estimated bound of the calibration part's size. Too high rather than too low on average: noise in
        the frequencies only adds to it.
    calibration_noise
        About what ``calibration_bound`` would be for perfectly calibrated propensities, by noise alone.
    groups
        Level sets or bins the population was grouped into.
    """

    weight_check: float
    weight_check_standard_error: float
    calibration_bound: float
    calibration_noise: float
    groups: int


def ece_bound(
    *,
    propensity_true: Any,
    propensity_used: Any,
    error: Any,
    ece_bins: int = ECE_BINS,
    bins: int | None = DEFAULT_BINS,
) -> EceBound:
    r"""Return how ECE bounds the calibration part of the bias: the corrected Corollary 2.

    .. math::
        |calibration| \le \frac{e_{max}}{q_{min}}
        \Bigl( \mathrm{ECE}_M + \frac1M + \max_m \mathrm{osc}_{B_m} c \Bigr)

    q is ``propensity_used``, c(q) = E[p | q], and osc the largest minus the smallest c in a bin. The paper
    states n·ECE for the whole bias. The weight 1/q is missing there; binned ECE is *below* E|q − c(q)|, so
    the two last terms are needed; and the refinement part is not bounded by any calibration error.

    With q_min = .02 and M = 100 the width alone gives e_max / 2: true, and far from sharp. It is here to
    show what ECE can promise, not to be reported as a guarantee; :func:`estimable_parts` has a sharper one.

    Parameters
    ----------
    ece_bins
        M, equal-width bins (lo, hi] of ECE.
    bins
        How level sets of q are grouped, as in :func:`unskew.theory.split_bias`.

    Examples
    --------
    >>> result = ece_bound(propensity_true=[0.001], propensity_used=[0.002], error=[1.0])
    >>> round(result.calibration, 3), round(result.bound, 3)
    (0.5, 5.5)
    """
    require_at_least(1, ece_bins=ece_bins)
    split = split_bias(
        propensity_true=propensity_true, propensity_used=propensity_used, error=error, bins=bins
    )
    p, q = true_propensity(propensity_true), used_propensity(propensity_used)
    groups = Groups.of(q, bins)
    level, frequency = groups.mean(q), groups.mean(p)
    bin_of_group = np.clip(np.ceil(level * ece_bins).astype(np.int64) - 1, 0, ece_bins - 1)
    gap = np.bincount(bin_of_group, weights=groups.share * (frequency - level))
    highest, lowest = np.zeros(ece_bins), np.ones(ece_bins)
    np.maximum.at(highest, bin_of_group, frequency)
    np.minimum.at(lowest, bin_of_group, frequency)
    ece, width = float(np.abs(gap).sum()), 1.0 / ece_bins
    oscillation = float(np.maximum(highest - lowest, 0.0).max())
    error_max, smallest = float(np.abs(numbers(error, "error")).max()), float(q.min())
    return EceBound(
        calibration=split.calibration,
        bound=error_max / smallest * (ece + width + oscillation),
        ece=ece,
        width=width,
        oscillation=oscillation,
        error_max=error_max,
        smallest_propensity=smallest,
    )


def generalisation_bound(
    *,
    propensity_true: Any,
    propensity_used: Any,
    empirical_risk: float,
    error_max: float,
    hypotheses: float,
    failure_probability: float = 0.05,
) -> GeneralisationBound:
    r"""Return how far a chosen model's ideal loss may be above its IPS estimate: the corrected Theorem 2.

    .. math::
        L(\hat R^*) \le \hat L_{IPS}(\hat R^*)
        + \Delta\, E_D\Bigl|1 - \frac{p}{\tilde p}\Bigr|
        + \Delta \sqrt{\frac{\log(2|H|/\eta)}{2|D|^2} \sum_D \frac{1}{\tilde p^2}}

    with probability at least 1 − η (``failure_probability``) for independent clicks, errors in [0, Δ]
    (``error_max``), a finite set H of ``hypotheses`` models, and p̃ (``propensity_used``) that do not depend
    on these clicks. Against the paper: absolute values in the bias term (signed terms cancel), Δ in both
    terms (the cross entropy is unbounded unless predictions are clipped), p̃ and not p̂ under the root, and
    the IPS estimate, not the observed loss, in front.

    Hoeffding's inequality takes every weight at its worst, so the last term is far above a standard error;
    for a number to report, use :func:`unskew.theory.ips_variance`.

    Examples
    --------
    >>> bound = generalisation_bound(propensity_true=[0.5] * 400, propensity_used=[0.5] * 400,
    ...                              empirical_risk=0.3, error_max=1.0, hypotheses=10)
    >>> bound.bias, round(bound.deviation, 3)
    (0.0, 0.173)
    """
    p, q = true_propensity(propensity_true), used_propensity(propensity_used)
    same_length(propensity_true=p, propensity_used=q)
    require_share("failure_probability", failure_probability, "0.05")
    require_at_least(1, hypotheses=hypotheses)
    require_in("(0, inf)", error_max=error_max)
    bias = error_max * float(np.abs(1 - p / q).mean())
    log_term = np.log(2.0) + np.log(hypotheses) - np.log(failure_probability)
    deviation = error_max * float(np.sqrt(log_term / 2 * (q**-2.0).sum()) / len(q))
    return GeneralisationBound(
        empirical_risk=float(empirical_risk),
        bias=bias,
        deviation=deviation,
        total=float(empirical_risk) + bias + deviation,
    )


def estimable_parts(
    *, click: Any, propensity: Any, error_max: float, bins: int | None = DEFAULT_BINS
) -> EstimableParts:
    r"""Return what any log says about the bias of IPS, without knowing the true propensities.

    .. math::
        \frac{1}{|D|} \sum_O \frac1q \to E_D\Bigl[\frac pq\Bigr], \qquad
        |calibration| \le \Delta \sum_g \frac{n_g}{n}\, |\bar q_g - \bar p_g| \; \overline{(1/q)}_g

    with the frequency of clicks in g in the place of p̄_g. ``click`` and ``propensity`` (q) cover all of D;
    Δ (``error_max``) bounds the error of any pair, −log ε for a cross entropy of predictions clipped to
    [ε, 1 − ε]. The propensities must come from other clicks (held out or out of fold).

    The refinement part is not here: it needs the errors of pairs that nobody clicked. A log can show that
    propensities are bad, never that they are good.

    Examples
    --------
    >>> parts = estimable_parts(click=[1, 0, 0, 0] * 25, propensity=[0.5] * 100, error_max=1.0)
    >>> parts.weight_check, parts.calibration_bound
    (0.5, 0.5)
    """
    clicked = clicks(click)
    q = used_propensity(propensity, "propensity")
    same_length(click=clicked, propensity=q)
    require_in("(0, inf)", error_max=error_max)
    groups = Groups.of(q, bins)
    weight = 1.0 / q
    mean_weight = groups.mean(weight)
    gap = np.abs(groups.mean(q) - groups.mean(clicked.astype(np.float64)))
    # E|frequency − q̄| in each group of calibrated propensities, by the normal law: √(2/π) σ.
    noise = np.sqrt(2 / np.pi * groups.mean(q * (1 - q)) / groups.rows)
    return EstimableParts(
        weight_check=float(weight[clicked].sum() / len(q)),
        weight_check_standard_error=float(np.sqrt((weight[clicked] ** 2).sum()) / len(q)),
        calibration_bound=error_max * float((groups.share * gap * mean_weight).sum()),
        calibration_noise=error_max * float((groups.share * noise * mean_weight).sum()),
        groups=len(groups.rows),
    )
