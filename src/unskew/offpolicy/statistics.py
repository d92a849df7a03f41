"""Metrics of held-out clicks: what each of them adds to an estimate, linear in its weight."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammaln

from unskew.metrics.sketch_grid import LIKELIHOOD_FLOOR
from unskew.offpolicy.evidence import Atoms, Evidence
from unskew.offpolicy.inputs import OffPolicyMetric
from unskew.offpolicy.weighing import Contribution, Weighted

Floats = NDArray[np.float64]
Gain = Literal["dcg", "hits"]


def contribution_of(
    metric: OffPolicyMetric,
    scores: Floats,
    evidence: Evidence,
    number: int,
    weighted: Weighted,
    imputed: Floats | None,
    slate: int,
) -> Contribution:
    r"""Return what each held-out click of the seed with this number adds to a metric, linear in its weight.

    Every metric is linear in the conversion, x(r) = r·x(1) + (1 − r)·x(0), so an estimator is how many
    conversions and non-conversions each pair stands for: w·r and w·(1 − r) under IPS and SNIPS; under DR
    λ·r̃ + w·(r − r̃) and λ·(1 − r̃) − w·(r − r̃), where λ counts the unseen pairs that a candidate stands for.
    A loss or a gain is a mean of what pairs add; the AUC is no mean, and enters with its derivative,

    .. math::
        x_i = A + |D'| \frac{\partial A}{\partial w_i}, \qquad
        \frac{\partial A}{\partial t_i} = \frac{F_0(s_i) - A}{\sum t}, \qquad
        \frac{\partial A}{\partial \bar t_i} = \frac{1 - F_1(s_i) - A}{\sum \bar t}

    with t and t̄ the masses of conversion and non-conversion, F₀ and F₁ the shares of t̄ and t below.
    """
    atoms = evidence.seeds[number]
    held = slice(0, evidence.rows)
    size = evidence.by_group(atoms.size)
    shown = scores[number, atoms.position]
    guess = None if imputed is None else imputed[number, atoms.position]
    if metric.kind == "auc":
        clicked = replace(atoms, weight=np.concatenate([weighted.weight, atoms.weight[evidence.rows :]]))
        if_converted, if_not = _auc_values(shown, *_masses(clicked, guess), float(size.sum()))
    else:
        gained, lost = _values(metric, atoms, shown, slate)
        if_converted, if_not = gained, np.broadcast_to(np.asarray(lost, dtype=np.float64), gained.shape)
    units = evidence.by_group() if metric.ranks else size
    conversion = atoms.conversion[held]
    if guess is None:
        value = if_not[held] + conversion * (if_converted[held] - if_not[held])
        return Contribution(value, np.zeros(len(units)), units)
    added = atoms.stands_for * (if_not + guess * (if_converted - if_not))
    return Contribution(
        (conversion - guess[held]) * (if_converted[held] - if_not[held]),
        np.bincount(atoms.group, weights=added, minlength=len(units)).astype(np.float64),
        units,
    )


def _auc_values(score: Floats, positive: Floats, negative: Floats, pairs: float) -> tuple[Floats, Floats]:
    """Return what a unit of mass at each score adds to the AUC if it is converted, and if it is not."""
    level = np.unique(score, return_inverse=True)[1]
    higher, lower = (np.bincount(level, weights=mass) for mass in (positive, negative))
    if higher.sum() == 0 or lower.sum() == 0:
        nothing = np.full(len(score), np.nan)
        return nothing, nothing
    below = ((np.cumsum(lower) - lower / 2.0) / lower.sum())[level]
    above = 1.0 - ((np.cumsum(higher) - higher / 2.0) / higher.sum())[level]
    auc = float(positive @ below / positive.sum())
    return auc + pairs * (below - auc) / positive.sum(), auc + pairs * (above - auc) / negative.sum()


def _masses(atoms: Atoms, imputed: Floats | None) -> tuple[Floats, Floats]:
    """Return how many conversions and non-conversions of the unseen pairs each atom stands for."""
    if imputed is None:
        positive = atoms.weight * atoms.conversion
        return positive, atoms.weight - positive
    correction = atoms.weight * (atoms.conversion - imputed)
    return atoms.stands_for * imputed + correction, atoms.stands_for * (1.0 - imputed) - correction


def _values(
    metric: OffPolicyMetric, atoms: Atoms, score: Floats, slate: int
) -> tuple[Floats, Floats | float]:
    """Return what a pair adds to the metric if it is converted, and if it is not."""
    if metric.kind == "nll":
        return (
            -np.log(np.maximum(score, LIKELIHOOD_FLOOR)),
            -np.log(np.maximum(1.0 - score, LIKELIHOOD_FLOOR)),
        )
    gain: Gain = "dcg" if metric.kind == "dcg" else "hits"
    size = atoms.size[atoms.user]
    worth = expected_gain(above=atoms.above(score), others=atoms.others, slate=slate, k=metric.k, gain=gain)
    return worth * np.minimum(slate, size) / size, 0.0


def expected_gain(
    *, above: NDArray[np.int64], others: NDArray[np.int64], slate: int, k: int, gain: Gain
) -> Floats:
    r"""Return the gain of an item on a slate of other items drawn at random beside it.

    .. math::
        g = \sum_{j < K} \frac{1}{\log_2(j + 2)} \, P(J = j), \qquad
        J \sim \mathrm{Hypergeometric}(C, a, \min(m - 1, C))

    J counts the items of the slate that rank above it when the m − 1 others are drawn from C candidates
    (``others``) of which a (``above``) have a higher score; ``gain="hits"`` puts 1 for the discount.
    A test set of m randomly shown items per user is such a slate, so nothing has to be drawn to know what
    it would give on average.

    Examples
    --------
    >>> expected_gain(above=np.array([0, 1, 5]), others=np.array([9, 9, 9]), slate=10, k=2, gain="hits")
    array([1., 1., 0.])
    """
    span = int(others.max(initial=0)) + 1
    cases, of_case = np.unique(others * span + above, return_inverse=True)
    total, higher = (part[:, None].astype(np.float64) for part in np.divmod(cases, span))
    size = np.minimum(slate - 1.0, total)
    j = np.arange(min(k, slate), dtype=np.float64)
    lower = size - j
    possible = (j <= higher) & (lower >= 0) & (lower <= total - higher)
    log_chance = (
        _log_choose(higher, np.minimum(j, higher))
        + _log_choose(total - higher, np.clip(lower, 0.0, total - higher))
        - _log_choose(total, size)
    )
    worth = 1.0 / np.log2(j + 2.0) if gain == "dcg" else np.ones(len(j))
    value: Floats = (np.where(possible, np.exp(log_chance), 0.0) * worth).sum(axis=1)
    return value[of_case]


def _log_choose(n: Floats, k: Floats) -> Floats:
    result: Floats = gammaln(n + 1.0) - gammaln(k + 1.0) - gammaln(n - k + 1.0)
    return result
