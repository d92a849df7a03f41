"""The predictions of a served model against the outcomes that came: figures, and a verdict in a sentence."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from unskew.audit.audit_figures import errors, regions
from unskew.metrics import CalibrationSketch
from unskew.metrics.judgement import TOLERANCE, WeightJudgement, judge_weights
from unskew.metrics.proper import auc, brier, nll
from unskew.metrics.weight_calibration import has_infinite_weight
from unskew.report.numbers import brief, number, percent


def figures_of(sketch: CalibrationSketch) -> dict[str, Any]:
    """Return the figures of a sketch as plain values, and a verdict."""
    counts: dict[str, Any] = {"rows": sketch.rows, "positives": sketch.positives}
    if not sketch.rows or not sketch.total:
        return {**counts, "healthy": None, "verdict": "No outcomes have arrived yet."}
    judgement = judge_weights(sketch)
    both = 0 < sketch.positives < sketch.total
    figures = {
        **counts,
        "mean_score": sketch.mean_score,
        "rate": sketch.base_rate,
        "mean_over_rate": sketch.mean_score / sketch.base_rate if sketch.base_rate else None,
        **{name: asdict(figure) for name, figure in errors(sketch).items()},
        "nll": nll(sketch=sketch),
        "brier": brier(sketch=sketch),
        "auc": auc(sketch=sketch) if both else None,
        "healthy": judgement.healthy,
        "reason": judgement.reason,
        "rows_needed": judgement.rows_needed,
    }
    return {**figures, "verdict": _verdict(sketch, judgement, figures)}


def _verdict(sketch: CalibrationSketch, judgement: WeightJudgement, figures: Mapping[str, Any]) -> str:
    """Say what the outcomes show, and no more."""
    came, needed = f"{number(sketch.rows, 0)} outcomes", judgement.rows_needed
    level, error = f"the mean prediction is {brief(figures['mean_over_rate'])} times the rate", figures["wce"]
    if judgement.reason == "too few rows":
        enough = f"; about {number(needed, 0)} would decide" if needed else ""
        return f"Undecided: {came} are too few to tell right probabilities from wrong ones{enough}."
    if judgement.reason == "not beyond chance":
        return (
            f"Undecided: on {came} the scores do not tell rows with outcome 1 from the others. Their mean is"
            f" {brief(sketch.mean_score)}, and the rate is {brief(sketch.base_rate)}."
        )
    if judgement.reason == "honest":
        return (
            f"No sign of miscalibration beyond noise: on {came} {level}. Weights 1/p miss by"
            f" {percent(error['value'])} on average, where perfect scores would show"
            f" {percent(error['floor'])}; the error without noise is between {percent(error['low'])} and"
            f" {percent(error['high'])} (95 % interval)."
        )
    if has_infinite_weight(sketch):
        return f"Wrong: among {came} there is one with outcome 1 whose score was 0."
    where = ""
    for worst in regions(sketch, tolerance=TOLERANCE)[:1]:
        ends = [f"above {brief(worst.low)}"] if worst.low is not None else []
        ends += [f"below {brief(worst.high)}"] if worst.high is not None else []
        place = " and ".join(ends).capitalize() or "Everywhere"
        where = f" {place} there are {brief(worst.ratio)} times as many outcomes as predicted."
    return f"Wrong: on {came} {level}.{where}"
