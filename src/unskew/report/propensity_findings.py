"""Findings on whether the propensities of a run are calibrated, before and after calibration."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from unskew.metrics import CalibrationSketch, interval, reliability_curve
from unskew.metrics.judgement import (
    TOLERANCE,
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
from unskew.report.numbers import moved, percent
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
    names = metrics.get("calibrated_by") or [str(config.get("calibrator", "calibration"))]
    calibrator = " and ".join(name.replace("_", " ").capitalize() for name in names)
    main = "raw" if calibrator == "None" else "calibrated"
    judged = {kind: judge_weights(sketches[kind]) for kind in KINDS}
    rows, change = units(metrics), None
    details = [
        found("collapsed.network", message=text) for text in collapsed_sentences(metrics, "propensity")
    ]
    details += [_weights(kind, figures[kind], judged[kind]) for kind in dict.fromkeys(("raw", main))]
    if judged["raw"].level == "bad" and (worst := worst_misstatement(sketches["raw"])) is not None:
        details.append(found("propensity.worst", said=worst[0], seen=worst[1]))
    if main == "calibrated" and not any(has_infinite_weight(sketches[kind]) for kind in KINDS):
        ends = [interval(sketches[kind], metric="wce") for kind in KINDS]
        change = judge_weight_change(*ends).reason
        details.append(
            found(
                "propensity.change",
                calibrator=calibrator,
                nll=moved(figures["raw"].get("nll"), figures["calibrated"].get("nll")),
                change={"within noise": "no better or worse"}.get(change, change),
                ends=" and ".join(f"{percent(end.low)} to {percent(end.high)}" for end in ends),
            )
        )
    knows = tells_apart(figures[main].get("auc"), figures[main].get("auc_of_chance"))
    details += _open(figures[main], judged[main], rows, knows=knows)
    level, key = _verdict(judged, main, change, knows=knows)
    answer = Finding(f"propensity.{key}", level, {"calibrator": calibrator, "units": rows})
    clip = _clip(figures[main], metrics.get("p_min", config.get("p_min")))
    return Answer(QUESTION, clip or answer, tuple(details))


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


def _open(figures: Mapping[str, Any], judged: WeightJudgement, rows: str, *, knows: bool) -> list[Finding]:
    """Return why propensities that are not shown to be off are not called good either."""
    if judged.reason == "too few rows":
        details = [found("propensity.power", error=judged.error, power=judged.power)]
        if judged.rows_needed is not None:
            details.append(found("propensity.needed", needed=float(f"{judged.rows_needed:.2g}"), units=rows))
        return details
    if judged.level == "bad" or (judged.level == "good" and knows):
        return []
    return [found("propensity.hardly", auc=figures.get("auc"), chance=figures.get("auc_of_chance"))]


def _verdict(
    judged: Mapping[str, WeightJudgement], main: str, change: str | None, *, knows: bool
) -> tuple[Level, str]:
    """Return the level and the key of the sentence that sums it up."""
    level = judged[main].level
    if judged[main].reason == "too few rows":
        return level, "few"
    if level == "undecided":
        return level, "blind"
    if level == "good":
        key = "raw" if main == "raw" else "repaired" if judged["raw"].level == "bad" else "good"
        return (level, key) if knows else ("doubtful", "blind")
    if main == "raw":
        return level, "off"
    return (
        ("doubtful", "better") if change == "better" else (level, "worse" if change == "worse" else "no_help")
    )
