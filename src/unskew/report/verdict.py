"""What a run found, in plain words; the numbers behind them are in ``tables`` and the figures."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from unskew.metrics import CalibrationSketch, reliability_curve
from unskew.report.improvement import improvement
from unskew.report.judging import LEVEL_TOLERANCE, Finding, Tone, level_of, times
from unskew.report.plots.reliability import CURVE_BINS
from unskew.report.plots.truth import deviation
from unskew.report.words import brief, filled, listed, moved, percent, real

NOISE_FACTOR = 1.5
"""ECE up to so many times its noise floor passes as noise: the ECE of a perfect propensity varies by some
10 to 20 % around the floor at the sizes of held-out sets."""

WEIGHT_TOLERANCE = 0.1
"""Weights that add up to the population within this share pass as honest: IPS is off by the same share."""

CLEAR_ERRORS = 3.0
"""A deviation of so many standard errors is called clear."""

PREDICTABLE_AUC = 0.55
"""From here on clicks are said to be predictable; 0.5 is chance."""


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
    """How far what was clicked, and what is learnt from it, differ from the whole."""
    question = "What is skewed?"
    data = metrics.get("data", {})
    seen = f"Conversions are known for {percent(data.get('density'))} of the pairs, those that were clicked."
    estimated = _naive_estimate(metrics)
    level = level_of(filled(metrics.get("methods")), "naive")
    promised = (
        f"The naive model, which learns from them alone, promises {times(level)} the conversions it keeps on"
        " the randomly shown test pairs"
        + (f": right within {percent(LEVEL_TOLERANCE)}." if abs(level - 1) <= LEVEL_TOLERANCE else ".")
    )
    learnt = (promised,) if math.isfinite(level) else ()
    crooked = abs(level - 1) > LEVEL_TOLERANCE
    if estimated is None:
        untold = (
            () if learnt else ("How much that skews what is learnt cannot be measured without the truth.",)
        )
        told = (f"{seen} {_predictable(metrics)}", *learnt, *untold)
        tone: Tone = "bad" if crooked else "open"
        short = f"{percent(data.get('density'))} of pairs seen"
    else:
        clear, loss, text = estimated
        told = (f"{seen} {text}", *learnt)
        tone = "bad" if clear or crooked else "good"
        short = loss if clear else "clicks hardly skewed"
    if crooked:
        short = f"naive model promises {times(level)} what it keeps"
    return Finding(question, tone, short, told)


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
        f"Averaged over them, the loss looks like {brief(naive.get('estimate'))}; over all pairs it is"
        f" {brief(ideal)}. The naive estimate is {size} on average"
        + (f", {brief(abs(off) / error, 2)} of its standard errors." if error > 0 else ".")
    )
    return abs(off) > CLEAR_ERRORS * error, f"clicks show a loss {size}", text


def _predictable(metrics: Mapping[str, Any]) -> str:
    auc = real(metrics.get("propensity", {}).get("calibrated", {}).get("auc"))
    if auc > PREDICTABLE_AUC:
        return f"Which pairs are clicked can be predicted (AUC {brief(auc)}), so they are no random sample."
    return "Which pairs are clicked could hardly be predicted."


def honesty(
    metrics: Mapping[str, Any], config: Mapping[str, Any], sketches: Mapping[str, CalibrationSketch]
) -> Finding:
    """Whether the propensities mean what they say, before and after calibration."""
    question = "Are the propensities honest?"
    figures = metrics.get("propensity", {})
    raw, after = figures.get("raw"), figures.get("calibrated")
    if raw is None or after is None:
        return Finding(question, "open", "propensities not judged", ("No propensities were judged.",))
    off = listed(_faults(raw))
    before = f"The raw propensities are {f'miscalibrated ({off})' if off else 'honest'}: {_told(raw)}."
    worst = worst_misstatement(sketches.get("raw"))
    if worst is not None and not is_honest(raw):
        before += f" Where they say {percent(worst.said)}, {percent(worst.seen)} were clicked."
    calibrator = str(config.get("calibrator", "calibration"))
    if calibrator == "none":
        tone: Tone = "good" if is_honest(raw) else "bad"
        short = "raw propensities honest" if is_honest(raw) else "raw propensities miscalibrated"
        return Finding(question, tone, short, (f"{before} No calibrator was used.",))
    name = calibrator.replace("_", " ").capitalize()
    change = real(after.get("nll")) - real(raw.get("nll"))
    text = f"After {name}: {_told(after)}; the NLL {moved(raw.get('nll'), after.get('nll'))}."
    if abs(real(after.get("auc")) - real(raw.get("auc"))) < 0.005:
        text += (
            f" Their AUC stays at {brief(after.get('auc'))}: calibration changes how sure they are, not which"
            " pairs they put first."
        )
    if is_honest(after):
        short = "propensities honest" if is_honest(raw) else f"propensities repaired by {name}"
        return Finding(question, "good", short, (before, text))
    better = change < 0
    return Finding(
        question,
        "open" if better else "bad",
        f"{name} helped, not fully" if better else f"{name} did not help",
        (before, text),
    )


def is_honest(figures: Mapping[str, Any]) -> bool:
    """ECE within noise, and weights that add up."""
    return not _faults(figures)


def _faults(figures: Mapping[str, Any]) -> list[str]:
    faults = []
    if not real(figures.get("ece")) <= NOISE_FACTOR * real(figures.get("ece_floor")):
        faults.append(f"ECE beyond {NOISE_FACTOR:g} times noise")
    if not abs(real(figures.get("weight_check")) - 1) <= WEIGHT_TOLERANCE:
        faults.append("weights that do not add up")
    return faults


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
