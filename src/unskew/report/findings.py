"""What a run found, in words: what is skewed, whether propensities are honest, whether debiasing helped.

What counts as what is decided in ``unskew.metrics.judgement``; the numbers are in tables and figures.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from unskew.metrics import CalibrationSketch
from unskew.metrics.judgement import LEVEL_TOLERANCE, Judgement, Level, is_clear, judge_level
from unskew.report.finding import (
    LEVEL,
    Finding,
    deviation,
    interval_over,
    is_random,
    know_clicks,
    level_of,
    tested_on,
    times,
    units,
)
from unskew.report.honesty import honesty
from unskew.report.improvement import improvement
from unskew.report.words import brief, filled, number, percent, real


def findings(
    metrics: Mapping[str, Any], config: Mapping[str, Any], sketches: Mapping[str, CalibrationSketch]
) -> list[Finding]:
    """What was skewed, what calibration did, and whether debiasing helped."""
    return [skew(metrics), honesty(metrics, config, sketches), improvement(metrics, config)]


def skew(metrics: Mapping[str, Any]) -> Finding:
    """How far what was clicked, and what is learnt from it, differ from the whole."""
    data, rows = metrics.get("data", {}), units(metrics)
    seen = f"Conversions are known for {percent(data.get('density'))} of the {rows}, those that were clicked."
    short = f"{percent(data.get('density'))} of {rows} seen"
    if data.get("known_propensity") is not None:
        seen = (
            f"Each of {number(data.get('rows'), 0)} rows shows one of {number(data.get('actions'), 0)} items;"
            " what a policy shows more often is learned from more often."
        )
        short = f"{number(data.get('rows'), 0)} rows shown by a policy"
    methods = filled(metrics.get("methods"))
    level, limits = level_of(methods, "naive"), (methods.get("naive") or {}).get(LEVEL, {})
    judged = judge_level(limits.get("low"), limits.get("high"))
    learnt = (_predicted(metrics, level, limits, judged),) if math.isfinite(level) else ()
    is_off = judged.level == "bad" and is_random(metrics)
    estimated = _naive_estimate(metrics)
    if estimated is None:
        unknown = "How much that skews what is learnt cannot be measured without the truth."
        opening = seen if "known" in metrics.get("propensity", {}) else f"{seen} {_predictable(metrics)}"
        paragraphs = (opening, *(learnt or (unknown,)))
        verdict: Level = "bad" if is_off else "undecided"
    else:
        clear, loss, text = estimated
        paragraphs = (f"{seen} {text}", *learnt)
        verdict = "bad" if clear or is_off else "good"
        short = loss if clear else "clicks hardly skewed"
    if is_off:
        short = f"naive model predicts {times(level)} the actual conversions"
    return Finding("What is skewed?", verdict, short, paragraphs)


def _predicted(metrics: Mapping[str, Any], level: float, limits: Mapping[str, Any], judged: Judgement) -> str:
    """The level of the naive model, and how surely it is known."""
    low, high = real(limits.get("low")), real(limits.get("high"))
    known = math.isfinite(low) and math.isfinite(high)
    interval = (
        f" (95 % interval{interval_over(metrics)} {number(low, 2)} to {number(high, 2)})" if known else ""
    )
    text = (
        f"The naive model, which learns from them alone, predicts {times(level)} the actual conversions on"
        f" {tested_on(metrics)}{interval}"
    )
    if not is_random(metrics):
        return f"{text}; those are as chosen as the clicks it learned from, so that its skew does not show."
    ending = {
        "good": f": right within {percent(LEVEL_TOLERANCE)}.",
        "bad": ".",
        "undecided": ": more seeds, or a larger test set, would tell whether that is right or off.",
    }
    return text + ending[judged.level]


def _naive_estimate(metrics: Mapping[str, Any]) -> tuple[bool, str, str] | None:
    """Whether the naive estimate of the loss is clearly off, in short and in words; None if unknown."""
    truth = metrics.get("truth") or {}
    naive = truth.get("estimates", {}).get("naive")
    ideal = real(truth.get("ideal_loss"))
    if naive is None or not math.isfinite(ideal):
        return None
    off, error = deviation(naive), real(naive.get("standard_error"))
    size = f"{percent(abs(off) / ideal)} too {'high' if off > 0 else 'low'}"
    text = (
        f"Averaged over them, the loss looks like {brief(naive.get('estimate'))}; over all {units(metrics)}"
        f" it is {brief(ideal)}. The naive estimate is {size} on average"
        + (f", {brief(abs(off) / error, 2)} of its standard errors." if error > 0 else ".")
    )
    return is_clear(off, error), f"clicks show a loss {size}", text


def _predictable(metrics: Mapping[str, Any]) -> str:
    figures, rows = metrics.get("propensity", {}).get("calibrated", {}), units(metrics)
    if know_clicks(figures):
        auc = brief(figures.get("auc"))
        return f"Which {rows} are clicked can be predicted (AUC {auc}), so they are no random sample."
    return f"Which {rows} are clicked could hardly be predicted."
