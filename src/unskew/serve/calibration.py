"""The predictions of a served model against the outcomes that came: figures, and a verdict in a sentence."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from unskew.audit.audit_figures import ErrorFigure, errors, regions
from unskew.metrics import CalibrationSketch, ece, wce
from unskew.metrics.judgement import TOLERANCE, judge_weights
from unskew.metrics.proper import auc, brier, nll
from unskew.metrics.weight_calibration import has_infinite_weight
from unskew.report.words import brief, number, percent


def errors_of(sketch: CalibrationSketch) -> dict[str, float]:
    """Return the rows, ECE, WCE and level so far; NaN where there are no outcomes."""
    if not sketch.rows:
        return {"rows": 0, **dict.fromkeys(("ece", "wce", "mean_over_rate"), float("nan"))}
    level = _level(sketch)
    return {
        "rows": sketch.rows,
        "ece": ece(sketch=sketch),
        "wce": wce(sketch=sketch),
        "mean_over_rate": float("inf") if level is None else level,
    }


def figures_of(sketch: CalibrationSketch) -> dict[str, Any]:
    """Return the figures of a sketch as plain values, and a verdict."""
    counts: dict[str, Any] = {"rows": sketch.rows, "positives": sketch.positives}
    if not sketch.rows or not sketch.total:
        return {**counts, "healthy": None, "verdict": "No outcome has come yet."}
    judgement = judge_weights(sketch)
    figures = errors(sketch)
    both = 0 < sketch.positives < sketch.total
    return {
        **counts,
        "mean_score": sketch.mean_score,
        "rate": sketch.base_rate,
        "mean_over_rate": _level(sketch),
        **{name: asdict(figure) for name, figure in figures.items()},
        "nll": nll(sketch=sketch),
        "brier": brier(sketch=sketch),
        "auc": auc(sketch=sketch) if both else None,
        "healthy": judgement.healthy,
        "reason": judgement.reason,
        "rows_needed": judgement.rows_needed,
        "verdict": _verdict(sketch, judgement.reason, judgement.rows_needed, figures["wce"]),
    }


def _level(sketch: CalibrationSketch) -> float | None:
    return sketch.mean_score / sketch.base_rate if sketch.base_rate else None


def _verdict(sketch: CalibrationSketch, reason: str, needed: int | None, error: ErrorFigure) -> str:
    """Say what the outcomes show, and no more."""
    came = f"{number(sketch.rows, 0)} outcomes"
    if reason == "too few rows":
        enough = f"; about {number(needed, 0)} would decide" if needed else ""
        return f"Undecided: {came} are too few to tell right probabilities from wrong ones{enough}."
    if reason == "not beyond chance":
        return (
            f"Undecided: on {came} the scores do not tell rows with outcome 1 from the others. Their mean is"
            f" {brief(sketch.mean_score)}, and the rate is {brief(sketch.base_rate)}."
        )
    if reason == "honest":
        return (
            f"No sign of miscalibration beyond noise: on {came} the mean prediction is"
            f" {brief(_level(sketch))} times the rate. Weights 1/p miss by {percent(error.value)} on average,"
            f" where perfect scores would show {percent(error.floor)}; the error without noise is between"
            f" {percent(error.low)} and {percent(error.high)} (95 % interval)."
        )
    if has_infinite_weight(sketch):
        return f"Wrong: among {came} there is one with outcome 1 whose score was 0."
    level = _level(sketch)
    worst = regions(sketch, tolerance=TOLERANCE)
    where = f" {_where(worst[0].low, worst[0].high, worst[0].ratio)}" if worst else ""
    return f"Wrong: on {came} the mean prediction is {brief(level)} times the rate.{where}"


def _where(low: float | None, high: float | None, ratio: float) -> str:
    if low is None and high is None:
        place = "Everywhere"
    elif low is None:
        place = f"Below {brief(high or 0.0)}"
    elif high is None:
        place = f"Above {brief(low)}"
    else:
        place = f"From {brief(low)} to {brief(high)}"
    return f"{place} there are {brief(ratio)} times as many outcomes as predicted."
