"""Metrics of a conversion model on a test log, one value per seed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from unskew.base.cores import usable_cores
from unskew.base.errors import DataError, ParameterError
from unskew.base.notebook import Figures
from unskew.data import Log, require_log
from unskew.metrics.proper import auc, nll
from unskew.metrics.ranking import user_aucs, user_ranking
from unskew.metrics.registry import CUTOFFS
from unskew.metrics.significance import Summary, summarise
from unskew.metrics.sketch_grid import LIKELIHOOD_FLOOR
from unskew.metrics.user_bootstrap import UserBootstrap, auc_by_user

Floats = NDArray[np.float64]
UserSums = tuple[Floats, Floats]
"""Two lines of sums by user; the metric is the ratio of their totals."""
Measured = dict[str, list[tuple[float, UserSums]]]
"""By metric, the value of each seed and the sums by user that it is the ratio of."""


class ConversionModel(Protocol):
    """Anything that predicts conversions for the rows of a log, one line per seed."""

    def predict_each(self, log: Log) -> NDArray[np.float64]:
        """``[seeds, n]``."""
        ...


@dataclass(frozen=True, eq=False)
class Evaluated:
    """Metrics on a test log, and the same on resamples of its users.

    Attributes
    ----------
    values
        By metric, one value per seed.
    resampled
        By metric ``[seeds, resamples]``: of the same resamples for every model on the same test log, so that
        differences of models are paired.
    members
        By metric, the mean over the members of each seed, of a model that is an ensemble; else None.
    together
        By metric, of the mean prediction of all seeds, which ``predict`` gives; None of one seed.
    """

    values: Mapping[str, Floats]
    resampled: Mapping[str, Floats]
    members: Mapping[str, Floats] | None = None
    together: Mapping[str, float] | None = None


def evaluate(model: ConversionModel, test: Log, *, ks: Sequence[int] = CUTOFFS, seed: int = 0) -> Figures:
    """Metrics on a test log that was shown at random: ``auc`` (pooled), ``user_auc``, ``dcg@k``, ``hits@k``,
    ``recall@k``, ``ndcg@k``, ``nll`` and ``mean_over_rate`` (mean prediction ÷ conversion rate: above 1 it
    predicts more conversions than there are); each an array with one value per seed of the model.

    Ranking metrics cannot see a skewed level, which ``nll`` and ``mean_over_rate`` do; a model whose
    predictions are scores to rank by (``predicts_rates = False``) has no level, and neither of the two. Only
    a user's own test items are ranked, over users with at least one conversion; ties are broken at random by
    ``seed``.
    """
    return Figures(_values(_measured(*_scored(model, test), test, ks, seed)))


def evaluate_users(
    model: ConversionModel, test: Log, *, ks: Sequence[int] = CUTOFFS, seed: int = 0
) -> Evaluated:
    """The metrics of :func:`evaluate`, and how they move when the test users are resampled.

    Seeds tell how training varies; the test set is the same for all of them. What another sample of users
    would show is in ``resampled`` (:func:`unskew.metrics.significance.users_and_seeds` makes
    intervals of it). All metrics are ratios of sums by user and exact; the pooled AUC is exact to first
    order.
    """
    score, has_level = _scored(model, test)
    measured = _measured(score, has_level, test, ks, seed)
    users = UserBootstrap.of(test.user[test.clicked])
    resampled = {}
    for name, lines in measured.items():
        top, bottom = (np.stack([sums[line] for _, sums in lines]) for line in (0, 1))
        resampled[name] = users.ratios(top, bottom)
    together = None
    if len(score) > 1:
        of_mean = _values(_measured(score.mean(axis=0)[None], has_level, test, ks, seed))
        together = {name: float(value[0]) for name, value in of_mean.items()}
    members = evaluate_members(model, test, ks=ks, seed=seed) if getattr(model, "members", 1) > 1 else None
    mean = None if members is None else {name: each.mean(axis=1) for name, each in members.items()}
    return Evaluated(_values(measured), resampled, mean, together)


def evaluate_members(
    model: Any, test: Log, *, ks: Sequence[int] = CUTOFFS, seed: int = 0
) -> dict[str, NDArray[np.float64]]:
    """The metrics of :func:`evaluate` for every member of a model's ensembles ``[seeds, members]``.

    What members reach on average, beside what their ensemble does, is what averaging is worth.
    """
    lines = model.predict_members_each(test.take(test.clicked))
    has_level = getattr(model, "predicts_rates", True)
    measured = _measured(np.concatenate(lines), has_level, test, ks, seed)
    return {name: values.reshape(lines.shape[:2]) for name, values in _values(measured).items()}


def _values(measured: Measured) -> dict[str, Floats]:
    return {name: np.array([value for value, _ in lines]) for name, lines in measured.items()}


def _scored(model: ConversionModel, test: Log) -> tuple[Floats, bool]:
    """Return predictions of the clicked rows of a test log, and whether they are rates."""
    if isinstance(model, type) or not hasattr(model, "predict_each"):
        raise ParameterError(f"{model!r} is not a trained model", remedy="give what fit returns")
    require_log(test, "the test log", "give a Log, such as data.test")
    if not len(test.clicked):
        raise DataError(
            "the test log has no clicked row, and so no conversion to judge by",
            remedy="give a test log with conversions",
        )
    outcome = test.known_conversion()
    if outcome.min() == outcome.max():
        raise DataError(
            f"every conversion of the test log is {outcome[0]:g}: nothing can be ranked",
            remedy="give a test log with converted and unconverted rows",
        )
    return model.predict_each(test.take(test.clicked)), getattr(model, "predicts_rates", True)


def _measured(scores: Floats, has_level: bool, test: Log, ks: Sequence[int], seed: int) -> Measured:
    user, outcome = test.user[test.clicked], test.known_conversion()
    users = UserBootstrap.of(user)

    def of_line(score: Floats) -> dict[str, tuple[float, UserSums]]:
        ranking = user_ranking(user=user, outcome=outcome, score=score, ks=tuple(ks), seed=seed)
        counted = users.placed(ranking.user, np.ones(len(ranking.user)))
        return {
            **_aucs(user, outcome, score, users),
            **(_level(score, outcome, users) if has_level else {}),
            **{
                name: (float(values.mean()), (users.placed(ranking.user, values), counted))
                for name, values in ranking.values.items()
            },
        }

    measured: Measured = {}
    # Nearly all of the time is sorting, which leaves Python to others.
    with ThreadPoolExecutor(min(len(scores), usable_cores())) as pool:
        for figures in pool.map(of_line, scores):
            for name, figure in figures.items():
                measured.setdefault(name, []).append(figure)
    return measured


def _aucs(
    user: NDArray[np.int32], outcome: NDArray[np.float32], score: Floats, users: UserBootstrap
) -> dict[str, tuple[float, UserSums]]:
    pooled = auc(score=score, outcome=outcome)
    both, each = user_aucs(user=user, outcome=outcome, score=score)
    return {
        "auc": (
            pooled,
            auc_by_user(code=users.code, users=len(users.user), outcome=outcome, score=score, value=pooled),
        ),
        "user_auc": (
            float(each.mean()) if len(each) else float("nan"),
            (users.placed(both, each), users.placed(both, np.ones(len(each)))),
        ),
    }


def _level(
    score: Floats, outcome: NDArray[np.float32], users: UserBootstrap
) -> dict[str, tuple[float, UserSums]]:
    likelihood = np.where(outcome == 1, score, 1.0 - score)
    loss = users.by_user(-np.log(np.maximum(likelihood, LIKELIHOOD_FLOOR)))
    return {
        "nll": (nll(score=score, outcome=outcome), (loss, users.by_user(np.ones(len(outcome))))),
        "mean_over_rate": (
            float(score.mean() / outcome.mean()),
            (users.by_user(score), users.by_user(outcome)),
        ),
    }


def level_of(score: Floats, outcome: NDArray[Any], user: NDArray[np.integer[Any]]) -> Summary:
    """Summarise ``mean_over_rate`` of predictions ``[seeds, n]`` of rows, over test users and seeds."""
    users = UserBootstrap.of(user)
    predicted = np.stack([users.by_user(line) for line in score])
    actual = np.tile(users.by_user(outcome), (len(score), 1))
    return summarise(predicted.sum(axis=1) / actual.sum(axis=1), users.ratios(predicted, actual))
