"""The findings of a run: keys, levels and numbers; the words are in ``templates/findings.toml``.

What counts as what is decided in :mod:`unskew.metrics.judgement`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from unskew.metrics import CalibrationSketch
from unskew.metrics.judgement import (
    LEVEL_TOLERANCE,
    is_clear,
    judge_change,
    judge_difference,
    judge_help,
    judge_level,
    most_collapsed,
    tells_apart,
)
from unskew.metrics.registry import metric, shown_metrics
from unskew.metrics.reliability import promise
from unskew.metrics.significance import LEAST_SEEDS
from unskew.report.facts import (
    LEVEL,
    collapsed_sentences,
    deviation,
    excess_words,
    filled,
    is_random,
    judge_promise,
    level_of,
    main_method,
    method_parts,
    method_phrase,
    promises,
    sampled,
    seeds_of,
    tested_on,
    units,
)
from unskew.report.finding import Answer, Finding, found
from unskew.report.numbers import between, counted, listed, number, real, signed_fixed
from unskew.report.propensity_findings import propensity_findings

Metrics = Mapping[str, Any]
"""The dictionary of ``metrics.json``."""

MOST_LEFT = 0.1
"""Weighted clicks that convert more than this share too often or too rarely are called confounded."""


def findings(
    metrics: Metrics, config: Mapping[str, Any], sketches: Mapping[str, CalibrationSketch]
) -> list[Answer]:
    """Answer what is biased, whether the propensities are calibrated, and whether debiasing helped."""
    return [
        bias_findings(metrics),
        propensity_findings(metrics, config, sketches),
        help_findings(metrics, config),
    ]


def cost_findings(metrics: Metrics, sketches: Mapping[str, CalibrationSketch]) -> Answer:
    """Answer how many conversions the models predict too many or too few on the test set."""
    question, promised = "What does it cost?", promises(metrics)
    if not promised:
        return Answer(question, found("cost.no_test"), _predicted_clicks(metrics, sketches))
    data = metrics.get("data") or {}
    main = main_method(promised)
    shown = [key for key in ("naive", main) if key in promised]
    said = [f"{method_phrase(key)} predicts {excess_words(promised[key])}" for key in shown if key]
    numbers = {
        "came": next(iter(promised.values())).came,
        "rows": data.get("test_rows_judged"),
        "where": tested_on(metrics).removeprefix("the "),
        "predictions": listed(said),
    }
    if not is_random(metrics):
        return Answer(question, found("cost.models", **numbers), (found("cost.logged"),))
    level = judge_promise(promised[shown[-1] or "naive"])
    return Answer(question, Finding("cost.models", level, numbers), _few_seeds(metrics))


def _predicted_clicks(metrics: Metrics, sketches: Mapping[str, CalibrationSketch]) -> tuple[Finding, ...]:
    kind = "calibrated" if "calibrated" in sketches else next(iter(sketches), None)
    if kind is None or not sketches[kind].rows:
        return ()
    promised = promise(sketches[kind])
    numbers = {"kind": kind, "rows": sketches[kind].rows, "units": units(metrics)}
    numbers |= {"promised": promised.promised, "came": promised.came, "excess": excess_words(promised)}
    return (found("cost.clicks", **numbers),)


def _few_seeds(metrics: Metrics) -> tuple[Finding, ...]:
    """Say that seeds are too few to be in an interval; empty where they are in it."""
    seeds = seeds_of(filled(metrics.get("methods")))
    words = "One seed" if seeds == 1 else "Two seeds"
    return (found("help.few_seeds", seeds=words),) if 0 < seeds < LEAST_SEEDS else ()


def bias_findings(metrics: Metrics) -> Answer:
    """Answer how far the clicks, and what is learned from them, differ from the whole."""
    data, rows = metrics.get("data") or {}, units(metrics)
    numbers = {"rows": data.get("rows"), "density": data.get("density"), "units": rows}
    is_policy = data.get("known_propensity") is not None
    seen = found("bias.policy" if is_policy else "bias.seen", **numbers)
    levels, estimates = _naive_level(metrics), _naive_estimate(metrics)
    details = [seen, *estimates[1:]]
    calibrated = (metrics.get("propensity") or {}).get("calibrated") or {}
    if not estimates and calibrated.get("auc") is not None:
        known = tells_apart(calibrated["auc"], calibrated.get("auc_of_chance"))
        key = "bias.predictable" if known else "bias.unpredictable"
        details.append(found(key, auc=calibrated["auc"], units=rows))
    if levels and is_random(metrics) and (levels[0].level == "bad" or not estimates):
        main, details = levels[0], [*details, *levels[1:]]
    else:
        main = estimates[0] if estimates else found("bias.unknown", units=rows)
        details += levels
    return Answer("What is biased?", main, tuple(details))


def _naive_estimate(metrics: Metrics) -> list[Finding]:
    """Return whether the naive estimate of the loss is clearly off, and the numbers; empty if unknown."""
    truth = metrics.get("truth") or {}
    naive, ideal = (truth.get("estimates") or {}).get("naive"), real(truth.get("ideal_loss"))
    if naive is None or not math.isfinite(ideal):
        return []
    off, error = deviation(naive), real(naive.get("standard_error"))
    size = {"size": abs(off) / ideal, "side": "high" if off > 0 else "low"}
    main = Finding("bias.loss", "bad", size) if is_clear(off, error) else Finding("bias.none", "good")
    errors = abs(off) / error if error > 0 else math.nan
    estimate = {"estimate": naive.get("estimate"), "ideal": ideal, "errors": errors, "units": units(metrics)}
    return [main, found("bias.estimate", **estimate)]


def _naive_level(metrics: Metrics) -> list[Finding]:
    """Return the level of the naive model on the test set, and what that says; empty if unknown."""
    methods = filled(metrics.get("methods"))
    level, limits = level_of(methods, "naive"), (methods.get("naive") or {}).get(LEVEL) or {}
    if not math.isfinite(level):
        return []
    ends = between(limits.get("low"), limits.get("high"), lambda end: number(end, 2))
    interval = f" (95 % interval over {sampled(methods)}: {ends})" if ends else ""
    numbers = {"where": tested_on(metrics), "level": level, "interval": interval}
    if not is_random(metrics):
        return [found("bias.naive", **numbers), found("bias.hidden")]
    judged = judge_level(limits.get("low"), limits.get("high")).level
    if judged == "bad":
        return [Finding("bias.naive", "bad", numbers)]
    said = found("bias.right", tolerance=LEVEL_TOLERANCE) if judged == "good" else found("bias.more")
    return [found("bias.naive", **numbers), said]


def help_findings(metrics: Metrics, config: Mapping[str, Any] = MappingProxyType({})) -> Answer:
    """Answer whether any method beat the naive model beyond noise, in level and in order."""
    question = "Did debiasing help?"
    methods, comparison = filled(metrics.get("methods")), filled(metrics.get("comparison"))
    truth = [*_estimates(metrics), *_confounding(metrics)]
    hint = _hint(metrics, config)
    if not methods:
        return Answer(question, found("help.no_test", units=units(metrics)), (*hint, *truth))
    levels = _levels(methods, comparison)
    if not comparison:
        return Answer(question, found("help.untested"), (*levels, *truth))
    # Methods with calibrated propensities come before those with raw ones.
    keys = sorted(comparison, key=lambda key: method_parts(key)[1] != "calibrated")
    main = _change(keys[0], comparison[keys[0]])
    details = [
        *(found("collapsed.network", message=message) for message in collapsed_sentences(metrics, *methods)),
        *levels,
        *_order(keys[0], comparison[keys[0]], metrics),
        *truth,
    ]
    if not is_random(metrics):
        main, details = found("help.logged"), [*hint, *details]
    for key in ("naive", keys[0]):
        if _has_collapsed(metrics, key):
            main = Finding("help.collapsed", "bad", {"model": method_phrase(key)})
    return Answer(question, main, tuple(details))


def _hint(metrics: Metrics, config: Mapping[str, Any]) -> list[Finding]:
    """Return what else could tell which model is better."""
    if config.get("method") == "naive":
        return [found("help.second")]
    can_compare = "known" not in (metrics.get("propensity") or {}) and config.get("method") != "none"
    return [found("help.compare")] if can_compare else []


def _has_collapsed(metrics: Metrics, key: str) -> bool:
    """Return whether the predictions of a model learned nothing in most of its seeds."""
    networks = (metrics.get("collapsed") or {}).get(key, ())
    predictions = [network for network in networks if network["network"] == "prediction"]
    seeds = sum(network["seeds"] for network in predictions)
    return any(most_collapsed(seeds, network["of"]) for network in predictions)


def _change(key: str, differences: Mapping[str, Any]) -> Finding:
    """Return what became of level and order under a method."""
    changes, words = [], []
    for is_level, said in (
        (True, {"better": "level closer to the truth", "worse": "level further off"}),
        (False, {"better": "ranking better", "worse": "ranking worse"}),
    ):
        judged = [
            judge_difference(name, test)
            for name, test in differences.items()
            if metric(name).level == is_level
        ]
        if judged:
            change = judge_change(judged)
            changes.append(change)
            count = sum(each.reason == change.reason for each in judged)
            in_some = "" if is_level else f" in {count} of {counted(len(judged), 'metric')}"
            no_change = "level no closer" if is_level else "ranking no better"
            words.append(f"{said[change.reason]}{in_some}" if change.reason in said else no_change)
    numbers = {"model": method_phrase(key), "changes": ", ".join(words)}
    return Finding("help.change", judge_help(changes), numbers)


def _levels(methods: Mapping[str, Any], comparison: Mapping[str, Any]) -> list[Finding]:
    """Return how many conversions each method predicts."""
    others = [key for key in methods if key != "naive" and math.isfinite(level_of(methods, key))]
    naive = level_of(methods, "naive")
    if not others or not math.isfinite(naive):
        return []
    words = {"better": "closer to 1", "within noise": "no closer to 1 beyond noise", "worse": "further off"}
    said = []
    for key in others:
        reason = judge_difference(LEVEL, comparison.get(key, {}).get(LEVEL, {})).reason
        judged = f" ({words[reason]})" if comparison else ""
        said.append(f"{method_phrase(key)} {number(level_of(methods, key), 2)} times{judged}")
    return [found("help.levels", naive=naive, others=listed(said))]


def _order(key: str, differences: Mapping[str, Any], metrics: Metrics) -> list[Finding]:
    """Return how a method ranks compared with the naive one; nothing if unknown."""
    methods = metrics["methods"]
    of_order = {name: test for name, test in differences.items() if not metric(name).level}
    if not of_order:
        return []
    reasons = [judge_difference(name, test).reason for name, test in of_order.items()]
    first = shown_metrics({key: of_order})[0]
    test = of_order[first]
    return [
        found(
            "help.order",
            model=method_phrase(key),
            better=reasons.count("better"),
            worse=reasons.count("worse"),
            total=counted(len(reasons), "ranking metric"),
            metric=metric(first).label,
            over=sampled(methods),
            **{name: test.get(name) for name in ("difference", "low", "high")},
            p=test.get("p_holm", test.get("p_value")),
        )
    ]


def _estimates(metrics: Metrics) -> list[Finding]:
    """Return how far estimates are from the truth, where it is known."""
    estimates = filled((metrics.get("truth") or {}).get("estimates"))
    shown = [key for key in estimates if method_parts(key)[1] in ("calibrated", "raw", "naive")]
    shown.sort(key=lambda key: method_parts(key)[1] != "calibrated")
    off = [f"{method_phrase(key)} by {signed_fixed(deviation(estimates[key]), 3)}" for key in shown]
    details = [found("help.estimates", off=listed(off))] if off else []
    for key, estimate in estimates.items():
        calibration, refinement = (
            deviation(estimate, f"{name}_part") for name in ("calibration", "refinement")
        )
        if method_parts(key)[1] == "calibrated" and math.isfinite(calibration + refinement):
            details.append(found("help.parts", calibration=calibration, refinement=refinement))
    return details


def _confounding(metrics: Metrics) -> list[Finding]:
    """Return whether something that no field holds drives clicks and conversions."""
    figures = metrics.get("confounding")
    if not figures:
        return []
    said = found(
        "help.confounded", **{kind: figures[kind]["times"] for kind in ("clicked", "estimated", "true")}
    )
    off = real(figures["estimated"]["times"]) - 1.0
    if abs(off) <= MOST_LEFT or not is_clear(off, real(figures["estimated"]["standard_error"])):
        return [said, found("help.unconfounded")]
    return [said, found("help.hidden" if real(figures["hidden"]) else "help.missing")]
