"""Did debiasing help? Level and order on the test set, and estimates of the loss where the truth is known."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from unskew.metrics.registry import metric, shown_metrics
from unskew.report.judging import (
    LEVEL,
    Finding,
    Tone,
    beyond_noise,
    collapsed_sentences,
    has_collapsed,
    is_random,
    level_of,
    main_first,
    ranks,
    times,
)
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
    p_value,
    real,
    sentence,
    signed,
    signed_fixed,
)

QUESTION = "Did debiasing help?"

LOGGED = (
    "The test set is logged: its clicks were chosen as those of training were, and on them the naive model"
    " looks best whether it is or not. `unskew compare` on this run's folder weighs the clicks that the"
    " models held out. If the test pairs were shown at random, say so (--test-is random)."
)
"""What metrics on a biased test set are worth."""


def improvement(metrics: Mapping[str, Any]) -> Finding:
    """Whether any method beat the naive model beyond noise, in level and in order."""
    methods, comparison = filled(metrics.get("methods")), filled(metrics.get("comparison"))
    estimated = _estimated(metrics)
    if not methods:
        untold = "There is no randomly shown test set to judge the models by."
        if "known" not in metrics.get("propensity", {}):
            untold += (
                " `unskew compare` on this run's folder estimates from the clicks they held out which is"
                " better, or says that the data cannot tell."
            )
        return Finding(QUESTION, "open", "no test set", (untold, *estimated))
    if not comparison:
        untested = (
            "Nothing was tested against the naive model: that takes a second method and at least two seeds"
            " (ten are better)."
        )
        told = (*promises(methods, {}), untested, *estimated)
        return Finding(QUESTION, "open", "differences not tested", told)
    keys = main_first(comparison)
    orders = [order for key in keys if (order := compared(key, comparison[key], methods))]
    tone, short = _judged(keys[0], comparison[keys[0]])
    warning = ""
    if not is_random(metrics):
        tone, short, warning = "open", "a logged test set cannot tell", LOGGED
    for key in ("naive", keys[0]):
        if has_collapsed(metrics, key):
            tone, short = "bad", f"{method_phrase(key)} learned nothing"
    learned_nothing = " ".join(collapsed_sentences(metrics, *methods))
    paragraphs = (
        warning,
        learned_nothing,
        " ".join(promises(methods, comparison)),
        " ".join(orders),
        " ".join(estimated),
    )
    return Finding(QUESTION, tone, short, tuple(paragraph for paragraph in paragraphs if paragraph))


def _judged(main: str, found: Mapping[str, Any]) -> tuple[Tone, str]:
    """The tone, and both sides of the matter in a few words."""
    levels = [beyond_noise(name, test) for name, test in found.items() if metric(name).level]
    orders = [beyond_noise(name, test) for name, test in ranks(found).items()]
    signs, told = [], []
    if levels:
        signs.append((sum(levels) > 0) - (sum(levels) < 0))
        told.append({1: "level nearer the truth", 0: "level no nearer", -1: "level further off"}[signs[-1]])
    if orders:
        better, worse = orders.count(1), orders.count(-1)
        signs.append((better > worse) - (better < worse))
        count = f"{max(better, worse)} of {counted(len(orders), 'metric')}"
        told.append(
            {1: f"ranks better on {count}", 0: "ranks no better", -1: f"ranks worse on {count}"}[signs[-1]]
        )
    helped, harmed = 1 in signs, -1 in signs
    tone: Tone = "good" if helped and not harmed else "bad" if harmed and not helped else "open"
    return tone, f"{method_name(main)}: {', '.join(told)}"


def promises(methods: Mapping[str, Any], comparison: Mapping[str, Any]) -> list[str]:
    """One sentence on how much each method promises, and one on the likelihood."""
    others = [key for key in methods if key != "naive" and math.isfinite(level_of(methods, key))]
    naive = level_of(methods, "naive")
    if not others or not math.isfinite(naive):
        return []
    signs = {key: beyond_noise(LEVEL, comparison.get(key, {}).get(LEVEL, {})) for key in others}
    words = {1: "nearer to 1 beyond noise", 0: "not nearer to 1 beyond noise", -1: "further off beyond noise"}
    alike = len(set(signs.values())) == 1
    each = [
        f"{method_phrase(key)} {times(level_of(methods, key))}"
        + ("" if alike or not comparison else f" ({words[signs[key]]})")
        for key in others
    ]
    told = f"The naive model promises {times(naive)} the conversions it keeps; {listed(each)}"
    if alike and comparison:
        together = words[signs[others[0]]]
        if len(others) == 2:
            together = f"both {together}" if signs[others[0]] else together.replace("not", "neither", 1)
        told += f", {together}"
    return [f"{told}.", *_likelihood(methods, comparison)]


def _likelihood(methods: Mapping[str, Any], comparison: Mapping[str, Any]) -> list[str]:
    if not comparison:
        return []
    main = main_first(comparison)[0]
    before, after = (methods.get(key, {}).get("nll", {}).get("mean") for key in ("naive", main))
    if before is None or after is None:
        return []
    beyond = "beyond" if beyond_noise("nll", comparison[main].get("nll", {})) else "within"
    return [f"From the naive model to {method_phrase(main)} the NLL {moved(before, after)}, {beyond} noise."]


def compared(key: str, found: Mapping[str, Any], methods: Mapping[str, Any]) -> str:
    """One sentence on the order in which a method puts pairs, against the naive one; empty if unknown."""
    of_order = ranks(found)
    if not of_order:
        return ""
    signs = [beyond_noise(name, test) for name, test in of_order.items()]
    better, worse = signs.count(1), signs.count(-1)
    total = counted(len(signs), "ranking metric")
    if better or worse:
        parts = [f"better on {better}"] * bool(better) + [f"worse on {worse}"] * bool(worse)
        judged = f"ranks {' and '.join(parts)} of {total} beyond noise"
    else:
        judged = f"ranks like the naive model: none of {total} differs beyond noise"
    first = shown_metrics({key: of_order})[0]
    test = of_order[first]
    means = [real(methods.get(k, {}).get(first, {}).get("mean")) for k in ("naive", key)]
    return (
        f"{sentence(method_phrase(key))} {judged} ({metric(first).label} {brief(means[0])} →"
        f" {brief(means[1])}, difference {signed(test.get('difference'))}, 95 % interval"
        f" {signed(test.get('low'))} to {signed(test.get('high'))} over seeds{_over_users(test)},"
        f" p {p_value(test.get('p_holm', test.get('p_value')))} after Holm's correction)."
    )


def _over_users(test: Mapping[str, Any]) -> str:
    users = test.get("users") or {}
    if users.get("low") is None:
        return ""
    return f" and {signed(users['low'])} to {signed(users['high'])} over test users"


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
