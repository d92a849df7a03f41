"""Covariates of the balance between weighted clicks and unseen pairs: users, items, features, predictions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from unskew.data import Log
from unskew.offpolicy.evidence import Atoms, Evidence

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

ACTIVITY, POPULARITY, PREDICTION = "user activity", "item popularity", "predicted conversion"
NOT_FEATURES = (ACTIVITY, POPULARITY, PREDICTION)

FOLDS = 5
"""Errors of the weights are measured by activity and popularity on the pairs of other folds."""
MOST_STRATA = 8
"""Of one covariate: they remove some 98 % of what it does to a mean (Cochran, 1968, has 90 % for five)."""
CLICKS_PER_STRATUM = 100
"""Effective clicks for each stratum of a covariate; twice as many for one of a feature."""
ROWS_PER_STRATUM = 25
"""Held-out clicks that a stratum has at least: its weight is then known to 20 % or better."""
MOST_FEATURES = 6
"""Features that weights are balanced by: those furthest off. The others are only reported."""


@dataclass(frozen=True)
class Balance:
    """How far weighted clicks are from the unseen pairs in one covariate, in its standard deviations.

    Attributes
    ----------
    covariate
        ``"user activity"`` and ``"item popularity"`` (log of 1 + other clicks), ``"predicted conversion"``
        (mean of the models), or a feature of the log.
    clicks, weighted, balanced
        Standardised difference of the means, clicks minus population: of clicks as they are, with the
        weights of the propensities, and with the balanced weights. Beyond ± 0.1 is customarily called
        unbalanced.
    squared_error
        τ²: the mean square of what the weights of its strata are off by, in logarithms, noise removed; about
        0 where there is nothing but noise.
    """

    covariate: str
    clicks: float
    weighted: float
    balanced: float
    squared_error: float

    @property
    def spread(self) -> float:
        """τ."""
        return float(np.sqrt(max(0.0, self.squared_error)))

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, for JSON."""
        return asdict(self)


@dataclass(frozen=True, eq=False)
class Covariate:
    """One covariate of one seed's atoms.

    Attributes
    ----------
    value
        Of the held-out clicks ``[n]``.
    population
        Of the candidates ``[m]``.
    stratum, of_candidate
        The stratum of each, numbered from 0.
    strata
        How many there are.
    """

    name: str
    value: Floats
    population: Floats
    stratum: Integers
    of_candidate: Integers
    strata: int

    def difference(self, weight: Floats, stands_for: Floats) -> float:
        """Return the standardised difference of the weighted mean from the population's."""
        mean = np.average(self.population, weights=stands_for)
        spread = np.sqrt(np.average((self.population - mean) ** 2, weights=stands_for))
        return float((np.average(self.value, weights=weight) - mean) / spread) if spread > 0 else 0.0

    def squared_error(self, weight: Floats, stands_for: Floats) -> float:
        r"""Return τ²: the mean square of the logarithm of what a stratum's weights are off by, noise removed.

        .. math::
            \tau^2 = \sum_s \pi_s \Bigl[ \log^2 \rho_s - \frac{\sum_{s} w^2}{(\sum_{s} w)^2} \Bigr], \qquad
            \rho_s = \frac{\sum_{V \cap s} w}{\sum_V w} \Big/ \pi_s

        π_s is the stratum's share of the unseen pairs. It may be negative, where there is nothing but noise.
        """
        share = np.bincount(self.of_candidate, weights=stands_for, minlength=self.strata)
        share = share / share.sum()
        mass = np.bincount(self.stratum, weights=weight, minlength=self.strata)
        squares = np.bincount(self.stratum, weights=weight**2, minlength=self.strata)
        known = (mass > 0) & (share > 0)
        ratio = np.log(mass[known] / mass.sum() / share[known])
        return float(share[known] @ (ratio**2 - squares[known] / mass[known] ** 2))


def covariates_of(
    log: Log, evidence: Evidence, atoms: Atoms, prediction: Floats | None
) -> tuple[list[Covariate], list[Covariate], Integers]:
    """Return the covariates of one seed that errors are measured by, those that weights are balanced by, and
    which atoms are candidates.

    The two differ in activity and popularity. Counted on other folds they say nothing of a pair's own click,
    so that true weights are in balance: by these errors are measured. Counted on all clicks they tell how
    often users were in fact seen, which weights from estimated propensities, drawn towards the mean where
    clicks are few, have to make up for. Weights from known propensities must not.

    Parameters
    ----------
    prediction
        Mean prediction of the models for the evidence's pairs; None if only clicked rows have one.
    """
    held = slice(0, evidence.rows)
    candidate = np.flatnonzero(atoms.stands_for > 0)
    user, item = (
        part[atoms.position].astype(np.int64) for part in (evidence.pairs.user, evidence.pairs.item)
    )
    weight = atoms.weight[held]
    counts = [_clicks(log, code, codes) for code, codes in ((log.user, log.n_users), (log.item, log.n_items))]
    fold, names = _fold(user, item), (ACTIVITY, POPULARITY)
    apart: list[tuple[str, Floats]] = []
    whole: list[tuple[str, Floats]] = []
    for name, codes, by_fold in zip(names, (user, item), counts, strict=True):
        total = by_fold.sum(axis=1)
        apart.append((name, np.log1p(total[codes] - by_fold[codes, fold])))
        whole.append((name, np.log1p(total)[codes]))
    others: list[tuple[str, Floats]] = []
    if prediction is not None:
        others.append((PREDICTION, prediction[atoms.position]))
    for features, code, side in ((log.user_features, user, "users"), (log.item_features, item, "items")):
        if features is not None:
            values = features.values.astype(np.float64)
            others += [
                (f"{name} (feature of {side})", values[code, column])
                for column, name in enumerate(features.names)
            ]
    effective = weight.sum() ** 2 / (weight @ weight)

    def cut(columns: list[tuple[str, Floats]]) -> list[Covariate]:
        return [
            _covariate(name, value[held], value[candidate], weight, _most(name, effective))
            for name, value in columns
        ]

    first, second, shared = cut(apart), cut(whole), cut(others)
    return first + shared, second + shared, candidate


def balance_of(
    measured: Sequence[Covariate],
    mended: Sequence[Covariate],
    weight: Floats,
    balanced: Floats,
    stands_for: Floats,
) -> list[Balance]:
    """Return each covariate's differences before, as errors are measured, and after balancing."""
    return [
        Balance(
            each.name,
            clicks=each.difference(np.ones(len(weight)), stands_for),
            weighted=each.difference(weight, stands_for),
            balanced=after.difference(balanced, stands_for),
            squared_error=each.squared_error(weight, stands_for),
        )
        for each, after in zip(measured, mended, strict=True)
    ]


def balanced_by(covariates: Sequence[Covariate], weight: Floats, stands_for: Floats) -> list[Covariate]:
    """Return what weights are balanced by: users, items, predictions, and the features furthest off."""
    first = [each for each in covariates if each.name in NOT_FEATURES]
    features = [each for each in covariates if each not in first and each.strata > 1]
    features.sort(key=lambda each: -abs(each.difference(weight, stands_for)))
    return first + features[:MOST_FEATURES]


def _most(name: str, effective: float) -> int:
    """Return the strata of a covariate.

    All together are a twentieth of the effective clicks at most, or so, since what is fitted to few clicks
    makes their errors look smaller than they are.
    """
    if name in NOT_FEATURES:
        return int(np.clip(effective // CLICKS_PER_STRATUM, 1, MOST_STRATA))
    return int(np.clip(effective // (2 * CLICKS_PER_STRATUM), 1, MOST_STRATA // 2))


def _clicks(log: Log, code: NDArray[np.int32], codes: int) -> Integers:
    """Return the clicks of each user (or item) on pairs of each fold ``[codes, folds]``."""
    clicked = log.clicked
    fold = _fold(log.user[clicked], log.item[clicked])
    counts = np.bincount(code[clicked].astype(np.int64) * FOLDS + fold, minlength=codes * FOLDS)
    return counts.reshape(codes, FOLDS)


def _fold(user: NDArray[Any], item: NDArray[Any]) -> Integers:
    """Return a fold for each pair, mixed from its codes."""
    mixed = user.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    mixed = (mixed ^ (mixed >> np.uint64(29))) + item.astype(np.uint64) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(32))) * np.uint64(0x94D049BB133111EB)
    fold: Integers = ((mixed >> np.uint64(40)) % np.uint64(FOLDS)).astype(np.int64)
    return fold


def _covariate(name: str, value: Floats, population: Floats, weight: Floats, most: int) -> Covariate:
    """Cut into strata of about equal weight, fewer where one would have too few clicks."""
    order = np.argsort(value, kind="stable")
    mass = np.cumsum(weight[order])
    for strata in range(most, 0, -1):
        cuts = np.searchsorted(mass, mass[-1] * np.arange(1, strata) / strata)
        edges = np.unique(value[order][np.minimum(cuts, len(value) - 1)])
        stratum = np.searchsorted(edges, value, side="left")
        of_candidate = np.searchsorted(edges, population, side="left")
        counts = np.bincount(stratum, minlength=len(edges) + 1)
        if counts.min() >= ROWS_PER_STRATUM or strata == 1:
            break
    return Covariate(name, value, population, stratum, of_candidate, len(edges) + 1)
