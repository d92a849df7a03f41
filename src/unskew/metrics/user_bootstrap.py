"""How far metrics would move with other test users: a bootstrap over users, the same for every model."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, TypedDict

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr, ndtri

from unskew.base.errors import ParameterError
from unskew.base.seeds import stream
from unskew.metrics.proper import auc
from unskew.metrics.ranking import user_ranking
from unskew.metrics.registry import metric as registered
from unskew.metrics.sketch_grid import LIKELIHOOD_FLOOR

Floats = NDArray[np.float64]

RESAMPLES = 400
"""They tell a standard error to 3.5 %."""
MOST_GROUPS = 2000
"""More users than this are dealt into so many groups at random, and groups are resampled: 2,000 of them tell
a standard error to 1.6 %, and the cost no longer grows with the users."""

DEFAULT_LEVEL = 0.95
"""Confidence of intervals; the counterpart of the paper's p < .05."""


class UserInterval(TypedDict):
    """Where a number would lie with other test users, as in ``metrics.json``."""

    low: float | None
    high: float | None


@dataclass(frozen=True, eq=False)
class UserBootstrap:
    r"""Resamples of the users of a test log; two models that are judged on the same users share them.

    .. math::
        M_b = \frac{\sum_u c_{bu} \, x_u}{\sum_u c_{bu} \, n_u}, \qquad
        c_b \sim \mathrm{Multinomial}(U;\; 1/U, \dots, 1/U)

    x_u (``top``) and n_u (``bottom``) are what a user adds to the two sums that a metric is the ratio of.

    Attributes
    ----------
    user
        Distinct users, sorted.
    code
        Place of each row's user among them.
    group
        What each user is resampled with; every user is a group of its own if they are few.
    """

    user: NDArray[Any]
    code: NDArray[np.int64]
    group: NDArray[np.int64]

    @classmethod
    def of(cls, user: Any) -> UserBootstrap:
        """Build it from the user of each row."""
        ids, code = np.unique(np.asarray(user), return_inverse=True)
        return cls(user=ids, code=code, group=_dealt(len(ids)))

    def by_user(self, of_row: Any) -> Floats:
        """Return sums over the rows of each user."""
        sums = np.bincount(self.code, weights=of_row, minlength=len(self.user))
        return sums.astype(np.float64)

    def placed(self, user: NDArray[Any], of_user: Floats) -> Floats:
        """Place the values of some users as a line for all of them, 0 for the others."""
        line = np.zeros(len(self.user))
        line[np.searchsorted(self.user, user)] = of_user
        return line

    def ratios(self, top: Floats, bottom: Floats) -> Floats:
        """Return the metric on every resample ``[lines, RESAMPLES]``, from lines of sums by user."""
        groups = int(self.group.max()) + 1
        if groups < 2:
            # Nothing tells how far one user differs from others.
            return np.full((len(top), RESAMPLES), np.nan)
        counts = _counts(groups)
        with np.errstate(invalid="ignore", divide="ignore"):
            value: Floats = self._grouped(top, groups) @ counts.T / (self._grouped(bottom, groups) @ counts.T)
        return value

    def _grouped(self, of_user: Floats, groups: int) -> Floats:
        if groups == len(self.user):
            return of_user
        return np.stack([np.bincount(self.group, weights=line, minlength=groups) for line in of_user])


def auc_by_user(
    *, code: NDArray[np.int64], users: int, outcome: Any, score: Any, value: float
) -> tuple[Floats, Floats]:
    r"""Return the pooled AUC as a ratio of sums by user, exact to first order in how often users are counted.

    .. math::
        \psi_u = \frac{1}{P} \sum_{i \in u: o_i = 1} \bigl(F_0(s_i) - A\bigr)
               + \frac{1}{N} \sum_{j \in u: o_j = 0} \bigl(1 - F_1(s_j) - A\bigr), \qquad
        A_b \approx A + \sum_u c_{bu} \psi_u

    F₀ and F₁ are the shares of negatives and positives with a lower score (ties half) and A (``value``) is
    the AUC: DeLong's components, summed by user. The sum of squares of ψ is the variance of the AUC with
    users as clusters.
    """
    positive = np.asarray(outcome) == 1
    level, rows = np.unique(np.asarray(score, dtype=np.float64), return_inverse=True)
    above = np.bincount(rows[positive], minlength=len(level)).astype(np.float64)
    below = np.bincount(rows[~positive], minlength=len(level)).astype(np.float64)
    share_below = (np.cumsum(below) - below / 2.0) / below.sum()
    share_above = 1.0 - (np.cumsum(above) - above / 2.0) / above.sum()
    of_row = np.where(
        positive, (share_below[rows] - value) / above.sum(), (share_above[rows] - value) / below.sum()
    )
    influence = np.bincount(code, weights=of_row, minlength=users).astype(np.float64)
    share = np.full(users, 1.0 / users)
    return influence + value * share, share


def user_interval(value: float, resampled: Any, *, level: float = DEFAULT_LEVEL) -> UserInterval:
    r"""Return an interval over test users, from the same number on resamples of them.

    .. math::
        x \pm z_{(1+level)/2} \; s_b, \qquad s_b^2 = \mathrm{Var}_b(x_b)

    Of a difference of two models, take the differences of their resamples: those are of the same users, so
    that what both find easy or hard cancels. Undefined resamples are left out; both ends are None where
    fewer than two are defined.

    Examples
    --------
    >>> found = user_interval(0.5, [0.4, 0.5, 0.6])
    >>> round(found["low"], 3), round(found["high"], 3)
    (0.304, 0.696)
    """
    draws = np.asarray(resampled, dtype=np.float64)
    draws = draws[np.isfinite(draws)]
    if len(draws) < 2 or not np.isfinite(value):
        return {"low": None, "high": None}
    margin = float(ndtri((1.0 + level) / 2.0) * draws.std(ddof=1))
    return {"low": float(value) - margin, "high": float(value) + margin}


def _dealt(users: int) -> NDArray[np.int64]:
    if users <= MOST_GROUPS:
        return np.arange(users)
    return np.random.default_rng(stream(0, "groups of test users")).permutation(users) % MOST_GROUPS


@lru_cache(maxsize=4)
def _counts(groups: int) -> Floats:
    """Draw how often each group is in each resample ``[RESAMPLES, groups]``."""
    random = np.random.default_rng(stream(0, "resamples of test users"))
    lines = [np.bincount(random.integers(groups, size=groups), minlength=groups) for _ in range(RESAMPLES)]
    counts = np.array(lines, dtype=np.float64)
    counts.setflags(write=False)
    return counts


PAIRED_METRICS = ("nll", "auc", "dcg@K", "hits@K")


@dataclass(frozen=True, eq=False)
class PairedUsers:
    r"""The advantage of one model over another, and each user's influence on it.

    .. math::
        \hat d - d \approx \frac1U \sum_u \phi_u, \qquad
        \mathrm{se}(\hat d) = \frac{\sigma}{\sqrt U}, \qquad \sigma^2 = \mathrm{Var}(\phi_u)

    Attributes
    ----------
    advantage
        d: above 0 the first is better, whatever the metric's goal.
    influence
        φ ``[users]``, of mean 0.
    rows
        Rows of a user, on average.
    """

    metric: str
    advantage: float
    influence: Floats
    rows: float

    @property
    def users(self) -> int:
        """How many there are."""
        return len(self.influence)

    @property
    def sigma(self) -> float:
        """σ, of one user."""
        return float(self.influence.std(ddof=1)) if self.users > 1 else math.nan

    @property
    def standard_error(self) -> float:
        """Return that of the advantage."""
        return self.sigma / math.sqrt(self.users)

    @property
    def p_value(self) -> float:
        """One-sided, for "the first is no better"."""
        error = self.standard_error
        if not error > 0:
            return 0.5 if self.advantage == 0 else float(self.advantage < 0)
        return float(ndtr(-self.advantage / error))


def require_paired(metric: str) -> None:
    """Raise an error for a metric that users cannot be paired by."""
    kind, _, k = metric.partition("@")
    if metric not in ("nll", "auc") and (kind not in ("dcg", "hits") or not k.isdigit() or int(k) < 1):
        raise ParameterError(
            f"users cannot be paired by {metric!r}", remedy=f"use one of {', '.join(PAIRED_METRICS)}"
        )


def paired_users(metric: str, *, user: Any, outcome: Any, first: Any, second: Any) -> PairedUsers:
    """Return the advantage of the first model over the second on the same rows, by user.

    The metrics are those of :func:`unskew.evaluate`: ``nll`` over rows, the pooled ``auc`` (to first order,
    by DeLong's components), ``dcg@K`` and ``hits@K`` over users with a conversion, ties broken in one order.

    Parameters
    ----------
    metric
        ``nll``, ``auc``, ``dcg@K`` or ``hits@K``.
    user, outcome, first, second
        Of each row: its user, 0 or 1, and the predictions of the two models.

    Examples
    --------
    >>> found = paired_users(
    ...     "nll", user=[0, 0, 1, 1], outcome=[1, 0, 1, 0], first=[0.9, 0.1, 0.8, 0.2], second=[0.5] * 4
    ... )
    >>> round(found.advantage, 3), found.users, found.rows
    (0.529, 2, 2.0)
    """
    require_paired(metric)
    users = UserBootstrap.of(user)
    label = np.asarray(outcome, dtype=np.float64)
    scores = [np.asarray(each, dtype=np.float64) for each in (first, second)]
    sums = [_sums(metric, users, label, score) for score in scores]
    # The AUC's sums are of influences to begin with; ratios of sums are linear to first order.
    values = [top.sum() / bottom.sum() for top, bottom in sums]
    influence = [
        len(top) * (top - value * bottom) / bottom.sum()
        for (top, bottom), value in zip(sums, values, strict=True)
    ]
    sign = registered(metric).gain(1.0)
    return PairedUsers(
        metric=metric,
        advantage=float(sign * (values[0] - values[1])),
        influence=sign * (influence[0] - influence[1]),
        rows=len(label) / len(users.user),
    )


def _sums(metric: str, users: UserBootstrap, label: Floats, score: Floats) -> tuple[Floats, Floats]:
    """Return sums by user; the metric is the ratio of their totals."""
    if metric == "nll":
        likelihood = np.where(label == 1, score, 1.0 - score)
        loss = -np.log(np.maximum(likelihood, LIKELIHOOD_FLOOR))
        return users.by_user(loss), users.by_user(np.ones(len(label)))
    if metric == "auc":
        value = auc(score=score, outcome=label)
        return auc_by_user(code=users.code, users=len(users.user), outcome=label, score=score, value=value)
    k = int(metric.partition("@")[2])
    ranking = user_ranking(user=users.code, outcome=label, score=score, ks=(k,))
    placed = np.zeros((2, len(users.user)))
    placed[0, ranking.user], placed[1, ranking.user] = ranking.values[metric], 1.0
    return placed[0], placed[1]
