"""What each pair adds to a metric under IPS, SNIPS or DR; sums and resamples are left to statistics.py."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from unskew.offpolicy.balancing import Contribution, Weighted
from unskew.offpolicy.evidence import Atoms, Evidence
from unskew.offpolicy.inputs import Estimator, Metric
from unskew.offpolicy.slates import Gain, expected_gain
from unskew.offpolicy.statistics import AucStatistic, MeanStatistic, Statistic

Floats = NDArray[np.float64]

LIKELIHOOD_FLOOR = 2.0**-52
"""As in :func:`unskew.metrics.nll`."""


def statistic_of(
    metric: Metric,
    scores: Floats,
    evidence: Evidence,
    estimator: Estimator,
    imputed: Floats | None,
    slate: int,
) -> Statistic:
    r"""One metric of one model's scores ``[seeds, pairs]``.

    Every metric is linear in the conversion, x(r) = r·x(1) + (1 − r)·x(0), so an estimator is how many
    conversions and non-conversions each pair stands for: w·r and w·(1 − r) under IPS and SNIPS; under DR
    λ·r̃ + w·(r − r̃) and λ·(1 − r̃) − w·(r − r̃), where λ counts the unseen pairs that a candidate stands for.
    """
    lines = []
    for number, atoms in enumerate(evidence.seeds):
        guess = None if imputed is None else imputed[number, atoms.position]
        lines.append((atoms, scores[number, atoms.position], *_masses(atoms, guess)))
    if metric.kind == "auc":
        return AucStatistic.of([(atoms.group, *values) for atoms, *values in lines], evidence.groups)
    top, bottom = np.zeros((2, len(lines), evidence.groups))
    for number, (atoms, score, positive, negative) in enumerate(lines):
        if_converted, if_not = _values(metric, atoms, score, slate)
        # Candidates without a mass may be without a score.
        stands = (positive != 0) | (negative != 0)
        value = np.where(stands, positive * if_converted + negative * if_not, 0.0)
        top[number] = np.bincount(atoms.group, weights=value, minlength=evidence.groups)
        bottom[number] = np.bincount(atoms.group, weights=atoms.weight, minlength=evidence.groups)
    size = np.stack([evidence.by_group(atoms.size) for atoms in evidence.seeds])
    return MeanStatistic(
        top=top,
        bottom=bottom if estimator == "snips" else size,
        size=size,
        units=np.tile(evidence.by_group(), (len(size), 1)) if metric.ranks else size,
    )


def contribution_of(
    metric: Metric,
    score: Floats,
    evidence: Evidence,
    number: int,
    weighted: Weighted,
    imputed: Floats | None,
    slate: int,
) -> Contribution:
    r"""What each held-out click of a seed adds to a metric, linear in its weight.

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
    shown = score[atoms.position]
    guess = None if imputed is None else imputed[atoms.position]
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
    told = atoms.stands_for * (if_not + guess * (if_converted - if_not))
    return Contribution(
        (conversion - guess[held]) * (if_converted[held] - if_not[held]),
        np.bincount(atoms.group, weights=told, minlength=len(units)).astype(np.float64),
        units,
    )


def _auc_values(score: Floats, positive: Floats, negative: Floats, pairs: float) -> tuple[Floats, Floats]:
    """What a unit of mass at each score adds to the AUC if it is converted, and if it is not."""
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
    """How many conversions and non-conversions of the unseen pairs each atom stands for."""
    if imputed is None:
        positive = atoms.weight * atoms.conversion
        return positive, atoms.weight - positive
    correction = atoms.weight * (atoms.conversion - imputed)
    return atoms.stands_for * imputed + correction, atoms.stands_for * (1.0 - imputed) - correction


def _values(metric: Metric, atoms: Atoms, score: Floats, slate: int) -> tuple[Floats, Floats | float]:
    """What a pair adds to the metric if it is converted, and if it is not."""
    if metric.kind == "nll":
        return (
            -np.log(np.maximum(score, LIKELIHOOD_FLOOR)),
            -np.log(np.maximum(1.0 - score, LIKELIHOOD_FLOOR)),
        )
    gain: Gain = "dcg" if metric.kind == "dcg" else "hits"
    size = atoms.size[atoms.user]
    worth = expected_gain(above=atoms.above(score), others=atoms.others, slate=slate, k=metric.k, gain=gain)
    return worth * np.minimum(slate, size) / size, 0.0
