"""Estimates as functions of how often each group of users is counted: a bootstrap over users is then a few
products of matrices."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Protocol

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from unskew.seeds import stream

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

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
