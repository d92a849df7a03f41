"""What a run found, in plain words; the numbers behind them are in ``tables`` and the figures."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from unskew.metrics import CalibrationSketch, reliability_curve
from unskew.metrics.weights import MOST_CLIPPED_MASS
from unskew.report.improvement import improvement
from unskew.report.judging import (
    LEVEL_TOLERANCE,
    Finding,
    Tone,
    collapsed_sentences,
    is_random,
    level_bracket,
    level_of,
    level_standing,
    tested_on,
    times,
)
from unskew.report.plots.reliability import CURVE_BINS
from unskew.report.plots.truth import deviation
from unskew.report.words import brief, filled, listed, moved, number, percent, real

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
    seen_short = f"{percent(data.get('density'))} of pairs seen"
    if data.get("known_propensity") is not None:
        seen = (
            f"Each of {number(data.get('rows'), 0)} rows shows one of {number(data.get('actions'), 0)} items;"
            " what a policy shows more often is learned from more often."
        )
        seen_short = f"{number(data.get('rows'), 0)} rows shown by a policy"
    estimated = _naive_estimate(metrics)
    methods = filled(metrics.get("methods"))
    level, standing = level_of(methods, "naive"), level_standing(methods, "naive")
    learnt = (_promised(metrics),) if math.isfinite(level) else ()
    crooked = standing == "off" and is_random(metrics)
    if estimated is None:
        untold = (
            () if learnt else ("How much that skews what is learnt cannot be measured without the truth.",)
        )
        known = "known" in metrics.get("propensity", {})
        told = (seen if known else f"{seen} {_predictable(metrics)}", *learnt, *untold)
        tone: Tone = "bad" if crooked else "open"
        short = seen_short
    else:
        clear, loss, text = estimated
        told = (f"{seen} {text}", *learnt)
        tone = "bad" if clear or crooked else "good"
        short = loss if clear else "clicks hardly skewed"
    if crooked:
        short = f"naive model promises {times(level)} what it keeps"
    return Finding(question, tone, short, told)


def _promised(metrics: Mapping[str, Any]) -> str:
    """What the naive model promises and keeps, and how surely that is known."""
    methods = filled(metrics.get("methods"))
    standing = level_standing(methods, "naive")
    told = (
        f"The naive model, which learns from them alone, promises {times(level_of(methods, 'naive'))} the"
        f" conversions it keeps on {tested_on(metrics)}{level_bracket(methods, 'naive')}"
    )
    if not is_random(metrics):
        return f"{told}; those are as chosen as the clicks it learned from, so that its skew does not show."
    ending = {
        "right": f": right within {percent(LEVEL_TOLERANCE)}.",
        "off": ".",
        "undecided": ": more seeds, or a larger test set, would tell whether that is right or off.",
    }
    return told + ending[standing]


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
    figures = metrics.get("propensity", {}).get("calibrated", {})
    if tells_apart(figures):
        auc = brief(figures.get("auc"))
        return f"Which pairs are clicked can be predicted (AUC {auc}), so they are no random sample."
    return "Which pairs are clicked could hardly be predicted."


def honesty(
    metrics: Mapping[str, Any], config: Mapping[str, Any], sketches: Mapping[str, CalibrationSketch]
) -> Finding:
    """Whether the propensities mean what they say, before and after calibration."""
    question = "Are the propensities honest?"
    figures = metrics.get("propensity", {})
    if "known" in figures:
        return _known(metrics, figures["known"])
    raw, after = figures.get("raw"), figures.get("calibrated")
    if raw is None or after is None:
        return Finding(question, "open", "propensities not judged", ("No propensities were judged.",))
    calibrator = str(config.get("calibrator", "calibration"))
    judged = raw if calibrator == "none" else after
    told = (
        *collapsed_sentences(metrics, "propensity"),
        _before(raw, sketches),
        *_calibrated(raw, after, calibrator),
    )
    p_min = metrics.get("p_min", config.get("p_min"))
    if real(judged.get("clipped_mass")) > MOST_CLIPPED_MASS:
        short = f"the clip takes {percent(judged['clipped_mass'])} of the weights"
        return Finding(question, "bad", short, (_clip(judged, p_min), *told))
    if is_honest(judged) and not tells_apart(judged):
        return Finding(question, "open", "propensities know next to nothing", (*told, _chance(judged)))
    return Finding(question, *_headline(raw, after, calibrator), told)


def _known(metrics: Mapping[str, Any], figures: Mapping[str, Any]) -> Finding:
    """Whether known propensities add up to the number of actions; there is nothing else to check them by."""
    question = "Are the known propensities right?"
    audit = metrics.get("known_propensity") or {}
    told = (
        "They are known, so that none was trained or calibrated.",
        f"{audit.get('headline', 'Undecided')}: {audit.get('verdict', 'they were not audited.')}",
        "That checks their level alone.",
    )
    if real(figures.get("clipped_mass")) > MOST_CLIPPED_MASS:
        short = f"the clip takes {percent(figures['clipped_mass'])} of the weights"
        return Finding(question, "bad", short, (_clip(figures, metrics.get("p_min")), *told))
    tones: dict[bool | None, tuple[Tone, str]] = {
        True: ("good", "known propensities add up"),
        False: ("bad", "known propensities do not add up"),
        None: ("open", "too few rows to check the known propensities"),
    }
    return Finding(question, *tones[audit.get("healthy")], told)


def _before(raw: Mapping[str, Any], sketches: Mapping[str, CalibrationSketch]) -> str:
    off = listed(_faults(raw))
    before = f"The raw propensities are {f'miscalibrated ({off})' if off else 'honest'}: {_told(raw)}."
    worst = worst_misstatement(sketches.get("raw"))
    if worst is not None and not is_honest(raw):
        before += f" Where they say {percent(worst.said)}, {percent(worst.seen)} were clicked."
    return before


def _calibrated(raw: Mapping[str, Any], after: Mapping[str, Any], calibrator: str) -> tuple[str, ...]:
    if calibrator == "none":
        return ("No calibrator was used.",)
    text = f"After {_name(calibrator)}: {_told(after)}; the NLL {moved(raw.get('nll'), after.get('nll'))}."
    if abs(real(after.get("auc")) - real(raw.get("auc"))) < 0.005:
        text += (
            f" Their AUC stays at {brief(after.get('auc'))}: calibration changes how sure they are, not which"
            " pairs they put first."
        )
    return (text,)


def _headline(raw: Mapping[str, Any], after: Mapping[str, Any], calibrator: str) -> tuple[Tone, str]:
    """The tone, and what became of the propensities in a few words."""
    if calibrator == "none":
        honest = is_honest(raw)
        return ("good", "raw propensities honest") if honest else ("bad", "raw propensities miscalibrated")
    name = _name(calibrator)
    if is_honest(after):
        return "good", "propensities honest" if is_honest(raw) else f"propensities repaired by {name}"
    if real(after.get("nll")) < real(raw.get("nll")):
        return "open", f"{name} helped, not fully"
    return "bad", f"{name} did not help"


def _name(calibrator: str) -> str:
    return calibrator.replace("_", " ").capitalize()


def _clip(figures: Mapping[str, Any], p_min: Any) -> str:
    return (
        f"The clip at p_min = {brief(p_min, 2)} takes {percent(figures.get('clipped_mass'))} of the sum of"
        f" the weights 1/p ({percent(figures.get('clipped'))} of the clicks are below it): what the methods"
        " learn is decided by the clip, not by the propensities. Give a lower p_min."
    )


def _chance(figures: Mapping[str, Any]) -> str:
    chance = real(figures.get("auc_of_chance"))
    beside = f", and chance alone would reach {brief(chance)} at this size" if math.isfinite(chance) else ""
    return (
        f"They hardly know which pairs are clicked (AUC {brief(figures.get('auc'))}{beside}): weights from"
        " them are nearly constant, and debias next to nothing. Either clicks are nearly random here, or the"
        " propensity needs features, more data or longer training."
    )


def tells_apart(figures: Mapping[str, Any]) -> bool:
    """Whether propensities put clicked pairs first, beyond chance and by more than a trifle."""
    auc, chance = real(figures.get("auc")), real(figures.get("auc_of_chance"))
    return auc > PREDICTABLE_AUC and not auc <= chance


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
