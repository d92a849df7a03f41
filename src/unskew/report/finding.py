"""A finding of a report, and the facts about a run that several findings tell."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import PurePath
from typing import Any

from unskew.metrics.collapse import collapse_message
from unskew.metrics.judgement import Level, tells_apart
from unskew.metrics.significance import LEAST_SEEDS
from unskew.report.words import counted, number, real

LEVEL = "mean_over_rate"
"""The metric of a model's level: mean prediction ÷ conversion rate."""


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


def data_name(metrics: Mapping[str, Any], config: Mapping[str, Any]) -> str:
    """What the data are called; files by the last two parts of their path."""
    name = str((metrics.get("data") or {}).get("name", "data"))
    given = (config.get("options") or {}).get("train") if name == "files" else None
    if given is None:
        return name
    paths = [str(each) for each in ([given] if isinstance(given, (str, PurePath)) else given)]
    more = f" and {counted(len(paths) - 1, 'more file')}" if len(paths) > 1 else ""
    parts = [part for part in PurePath(paths[0]).parts if part.strip("./\\")]
    return "/".join(parts[-2:]) + more


def units(metrics: Mapping[str, Any]) -> str:
    """What the population of a run consists of: pairs, impressions, or rows that a policy showed."""
    data = metrics.get("data") or {}
    if data.get("known_propensity") is not None:
        return "rows"
    return "impressions" if data.get("space") == "impressions" else "pairs"


def tested_on(metrics: Mapping[str, Any]) -> str:
    """What the test set is, in a sentence."""
    random = f"the randomly shown test {units(metrics)}"
    return random if is_random(metrics) else "the clicks of the logged test set"


def level_of(methods: Mapping[str, Any], key: str) -> float:
    """A method's mean prediction ÷ the actual rate, on average over seeds; NaN if unknown."""
    return real((methods.get(key) or {}).get(LEVEL, {}).get("mean"))


def sampled(methods: Mapping[str, Any]) -> str:
    """Name what intervals are over: test users, and seeds where there are enough of them."""
    return "test users" if 0 < seeds_of(methods) < LEAST_SEEDS else "test users and seeds"


def seeds_of(methods: Mapping[str, Any]) -> int:
    """Return how many seeds the methods have, 0 if unknown."""
    return max(
        (len(of.get("seeds") or ()) for by in methods.values() for of in (by or {}).values()), default=0
    )


def interval_over(metrics: Mapping[str, Any]) -> str:
    """Say what an interval is over, before its two ends."""
    return f" over {sampled(metrics.get('methods') or {})} from"


def without_seeds(metrics: Mapping[str, Any]) -> str:
    """Say that seeds are too few to be in an interval, as a sentence; empty where they are in it."""
    seeds = seeds_of(metrics.get("methods") or {})
    if not 0 < seeds < LEAST_SEEDS:
        return ""
    few = "One seed does" if seeds == 1 else "Two seeds do"
    return f" {few} not tell how far another training would move that, which is not in it."


def deviation(estimate: Mapping[str, Any], name: str = "bias") -> float:
    """Return estimate − truth on average: minus the paper's bias, which is truth − expected estimate."""
    return 0.0 - real(estimate.get(name))


def times(level: float) -> str:
    """A level in words."""
    return f"{number(level, 2)} times"


def know_clicks(propensity: Mapping[str, Any]) -> bool:
    """Whether propensities with these figures tell clicked pairs from others."""
    return tells_apart(propensity.get("auc"), propensity.get("auc_of_chance"))
