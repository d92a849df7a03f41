"""Metrics of a conversion model on a test log, one value per seed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from unskew.errors import DataError
from unskew.log import Log
from unskew.metrics.proper import auc, nll
from unskew.metrics.ranking import ranking_metrics, user_auc

CUTOFFS = (2, 4, 6)
"""The paper's K."""


class ConversionModel(Protocol):
    """Anything that predicts conversions for the rows of a log, one line per seed."""

    def predict_each(self, log: Log) -> NDArray[np.float64]:
        """``[seeds, n]``."""
        ...


def evaluate(
    model: ConversionModel, test: Log, *, ks: Sequence[int] = CUTOFFS, seed: int = 0
) -> dict[str, NDArray[np.float64]]:
    """Metrics on a test log that was shown at random: ``auc`` (pooled), ``user_auc``, ``dcg@k``, ``hits@k``,
    ``recall@k``, ``ndcg@k``, ``nll`` and ``mean_over_rate`` (mean prediction ÷ conversion rate: above 1 the
    model promises more than it keeps); each an array with one value per seed of the model.

    Ranking metrics cannot see a skewed level, which ``nll`` and ``mean_over_rate`` do. Only a user's own test
    items are ranked, over users with at least one conversion; ties are broken at random by ``seed``.
    """
    clicked = test.clicked
    rows = test.take(clicked)
    outcome = test.known_conversion()
    if outcome.min() == outcome.max():
        raise DataError(
            f"every conversion of the test log is {outcome[0]:g}: nothing can be ranked",
            remedy="give a test log with converted and unconverted rows",
        )
    lines = [
        {
            "auc": auc(score=score, outcome=outcome),
            "user_auc": user_auc(user=rows.user, outcome=outcome, score=score),
            "nll": nll(score=score, outcome=outcome),
            "mean_over_rate": float(score.mean() / outcome.mean()),
            **ranking_metrics(user=rows.user, outcome=outcome, score=score, ks=tuple(ks), seed=seed),
        }
        for score in model.predict_each(rows)
    ]
    return {name: np.array([line[name] for line in lines]) for name in lines[0]}
