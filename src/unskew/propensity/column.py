"""Propensities that a column of the log holds: calibrated and judged as trained ones are."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from unskew.base.errors import DataError, UnskewError
from unskew.base.progress import Progress
from unskew.base.tensors import nn
from unskew.data import Log, Schema
from unskew.propensity.crossfit import Codes, Floats, Scorer
from unskew.propensity.given import column_of, require_probabilities
from unskew.propensity.per_replica import PerReplica
from unskew.propensity.propensity import BasePropensity


@dataclass(kw_only=True)
class ColumnPropensity(BasePropensity):
    """p̂ as the log's ``column`` has it, calibrated out of fold.

    Use it for propensities that somebody else's model gave to logged impressions. Not in the space
    ``"matrix"``: a log has no row for most of its pairs, and so no score to calibrate with. It predicts logs
    with that column, not pairs of ids, and has nothing to save.

    Parameters
    ----------
    calibrator, crossfit, fold_by
        As every propensity has them. ``negatives`` changes nothing: every row has its score.
    column
        One of ``log.columns``, with probabilities.

    Examples
    --------
    >>> import numpy as np, unskew as us
    >>> p = np.random.default_rng(0).uniform(0.1, 0.6, 2000)
    >>> log = us.Log.from_arrays(user=np.arange(2000) % 40, item=np.arange(2000) % 30, space="impressions",
    ...                          click=np.random.default_rng(1).random(2000) < p / 2, columns={"theirs": p})
    >>> figures = us.ColumnPropensity(column="theirs").fit(log).diagnose()
    >>> figures["raw"]["mean_over_base_rate"] > 1.7, 0.9 < figures["calibrated"]["mean_over_base_rate"] < 1.1
    (True, True)
    """

    name: ClassVar[str] = "column"
    saves: ClassVar[bool] = False
    reads: ClassVar[str] = "score"
    column: str = "propensity"

    most_cells: ClassVar[int] = 1 << 62

    def _train(self, progress: Progress) -> Scorer:
        assert self.log_ is not None
        if self.space_ != "impressions":
            raise DataError(
                f"column '{self.column}' tells nothing of pairs that the log does not list",
                remedy="use the space 'impressions' (--space impressions) if the rows are all that was shown",
            )
        self._further(self.log_)
        models = [_as_the_rows_have_it] * self.replicas_
        return PerReplica(models, [0.0] * self.replicas_, reads=self.reads)

    def _further(self, log: Log) -> Floats:
        scores = column_of(log, self.column)
        require_probabilities(scores[None], lambda row: f"column '{self.column}', row {row}")
        return scores

    def _untrained(self, schema: Schema) -> nn.Module:
        raise UnskewError(
            "propensities of a column cannot be saved: the column has them", remedy="save the log with it"
        )

    def _scorer_of(self, trained: nn.Module) -> Scorer:
        raise NotImplementedError


def _as_the_rows_have_it(user: Codes, item: Codes, further: Floats | None) -> Floats:
    assert further is not None
    return further
