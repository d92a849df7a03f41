"""The weights of held-out clicks under each estimator, their balance, and the Γ that it suggests."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from unskew.log import Log
from unskew.offpolicy.balancing import Weighted, balanced, normalised, plain
from unskew.offpolicy.covariates import Balance, balance_of, balanced_by, covariates_of
from unskew.offpolicy.evidence import Evidence
from unskew.offpolicy.inputs import Estimator, Metric

Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Weighing:
    """Each seed's weights as they are, normalised and balanced, and how far they are off."""

    estimator: Estimator
    plain: tuple[Weighted, ...]
    normalised: tuple[Weighted, ...]
    balanced: tuple[Weighted, ...]
    balance: tuple[Balance, ...]

    def weighted_for(self, metric: Metric) -> tuple[Weighted, ...]:
        """The weights that a metric takes; the AUC is a ratio under IPS too."""
        if self.estimator == "balanced":
            return self.balanced
        if self.estimator == "snips" or (self.estimator == "ips" and metric.kind == "auc"):
            return self.normalised
        return self.plain

    @property
    def gamma(self) -> float:
        r"""Γ = exp(τ), τ the greatest measured error of the weights over all covariates.

        What was measured, by users, items, features and predictions, is taken as the size of what cannot be
        measured: a propensity that is off by a factor along what is known is no better along what is not.
        """
        return float(np.exp(max((each.spread for each in self.balance), default=0.0)))


def weigh(log: Log, evidence: Evidence, prediction: Floats, estimator: Estimator, *, known: bool) -> Weighing:
    """Weights of every seed.

    Parameters
    ----------
    prediction
        The mean over models ``[seeds, pairs]``, NaN for pairs that have none.
    known
        Whether the propensities are known, not estimated (Γ = 1).
    """
    if log.known_propensity is not None:
        return _of_shown_rows(evidence, estimator)
    kinds: tuple[list[Weighted], ...] = ([], [], [])
    balances: list[list[Balance]] = []
    for number, atoms in enumerate(evidence.seeds):
        told = prediction[number] if np.isfinite(prediction[number]).all() else None
        measured, counted, candidate = covariates_of(log, evidence, atoms, told)
        mended = measured if known else counted
        held = slice(0, evidence.rows)
        weight, group, stands_for = atoms.weight[held], atoms.group[held], atoms.stands_for[candidate]
        size = evidence.by_group(atoms.size)
        even = balanced(
            weight,
            group,
            size,
            balanced_by(mended, weight, stands_for),
            atoms.group[candidate],
            stands_for,
        )
        kinds[0].append(plain(weight, group, evidence.groups))
        kinds[1].append(normalised(weight, group, size))
        kinds[2].append(even)
        balances.append(balance_of(measured, mended, weight, even.weight, stands_for))
    return Weighing(estimator, tuple(kinds[0]), tuple(kinds[1]), tuple(kinds[2]), _averaged(balances))


def _of_shown_rows(evidence: Evidence, estimator: Estimator) -> Weighing:
    """Weights of rows with known propensities: what was not shown is not listed, so nothing is balanced."""
    plainly, by_size = [], []
    for atoms in evidence.seeds:
        plainly.append(plain(atoms.weight, atoms.group, evidence.groups))
        by_size.append(normalised(atoms.weight, atoms.group, evidence.by_group(atoms.size)))
    return Weighing(estimator, tuple(plainly), tuple(by_size), tuple(by_size), ())


def _averaged(seeds: list[list[Balance]]) -> tuple[Balance, ...]:
    """Over seeds, covariate by covariate; τ² before its root, so that noise cancels."""
    found = []
    for of in zip(*seeds, strict=True):
        means = {
            name: float(np.mean([getattr(each, name) for each in of]))
            for name in ("clicks", "weighted", "balanced", "squared_error")
        }
        found.append(Balance(of[0].covariate, **means))
    return tuple(found)
