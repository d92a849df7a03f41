"""What a run found, in plain words; the numbers behind them are in ``tables`` and the figures."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np

from unskew.metrics import CalibrationSketch, reliability_curve
from unskew.report.plots.methods import SIGNIFICANT, shown_metrics
from unskew.report.plots.reliability import CURVE_BINS
from unskew.report.plots.truth import deviation
from unskew.report.words import (
    brief,
    counted,
    filled,
    listed,
    method_name,
    method_parts,
    method_phrase,
    metric_name,
    number,
    p_value,
    percent,
    real,
    signed,
    signed_fixed,
)

NOISE_FACTOR = 1.5
"""ECE up to so many times its noise floor passes as noise: the ECE of a perfect propensity varies by some
10 to 20 % around the floor at the sizes of held-out sets."""

WEIGHT_TOLERANCE = 0.1
"""Weights that add up to the population within this share pass as honest: IPS is off by the same share."""

CLEAR_ERRORS = 3.0
"""A deviation of so many standard errors is called clear."""

Tone = Literal["good", "bad", "open"]


@dataclass(frozen=True)
class Finding:
    """One answer of the report: the question, a few words for the bar at the top, and the sentences."""

    question: str
    tone: Tone
    short: str
    text: str


class Misstatement(NamedTuple):
    """Where a propensity errs most: it says ``said``, and ``seen`` were clicked."""

    said: float
    seen: float


def findings(
    metrics: Mapping[str, Any], config: Mapping[str, Any], sketches: Mapping[str, CalibrationSketch]
) -> list[Finding]:
    """What was skewed, what calibration did, and whether debiasing helped."""
    return [skew(metrics), honesty(metrics, config, sketches), improvement(metrics)]


def skew(metrics: Mapping[str, Any]) -> Finding:
    """How far what was clicked differs from the whole."""
    question = "What is skewed?"
    data = metrics.get("data", {})
    seen = f"Conversions are known for {percent(data.get('density'))} of the pairs, those that were clicked."
    truth = metrics.get("truth") or {}
    naive = truth.get("estimates", {}).get("naive")
    ideal = real(truth.get("ideal_loss"))
    if naive is None or not math.isfinite(ideal):
        auc = real(metrics.get("propensity", {}).get("calibrated", {}).get("auc"))
        predictable = (
            f" Which pairs are clicked can be predicted (AUC {brief(auc)}), so they are no random sample;"
            if auc > 0.55
            else " Which pairs are clicked could hardly be predicted;"
        )
        return Finding(
            question,
            "open",
            f"{percent(data.get('density'))} of pairs seen",
            f"{seen}{predictable} how much that skews what is learnt cannot be measured without the truth.",
        )
    off, error = deviation(naive), real(naive.get("standard_error"))
    clear = abs(off) > CLEAR_ERRORS * error
    size = f"{percent(abs(off) / ideal)} too {'high' if off > 0 else 'low'}"
    return Finding(
        question,
        "bad" if clear else "good",
        f"clicks show a loss {size}" if clear else "clicks hardly skewed",
        f"{seen} Averaged over them, the loss looks like {brief(naive.get('estimate'))}; over all pairs it is"
        f" {brief(ideal)}. The naive estimate is {size} on average"
        + (f", {brief(abs(off) / error, 2)} of its standard errors." if error > 0 else "."),
    )


def honesty(
    metrics: Mapping[str, Any], config: Mapping[str, Any], sketches: Mapping[str, CalibrationSketch]
) -> Finding:
    """Whether the propensities mean what they say, before and after calibration."""
    question = "Are the propensities honest?"
    figures = metrics.get("propensity", {})
    raw, after = figures.get("raw"), figures.get("calibrated")
    if raw is None or after is None:
        return Finding(question, "open", "propensities not judged", "No propensities were judged.")
    text = f"The raw propensities are {'honest' if is_honest(raw) else 'miscalibrated'}: {_told(raw)}."
    worst = worst_misstatement(sketches.get("raw"))
    if worst is not None and not is_honest(raw):
        text += f" Where they say {percent(worst.said)}, {percent(worst.seen)} were clicked."
    calibrator = str(config.get("calibrator", "calibration"))
    if calibrator == "none":
        tone: Tone = "good" if is_honest(raw) else "bad"
        short = "raw propensities honest" if is_honest(raw) else "raw propensities miscalibrated"
        return Finding(question, tone, short, f"{text} No calibrator was used.")
    name = calibrator.replace("_", " ").capitalize()
    change = real(after.get("nll")) - real(raw.get("nll"))
    text += f" After {name}: {_told(after)}; the NLL {_moved(raw.get('nll'), after.get('nll'))}."
    if abs(real(after.get("auc")) - real(raw.get("auc"))) < 0.005:
        text += (
            f" Their AUC stays at {brief(after.get('auc'))}: calibration changes how sure they are, not which"
            " pairs they put first."
        )
    if is_honest(after):
        short = "propensities honest" if is_honest(raw) else f"propensities repaired by {name}"
        return Finding(question, "good", short, text)
    better = change < 0
    return Finding(
        question,
        "open" if better else "bad",
        f"{name} helped, not fully" if better else f"{name} did not help",
        text,
    )


def is_honest(figures: Mapping[str, Any]) -> bool:
    """ECE within noise, and weights that add up."""
    within_noise = real(figures.get("ece")) <= NOISE_FACTOR * real(figures.get("ece_floor"))
    return within_noise and abs(real(figures.get("weight_check")) - 1) <= WEIGHT_TOLERANCE


def worst_misstatement(sketch: CalibrationSketch | None) -> Misstatement | None:
    """The bin that adds most to the error of the weights, if it is off beyond its interval."""
    if sketch is None or not sketch.rows:
        return None
    curve = reliability_curve(sketch=sketch, bins=CURVE_BINS, spacing="mass")
    off = ((curve.low > curve.score) | (curve.high < curve.score)) & (curve.score > 0)
    if not off.any():
        return None
    error = np.where(off, curve.rows * np.abs(curve.frequency / np.where(off, curve.score, 1.0) - 1), 0.0)
    at = int(error.argmax())
    return Misstatement(float(curve.score[at]), float(curve.frequency[at]))


def _told(figures: Mapping[str, Any]) -> str:
    ece, floor = real(figures.get("ece")), real(figures.get("ece_floor"))
    beside = f" where noise alone would show {brief(floor, 2)}" if math.isfinite(floor) else ""
    check = real(figures.get("weight_check"))
    added = (
        f", and their weights add up to {brief(check)} times the population" if math.isfinite(check) else ""
    )
    return f"ECE {brief(ece, 2)}{beside}{added}"


def _moved(before: Any, after: Any) -> str:
    if number(before) == number(after):
        return f"stays at {number(after)}"
    return f"{'falls' if real(after) < real(before) else 'rises'} from {number(before)} to {number(after)}"


def improvement(metrics: Mapping[str, Any]) -> Finding:
    """Whether any method beat the naive model beyond noise."""
    question = "Did debiasing help?"
    methods, comparison = filled(metrics.get("methods")), filled(metrics.get("comparison"))
    if not methods:
        told = ["There is no randomly shown test set, so no model can be judged.", *_estimated(metrics)]
        return Finding(question, "open", "no test set", " ".join(told))
    if not comparison:
        untested = (
            "Nothing was tested against the naive model: that takes a second method and at least two seeds"
            " (ten are better)."
        )
        return Finding(question, "open", "differences not tested", " ".join([untested, *_estimated(metrics)]))
    told = [compared(key, comparison[key], methods) for key in main_first(comparison)]
    told += _estimated(metrics)
    wins, losses = (
        sum(beyond_noise(found) == sign for found in comparison[main_first(comparison)[0]].values())
        for sign in (1, -1)
    )
    main = main_first(comparison)[0]
    total = len(comparison[main])
    tone: Tone = "good" if wins > losses else "bad" if losses > wins else "open"
    short = {
        "good": f"{method_name(main)}: better on {wins} of {total} metrics",
        "bad": f"{method_name(main)}: worse on {losses} of {total} metrics",
        "open": f"{method_name(main)}: no difference beyond noise",
    }[tone]
    return Finding(question, tone, short, " ".join(told))


def _estimated(metrics: Mapping[str, Any]) -> list[str]:
    """Where the truth is known, one sentence on how far the estimates are from it."""
    estimates = filled((metrics.get("truth") or {}).get("estimates"))
    off = [
        f"{method_phrase(key)} by {signed_fixed(deviation(estimates[key]), 3)}"
        for key in sorted(estimates, key=lambda key: method_parts(key)[1] != "calibrated")
        if method_parts(key)[1] in ("calibrated", "raw", "naive")
    ]
    told = [f"As estimates of the true loss, they are off on average: {listed(off)}."] if off else []
    for key, of in estimates.items():
        parts = [deviation(of, part) for part in ("calibration_part", "refinement_part")]
        if method_parts(key)[1] == "calibrated" and all(map(math.isfinite, parts)):
            told.append(
                f"With calibrated propensities {signed_fixed(parts[0], 3)} of it is still calibration, and"
                f" {signed_fixed(parts[1], 3)} is refinement, which no calibrator can remove."
            )
    return told


def main_first(comparison: Mapping[str, Any]) -> list[str]:
    """Methods with calibrated propensities before those with raw ones."""
    return sorted(comparison, key=lambda key: method_parts(key)[1] != "calibrated")


def beyond_noise(found: Mapping[str, Any]) -> int:
    """1 for significantly better after Holm's correction, −1 for worse, 0 for neither."""
    corrected = real(found.get("p_holm", found.get("p_value")))
    difference = real(found.get("difference"))
    return (difference > 0) - (difference < 0) if corrected < SIGNIFICANT else 0


def compared(key: str, found: Mapping[str, Any], methods: Mapping[str, Any]) -> str:
    """One sentence on a method against the naive one."""
    signs = [beyond_noise(each) for each in found.values()]
    better, worse = signs.count(1), signs.count(-1)
    if better or worse:
        parts = [f"better on {better}"] * bool(better) + [f"worse on {worse}"] * bool(worse)
        judged = f"is {' and '.join(parts)} of {counted(len(signs), 'metric')} beyond noise"
    else:
        judged = f"differs from the naive model on none of {counted(len(signs), 'metric')} beyond noise"
    first = shown_metrics({key: found})[0]
    test = found[first]
    means = [real(methods.get(k, {}).get(first, {}).get("mean")) for k in ("naive", key)]
    return (
        f"{method_phrase(key)} {judged} ({metric_name(first)} {brief(means[0])} → {brief(means[1])},"
        f" difference {signed(test.get('difference'))}, 95 % interval {signed(test.get('low'))} to"
        f" {signed(test.get('high'))}, p {p_value(test.get('p_holm', test.get('p_value')))} after Holm's"
        " correction)."
    )
