"""The form of an answer, and what passes as a difference; ``verdict`` and ``improvement`` give answers."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from unskew.metrics.collapse import told
from unskew.metrics.registry import metric
from unskew.metrics.user_bootstrap import differs
from unskew.report.words import method_parts, number, real

LEVEL = "mean_over_rate"
"""Mean prediction ÷ conversion rate: how many conversions a model promises for each that it keeps."""

LEVEL_TOLERANCE = 0.1
"""A model that promises within this share of what it keeps passes as right: a test set of some thousand
pairs tells the conversion rate itself to 3 to 5 %. Right or off is said where the whole interval is."""

Tone = Literal["good", "bad", "open"]

Standing = Literal["right", "off", "undecided"]


@dataclass(frozen=True)
class Finding:
    """One answer of the report: the question, a few words for the bar at the top, and paragraphs."""

    question: str
    tone: Tone
    short: str
    paragraphs: tuple[str, ...]

    @property
    def text(self) -> str:
        """All of it in one line."""
        return " ".join(self.paragraphs)


def beyond_noise(name: str, found: Mapping[str, Any]) -> int:
    """1 for better beyond the noise of training and of test users (:func:`differs`), −1 for worse, 0 for
    neither.

    Examples
    --------
    >>> fallen = {"difference": -0.1, "p_holm": 0.001}
    >>> beyond_noise("nll", fallen), beyond_noise("auc", fallen), beyond_noise("auc", {})
    (1, -1, 0)
    """
    better = metric(name).gain(real(found.get("difference")))
    return (better > 0) - (better < 0) if differs(found) else 0


def level_of(methods: Mapping[str, Any], key: str) -> float:
    """What a method promises for each conversion it keeps, on average over seeds; NaN if unknown."""
    return real((methods.get(key) or {}).get(LEVEL, {}).get("mean"))


def level_standing(methods: Mapping[str, Any], key: str) -> Standing:
    """Whether a method's level is within the tolerance of 1, beyond it, or not decided by its interval.

    Examples
    --------
    >>> levels = {"a": (0.95, 1.08), "b": (1.21, 1.9), "c": (0.8, 1.52)}
    >>> methods = {key: {LEVEL: {"low": low, "high": high}} for key, (low, high) in levels.items()}
    >>> [level_standing(methods, key) for key in "abc"]
    ['right', 'off', 'undecided']
    """
    of = (methods.get(key) or {}).get(LEVEL, {})
    low, high = real(of.get("low")), real(of.get("high"))
    if low > 1 + LEVEL_TOLERANCE or high < 1 - LEVEL_TOLERANCE:
        return "off"
    return "right" if low >= 1 - LEVEL_TOLERANCE and high <= 1 + LEVEL_TOLERANCE else "undecided"


def collapsed_sentences(metrics: Mapping[str, Any], *keys: str) -> tuple[str, ...]:
    """What became of the networks of some models that learned nothing, and the remedy."""
    found = metrics.get("collapsed") or {}
    return tuple(
        told(key, each["network"], each["reason"], each["seeds"], each["of"])
        for key in keys or found
        for each in found.get(key, ())
    )


def has_collapsed(metrics: Mapping[str, Any], key: str) -> bool:
    """Whether the predictions of a model (not merely an imputer) learned nothing in most of its seeds."""
    of_key = (metrics.get("collapsed") or {}).get(key, ())
    seeds = sum(each["seeds"] for each in of_key if each["network"] == "prediction")
    return any(2 * seeds > each["of"] for each in of_key if each["network"] == "prediction")


def is_random(metrics: Mapping[str, Any]) -> bool:
    """Whether the test pairs were shown at random; a test set of which nothing is said counts as logged."""
    return bool((metrics.get("data") or {}).get("test_is") == "random")


def tested_on(metrics: Mapping[str, Any]) -> str:
    """What the test set is, in a sentence."""
    return "the randomly shown test pairs" if is_random(metrics) else "the clicks of the logged test set"


def times(level: float) -> str:
    """A level in words.

    Examples
    --------
    >>> times(1.4321)
    '1.43 times'
    """
    return f"{number(level, 2)} times"


def level_bracket(methods: Mapping[str, Any], key: str) -> str:
    """The interval of a method's level, in brackets; empty if unknown."""
    of = (methods.get(key) or {}).get(LEVEL, {})
    low, high = real(of.get("low")), real(of.get("high"))
    known = math.isfinite(low) and math.isfinite(high)
    return f" (95 % interval {number(low, 2)} to {number(high, 2)})" if known else ""


def ranks(found: Mapping[str, Any]) -> dict[str, Any]:
    """The metrics that look at the order alone."""
    return {name: test for name, test in found.items() if not metric(name).level}


def main_first(comparison: Mapping[str, Any]) -> list[str]:
    """Methods with calibrated propensities before those with raw ones."""
    return sorted(comparison, key=lambda key: method_parts(key)[1] != "calibrated")
