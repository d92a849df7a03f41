"""Facts of a run that findings, pages and tables share: names, the test set, levels and what they cost."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import PurePath
from typing import Any

from unskew.metrics.collapse import collapse_message
from unskew.metrics.judgement import LEVEL_TOLERANCE, Level, judge_level
from unskew.metrics.reliability import Promise
from unskew.metrics.significance import LEAST_SEEDS
from unskew.report.numbers import counted, number, percent, real

LEVEL = "mean_over_rate"
"""The metric of a model's level: mean prediction ÷ conversion rate."""

COLLAPSED_MARK = "⚠"
"""Stands beside a model with a network that learned nothing."""

SUFFIXES = ("raw", "true", "constant", "known")
"""Endings of a method's key that say which propensities it used; without one, the calibrated ones."""


def filled(entries: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return the entries that hold something."""
    return {name: entry for name, entry in (entries or {}).items() if entry}


def method_parts(key: str) -> tuple[str, str]:
    """Return the method and the propensities of a key of ``metrics.json``."""
    if key == "naive":
        return key, "naive"
    base, _, ending = key.rpartition("_")
    return (base, ending) if base and ending in SUFFIXES else (key, "calibrated")


def method_name(key: str) -> str:
    """Return the name of a method in figures and tables."""
    base, propensity = method_parts(key)
    if propensity == "naive":
        return "Naive"
    if key == "auto":
        return "Auto"
    return f"{base.replace('_', '-').upper()}, {propensity}"


def method_phrase(key: str) -> str:
    """Return the name of a method in a sentence."""
    if key == "auto":
        return "what auto chose"
    name, _, propensity = method_name(key).partition(", ")
    return f"{name} with {propensity} propensities" if propensity else "the naive model"


def main_method(methods: Mapping[str, Any]) -> str | None:
    """Return the method that a run is about, with calibrated propensities first; None if only naive."""
    others = [key for key in methods if key != "naive"]
    return min(others, key=lambda key: method_parts(key)[1] not in ("calibrated", "known"), default=None)


def data_name(metrics: Mapping[str, Any], config: Mapping[str, Any]) -> str:
    """Return the name of the data; files are named by the last two parts of their path."""
    name = str((metrics.get("data") or {}).get("name", "data"))
    files = (config.get("options") or {}).get("train") if name == "files" else None
    if files is None:
        return name
    paths = [str(path) for path in ([files] if isinstance(files, (str, PurePath)) else files)]
    more = f" and {counted(len(paths) - 1, 'more file')}" if len(paths) > 1 else ""
    names = [folder for folder in PurePath(paths[0]).parts if folder.strip("./\\")]
    return "/".join(names[-2:]) + more


def units(metrics: Mapping[str, Any]) -> str:
    """Return what the population of a run consists of: pairs, impressions, or rows that a policy showed."""
    data = metrics.get("data") or {}
    if data.get("known_propensity") is not None:
        return "rows"
    return "impressions" if data.get("space") == "impressions" else "pairs"


def is_random(metrics: Mapping[str, Any]) -> bool:
    """Return whether the test pairs were shown at random."""
    return bool((metrics.get("data") or {}).get("test_is") == "random")


def tested_on(metrics: Mapping[str, Any]) -> str:
    """Return what the test set is."""
    random = f"the randomly shown test {units(metrics)}"
    return random if is_random(metrics) else "the clicks of the logged test set"


def level_of(methods: Mapping[str, Any], key: str) -> float:
    """Return a method's mean prediction ÷ the actual rate, on average over seeds; NaN if unknown."""
    return real((methods.get(key) or {}).get(LEVEL, {}).get("mean"))


def seeds_of(methods: Mapping[str, Any]) -> int:
    """Return how many seeds the methods have, 0 if unknown."""
    return max(
        (len(of.get("seeds") or ()) for by in methods.values() for of in (by or {}).values()), default=0
    )


def sampled(methods: Mapping[str, Any]) -> str:
    """Return what intervals are over: test users, and seeds where there are enough of them."""
    return "test users" if 0 < seeds_of(methods) < LEAST_SEEDS else "test users and seeds"


def deviation(estimate: Mapping[str, Any], name: str = "bias") -> float:
    """Return estimate − truth on average, the negative of the paper's bias."""
    return 0.0 - real(estimate.get(name))


def collapsed_sentences(metrics: Mapping[str, Any], *keys: str) -> list[str]:
    """Return a sentence with the remedy for each network that learned nothing."""
    networks = metrics.get("collapsed") or {}
    return [
        collapse_message(key, network["network"], network["reason"], network["seeds"], network["of"])
        for key in keys or networks
        for network in networks.get(key, ())
    ]


def judge_promise(promised: Promise, tolerance: float = LEVEL_TOLERANCE) -> Level:
    """Judge by the interval of the excess whether a predicted number of outcomes is right."""
    if promised.came <= 0:
        return "bad" if promised.excess_low > 0 else "undecided"
    low, high = (1 + excess / promised.came for excess in (promised.excess_low, promised.excess_high))
    return judge_level(low, high, tolerance=tolerance).level


def excess_words(promised: Promise, tolerance: float = LEVEL_TOLERANCE) -> str:
    """Say how many outcomes too many or too few are predicted, with the interval."""
    low, high = promised.excess_low, promised.excess_high
    amount = f"{number(abs(promised.excess), 0)} too {'many' if promised.excess > 0 else 'few'}"
    if number(abs(promised.excess), 0) == "0":
        amount = "exactly as many"
    if not (math.isfinite(low) and math.isfinite(high)):
        return f"{amount} (undecided)"
    if low > 0 or high < 0:
        near, far = sorted((abs(low), abs(high)))
        interval, end = f"{number(near, 0)} to {number(far, 0)}", ""
    else:
        interval, end = f"{number(-low, 0)} too few to {number(high, 0)} too many", ": undecided"
    if judge_promise(promised, tolerance) == "good":
        end = f": right within {percent(tolerance)}"
    return f"{amount} (95 % interval {interval}{end})"


def promises(metrics: Mapping[str, Any]) -> dict[str, Promise]:
    """Return what each method predicts on the test set beside what occurred; empty where that is unknown.

    The interval is that of the level, turned into the conversions that were to be expected.
    """
    came = real((metrics.get("data") or {}).get("test_conversions"))
    promised = {}
    for key, summary in filled(metrics.get("methods")).items():
        level, low, high = (real(summary.get(LEVEL, {}).get(name)) for name in ("mean", "low", "high"))
        if math.isfinite(level) and math.isfinite(came):
            total = level * came
            # excess_low is promised − high: the level's own interval in conversions.
            promised[key] = Promise(total, came, total - (high - 1) * came, total - (low - 1) * came)
    return promised
