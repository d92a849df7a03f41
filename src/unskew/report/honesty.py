"""Are the propensities honest, before and after calibration? The answer in words."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from unskew.metrics import CalibrationSketch, Interval, interval, reliability_curve
from unskew.metrics.judgement import (
    SAME_AUC,
    SIGNIFICANCE,
    TOLERANCE,
    Judgement,
    Level,
    WeightJudgement,
    judge_clip,
    judge_weight_change,
    judge_weights,
)
from unskew.metrics.weight_calibration import has_infinite_weight
from unskew.report.finding import Finding, collapsed_sentences, know_clicks, units
from unskew.report.plots.scores import CURVE_BINS
from unskew.report.words import brief, moved, number, p_value, percent, real


class WeightChange(NamedTuple):
    """The error of the weights before and after calibration, and what the two say."""

    before: Interval
    after: Interval
    judged: Judgement


class Misstatement(NamedTuple):
    """Where a propensity errs most: it says ``said``, and ``seen`` were clicked."""

    said: float
    seen: float


def honesty(
    metrics: Mapping[str, Any], config: Mapping[str, Any], sketches: Mapping[str, CalibrationSketch]
) -> Finding:
    """Whether the propensities mean what they say, before and after calibration: as ``unskew audit`` judges
    the same held-out scores (:func:`unskew.metrics.judgement.judge_weights`)."""
    question = "Are the propensities honest?"
    figures = metrics.get("propensity", {})
    if "known" in figures:
        return _known(metrics, figures["known"])
    kinds = ("raw", "calibrated")
    if any(figures.get(kind) is None or kind not in sketches or not sketches[kind].rows for kind in kinds):
        return Finding(question, "undecided", "propensities not judged", ("No propensities were judged.",))
    calibrator = str(config.get("calibrator", "calibration"))
    if metrics.get("calibrated_by"):
        calibrator = " and ".join(metrics["calibrated_by"])
    judged = {kind: judge_weights(sketches[kind]) for kind in kinds}
    main = "raw" if calibrator == "none" else "calibrated"
    raw, after = (figures[kind] for kind in kinds)
    rows = units(metrics)
    change = _change(sketches) if calibrator != "none" else None
    paragraphs = (
        *collapsed_sentences(metrics, "propensity"),
        _before(raw, judged["raw"], sketches["raw"], rows),
        _after(raw, after, judged["calibrated"], calibrator, rows, change),
        *_open(figures[main], judged[main], rows),
    )
    clip = _clip(figures[main], metrics.get("p_min", config.get("p_min")))
    if clip is not None:
        return Finding(question, "bad", clip[0], (clip[1], *paragraphs))
    level, short = _headline(figures, judged, calibrator, change)
    return Finding(question, level, short, paragraphs)


def _known(metrics: Mapping[str, Any], figures: Mapping[str, Any]) -> Finding:
    """Whether known propensities add up to the number of actions; there is nothing else to check them by."""
    question = "Are the known propensities right?"
    audit = metrics.get("known_propensity") or {}
    paragraphs = (
        "They are known, so that none was trained or calibrated.",
        f"{audit.get('headline', 'Undecided')}: {audit.get('verdict', 'they were not audited.')}",
        "That checks their level alone.",
    )
    clip = _clip(figures, metrics.get("p_min"))
    if clip is not None:
        return Finding(question, "bad", clip[0], (clip[1], *paragraphs))
    verdicts: dict[bool | None, tuple[Level, str]] = {
        True: ("good", "known propensities add up"),
        False: ("bad", "known propensities do not add up"),
        None: ("undecided", "too few rows to check the known propensities"),
    }
    return Finding(question, *verdicts[audit.get("healthy")], paragraphs)


def _clip(figures: Mapping[str, Any], p_min: Any) -> tuple[str, str] | None:
    """That the clip decides, in short and in words; None where it does not."""
    if judge_clip(figures.get("clipped_mass")).level != "bad":
        return None
    mass = percent(figures.get("clipped_mass"))
    return f"the clip takes {mass} of the weights", (
        f"The clip at p_min = {brief(p_min, 2)} takes {mass} of the sum of"
        f" the weights 1/p ({percent(figures.get('clipped'))} of the clicks are below it): what the methods"
        " learn is decided by the clip, not by the propensities. Give a lower p_min."
    )


def _state(judged: WeightJudgement, rows: str) -> str:
    return {
        "honest": "honest",
        "off": "miscalibrated",
        "infinite weight": "miscalibrated (clicks at a propensity of 0)",
        "too few rows": "not shown to be off, by too few clicks to call them honest",
        "not beyond chance": f"right on average, and do not tell clicked {rows} from others",
    }[judged.reason]


def _before(raw: Mapping[str, Any], judged: WeightJudgement, sketch: CalibrationSketch, rows: str) -> str:
    text = f"The raw propensities are {_state(judged, rows)}: {_figures(raw, judged)}."
    worst = worst_misstatement(sketch)
    if worst is not None and judged.level == "bad":
        text += f" Where they say {percent(worst.said)}, {percent(worst.seen)} were clicked."
    return text


def _after(
    raw: Mapping[str, Any],
    after: Mapping[str, Any],
    judged: WeightJudgement,
    calibrator: str,
    rows: str,
    change: WeightChange | None,
) -> str:
    if calibrator == "none":
        return "No calibrator was used."
    text = (
        f"After {_name(calibrator)} they are {_state(judged, rows)}: {_figures(after, judged)}; the NLL"
        f" {moved(raw.get('nll'), after.get('nll'))}."
    )
    if change is not None:
        text += f" {_change_sentence(change, lowered=_lowered(raw, after))}"
    if abs(real(after.get("auc")) - real(raw.get("auc"))) < SAME_AUC:
        text += (
            f" Their AUC stays at {brief(after.get('auc'))}: calibration changes how sure they are, not which"
            f" {rows} they put first."
        )
    return text


def _open(figures: Mapping[str, Any], judged: WeightJudgement, rows: str) -> tuple[str, ...]:
    """Why there is no tick though nothing is shown to be off."""
    if judged.reason == "too few rows":
        needed = judged.rows_needed
        rounded = "" if needed is None else number(float(f"{needed:.2g}"), 0)
        more = f"; some {rounded} {rows} like these would tell" if rounded else ""
        return (
            f"Weights that are off by a factor {brief(judged.error, 2)} would be found with a chance of"
            f" {percent(judged.power)}{more}.",
        )
    if judged.level == "bad" or (judged.level == "good" and know_clicks(figures)):
        return ()
    chance = real(figures.get("auc_of_chance"))
    beside = f", and chance alone would reach {brief(chance)} at this size" if math.isfinite(chance) else ""
    return (
        f"They hardly know which {rows} are clicked (AUC {brief(figures.get('auc'))}{beside}): weights from"
        " them are nearly constant, and debias next to nothing. Either clicks are nearly random here, or the"
        " propensity needs features, more data or longer training.",
    )


def _headline(
    figures: Mapping[str, Any],
    judged: Mapping[str, WeightJudgement],
    calibrator: str,
    change: WeightChange | None,
) -> tuple[Level, str]:
    """The level, and what became of the propensities in a few words."""
    main = "raw" if calibrator == "none" else "calibrated"
    level, reason, name = judged[main].level, judged[main].reason, _name(calibrator)
    if reason == "too few rows":
        return level, "too few clicks to tell whether the propensities are honest"
    if level == "undecided":
        return level, "propensities know next to nothing"
    if level == "good":
        if not know_clicks(figures[main]):
            return "doubtful", "propensities know next to nothing"
        if calibrator == "none":
            return level, "raw propensities honest"
        repaired = judged["raw"].level == "bad"
        return level, f"propensities repaired by {name}" if repaired else "propensities honest"
    if calibrator == "none":
        return level, "raw propensities miscalibrated"
    lowered = _lowered(figures["raw"], figures[main])
    words = {
        ("better", True): f"{name} helped, not fully",
        ("better", False): f"{name} made the weights better and the NLL no better",
        ("within noise", True): f"{name} lowered the NLL and made the weights no better beyond noise",
        ("worse", True): f"{name} lowered the NLL and made the weights worse",
        ("worse", False): f"{name} made the weights and the NLL worse",
    }
    reason = "within noise" if change is None else change.judged.reason
    short = words.get((reason, lowered), f"{name} did not help")
    return ("doubtful" if reason == "better" or (reason, lowered) == ("within noise", True) else level), short


def _change(sketches: Mapping[str, CalibrationSketch]) -> WeightChange | None:
    """Compare the weights before and after calibration; None where one of them is infinite."""
    if any(has_infinite_weight(sketches[kind]) for kind in ("raw", "calibrated")):
        return None
    before, after = (interval(metric="wce", sketch=sketches[kind]) for kind in ("raw", "calibrated"))
    return WeightChange(before, after, judge_weight_change(before, after))


def _lowered(raw: Mapping[str, Any], after: Mapping[str, Any]) -> bool:
    return real(after.get("nll")) < real(raw.get("nll"))


def _change_sentence(change: WeightChange, *, lowered: bool) -> str:
    """Say what became of the weights, and whether the NLL says otherwise."""
    ends = " and ".join(f"{percent(each.low)} to {percent(each.high)}" for each in change[:2])
    word = {"within noise": "neither better nor worse beyond noise"}.get(
        change.judged.reason, f"{change.judged.reason} beyond noise"
    )
    text = f"By WCE the weights are {word} (95 % intervals before and after: {ends})"
    if (change.judged.reason == "worse" and lowered) or (change.judged.reason == "better" and not lowered):
        return f"{text}; the NLL disagrees: the lowest scores decide the weights, and most rows the NLL."
    return f"{text}."


def _name(calibrator: str) -> str:
    return calibrator.replace("_", " ").capitalize()


def _figures(figures: Mapping[str, Any], judged: WeightJudgement) -> str:
    """The error of the weights as tables have it, what decided about it, and what the weights add up to."""
    off, check = real(figures.get("wce")), real(figures.get("weight_check"))
    said = f"are off by {percent(off)} on average (WCE), {_evidence(judged)}"
    parts = [said] if math.isfinite(off) else []
    if math.isfinite(check):
        parts.append(f"add up to {brief(check)} times the population")
    return f"their weights {' and '.join(parts)}" if parts else "of their weights nothing is known"


def _evidence(judged: WeightJudgement) -> str:
    """The test that decided whether an error is more than noise."""
    test = f"χ² test of weights within {percent(TOLERANCE, 1)}: p {p_value(judged.p_beyond_tolerance)}"
    if judged.p_beyond_tolerance >= SIGNIFICANCE:
        return f"no more than noise may show ({test})"
    if judged.level == "bad":
        return f"beyond noise ({test})"
    return f"a little beyond noise in places ({test}), and over all surely within that"


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
