"""What a run found, in words: what is skewed, whether propensities are honest, whether debiasing helped.

What counts as what is decided in ``unskew.metrics.judgement``; the numbers are in tables and figures.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from unskew.metrics import CalibrationSketch, reliability_curve
from unskew.metrics.collapse import collapse_message
from unskew.metrics.judgement import (
    LEVEL_TOLERANCE,
    SAME_AUC,
    Judgement,
    Level,
    WeightJudgement,
    is_clear,
    judge_change,
    judge_clip,
    judge_difference,
    judge_help,
    judge_level,
    judge_weights,
    most_collapsed,
    tells_apart,
)
from unskew.metrics.registry import metric, shown_metrics
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
    moved,
    number,
    p_value,
    percent,
    real,
    sentence,
    signed,
    signed_fixed,
)

LEVEL = "mean_over_rate"
"""The metric of a model's level: mean prediction ÷ conversion rate."""

LOGGED = (
    "The test set is logged: its clicks were chosen as those of training were, and on them the naive model"
    " looks best whether it is or not. `unskew compare` on this run's folder weighs the clicks that the"
    " models held out. If the test pairs were shown at random, say so (--test-is random)."
)
"""What metrics on a biased test set are worth."""


@dataclass(frozen=True)
class Finding:
    """One answer of the report: the question, a few words for the bar at the top, and paragraphs."""

    question: str
    level: Level
    short: str
    paragraphs: tuple[str, ...]

    @property
    def tone(self) -> str:
        """How the page marks it: good, bad or open."""
        return self.level if self.level in ("good", "bad") else "open"

    @property
    def text(self) -> str:
        """All of it in one line."""
        return " ".join(self.paragraphs)


class Misstatement(NamedTuple):
    """Where a propensity errs most: it says ``said``, and ``seen`` were clicked."""

    said: float
    seen: float


def findings(
    metrics: Mapping[str, Any], config: Mapping[str, Any], sketches: Mapping[str, CalibrationSketch]
) -> list[Finding]:
    """What was skewed, what calibration did, and whether debiasing helped."""
    return [skew(metrics), honesty(metrics, config, sketches), improvement(metrics)]


def collapsed_sentences(metrics: Mapping[str, Any], *keys: str) -> tuple[str, ...]:
    """What became of the networks of some models that learned nothing, and the remedy."""
    found = metrics.get("collapsed") or {}
    return tuple(
        collapse_message(key, each["network"], each["reason"], each["seeds"], each["of"])
        for key in keys or found
        for each in found.get(key, ())
    )


def is_random(metrics: Mapping[str, Any]) -> bool:
    """Whether the test pairs were shown at random; a test set of which nothing is said counts as logged."""
    return bool((metrics.get("data") or {}).get("test_is") == "random")


def tested_on(metrics: Mapping[str, Any]) -> str:
    """What the test set is, in a sentence."""
    return "the randomly shown test pairs" if is_random(metrics) else "the clicks of the logged test set"


def level_of(methods: Mapping[str, Any], key: str) -> float:
    """A method's mean prediction ÷ the actual rate, on average over seeds; NaN if unknown."""
    return real((methods.get(key) or {}).get(LEVEL, {}).get("mean"))


def skew(metrics: Mapping[str, Any]) -> Finding:
    """How far what was clicked, and what is learnt from it, differ from the whole."""
    data = metrics.get("data", {})
    seen = f"Conversions are known for {percent(data.get('density'))} of the pairs, those that were clicked."
    short = f"{percent(data.get('density'))} of pairs seen"
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
        short = f"naive model predicts {_times(level)} the actual conversions"
    return Finding("What is skewed?", verdict, short, paragraphs)


def _predicted(metrics: Mapping[str, Any], level: float, limits: Mapping[str, Any], judged: Judgement) -> str:
    """The level of the naive model, and how surely it is known."""
    low, high = real(limits.get("low")), real(limits.get("high"))
    known = math.isfinite(low) and math.isfinite(high)
    interval = f" (95 % interval {number(low, 2)} to {number(high, 2)})" if known else ""
    text = (
        f"The naive model, which learns from them alone, predicts {_times(level)} the actual conversions on"
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


def _times(level: float) -> str:
    return f"{number(level, 2)} times"


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
    return is_clear(off, error), f"clicks show a loss {size}", text


def _predictable(metrics: Mapping[str, Any]) -> str:
    figures = metrics.get("propensity", {}).get("calibrated", {})
    if tells_apart(figures.get("auc"), figures.get("auc_of_chance")):
        auc = brief(figures.get("auc"))
        return f"Which pairs are clicked can be predicted (AUC {auc}), so they are no random sample."
    return "Which pairs are clicked could hardly be predicted."


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
    if any(figures.get(kind) is None or not _has_rows(sketches.get(kind)) for kind in kinds):
        return Finding(question, "undecided", "propensities not judged", ("No propensities were judged.",))
    calibrator = str(config.get("calibrator", "calibration"))
    judged = {kind: judge_weights(sketches[kind]) for kind in kinds}
    main = "raw" if calibrator == "none" else "calibrated"
    raw, after = (figures[kind] for kind in kinds)
    paragraphs = (
        *collapsed_sentences(metrics, "propensity"),
        _before(raw, judged["raw"], sketches["raw"]),
        _after(raw, after, judged["calibrated"], calibrator),
        *_open(figures[main], judged[main]),
    )
    clip = _clip(figures[main], metrics.get("p_min", config.get("p_min")))
    if clip is not None:
        return Finding(question, "bad", clip[0], (clip[1], *paragraphs))
    level, short = _headline(figures, judged, calibrator)
    return Finding(question, level, short, paragraphs)


def _has_rows(sketch: CalibrationSketch | None) -> bool:
    return sketch is not None and sketch.rows > 0


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


def _state(judged: WeightJudgement) -> str:
    return {
        "honest": "honest",
        "off": f"miscalibrated (weights off by {percent(judged.wce_debiased)}, beyond noise)",
        "infinite weight": "miscalibrated (clicks at a propensity of 0)",
        "too few rows": "not shown to be off, by too few clicks to call them honest",
        "not beyond chance": "right on average, and do not tell clicked pairs from others",
    }[judged.reason]


def _before(raw: Mapping[str, Any], judged: WeightJudgement, sketch: CalibrationSketch) -> str:
    text = f"The raw propensities are {_state(judged)}: {_figures(raw)}."
    worst = worst_misstatement(sketch)
    if worst is not None and judged.level == "bad":
        text += f" Where they say {percent(worst.said)}, {percent(worst.seen)} were clicked."
    return text


def _after(raw: Mapping[str, Any], after: Mapping[str, Any], judged: WeightJudgement, calibrator: str) -> str:
    if calibrator == "none":
        return "No calibrator was used."
    text = (
        f"After {_name(calibrator)} they are {_state(judged)}: {_figures(after)}; the NLL"
        f" {moved(raw.get('nll'), after.get('nll'))}."
    )
    if abs(real(after.get("auc")) - real(raw.get("auc"))) < SAME_AUC:
        text += (
            f" Their AUC stays at {brief(after.get('auc'))}: calibration changes how sure they are, not which"
            " pairs they put first."
        )
    return text


def _open(figures: Mapping[str, Any], judged: WeightJudgement) -> tuple[str, ...]:
    """Why there is no tick though nothing is shown to be off."""
    if judged.reason == "too few rows":
        more = (
            ""
            if judged.rows_needed is None
            else f"; some {number(float(f'{judged.rows_needed:.2g}'), 0)} pairs like these would tell"
        )
        return (
            f"Weights that are off by a factor {brief(judged.error, 2)} would be found with a chance of"
            f" {percent(judged.power)}{more}.",
        )
    if judged.level == "bad" or (judged.level == "good" and _tells_apart(figures)):
        return ()
    chance = real(figures.get("auc_of_chance"))
    beside = f", and chance alone would reach {brief(chance)} at this size" if math.isfinite(chance) else ""
    return (
        f"They hardly know which pairs are clicked (AUC {brief(figures.get('auc'))}{beside}): weights from"
        " them are nearly constant, and debias next to nothing. Either clicks are nearly random here, or the"
        " propensity needs features, more data or longer training.",
    )


def _tells_apart(figures: Mapping[str, Any]) -> bool:
    return tells_apart(figures.get("auc"), figures.get("auc_of_chance"))


def _headline(
    figures: Mapping[str, Any], judged: Mapping[str, WeightJudgement], calibrator: str
) -> tuple[Level, str]:
    """The level, and what became of the propensities in a few words."""
    main = "raw" if calibrator == "none" else "calibrated"
    level, reason, name = judged[main].level, judged[main].reason, _name(calibrator)
    if reason == "too few rows":
        return level, "too few clicks to tell whether the propensities are honest"
    if level == "undecided":
        return level, "propensities know next to nothing"
    if level == "good":
        if not _tells_apart(figures[main]):
            return "doubtful", "propensities know next to nothing"
        if calibrator == "none":
            return level, "raw propensities honest"
        repaired = judged["raw"].level == "bad"
        return level, f"propensities repaired by {name}" if repaired else "propensities honest"
    if calibrator == "none":
        return level, "raw propensities miscalibrated"
    if real(figures[main].get("nll")) < real(figures["raw"].get("nll")):
        return "doubtful", f"{name} helped, not fully"
    return level, f"{name} did not help"


def _name(calibrator: str) -> str:
    return calibrator.replace("_", " ").capitalize()


def _figures(figures: Mapping[str, Any]) -> str:
    ece, floor = real(figures.get("ece")), real(figures.get("ece_floor"))
    beside = f" where noise alone would show {brief(floor, 2)}" if math.isfinite(floor) else ""
    check = real(figures.get("weight_check"))
    added = (
        f", and their weights add up to {brief(check)} times the population" if math.isfinite(check) else ""
    )
    return f"ECE {brief(ece, 2)}{beside}{added}"


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


def improvement(metrics: Mapping[str, Any]) -> Finding:
    """Whether any method beat the naive model beyond noise, in level and in order."""
    question = "Did debiasing help?"
    methods, comparison = filled(metrics.get("methods")), filled(metrics.get("comparison"))
    estimated = _estimated(metrics)
    if not methods:
        missing = "There is no randomly shown test set to judge the models by."
        if "known" not in metrics.get("propensity", {}):
            missing += (
                " `unskew compare` on this run's folder estimates from the clicks they held out which is"
                " better, or says that the data cannot tell."
            )
        return Finding(question, "undecided", "no test set", (missing, *estimated))
    if not comparison:
        untested = (
            "Nothing was tested against the naive model: that takes a second method and at least two seeds"
            " (ten are better)."
        )
        paragraphs = (*_levels(methods, {}), untested, *estimated)
        return Finding(question, "undecided", "differences not tested", paragraphs)
    # Methods with calibrated propensities before those with raw ones.
    keys = sorted(comparison, key=lambda key: method_parts(key)[1] != "calibrated")
    level, short = _headline_of(keys[0], comparison[keys[0]])
    warning = ""
    if not is_random(metrics):
        level, short, warning = "undecided", "a logged test set cannot tell", LOGGED
    for key in ("naive", keys[0]):
        if _has_collapsed(metrics, key):
            level, short = "bad", f"{method_phrase(key)} learned nothing"
    parts = (
        (warning,),
        collapsed_sentences(metrics, *methods),
        (*_levels(methods, comparison), *_likelihood(methods, comparison, keys[0])),
        [order for key in keys if (order := _order(key, comparison[key], methods))],
        estimated,
    )
    text = (" ".join(part) for part in parts)
    return Finding(question, level, short, tuple(paragraph for paragraph in text if paragraph))


def _has_collapsed(metrics: Mapping[str, Any], key: str) -> bool:
    """Whether the predictions of a model (not merely an imputer) learned nothing in most of its seeds."""
    of_key = (metrics.get("collapsed") or {}).get(key, ())
    predictions = [each for each in of_key if each["network"] == "prediction"]
    seeds = sum(each["seeds"] for each in predictions)
    return any(most_collapsed(seeds, each["of"]) for each in predictions)


def _judged(found: Mapping[str, Any], *, level: bool) -> list[Judgement]:
    """The differences in metrics of the level, or of the order."""
    return [judge_difference(name, test) for name, test in found.items() if metric(name).level == level]


def _headline_of(main: str, found: Mapping[str, Any]) -> tuple[Level, str]:
    """What became of level and order, and both in a few words."""
    levels, orders = (_judged(found, level=which) for which in (True, False))
    changes, words = [], []
    if levels:
        changes.append(judge_change(levels))
        words.append(
            {"better": "level nearer the truth", "worse": "level further off"}.get(
                changes[-1].reason, "level no nearer"
            )
        )
    if orders:
        changes.append(judge_change(orders))
        reason = changes[-1].reason
        count = sum(each.reason == reason for each in orders)
        some = f"ranks {reason} on {count} of {counted(len(orders), 'metric')}"
        words.append("ranks no better" if reason == "within noise" else some)
    return judge_help(changes), f"{method_name(main)}: {', '.join(words)}"


def _levels(methods: Mapping[str, Any], comparison: Mapping[str, Any]) -> list[str]:
    """A sentence on how many conversions each method predicts."""
    others = [key for key in methods if key != "naive" and math.isfinite(level_of(methods, key))]
    naive = level_of(methods, "naive")
    if not others or not math.isfinite(naive):
        return []
    words = {
        "better": "nearer to 1 beyond noise",
        "within noise": "not nearer to 1 beyond noise",
        "worse": "further off beyond noise",
    }
    judged = {key: judge_difference(LEVEL, comparison.get(key, {}).get(LEVEL, {})).reason for key in others}
    alike = len(set(judged.values())) == 1
    each = [
        f"{method_phrase(key)} {_times(level_of(methods, key))}"
        + ("" if alike or not comparison else f" ({words[judged[key]]})")
        for key in others
    ]
    text = f"The naive model predicts {_times(naive)} the actual conversions; {listed(each)}"
    if alike and comparison:
        reason = judged[others[0]]
        together = words[reason]
        if len(others) == 2:
            neither = together.replace("not", "neither", 1)
            together = neither if reason == "within noise" else f"both {together}"
        text += f", {together}"
    return [f"{text}."]


def _likelihood(methods: Mapping[str, Any], comparison: Mapping[str, Any], main: str) -> list[str]:
    before, after = (methods.get(key, {}).get("nll", {}).get("mean") for key in ("naive", main))
    if before is None or after is None:
        return []
    within = judge_difference("nll", comparison[main].get("nll", {})).reason == "within noise"
    noise = "within" if within else "beyond"
    return [f"From the naive model to {method_phrase(main)} the NLL {moved(before, after)}, {noise} noise."]


def _order(key: str, found: Mapping[str, Any], methods: Mapping[str, Any]) -> str:
    """One sentence on the order in which a method puts pairs, against the naive one; empty if unknown."""
    of_order = {name: test for name, test in found.items() if not metric(name).level}
    if not of_order:
        return ""
    reasons = [each.reason for each in _judged(found, level=False)]
    total = counted(len(reasons), "ranking metric")
    parts = [f"{word} on {reasons.count(word)}" for word in ("better", "worse") if word in reasons]
    judged = (
        f"ranks {' and '.join(parts)} of {total} beyond noise"
        if parts
        else f"ranks like the naive model: none of {total} differs beyond noise"
    )
    first = shown_metrics({key: of_order})[0]
    test = of_order[first]
    means = [real(methods.get(k, {}).get(first, {}).get("mean")) for k in ("naive", key)]
    users = test.get("users") or {}
    over_users = (
        ""
        if users.get("low") is None
        else f" and {signed(users['low'])} to {signed(users['high'])} over test users"
    )
    return (
        f"{sentence(method_phrase(key))} {judged} ({metric(first).label} {brief(means[0])} →"
        f" {brief(means[1])}, difference {signed(test.get('difference'))}, 95 % interval"
        f" {signed(test.get('low'))} to {signed(test.get('high'))} over seeds{over_users},"
        f" p {p_value(test.get('p_holm', test.get('p_value')))} after Holm's correction)."
    )


def _estimated(metrics: Mapping[str, Any]) -> list[str]:
    """Where the truth is known, how far the estimates are from it."""
    estimates = filled((metrics.get("truth") or {}).get("estimates"))
    off = [
        f"{method_phrase(key)} by {signed_fixed(deviation(estimates[key]), 3)}"
        for key in sorted(estimates, key=lambda key: method_parts(key)[1] != "calibrated")
        if method_parts(key)[1] in ("calibrated", "raw", "naive")
    ]
    text = [f"As estimates of the true loss, they are off on average: {listed(off)}."] if off else []
    for key, of in estimates.items():
        parts = [deviation(of, part) for part in ("calibration_part", "refinement_part")]
        if method_parts(key)[1] == "calibrated" and all(map(math.isfinite, parts)):
            text.append(
                f"With calibrated propensities {signed_fixed(parts[0], 3)} of it is still calibration, and"
                f" {signed_fixed(parts[1], 3)} is refinement, which no calibrator can remove."
            )
    return text
