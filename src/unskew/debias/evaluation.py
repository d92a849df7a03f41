"""Metrics of a conversion model on a test log, one value per seed."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from unskew.base.cores import usable_cores
from unskew.base.errors import DataError, ParameterError
from unskew.base.notebook import Figures
from unskew.data import Log, require_log
from unskew.metrics.proper import auc, nll
from unskew.metrics.ranking import user_aucs, user_ranking
from unskew.metrics.registry import CUTOFFS, SHOWN_METRICS, metric
from unskew.metrics.significance import Summary, summarise
from unskew.metrics.sketch_grid import LIKELIHOOD_FLOOR
from unskew.metrics.user_bootstrap import UserBootstrap, auc_by_user

Floats = NDArray[np.float64]
UserSums = tuple[Floats, Floats]
"""Two lines of sums by user; the metric is the ratio of their totals."""
Measured = dict[str, list[tuple[float, UserSums]]]
"""By metric, the value of each seed and the sums by user that it is the ratio of."""


class Evaluation(Figures):
    """Metrics of a model on a test log: by name, an array with one value per seed.

    Seeds tell how training varies; the test set is the same for all of them.
    """

    def __init__(self, model: Any, test: Log, ks: Sequence[int], seed: int) -> None:
        self._model, self._test, self._how = model, test, (tuple(ks), seed)
        self._score, self._has_level = _scored(model, test)
        self._measured = self._of(self._score)
        super().__init__(_values(self._measured))

    def _of(self, score: Floats) -> Measured:
        return _measured(score, self._has_level, self._test, *self._how)

    @cached_property
    def resampled(self) -> dict[str, Floats]:
        """Metrics on other samples of the test users, ``[seeds, resamples]`` by name.

        The resamples are the same for every model on the same test log, so that differences of models are
        paired (:func:`unskew.metrics.significance.users_and_seeds` makes intervals of them). All metrics are
        ratios of sums by user and exact; the pooled AUC is exact to first order.
        """
        users = UserBootstrap.of(self._test.user[self._test.clicked])
        return {
            name: users.ratios(*(np.stack([sums[line] for _, sums in lines]) for line in (0, 1)))
            for name, lines in self._measured.items()
        }

    @cached_property
    def together(self) -> dict[str, float] | None:
        """Metrics of the mean prediction of all seeds, which ``predict`` gives; None of one seed."""
        if len(self._score) == 1:
            return None
        mean = _values(self._of(self._score.mean(axis=0)[None]))
        return {name: float(value[0]) for name, value in mean.items()}

    @cached_property
    def members(self) -> dict[str, Floats] | None:
        """Metrics of each member of an ensemble, ``[seeds, members]`` by name; None of other models.

        The distance between members on average and their ensemble is what averaging is worth.
        """
        if getattr(self._model, "members", 1) == 1:
            return None
        lines = self._model.predict_members_each(self._test.take(self._test.clicked))
        values = _values(self._of(np.concatenate(lines)))
        return {name: of_all.reshape(lines.shape[:2]) for name, of_all in values.items()}

    def __repr__(self) -> str:
        shown = [name for name in SHOWN_METRICS if name in self]
        figures = ", ".join(f"{name} {metric(name).text(float(self[name].mean()))}" for name in shown)
        seeds, clicks = len(self._score), len(self._test.clicked)
        return f"Evaluation({figures}; mean of {seeds} seed{'s' * (seeds > 1)} on {clicks:,} test rows)"


def evaluate(model: Any, test: Log, *, ks: Sequence[int] = CUTOFFS, seed: int = 0) -> Evaluation:
    """Return metrics on a test log that was shown at random, each with one value per seed of the model.

    They are ``auc`` (pooled), ``user_auc``, ``dcg@k``, ``hits@k``, ``recall@k``, ``ndcg@k``, ``nll`` and
    ``mean_over_rate`` (mean prediction ÷ conversion rate: above 1 it predicts more conversions than there
    are). Ranking metrics cannot see a skewed level, which ``nll`` and ``mean_over_rate`` do; a model whose
    predictions are scores to rank by (``predicts_rates = False``) has no level, and neither of the two. Only
    a user's own test items are ranked, over users with at least one conversion; ties are broken at random by
    ``seed``. What other test users would show, and what the members of an ensemble reach, are attributes of
    the result.

    Parameters
    ----------
    model
        Anything whose ``predict_each(log)`` predicts conversions ``[seeds, n]``.
    """
    return Evaluation(model, test, ks, seed)


def _values(measured: Measured) -> dict[str, Floats]:
    return {name: np.array([value for value, _ in lines]) for name, lines in measured.items()}


def _scored(model: Any, test: Log) -> tuple[Floats, bool]:
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
    both, of_user = user_aucs(user=user, outcome=outcome, score=score)
    return {
        "auc": (
            pooled,
            auc_by_user(code=users.code, users=len(users.user), outcome=outcome, score=score, value=pooled),
        ),
        "user_auc": (
            float(of_user.mean()) if len(of_user) else float("nan"),
            (users.placed(both, of_user), users.placed(both, np.ones(len(of_user)))),
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
