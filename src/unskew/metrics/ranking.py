"""Ranking metrics per user, with their random and oracle rails; the pooled AUC is in ``proper``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from unskew.base.errors import DataError, ParameterError
from unskew.base.numbers import array_of, without_mask

DEFAULT_KS = (2, 4, 6)
"""The cut-offs of the paper's tables."""

Rail = Literal["random", "oracle"]


@dataclass(frozen=True, eq=False)
class UserRanking:
    """The ranking metrics of each user with a positive, before they are averaged.

    Attributes
    ----------
    user
        Ids of the users with at least one positive, sorted.
    values
        For each metric (``"dcg@2"``, …) one number per user, in the order of ``user``.
    """

    user: NDArray[Any]
    values: Mapping[str, NDArray[np.float64]]

    def mean(self) -> dict[str, float]:
        """Return the average over users of each metric."""
        return {name: float(value.mean()) for name, value in self.values.items()}


@dataclass(frozen=True, eq=False)
class _Users:
    """Rows grouped by user: the code of each row, and sizes and positives of each user."""

    ids: NDArray[Any]
    code: NDArray[np.int64]
    size: NDArray[np.int64]
    positives: NDArray[np.int64]

    @classmethod
    def of(cls, user: Any, outcome: Any) -> tuple[_Users, NDArray[np.int64]]:
        ids, label = array_of(user, "user"), array_of(outcome, "outcome")
        if ids.ndim != 1 or ids.shape != label.shape:
            raise DataError(
                f"user has shape {ids.shape} and outcome has shape {label.shape}",
                remedy="give one user and one outcome for each row",
            )
        missing = np.zeros(len(ids), dtype=bool)
        if ids.dtype.kind == "f":
            missing = np.isnan(ids)
        elif ids.dtype.kind == "O":
            missing = np.array([each is None for each in ids], dtype=bool)
        if missing.any():
            raise DataError(
                f"user is missing ({int(missing.sum())} such rows)",
                where=f"row {int(np.flatnonzero(missing)[0])}",
                remedy="leave these rows out, or fill in the users",
            )
        if len(ids) == 0:
            raise DataError(
                "there is no row to rank", remedy="give at least one user with a positive outcome"
            )
        wrong = ~((label == 0) | (label == 1))
        if wrong.any():
            row = int(np.flatnonzero(wrong)[0])
            raise DataError(
                f"outcome {label[row]} is not 0 or 1 ({int(wrong.sum())} such rows)",
                where=f"row {row}",
                remedy="encode outcomes as 0 and 1, without missing values",
            )
        relevant = label.astype(np.int64)
        unique, code = np.unique(ids, return_inverse=True)
        positives = np.bincount(code, weights=relevant).astype(np.int64)
        return cls(ids=unique, code=code, size=np.bincount(code), positives=positives), relevant

    def with_positive(self) -> NDArray[np.int64]:
        ranked = np.flatnonzero(self.positives)
        if len(ranked) == 0:
            raise DataError(
                "no user has a positive outcome, so no ranking can be judged",
                where="column 'outcome'",
                remedy="evaluate on a test set with at least one conversion",
            )
        return ranked


def user_ranking(
    *, user: Any, outcome: Any, score: Any, ks: Sequence[int] = DEFAULT_KS, seed: int = 0
) -> UserRanking:
    r"""Compute ranking metrics of each user, for averages, paired comparisons and bootstraps over users.

    .. math::
        \mathrm{hits@}K = \sum_{k \le K'} rel_k, \qquad
        \mathrm{DCG@}K = \sum_{k \le K'} \frac{rel_k}{\log_2(k+1)}, \qquad K' = \min(K, n_u)

    and recall@K = hits@K / n₊, ndcg@K = DCG@K / (the DCG@K of a perfect ranking).

    rel_k is the ``outcome`` of the row at place k when the n_u rows of a ``user`` are sorted by falling
    ``score``; n₊ counts that user's positives. Rows with equal scores are put in an order drawn from
    ``seed``: file order often leaks the label.

    Examples
    --------
    >>> ranking = user_ranking(user=["a", "a", "b"], outcome=[0, 1, 0], score=[0.9, 0.1, 0.5], ks=(1, 2))
    >>> ranking.user, ranking.values["hits@2"]
    (array(['a'], dtype='<U1'), array([1.]))
    """
    users, relevant = _Users.of(user, outcome)
    value = _scores(score, len(relevant))
    cutoffs = _cutoffs(ks)
    ranked = users.with_positive()
    tie_break = np.random.default_rng(seed).permutation(len(relevant))
    order = np.lexsort((tie_break, -value, users.code))
    start = np.cumsum(users.size) - users.size
    code = users.code[order]
    rank = np.arange(len(order)) - start[code]
    relevant_row = relevant[order] == 1
    code, rank = code[relevant_row], rank[relevant_row]
    gain = 1.0 / np.log2(rank + 2.0)
    hits: dict[int, NDArray[np.float64]] = {}
    dcg: dict[int, NDArray[np.float64]] = {}
    for k in cutoffs:
        top = rank < k
        hits[k] = np.bincount(code[top], minlength=len(users.ids))[ranked].astype(np.float64)
        dcg[k] = np.bincount(code[top], weights=gain[top], minlength=len(users.ids))[ranked].astype(
            np.float64
        )
    return UserRanking(user=users.ids[ranked], values=_metrics(hits, dcg, users.positives[ranked]))


def ranking_metrics(
    *, user: Any, outcome: Any, score: Any, ks: Sequence[int] = DEFAULT_KS, seed: int = 0
) -> dict[str, float]:
    r"""Compute ranking metrics averaged over the users with a positive, V.

    .. math::
        \mathrm{DCG@}K = \frac{1}{|V|} \sum_{u \in V} \sum_{k \le \min(K, n_u)} \frac{rel_{u,k}}{\log_2(k+1)}

    and likewise hits@K (the paper's "Recall", a count that may exceed 1), recall@K (hits over the user's
    positives) and ndcg@K (DCG over the DCG of a perfect ranking); see :func:`user_ranking`.

    Only the rows given are ranked: in the paper's protocol, a user's *test* items. Read the numbers beside
    :func:`ranking_rails`: a hits@6 of 1.36 on Coat is what shuffling reaches.

    Parameters
    ----------
    user, outcome, score
        One entry per row; outcomes are 0 or 1, larger scores rank higher.
    ks
        Cut-offs; (2, 4, 6) as in the paper.
    seed
        Decides the order among equal scores.

    Returns
    -------
    dict
        ``"dcg@K"``, ``"hits@K"``, ``"recall@K"``, ``"ndcg@K"`` for each K.

    Examples
    --------
    >>> ranking_metrics(user=[0, 0, 0], outcome=[1, 0, 1], score=[0.9, 0.5, 0.1], ks=(2,))["hits@2"]
    1.0
    """
    return user_ranking(user=user, outcome=outcome, score=score, ks=ks, seed=seed).mean()


def ranking_rails(*, user: Any, outcome: Any, ks: Sequence[int] = DEFAULT_KS) -> dict[Rail, dict[str, float]]:
    r"""Return what a random and a perfect ranking reach on these rows: the rails beside every ranking metric.

    .. math::
        E[rel_k] = \frac{n_+}{n_u}, \qquad
        E[\mathrm{DCG@}K] = \frac{n_+}{n_u} \sum_{k \le K'} \frac{1}{\log_2(k+1)}, \qquad
        \mathrm{DCG^*@}K = \sum_{k \le \min(K, n_+)} \frac{1}{\log_2(k+1)}

    Every metric is linear in rel, so the expectation under a uniformly random order is exact: nothing is
    drawn. Averages are over the users with a positive, as in :func:`ranking_metrics`.

    Examples
    --------
    >>> rails = ranking_rails(user=[0, 0, 0, 0], outcome=[1, 0, 0, 0], ks=(2,))
    >>> rails["random"]["hits@2"], rails["oracle"]["hits@2"]
    (0.5, 1.0)
    """
    users, _ = _Users.of(user, outcome)
    cutoffs = _cutoffs(ks)
    ranked = users.with_positive()
    size, positives = users.size[ranked], users.positives[ranked]
    rate = positives / size
    ideal = {k: _ideal_dcg(np.minimum(k, positives)) for k in cutoffs}
    random = _metrics(
        {k: rate * np.minimum(k, size) for k in cutoffs},
        {k: rate * _ideal_dcg(np.minimum(k, size)) for k in cutoffs},
        positives,
    )
    oracle = _metrics({k: np.minimum(k, positives).astype(np.float64) for k in cutoffs}, ideal, positives)
    ids = users.ids[ranked]
    return {"random": UserRanking(ids, random).mean(), "oracle": UserRanking(ids, oracle).mean()}


def user_auc(*, user: Any, outcome: Any, score: Any) -> float:
    r"""Compute the mean over users of the AUC among that user's own rows.

    .. math::
        \mathrm{AUC}_u = \frac{1}{n_+ n_-} \sum_{i: o_i = 1} \sum_{j: o_j = 0}
        \bigl( 1[s_i > s_j] + \tfrac12 1[s_i = s_j] \bigr)

    averaged over the users with both classes. Unlike the pooled AUC it gives no credit for telling
    generous users from strict ones. NaN if no user has both classes, as with one row per user.

    Examples
    --------
    >>> user_auc(user=[0, 0, 1, 1, 1], outcome=[1, 0, 1, 0, 0], score=[0.8, 0.2, 0.5, 0.5, 0.9])
    0.625
    """
    _, by_user = user_aucs(user=user, outcome=outcome, score=score)
    return float(by_user.mean()) if len(by_user) else float("nan")


def user_aucs(*, user: Any, outcome: Any, score: Any) -> tuple[NDArray[Any], NDArray[np.float64]]:
    """Return the users with both classes, sorted, and each one's AUC; :func:`user_auc` is their mean."""
    users, relevant = _Users.of(user, outcome)
    value = _scores(score, len(relevant))
    positives, negatives = users.positives, users.size - users.positives
    both = (positives > 0) & (negatives > 0)
    order = np.lexsort((value, users.code))
    code, value, relevant = users.code[order], value[order], relevant[order]
    opens_tie = np.concatenate([[True], (code[1:] != code[:-1]) | (value[1:] != value[:-1])])
    tie = np.cumsum(opens_tie) - 1
    first = np.flatnonzero(opens_tie)
    last = np.append(first[1:], len(code)) - 1
    start = np.cumsum(users.size) - users.size
    mid_rank = (first[tie] + last[tie]) / 2.0 - start[code] + 1.0
    rank_sum = np.bincount(code, weights=mid_rank * relevant, minlength=len(users.ids))
    wins = rank_sum[both] - positives[both] * (positives[both] + 1) / 2.0
    return users.ids[both], wins / (positives[both] * negatives[both])


def _metrics(
    hits: Mapping[int, NDArray[np.float64]],
    dcg: Mapping[int, NDArray[np.float64]],
    positives: NDArray[np.int64],
) -> dict[str, NDArray[np.float64]]:
    metrics = {f"dcg@{k}": value for k, value in dcg.items()}
    metrics |= {f"hits@{k}": value for k, value in hits.items()}
    metrics |= {f"recall@{k}": value / positives for k, value in hits.items()}
    metrics |= {f"ndcg@{k}": value / _ideal_dcg(np.minimum(k, positives)) for k, value in dcg.items()}
    return metrics


def _ideal_dcg(places: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return the DCG of a ranking whose first ``places`` rows are all positive."""
    discount = 1.0 / np.log2(np.arange(places.max()) + 2.0)
    return np.concatenate([[0.0], np.cumsum(discount)])[places]


def _scores(score: Any, rows: int) -> NDArray[np.float64]:
    value = np.asarray(without_mask(score), dtype=np.float64)
    if value.shape != (rows,):
        raise DataError(
            f"score has shape {value.shape} for {rows} rows",
            remedy="give one score for each row; with replicas, one replica at a time",
        )
    if np.isnan(value).any():
        raise DataError(
            f"score is NaN ({int(np.isnan(value).sum())} such rows)",
            where=f"row {int(np.flatnonzero(np.isnan(value))[0])}",
            remedy="leave out the rows without a prediction",
        )
    return value


def _cutoffs(ks: Sequence[int]) -> tuple[int, ...]:
    cutoffs = tuple(int(k) for k in ks)
    if not cutoffs or min(cutoffs) < 1:
        raise ParameterError(
            f"ks must be whole numbers from 1 on, not {tuple(ks)}", remedy="give for example (2, 4, 6)"
        )
    return cutoffs
