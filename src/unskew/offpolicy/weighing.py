"""Weights of held-out clicks under each estimator, their influence on a mean, their balance, and its Γ."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from unskew.data import Log
from unskew.offpolicy.covariates import Balance, Covariate, balance_of, balanced_by, covariates_of
from unskew.offpolicy.evidence import Evidence

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

RIDGE = 1e-3
"""Of the tilt, in shares of a stratum's mass: strata of several covariates stay distinct, and a balance
that no weights reach is approached. At this size it costs no more than a thousandth of an imbalance."""
STEPS = 50
CLOSE = 1e-8
"""Newton's steps end where they are shorter."""


@dataclass(frozen=True, eq=False)
class Contribution:
    """The contribution of one seed's held-out clicks to one metric of one model, linear in their weights.

    Attributes
    ----------
    value
        x of each click ``[n]``, times its weight.
    base
        What is added without a click, by group of users: the imputed part of ``dr``, otherwise 0.
    units
        What the metric is an average over, by group: unseen pairs, or users.
    """

    value: Floats
    base: Floats
    units: Floats

    def minus(self, other: Contribution, sign: float) -> Contribution:
        """Return sign × (this − other)."""
        return Contribution(sign * (self.value - other.value), sign * (self.base - other.base), self.units)


@dataclass(frozen=True, eq=False)
class Weighted:
    r"""One seed's held-out clicks with their weights, and the strata whose totals these keep.

    A mean over the unseen pairs is θ = Σ_V w·x / n. Where weights are made to add up to the known totals H of
    strata h (none under ``ips`` and ``dr``, the number of pairs under ``snips``), what a click adds is what
    its strata do not tell already (Deville and Särndal, 1992):

    .. math::
        \psi_g = \frac1n \Bigl[ \sum_{i \in V \cap g} w_i (x_i - h_i^\top B) + H_g^\top B - \theta n_g \Bigr],
        \qquad B = \arg\min_B \sum_V w (x - h^\top B)^2

    so that the error of the propensities along those strata, and the noise of estimating it, is in ψ.

    Attributes
    ----------
    weight, group
        Of the held-out clicks ``[n]``.
    strata
        h ``[n, K]``, 0 or 1; K may be 0.
    totals
        H by group of users ``[groups, K]``.
    """

    weight: Floats
    group: Integers
    strata: csr_array
    totals: Floats

    @property
    def groups(self) -> int:
        """Return how many groups are resampled."""
        return len(self.totals)

    @property
    def keeps_totals(self) -> bool:
        """Return whether weights are normalised, so that their common factor does not matter."""
        return bool(self.strata.shape[1] > 0)

    @cached_property
    def _gram(self) -> Floats:
        """Σ w·h·hᵀ, with a ridge."""
        mass = self.strata.multiply(self.weight[:, None]).tocsr()
        gram: Floats = (mass.T @ self.strata).toarray()
        gram[np.diag_indices_from(gram)] *= 1.0 + RIDGE
        return gram

    def residual(self, value: Floats) -> tuple[Floats, Floats]:
        """Return x − hᵀB of the clicks ``[n]``, and HᵀB by group ``[groups]``."""
        if not self.keeps_totals:
            return value, np.zeros(self.groups)
        coefficient = np.linalg.solve(self._gram, self.strata.T @ (self.weight * value))
        rest: Floats = value - self.strata @ coefficient
        # Strata of a covariate add up to 1, so that a constant is theirs too; the ridge left a bit of it.
        constant = float(self.weight @ rest / self.weight.sum())
        pairs = self.totals.sum(axis=1) * len(value) / self.strata.nnz
        return rest - constant, self.totals @ coefficient + constant * pairs

    def mean(self, added: Contribution) -> float:
        """Return θ."""
        return float(self.weight @ added.value + added.base.sum()) / float(added.units.sum())

    def influence(self, x: Contribution) -> Floats:
        """Return ψ ``[groups]``."""
        rest, of_strata = self.residual(x.value)
        own = np.bincount(self.group, weights=self.weight * rest, minlength=self.groups)
        influence: Floats = (own + of_strata + x.base - self.mean(x) * x.units) / x.units.sum()
        influence -= influence.mean()
        return influence


def plain(weight: Floats, group: Integers, groups: int) -> Weighted:
    """Take weights as they are."""
    return Weighted(weight, group, csr_array((len(weight), 0)), np.zeros((groups, 0)))


def normalised(weight: Floats, group: Integers, size: Floats) -> Weighted:
    """Scale weights so that they add up to the unseen pairs (``size`` by group)."""
    factor = size.sum() / weight.sum()
    return Weighted(weight * factor, group, csr_array(np.ones((len(weight), 1))), size[:, None])


def balanced(
    weight: Floats,
    group: Integers,
    size: Floats,
    covariates: Sequence[Covariate],
    candidate_group: Integers,
    stands_for: Floats,
) -> Weighted:
    r"""Tilt weights as little as it takes to give every stratum the weight of its unseen pairs.

    .. math::
        w_i' = w_i \, e^{h_i^\top \lambda}, \qquad \sum_V w_i' h_i = H

    which is raking (Deming and Stephan, 1940). In effect it refits the propensities' level in every stratum
    of users, items, features and predictions, on the clicks at hand.
    """
    start = normalised(weight, group, size)
    edges = np.cumsum([0, *(each.strata for each in covariates)])
    strata = int(edges[-1])
    if not strata:
        return start
    rows = len(weight)
    codes = np.stack([each.stratum + edge for each, edge in zip(covariates, edges[:-1], strict=True)], axis=1)
    h = csr_array(
        (np.ones(codes.size), codes.ravel(), np.arange(rows + 1) * len(covariates)), shape=(rows, strata)
    )
    totals = np.zeros((len(size), strata))
    for covariate, edge in zip(covariates, edges[:-1], strict=True):
        np.add.at(totals, (candidate_group, covariate.of_candidate + edge), stands_for)
    totals *= size.sum() / np.where(totals.sum() > 0, stands_for.sum(), 1.0)
    tilted = start.weight * np.exp(h @ _tilt(h, start.weight, totals.sum(axis=0)))
    return Weighted(tilted * size.sum() / tilted.sum(), group, h, totals)


def _tilt(h: csr_array, weight: Floats, totals: Floats) -> Floats:
    """Return λ at the least of Σ w·exp(hᵀλ) − Hᵀλ + ridge, by Newton's method with halved steps."""
    ridge = RIDGE * np.maximum(totals, totals.mean())

    def value(tilt: Floats) -> float:
        return float((weight * np.exp(h @ tilt)).sum() - totals @ tilt + ridge @ tilt**2 / 2.0)

    tilt = np.zeros(len(totals))
    now = value(tilt)
    for _ in range(STEPS):
        tilted = weight * np.exp(h @ tilt)
        gradient = h.T @ tilted - totals + ridge * tilt
        curvature = (h.multiply(tilted[:, None]).tocsr().T @ h).toarray()
        curvature[np.diag_indices_from(curvature)] += ridge
        step = np.linalg.solve(curvature, gradient)
        while (then := value(tilt - step)) > now and np.abs(step).max() > CLOSE:
            step /= 2.0
        tilt, now = tilt - step, min(then, now)
        if np.abs(step).max() <= CLOSE:
            break
    return tilt


Kind = Literal["plain", "normalised", "balanced"]


def weigh(
    log: Log, evidence: Evidence, prediction: Floats, *, known: bool
) -> tuple[dict[Kind, list[Weighted]], tuple[Balance, ...]]:
    """Return every seed's weights as they are, normalised and balanced, and how far they are off.

    What was not shown is not listed by a log with known propensities, so nothing is balanced there.

    Parameters
    ----------
    prediction
        The mean over models ``[seeds, pairs]``, NaN for pairs that have none.
    known
        Whether the propensities are known, not estimated (Γ = 1).
    """
    kinds: dict[Kind, list[Weighted]] = {"plain": [], "normalised": [], "balanced": []}
    balances: list[list[Balance]] = []
    held = slice(0, evidence.rows)
    for number, atoms in enumerate(evidence.seeds):
        weight, group, size = atoms.weight[held], atoms.group[held], evidence.by_group(atoms.size)
        even = normal = normalised(weight, group, size)
        if log.known_propensity is None:
            known_everywhere = prediction[number] if np.isfinite(prediction[number]).all() else None
            measured, counted, candidate = covariates_of(log, evidence, atoms, known_everywhere)
            mended, stands_for = measured if known else counted, atoms.stands_for[candidate]
            chosen = balanced_by(mended, weight, stands_for)
            even = balanced(weight, group, size, chosen, atoms.group[candidate], stands_for)
            balances.append(balance_of(measured, mended, weight, even.weight, stands_for))
        kinds["plain"].append(plain(weight, group, evidence.groups))
        kinds["normalised"].append(normal)
        kinds["balanced"].append(even)
    # Over seeds, covariate by covariate; τ² before its root, so that noise cancels.
    names = ("clicks", "weighted", "balanced", "squared_error")
    averaged = [
        Balance(
            same[0].covariate, *(float(np.mean([getattr(each, name) for each in same])) for name in names)
        )
        for same in zip(*balances, strict=True)
    ]
    return kinds, tuple(averaged)
