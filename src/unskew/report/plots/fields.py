"""Which fields matter: what AUC loses when each is permuted, with its interval."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from unskew.metrics.judgement import excludes_zero
from unskew.report.plots.dot_charts import Dot, DotChart, DotRow, axis_of
from unskew.report.words import brief, signed, signed_fixed

MOST_FIELDS = 15
"""Fields that a chart shows, those that matter most."""
NAME_LENGTH = 24


def fields_charts(importances: Mapping[str, Mapping[str, Any]]) -> list[DotChart]:
    """One chart a model, one row a field: what AUC loses without it; hollow where that may be nothing.

    Parameters
    ----------
    importances
        By title, what :meth:`unskew.fields.Importance.to_dict` gives.
    """
    return [_chart(title, importance["fields"][:MOST_FIELDS]) for title, importance in importances.items()]


def _chart(title: str, fields: Any) -> DotChart:
    ends = [0.0, *(each["auc"][end] for each in fields for end in ("low", "high"))]
    rows = []
    for each in fields:
        loss, name = each["auc"], str(each["field"])
        tip = f"{name}: AUC loses {brief(loss['mean'])} ({signed(loss['low'])} to {signed(loss['high'])})"
        dot = Dot(loss["mean"], loss["low"], loss["high"], filled=excludes_zero(loss), tip=tip)
        label = name if len(name) <= NAME_LENGTH else name[: NAME_LENGTH - 1] + "…"
        rows.append(DotRow(label, (dot,), signed_fixed(loss["mean"])))
    axis = axis_of(ends, "AUC lost when the field is permuted")
    return DotChart(title, axis, tuple(rows), rule=0.0, note="" if rows else "too few rows to tell")
