"""Metrics of held-out clicks: what each pair adds, and estimates as functions of how often each group of
users is counted, so that a bootstrap over users is a few products of matrices."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Literal, Protocol

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array
from scipy.special import gammaln

from unskew.base.seeds import stream
from unskew.metrics.limits import LIKELIHOOD_FLOOR
from unskew.offpolicy.evidence import Atoms, Evidence
from unskew.offpolicy.inputs import Estimator, OffPolicyMetric
from unskew.offpolicy.weighing import Contribution, Weighted

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
Gain = Literal["dcg", "hits"]

BLOCK = 1 << 21
"""Numbers held at once while the matrices of an AUC are made (16 MB)."""


class Statistic(Protocol):
    """An estimate of one metric of one model."""

    def each(self, counts: Floats) -> Floats:
        """``[resamples, groups]`` → ``[resamples, seeds]``."""
        ...


@dataclass(frozen=True, eq=False)
class MeanStatistic:
    r"""A mean over unseen pairs.

    .. math:: \frac{\sum_g c_g x_g}{\sum_g c_g w_g} \cdot \frac{\sum_g c_g N_g}{\sum_g c_g n_g}

    x_g (``top``) sums weighted values, w_g (``bottom``) what they are normalised by, N_g (``size``) counts
    unseen pairs, and n_g (``units``) what the metric is an average over: pairs, or users. c_g counts how
    often a group of users is in the resample. All are ``[seeds, groups]``.
    """

    top: Floats
    bottom: Floats
    size: Floats
    units: Floats

    def each(self, counts: Floats) -> Floats:
        """``[resamples, groups]`` → ``[resamples, seeds]``."""
        with np.errstate(invalid="ignore", divide="ignore"):
            value: Floats = (counts @ self.top.T) * (counts @ self.size.T)
            value /= (counts @ self.bottom.T) * (counts @ self.units.T)
        return value


@dataclass(frozen=True, eq=False)
class AucStatistic:
    r"""The chance that a converted pair scores above an unconverted one, ties counting half.

    .. math::
        \frac{\sum_{i \ne j} c_i t_i \, c_j \bar t_j \, (1[s_i > s_j] + \frac12 1[s_i = s_j])}
        {\sum_{i \ne j} c_i t_i \, c_j \bar t_j}
        = \frac{c^\top W c - \frac12 \sum_g c_g^2 e_g}{c^\top t \; c^\top \bar t - \sum_g c_g^2 e_g}

    with t and t̄ the masses of conversion and non-conversion of each pair, W_gh the wins of group g's pairs
    over group h's, and e_g the mass of pairs compared with themselves, which is not 0 where both masses of a
    pair are not (DR).

    Attributes
    ----------
    wins
        W of each seed, ``[seeds, groups, groups]``.
    positive, negative, itself
        t, t̄ and e, ``[seeds, groups]``.
    """

    wins: Floats
    positive: Floats
    negative: Floats
    itself: Floats

    @classmethod
    def of(cls, seeds: Sequence[tuple[Integers, Floats, Floats, Floats]], groups: int) -> AucStatistic:
        """From the group, score and two masses of each seed's pairs."""
        sums = [
            [np.bincount(group, weights=mass, minlength=groups) for mass in (t, rest, t * rest)]
            for group, _, t, rest in seeds
        ]
        positive, negative, itself = np.array(sums).transpose(1, 0, 2)
        return cls(np.stack([_wins(*seed, groups) for seed in seeds]), positive, negative, itself)

    def each(self, counts: Floats) -> Floats:
        """``[resamples, groups]`` → ``[resamples, seeds]``."""
        itself = counts**2 @ self.itself.T
        wins = np.stack([np.einsum("bg,bg->b", counts @ of, counts) for of in self.wins], axis=1)
        with np.errstate(invalid="ignore", divide="ignore"):
            value: Floats = wins - itself / 2.0
            value /= (counts @ self.positive.T) * (counts @ self.negative.T) - itself
        return value


@dataclass(frozen=True, eq=False)
class LinearStatistic:
    r"""An estimate with its influence, :math:`\theta + \sum_g c_g \psi_g`, both ``[seeds, …]``."""

    value: Floats
    influence: Floats

    def each(self, counts: Floats) -> Floats:
        """``[resamples, groups]`` → ``[resamples, seeds]``."""
        value: Floats = self.value + counts @ self.influence.T
        return value


def resampled(statistics: Sequence[Statistic], *, groups: int, resamples: int, seed: int) -> Floats:
    """``[statistics, resamples]``: each averaged over seeds, on the same resamples of the groups."""
    random = np.random.default_rng(stream(seed, "users"))
    counts = random.multinomial(groups, np.full(groups, 1.0 / groups), size=resamples).astype(np.float64)
    return np.stack([statistic.each(counts).mean(axis=1) for statistic in statistics])


def _wins(group: Integers, score: Floats, positive: Floats, negative: Floats, groups: int) -> Floats:
    """W: for each two groups, in how many cases (by mass) the first scores above the second."""
    kept = np.flatnonzero((positive != 0) | (negative != 0))
    level = np.unique(score[kept], return_inverse=True)[1]
    order = np.argsort(level, kind="stable")
    kept, level = kept[order], level[order]
    wins = np.zeros((groups, groups))
    below = np.zeros(groups)
    levels_at_once = max(1, BLOCK // groups)
    top = int(level[-1]) + 1 if len(level) else 0
    edges = np.searchsorted(level, np.arange(0, top + levels_at_once, levels_at_once))
    for start, stop in pairwise(edges):
        rows, at = kept[start:stop], level[start:stop] - level[start]
        shape = (int(at[-1]) + 1, groups)
        losers = csr_array((negative[rows], (at, group[rows])), shape=shape).toarray()
        beaten = below + np.cumsum(losers, axis=0) - losers / 2.0
        wins += csr_array((positive[rows], (group[rows], at)), shape=shape[::-1]) @ beaten
        below = below + losers.sum(axis=0)
    return wins


def statistic_of(
    metric: OffPolicyMetric,
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
    metric: OffPolicyMetric,
    scores: Floats,
    evidence: Evidence,
    number: int,
    weighted: Weighted,
    imputed: Floats | None,
    slate: int,
) -> Contribution:
    r"""What each held-out click of the seed with this number adds to a metric, linear in its weight.

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


def _values(
    metric: OffPolicyMetric, atoms: Atoms, score: Floats, slate: int
) -> tuple[Floats, Floats | float]:
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


def expected_gain(
    *, above: NDArray[np.int64], others: NDArray[np.int64], slate: int, k: int, gain: Gain
) -> Floats:
    r"""The gain of an item on a slate of other items drawn at random beside it.

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
