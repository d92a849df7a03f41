"""What the fields of the log are to the models of a run: importance, and calibration by value."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from unskew.data import Log
from unskew.debias import Debiaser
from unskew.propensity.propensity import BasePropensity
from unskew.run.fields import field_calibration, field_importance
from unskew.run.run_result import RunResult

MOST_VALUES = 20
"""Values that ``metrics.json`` lists, the worst."""


def with_fields(result: RunResult) -> RunResult:
    """The result with ``"fields"`` among its metrics, where a model reads features.

    The conversion model is judged on the test set; without one on the clicks that chose its epoch, weighted
    by 1/p as that choice is. The propensity is judged on the training log, out of fold.
    """
    found: dict[str, Any] = {}
    model = result.models.get(result.main)
    if model is not None and model.reads_features:
        found["conversion"] = _of_model(result, model)
    propensity = result.propensity
    if propensity is not None and propensity.reads_features and propensity.encoders_ is not None:
        found["propensity"] = {
            "judged_on": "held-out rows" if propensity.crossfit else "rows that trained it",
            **_figures(propensity, result.dataset.train),
        }
    return replace(result, metrics={**result.metrics, "fields": found}) if found else result


def _of_model(result: RunResult, model: Debiaser) -> dict[str, Any] | None:
    test, train = result.dataset.test, result.dataset.train
    if test is not None:
        return {"judged_on": "test set", **_figures(model, test)}
    rows = model.validation_rows(train)
    if not rows.shape[1]:
        return None
    if not result.rows:
        return {"judged_on": "validation clicks", **_figures(model, train, rows=rows)}
    p = result.rows["known" if result.propensity is None else "calibrated"].mean(axis=0)
    weight = 1.0 / np.maximum(p, float(result.metrics["p_min"]))
    return {
        "judged_on": "validation clicks, weighted by 1/p",
        **_figures(model, train, rows=rows, weight=weight),
    }


def _figures(model: Debiaser | BasePropensity, log: Log, **options: Any) -> dict[str, Any]:
    values = field_calibration(model, log, **options)
    return {
        "importance": field_importance(model, log, **options).to_dict(),
        "values": len(values),
        "values_off": sum(each.off for each in values),
        "worst_values": [each.to_dict() for each in values[:MOST_VALUES]],
    }
