"""What each pair adds to a metric under IPS, SNIPS or DR; sums and resamples are left to statistics.py."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

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
        value = positive * if_converted + negative * if_not
        top[number] = np.bincount(atoms.group, weights=value, minlength=evidence.groups)
        bottom[number] = np.bincount(atoms.group, weights=atoms.weight, minlength=evidence.groups)
    size = np.stack([evidence.by_group(atoms.size) for atoms in evidence.seeds])
    return MeanStatistic(
        top=top,
        bottom=bottom if estimator == "snips" else size,
        size=size,
        units=np.tile(evidence.by_group(), (len(size), 1)) if metric.ranks else size,
    )


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
