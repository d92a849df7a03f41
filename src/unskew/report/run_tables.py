"""The tables of a run, for its report and for the terminal."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from unskew.metrics.judgement import judge_difference
from unskew.metrics.registry import SHOWN_PROPENSITY, Metric, metric
from unskew.report.facts import COLLAPSED_MARK, deviation, method_name, sampled
from unskew.report.numbers import brief, number, real, signed_fixed
from unskew.report.table import Cell, Table


def schema_table(fields: Sequence[Mapping[str, Any]]) -> Table:
    """Return what a model reads: a line for each field."""
    rows = [
        (
            line["name"],
            line["kind"],
            line["role"],
            line["cardinality"],
            line["missing"] or Cell(""),
            line["example"],
            line["note"],
        )
        for line in fields
    ]
    columns = ("field", "kind", "of", "values", "missing", "example", "")
    cells = {"values": "count", "missing": "percent"}
    return Table("Fields that the model reads", columns, rows, units=cells)


def propensity_table(figures: Mapping[str, Any], units: str = "pairs") -> Table:
    """Return every figure of the raw and the calibrated propensities, with the spread over seeds."""
    rows = []
    for figure in SHOWN_PROPENSITY:
        if any(figures[kind].get(figure.name) is not None for kind in figures):
            cells = [_propensity_cell(figures[kind], figure) for kind in figures]
            rows.append((figure.label, *cells, Cell(figure.ideal), figure.note))
    title = "Known propensities" if "known" in figures else f"Propensities on held-out {units}"
    return Table(title, ("", *figures, "ideal", "what it is"), rows, notes=True)


def _propensity_cell(figures: Mapping[str, Any], figure: Metric) -> Cell:
    value = real(figures.get(figure.name))
    seeds = np.array([real(seed) for seed in figures.get("per_seed", {}).get(figure.name, [])])
    seeds = seeds[np.isfinite(seeds)]
    spread = f"± {figure.text(float(seeds.std(ddof=1)))}" if len(seeds) > 1 else ""
    return Cell(figure.text(value), value, spread)


def methods_table(metrics: Mapping[str, Any], title: str, names: Sequence[str] = ()) -> Table:
    """Return every metric (or those named) of every method, between what a random and a perfect order reach.

    Marks tell what differs from the naive model beyond noise, and which models hold a network that learned
    nothing.
    """
    methods, collapsed = metrics["methods"], metrics.get("collapsed") or {}
    comparison, rails = metrics.get("comparison") or {}, metrics.get("rails") or {}
    rows = []
    for name in dict.fromkeys(name for by_metric in methods.values() for name in by_metric):
        if names and name not in names:
            continue
        about = metric(name)
        ends = about.rails(rails)
        cells = []
        for key, by_metric in methods.items():
            summary = by_metric.get(name) or {}
            judged = judge_difference(name, (comparison.get(key) or {}).get(name, {}))
            mark = {"good": "▲", "bad": "▼"}.get(judged.level, "")
            cells.append(Cell(number(summary.get("mean")), summary.get("mean"), _spread(summary), mark))
        label = f"{about.label} ({about.advice})" if about.advice else about.label
        random, oracle = (Cell(brief(ends.get(end)), ends.get(end)) for end in ("random", "oracle"))
        rows.append((label, random, *cells, oracle))
    heads = [f"{method_name(key)}{f' {COLLAPSED_MARK}' if collapsed.get(key) else ''}" for key in methods]
    over = sampled(methods)
    caption = (
        f"Mean ± standard deviation over seeds [95 % interval over {over}]; 'all seeds' is the mean of their"
        " predictions, which is what is shipped."
    )
    if comparison:
        caption += (
            f" ▲ better, ▼ worse than the naive model beyond noise (paired over {over}, Holm's correction)."
        )
    return Table(title, ("metric", "random", *heads, "oracle"), rows, caption)


def _spread(summary: Mapping[str, Any]) -> str:
    """Format the deviation over seeds, the interval, the mean of members, and all seeds together."""
    shown = []
    if math.isfinite(real(summary.get("std"))):
        shown.append(f"± {number(summary['std'])}")
    if all(math.isfinite(real(summary.get(end))) for end in ("low", "high")):
        shown.append(f"[{number(summary['low'], 3)}, {number(summary['high'], 3)}]")
    for label, name in (("members", "members_mean"), ("all seeds", "together")):
        if math.isfinite(real(summary.get(name))):
            shown.append(f"{label} {number(summary[name])}")
    return " ".join(shown)


def truth_table(truth: Mapping[str, Any]) -> Table:
    """Return each estimate of the loss, how far it is off on average, and the two parts of that."""
    rows = []
    for key, estimate in (truth.get("estimates") or {}).items():
        error = real(estimate.get("standard_error"))
        parts = [deviation(estimate, name) for name in ("bias", "calibration_part", "refinement_part")]
        errors = abs(parts[0]) / error if error > 0 else None
        rows.append(
            (
                method_name(key),
                Cell(number(estimate.get("estimate")), estimate.get("estimate"), f"± {number(error)}"),
                *(Cell(signed_fixed(value), value) for value in parts),
                Cell(brief(errors, 2), errors),
            )
        )
    columns = ("", "estimate", "off on average", "calibration part", "refinement part", "standard errors off")
    title = f"Estimates of the true loss {number(truth.get('ideal_loss'))} of a fixed predictor"
    return Table(title, columns, rows, "Estimates ± standard error.")


def values_table(values: Sequence[Mapping[str, Any]], title: str = "") -> Table:
    """Return predicted ÷ actual rates of the values of fields."""
    rows = []
    for value in values:
        low, high = (brief(value[end], 3) if value[end] is not None else "∞" for end in ("low", "high"))
        mark = "?" if value["q_value"] is None else "✗" if value["off"] else ""
        ratio = Cell(brief(value["level"], 3), value["level"], f"[{low}, {high}]", mark)
        figures = (value["predicted"], value["actual"], ratio, value["excess"])
        rows.append((f"{value['field']} = {value['value']}", value["rows"], *figures))
    columns = ("value", "rows", "predicted", "actual", "predicted ÷ actual rate", "rows × error")
    caption = (
        "✗ off by more than 10 % beyond chance, over all values together; ? too few rows to tell. Interval:"
        " what chance leaves of right predictions, 95 %."
    )
    units = {"rows": "count"} | dict.fromkeys(("predicted", "actual", "rows × error"), "brief")
    return Table(title, columns, rows, caption, units)


def search_table(search: Mapping[str, Any]) -> Table:
    """Return every training of a search: its members, time, advantage, and what became of it."""
    shipped = search["shipped"]
    role = "shipped" if len(shipped) == 1 else f"in the mean of {len(shipped)} that is shipped"
    rows = [
        (
            *(tried["name"], tried["members"], tried["seconds"]),
            Cell(number(tried["advantage"]), tried["advantage"], _plus_minus(tried["standard_error"])),
            tried["left_out"] or role,
        )
        for tried in search["tried"]
    ]
    columns = ["candidate", "members", "seconds", "ahead by the sample", "outcome"]
    units = {"members": "count", "seconds": "fixed1"}
    return Table("Candidates, and how far they are ahead of the naive model", columns, rows, units=units)


def _plus_minus(error: float | None) -> str:
    return "" if error is None else f"± {number(error)}"
