"""Whether the propensities of a run are calibrated, before and after calibration."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from unskew.metrics import CalibrationSketch, interval, reliability_curve
from unskew.metrics.judgement import (
    SAME_AUC,
    TOLERANCE,
    Judgement,
    Level,
    WeightJudgement,
    judge_clip,
    judge_weight_change,
    judge_weights,
    tells_apart,
)
from unskew.metrics.weight_calibration import has_infinite_weight
from unskew.report.facts import collapsed_sentences, units
from unskew.report.finding import Answer, Finding, found
from unskew.report.numbers import moved, percent, real
from unskew.report.plots.scores import CURVE_BINS

QUESTION = "Are the propensities calibrated?"
KINDS = ("raw", "calibrated")


def propensity_findings(
    metrics: Mapping[str, Any], config: Mapping[str, Any], sketches: Mapping[str, CalibrationSketch]
) -> Answer:
    """Answer whether the propensities are calibrated, as ``unskew audit`` judges the same held-out scores
    (:func:`unskew.metrics.judgement.judge_weights`)."""
    figures = metrics.get("propensity") or {}
    if "known" in figures:
        return _known(metrics, figures["known"])
    if any(figures.get(kind) is None or kind not in sketches or not sketches[kind].rows for kind in KINDS):
        return Answer(QUESTION, found("propensity.none"))
    calibrator = str(config.get("calibrator", "calibration"))
    if metrics.get("calibrated_by"):
        calibrator = " and ".join(metrics["calibrated_by"])
    judged = {kind: judge_weights(sketches[kind]) for kind in KINDS}
    main = "raw" if calibrator == "none" else "calibrated"
    rows = units(metrics)
    details = [
        found("collapsed.network", message=text) for text in collapsed_sentences(metrics, "propensity")
    ]
    details += [_weights(kind, figures[kind], judged[kind]) for kind in dict.fromkeys(("raw", main))]
    details += _worst(sketches["raw"]) if judged["raw"].level == "bad" else []
    change, lowered = None, real(figures["calibrated"].get("nll")) < real(figures["raw"].get("nll"))
    if calibrator != "none":
        change, said = _change(figures, sketches, calibrator, lowered=lowered)
        details += said
        if abs(real(figures["calibrated"].get("auc")) - real(figures["raw"].get("auc"))) < SAME_AUC:
            details.append(found("propensity.order", auc=figures["calibrated"].get("auc"), units=rows))
    details += _open(figures[main], judged[main], rows)
    clip = _clip(figures[main], metrics.get("p_min", config.get("p_min")))
    if clip is None:
        level, key = _verdict(figures[main], judged, calibrator, change, lowered=lowered)
        name = calibrator.replace("_", " ").capitalize()
        return Answer(
            QUESTION, Finding(f"propensity.{key}", level, {"calibrator": name, "units": rows}), tuple(details)
        )
    return Answer(QUESTION, clip, tuple(details))


def _known(metrics: Mapping[str, Any], figures: Mapping[str, Any]) -> Answer:
    """Judge known propensities by the number of actions; there is nothing else to check them by."""
    audit = metrics.get("known_propensity") or {}
    verdicts: dict[bool | None, tuple[str, Level]] = {
        True: ("known_good", "good"),
        False: ("known_bad", "bad"),
        None: ("known_few", "undecided"),
    }
    key, level = verdicts[audit.get("healthy")]
    numbers = {
        "headline": audit.get("headline", "Undecided"),
        "verdict": audit.get("verdict", "They were not audited."),
    }
    main = _clip(figures, metrics.get("p_min")) or Finding(f"propensity.{key}", level)
    return Answer(QUESTION, main, (found("propensity.audited", **numbers),))


def _clip(figures: Mapping[str, Any], p_min: Any) -> Finding | None:
    """Return that the clip decides the weights; None where it does not."""
    if judge_clip(figures.get("clipped_mass")).level != "bad":
        return None
    numbers = {"p_min": p_min, "mass": figures.get("clipped_mass"), "clipped": figures.get("clipped")}
    return Finding("propensity.clip", "bad", numbers)


def _weights(kind: str, figures: Mapping[str, Any], judged: WeightJudgement) -> Finding:
    return found(
        "propensity.weights",
        kind=kind,
        wce=figures.get("wce"),
        tolerance=TOLERANCE,
        p=judged.p_beyond_tolerance,
        check=figures.get("weight_check"),
    )


def _worst(sketch: CalibrationSketch) -> list[Finding]:
    worst = worst_misstatement(sketch)
    return [] if worst is None else [found("propensity.worst", said=worst[0], seen=worst[1])]


def worst_misstatement(sketch: CalibrationSketch) -> tuple[float, float] | None:
    """Return the mean score and the share of clicks of the bin that adds most to the error of the weights,
    if it is off beyond its interval."""
    if not sketch.rows:
        return None
    curve = reliability_curve(sketch, bins=CURVE_BINS, spacing="mass")
    off = ((curve.low > curve.score) | (curve.high < curve.score)) & (curve.score > 0)
    if not off.any():
        return None
    error = np.where(off, curve.rows * np.abs(curve.frequency / np.where(off, curve.score, 1.0) - 1), 0.0)
    at = int(error.argmax())
    return float(curve.score[at]), float(curve.frequency[at])


def _change(
    figures: Mapping[str, Any],
    sketches: Mapping[str, CalibrationSketch],
    calibrator: str,
    *,
    lowered: bool,
) -> tuple[Judgement | None, list[Finding]]:
    """Compare the weights before and after calibration; None where one of them is infinite."""
    if any(has_infinite_weight(sketches[kind]) for kind in KINDS):
        return None, []
    before, after = (interval(sketches[kind], metric="wce") for kind in KINDS)
    judged = judge_weight_change(before, after)
    said = found(
        "propensity.change",
        calibrator=calibrator.replace("_", " ").capitalize(),
        nll=moved(figures["raw"].get("nll"), figures["calibrated"].get("nll")),
        change={"within noise": "no better or worse"}.get(judged.reason, judged.reason),
        ends=" and ".join(f"{percent(each.low)} to {percent(each.high)}" for each in (before, after)),
    )
    disagree = (judged.reason, lowered) in (("worse", True), ("better", False))
    return judged, [said, *([found("propensity.disagree")] if disagree else [])]


def _open(figures: Mapping[str, Any], judged: WeightJudgement, rows: str) -> list[Finding]:
    """Return why propensities that are not shown to be off are not called good either."""
    if judged.reason == "too few rows":
        details = [found("propensity.power", error=judged.error, power=judged.power)]
        if judged.rows_needed is not None:
            details.append(found("propensity.needed", needed=float(f"{judged.rows_needed:.2g}"), units=rows))
        return details
    if judged.level == "bad" or (judged.level == "good" and _knows(figures)):
        return []
    return [found("propensity.hardly", auc=figures.get("auc"), chance=figures.get("auc_of_chance"))]


def _knows(figures: Mapping[str, Any]) -> bool:
    return tells_apart(figures.get("auc"), figures.get("auc_of_chance"))


def _verdict(
    figures: Mapping[str, Any],
    judged: Mapping[str, WeightJudgement],
    calibrator: str,
    change: Judgement | None,
    *,
    lowered: bool,
) -> tuple[Level, str]:
    """Return the level and the key of the sentence that sums it up."""
    main = judged["raw" if calibrator == "none" else "calibrated"]
    if main.reason == "too few rows":
        return main.level, "few"
    if main.level == "undecided":
        return main.level, "blind"
    if main.level == "good":
        if not _knows(figures):
            return "doubtful", "blind"
        if calibrator == "none":
            return "good", "raw"
        return "good", "repaired" if judged["raw"].level == "bad" else "good"
    if calibrator == "none":
        return main.level, "off"
    reason = "within noise" if change is None else change.reason
    outcomes: dict[tuple[str, bool], tuple[Level, str]] = {
        ("better", True): ("doubtful", "better"),
        ("better", False): ("doubtful", "better_weights"),
        ("within noise", True): ("doubtful", "better_nll"),
        ("worse", True): (main.level, "worse_weights"),
        ("worse", False): (main.level, "worse"),
    }
    return outcomes.get((reason, lowered), (main.level, "no_help"))
