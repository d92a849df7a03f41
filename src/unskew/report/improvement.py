"""Did debiasing help, in level and in order? The answer in words."""

from __future__ import annotations

import math
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from unskew.metrics.judgement import (
    Judgement,
    Level,
    is_clear,
    judge_change,
    judge_difference,
    judge_help,
    most_collapsed,
)
from unskew.metrics.registry import metric, shown_metrics
from unskew.report.finding import (
    LEVEL,
    Finding,
    collapsed_sentences,
    deviation,
    interval_over,
    is_random,
    level_of,
    times,
    without_seeds,
)
from unskew.report.words import (
    brief,
    counted,
    filled,
    listed,
    method_name,
    method_parts,
    method_phrase,
    moved,
    p_value,
    real,
    sentence,
    signed,
    signed_fixed,
)

LOGGED = (
    "The test set is logged: its clicks were chosen as those of training were, and on them the naive model"
    " looks best whether it is or not. {} If what it holds was shown at random, say so (`--test-is random`)."
)
"""What metrics on a biased test set are worth, and what else there is to do."""


MOST_LEFT = 0.1
"""Weighted clicks that convert more than this share too often (or too rarely) are called confounded."""


def confounded(metrics: Mapping[str, Any]) -> tuple[str, ...]:
    """Whether something that no field holds moves clicks and conversions alike, where the truth is known."""
    figures = metrics.get("confounding")
    if not figures:
        return ()
    plain, left, by_truth = (times(real(figures[kind]["times"])) for kind in ("clicked", "estimated", "true"))
    said = (
        f"The truth is known here: clicked rows would convert {plain} as often as all rows, {left} if"
        f" weighted by the propensities, {by_truth} if by the true ones."
    )
    off, noise = (real(figures["estimated"][name]) for name in ("times", "standard_error"))
    if abs(off - 1.0) <= MOST_LEFT or not is_clear(off - 1.0, noise):
        return (f"{said} What the fields hold mends the skew.",)
    if not real(figures["hidden"]):
        return (f"{said} The propensities miss a part of what moves clicks: try other fields or a backbone.",)
    return (
        f"{said} What is left cannot be mended by weighting: a taste that no field holds moves clicks and"
        " conversions alike, and no propensity or calibration sees it. A random sample would show it.",
    )


def _held_out(metrics: Mapping[str, Any], config: Mapping[str, Any]) -> str:
    """What clicks that the models held out may tell: `compare` needs two models, and a table of rows."""
    if config.get("method") == "none":
        return ""
    if config.get("method") == "naive":
        return "The naive model is the only one: a second (`--method ips`) would show what debiasing changes."
    return (
        "`unskew compare` on this run's folder estimates from the clicks that the models held out which is"
        " better, or says that the data cannot tell."
    )


def improvement(metrics: Mapping[str, Any], config: Mapping[str, Any] = MappingProxyType({})) -> Finding:
    """Whether any method beat the naive model beyond noise, in level and in order."""
    question = "Did debiasing help?"
    methods, comparison = filled(metrics.get("methods")), filled(metrics.get("comparison"))
    estimated = (*_estimated(metrics), *confounded(metrics))
    if not methods:
        missing = "There is no randomly shown test set to judge the models by."
        if "known" not in metrics.get("propensity", {}):
            missing = f"{missing} {_held_out(metrics, config)}".rstrip()
        return Finding(question, "undecided", "no test set", (missing, *estimated))
    if not comparison:
        untested = (
            "Nothing was tested against the naive model: that takes a second method, and a test set with at"
            " least two users."
        )
        paragraphs = (*_levels(methods, {}), untested, *estimated)
        return Finding(question, "undecided", "differences not tested", paragraphs)
    # Methods with calibrated propensities before those with raw ones.
    keys = sorted(comparison, key=lambda key: method_parts(key)[1] != "calibrated")
    level, short = _headline_of(keys[0], comparison[keys[0]])
    warning = ""
    if not is_random(metrics):
        level, short, warning = (
            "undecided",
            "a logged test set cannot tell",
            LOGGED.format(_held_out(metrics, config)),
        )
    for key in ("naive", keys[0]):
        if _has_collapsed(metrics, key):
            level, short = "bad", f"{method_phrase(key)} learned nothing"
    parts = (
        (warning,),
        collapsed_sentences(metrics, *methods),
        (*_levels(methods, comparison), *_likelihood(methods, comparison, keys[0])),
        [order for key in keys if (order := _order(key, comparison[key], metrics))],
        (without_seeds(metrics).strip(),),
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
        f"{method_phrase(key)} {times(level_of(methods, key))}"
        + ("" if alike or not comparison else f" ({words[judged[key]]})")
        for key in others
    ]
    text = f"The naive model predicts {times(naive)} the actual conversions; {listed(each)}"
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


def _order(key: str, found: Mapping[str, Any], metrics: Mapping[str, Any]) -> str:
    """Say in one sentence how a method orders pairs, against the naive one; empty if unknown."""
    methods = metrics["methods"]
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
    return (
        f"{sentence(method_phrase(key))} {judged} ({metric(first).label} {brief(means[0])} →"
        f" {brief(means[1])}, difference {signed(test.get('difference'))}, 95 %"
        f" interval{interval_over(metrics)} {signed(test.get('low'))} to {signed(test.get('high'))},"
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
