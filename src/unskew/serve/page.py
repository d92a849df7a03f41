"""The calibration of a served model as one HTML page: the verdict, the reliability diagram, the figures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from unskew.metrics import CalibrationSketch
from unskew.metrics.judgement import LEVEL_TOLERANCE
from unskew.metrics.registry import PROPENSITY_METRICS
from unskew.report.cost import sketch_cost
from unskew.report.numbers import between, counted, number
from unskew.report.page import picture, render
from unskew.report.plots.scores import reliability_figures
from unskew.report.table import Table

HEADLINES = {True: "No sign of miscalibration", False: "Wrong", None: "Undecided"}
TONES = {True: "good", False: "bad", None: "open"}


def render_page(model: Mapping[str, Any], figures: Mapping[str, Any], sketch: CalibrationSketch) -> str:
    """Return the page of a model, from what ``/model`` and ``/calibration`` tell."""
    what, pictures, cost, table = model["what"], {}, figures["verdict"], None
    if sketch.rows:
        axes = {"predicted": f"predicted {what}", "seen": "share with outcome 1"}
        drawn = reliability_figures({"served": sketch}, **axes)
        pictures["reliability"] = picture("reliability", drawn)
        outcomes = "conversions" if what == "conversion" else "clicks"
        cost = sketch_cost(sketch, what=outcomes, rows="rows", tolerance=LEVEL_TOLERANCE)
        table = _table(figures)
    return render(
        "served.html.j2",
        title=f"Served {what} · unskew serve",
        cost=cost,
        tone=TONES[figures["healthy"]],
        headline=HEADLINES[figures["healthy"]],
        verdict=figures["verdict"],
        data_line=f"{counted(figures['rows'], 'outcome')} of {what} so far.",
        pictures=pictures,
        figures=table,
        about=[
            ("Model", model["name"]),
            ("Run", model["folder"]),
            ("Method", model.get("method") or model.get("backbone", "")),
        ],
    )


def _table(figures: Mapping[str, Any]) -> Table:
    rows: list[Sequence[Any]] = []
    for name in ("wce", "ece"):
        about, error = PROPENSITY_METRICS[name], figures[name]
        limits = between(error["low"], error["high"], number)
        rows.append((about.label, error["value"], limits, error["floor"], about.note))
    for label, key, ideal in (
        ("Predicted ÷ actual rate", "mean_over_rate", "1"),
        ("Mean prediction", "mean_score", ""),
        ("Actual rate", "rate", ""),
        ("NLL", "nll", ""),
        ("AUC", "auc", ""),
    ):
        rows.append((label, figures[key], "", ideal, ""))
    columns = ("", "value", "without noise, 95 %", "if calibrated", "what it is")
    return Table("Of what was served", columns, rows, notes=True)
