"""Calibrators judged from the sketches of folds: as if judged on the rows themselves."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from unskew.audit.crossfit import (
    can_crossfit,
    compare,
    fit_without_each,
    fold_of_rows,
)
from unskew.base.errors import DataError
from unskew.calibration import Platt
from unskew.metrics import CalibrationSketch, brier, mean_outcome_over_score, nll, wce


def dealt(score: Any, outcome: Any, folds: int = 5) -> list[CalibrationSketch]:
    fold = fold_of_rows(0, len(score), folds, 0)
    return [CalibrationSketch.of(score=score[fold == k], outcome=outcome[fold == k]) for k in range(folds)]


# WCE is at its noise of 0.09 here, and its equal-mass bins end at other rows.
@pytest.mark.parametrize(
    ("metric", "tolerance"), [(nll, 1e-5), (brier, 1e-5), (mean_outcome_over_score, 1e-3), (wce, 0.01)]
)
def test_a_mapped_sketch_measures_as_the_mapped_rows_do(log: Any, metric: Any, tolerance: float) -> None:
    platt = Platt().fit(log.score, log.outcome)
    sketch = CalibrationSketch.of(score=log.score, outcome=log.outcome)
    after = sketch.mapped(platt.predict(sketch.points().score))
    exact = metric(CalibrationSketch.of(score=platt.predict(log.score), outcome=log.outcome))
    assert metric(after) == pytest.approx(exact, abs=tolerance)
    assert after.rows == sketch.rows
    assert after.positives == sketch.positives


def test_the_standard_error_is_that_of_paired_differences_of_rows(log: Any) -> None:
    folds = dealt(log.score, log.outcome)
    scores = {score.name: score for score in compare(folds, ["none", "platt"])}
    fitted = fit_without_each("platt", folds)
    fold = fold_of_rows(0, len(log.score), 5, 0)
    q = np.empty(len(log.score))
    for k in range(5):
        q[fold == k] = fitted[k].predict(log.score[fold == k])
    loss = [-np.log(np.where(log.outcome == 1, p, 1 - p)) for p in (log.score, q)]
    expected = (loss[0] - loss[1]).std() / np.sqrt(len(q))
    assert scores["none"].excess_error == pytest.approx(expected, rel=0.01)


def test_one_class_outside_a_fold_is_an_error_that_says_so() -> None:
    outcome = np.zeros(640, dtype=np.int64)
    outcome[0] = 1
    folds = dealt(np.full(640, 0.1), outcome)
    assert not can_crossfit(folds)
    with pytest.raises(DataError, match="outcome 0 is on every row outside fold"):
        fit_without_each("platt", folds)
