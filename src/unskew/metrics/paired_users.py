"""What each user adds to the difference of two models on the same rows: paired tests and power from it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr

from unskew.base.errors import ParameterError
from unskew.metrics.limits import LIKELIHOOD_FLOOR
from unskew.metrics.proper import auc
from unskew.metrics.ranking import user_ranking
from unskew.metrics.registry import metric as registered
from unskew.metrics.user_bootstrap import UserBootstrap, auc_by_user

Floats = NDArray[np.float64]

PAIRED_METRICS = ("nll", "auc", "dcg@K", "hits@K")


@dataclass(frozen=True, eq=False)
class PairedUsers:
    r"""By how much one model is better than another, and each user's influence on that.

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
        """Of the advantage."""
        return self.sigma / math.sqrt(self.users)

    @property
    def p_value(self) -> float:
        """One-sided, for "the first is no better"."""
        error = self.standard_error
        if not error > 0:
            return 0.5 if self.advantage == 0 else float(self.advantage < 0)
        return float(ndtr(-self.advantage / error))


def require_paired(metric: str) -> None:
    """An error for a metric that users cannot be paired by."""
    kind, _, k = metric.partition("@")
    if metric not in ("nll", "auc") and (kind not in ("dcg", "hits") or not k.isdigit() or int(k) < 1):
        raise ParameterError(
            f"users cannot be paired by {metric!r}", remedy=f"use one of {', '.join(PAIRED_METRICS)}"
        )


def paired_users(metric: str, *, user: Any, outcome: Any, first: Any, second: Any) -> PairedUsers:
    """The advantage of the first model over the second on the same rows, by user.

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
    """Sums by user; the metric is the ratio of their totals."""
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
