"""The truth about each estimate in a world whose propensities and errors are known; what a run reports."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from unskew.base.errors import DataError
from unskew.theory._arrays import numbers, true_propensity
from unskew.theory.estimates import (
    DEFAULT_BINS,
    BiasSplit,
    ideal_loss,
    ips_estimate,
    ips_variance,
    naive_estimate,
    snips_bias,
    snips_estimate,
    snips_variance,
    split_bias,
)

_PARTS = ("calibration", "refinement", "discretisation")


@dataclass(frozen=True)
class EstimateTruth:
    """One estimate of the ideal loss beside the truth.

    Attributes
    ----------
    estimate
        From the clicks at hand.
    expected
        Its expectation over clicks, with the propensities held fixed.
    bias
        Ideal loss − ``expected`` (Lemma 1): positive when the estimate is too low on average.
    standard_error
        Of the estimate over clicks, from the true propensities.
    standard_errors_off
        (``estimate`` − ideal loss) ÷ ``standard_error``; None where the estimate cannot vary.
    snips
        The self-normalised estimate with the same propensities; None for the naive estimate.
    split
        ``bias`` in its calibration and refinement part; None for the naive estimate.
    """

    estimate: float
    expected: float
    bias: float
    standard_error: float
    standard_errors_off: float | None
    snips: float | None = None
    split: BiasSplit | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return plain numbers, for JSON; the parts of the bias stand beside the rest."""
        flat = asdict(self)
        parts = flat.pop("split")
        return flat if parts is None else flat | {name: parts[name] for name in _PARTS}


@dataclass(frozen=True)
class TruthReport:
    """The ideal loss, the naive estimate of it, and IPS with each of several propensities."""

    ideal: float
    naive: EstimateTruth
    ips: Mapping[str, EstimateTruth]

    def to_dict(self) -> dict[str, Any]:
        """Return plain numbers, for JSON."""
        return {
            "ideal": self.ideal,
            "naive": self.naive.to_dict(),
            "ips": {name: estimate.to_dict() for name, estimate in self.ips.items()},
        }


def truth_report(
    *,
    propensity_true: Any,
    error: Any,
    click: Any,
    propensities: Mapping[str, Any],
    bins: int | None = DEFAULT_BINS,
) -> TruthReport:
    r"""Return each estimate of the ideal loss, its bias, the two parts of it, and its standard error.

    .. math::
        bias = L - E[\hat L] = calibration + refinement, \qquad
        standard\ error = \sqrt{\frac{1}{|D|^2} \sum_D \frac{p(1-p)}{q^2} e^2}

    for IPS with each q in ``propensities``; the naive estimate has its first-order bias −Cov(p, e)/p̄ and
    delta-method standard error. For worlds where p and all of e are known, such as the synthetic data.

    Parameters
    ----------
    propensity_true
        p over D, for example of shape [users, items].
    error
        e over D: the error of one fixed model on every pair.
    click
        o over D, the clicks from which the estimates are made.
    propensities
        Name → q over D, as they enter the weights (after clipping): raw, calibrated, constant, true.
        Bias and standard error are those of these very numbers, held fixed, also where q was made from
        the same clicks: |O|/|D| misses the true base rate by chance, and that counts as calibration part.
    bins
        For the split, as in :func:`unskew.theory.split_bias`.

    Examples
    --------
    >>> p, e = [0.25, 0.75], [1.0, 2.0]
    >>> truth = truth_report(propensity_true=p, error=e, click=[0, 1], propensities={"constant": [0.5, 0.5]})
    >>> truth.ideal, truth.naive.bias, truth.ips["constant"].split.refinement
    (1.5, -0.25, -0.25)
    """
    if not propensities:
        raise DataError("there are no propensities to judge", remedy='give for example {"raw": p_raw}')
    p, e = true_propensity(propensity_true), numbers(error, "error")
    ideal = ideal_loss(e)
    constant = np.ones_like(p)
    naive = _compare(
        ideal,
        naive_estimate(click=click, error=e),
        snips_bias(propensity_true=p, propensity_used=constant, error=e).signed,
        snips_variance(propensity_true=p, propensity_used=constant, error=e),
    )
    ips = {}
    for name, q in propensities.items():
        split = split_bias(propensity_true=p, propensity_used=q, error=e, bins=bins)
        variance = ips_variance(propensity_true=p, propensity_used=q, error=e)
        truth = _compare(ideal, ips_estimate(click=click, propensity=q, error=e), split.total, variance)
        ips[name] = replace(truth, snips=snips_estimate(click=click, propensity=q, error=e), split=split)
    return TruthReport(ideal=ideal, naive=naive, ips=ips)


def _compare(ideal: float, estimate: float, bias: float, variance: float) -> EstimateTruth:
    standard_error = float(np.sqrt(variance))
    return EstimateTruth(
        estimate=estimate,
        expected=ideal - bias,
        bias=bias,
        standard_error=standard_error,
        standard_errors_off=(estimate - ideal) / standard_error if standard_error > 0 else None,
    )
