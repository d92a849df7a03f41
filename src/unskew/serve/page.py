"""The calibration of a served model as one HTML page: the verdict, the reliability curve, the figures."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from unskew.metrics import CalibrationSketch
from unskew.metrics.judgement import LEVEL_TOLERANCE
from unskew.metrics.registry import PROPENSITY_METRICS
from unskew.report.cost import sketch_cost
from unskew.report.html_tables import HtmlCell, HtmlRow, HtmlTable, number_cell
from unskew.report.page import picture, render
from unskew.report.plots.scores import reliability_figures
from unskew.report.words import counted, number

HEADLINES = {True: "No sign of miscalibration", False: "Wrong", None: "Undecided"}


def render_page(model: Mapping[str, Any], figures: Mapping[str, Any], sketch: CalibrationSketch) -> str:
    """Return the page of a model, from what ``/model`` and ``/calibration`` tell."""
    pictures = {}
    cost = "No outcomes have arrived yet."
    if sketch.rows:
        pictures["reliability"] = picture(
            "reliability",
            "Each point is a group of rows of equal size, with the 95 % interval of the share with outcome 1;"
            " on the diagonal, predictions are right.",
            reliability_figures(
                {"served": sketch}, predicted=f"predicted {model['what']}", seen="share with outcome 1"
            ),
        )
        what = f"{model['what']}s" if model["what"] == "conversion" else "clicks"
        cost = sketch_cost(sketch, what=what, rows="rows", tolerance=LEVEL_TOLERANCE)
    return render(
        "served.html.j2",
        title=f"Served {model['what']} · unskew serve",
        cost=cost,
        tone={True: "good", None: "open", False: "bad"}[figures["healthy"]],
        headline=HEADLINES[figures["healthy"]],
        verdict=figures["verdict"],
        data_line=f"{counted(figures['rows'], 'outcome')} of {model['what']} so far.",
        pictures=pictures,
        figures=_figures(figures) if sketch.rows else None,
        about=[
            ("Model", model["name"]),
            ("Run", model["folder"]),
            ("Method", model.get("method") or model.get("backbone", "")),
        ],
    )


def _figures(figures: Mapping[str, Any]) -> HtmlTable:
    rows = []
    for name in ("wce", "ece"):
        about, found = PROPENSITY_METRICS[name], figures[name]
        limits = "" if found["low"] is None else f"{number(found['low'])} to {number(found['high'])}"
        cells = (number_cell(found["value"]), HtmlCell(limits), number_cell(found["floor"]))
        rows.append(HtmlRow(about.label, cells, about.note))
    for label, key, ideal in (
        ("Predicted ÷ actual rate", "mean_over_rate", "1"),
        ("Mean prediction", "mean_score", ""),
        ("Actual rate", "rate", ""),
        ("NLL", "nll", ""),
        ("AUC", "auc", ""),
    ):
        rows.append(HtmlRow(label, (number_cell(figures[key]), HtmlCell(""), HtmlCell(ideal))))
    return HtmlTable(("value", "without noise, 95 %", "if honest"), tuple(rows))
