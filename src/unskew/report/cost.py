"""What a wrong level costs, in one sentence: outcomes promised too many or too few on the rows at hand."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from unskew.metrics import CalibrationSketch
from unskew.metrics.judgement import LEVEL_TOLERANCE, Level, judge_level
from unskew.metrics.promise import Promise, promise
from unskew.report.finding import LEVEL, Finding, interval_over, is_random, tested_on, units, without_seeds
from unskew.report.words import counted, filled, listed, method_parts, method_phrase, number, percent, real

QUESTION = "What does it cost?"


def judge_promise(found: Promise, tolerance: float = LEVEL_TOLERANCE) -> Level:
    """Whether what is promised is right, off, or not decided by the interval of the excess."""
    if found.came <= 0:
        return "bad" if found.excess_low > 0 else "undecided"
    low, high = (1 + excess / found.came for excess in (found.excess_low, found.excess_high))
    return judge_level(low, high, tolerance=tolerance).level


def excess_words(found: Promise, tolerance: float = LEVEL_TOLERANCE, over: str = "") -> str:
    """By how much too many or too few are promised, with the interval (over what), and whether the data can
    tell."""
    low, high = found.excess_low, found.excess_high
    amount = f"{number(abs(found.excess), 0)} too {_side(found.excess)}"
    if number(abs(found.excess), 0) == "0":
        amount = "as many as came"
    if not (math.isfinite(low) and math.isfinite(high)):
        return f"{amount} (undecided)"
    if low > 0 or high < 0:
        near, far = sorted((abs(low), abs(high)))
        interval = f"95 % interval{over} {number(near, 0)} to {number(far, 0)}"
    else:
        interval = f"95 % interval{over} {number(-low, 0)} too few to {number(high, 0)} too many"
    judged = judge_promise(found, tolerance)
    if judged == "good":
        return f"{amount} ({interval}: right within {percent(tolerance)})"
    return f"{amount} ({interval})" if low > 0 or high < 0 else f"{amount} ({interval}: undecided)"


def _side(excess: float) -> str:
    return "many" if excess > 0 else "few"


def sketch_cost(
    sketch: CalibrationSketch, *, what: str, rows: str, tolerance: float, whose: str = "The scores"
) -> str:
    """The sentence for one column of scores: ``what`` it promises, ``rows`` of which kind, in the plural."""
    found = promise(sketch)
    return (
        f"{whose} promise {number(found.promised, 0)} {what} on {number(sketch.rows, 0)} {rows} and"
        f" {number(found.came, 0)} came: {excess_words(found, tolerance)}."
    )


def promises(metrics: Mapping[str, Any]) -> dict[str, Promise]:
    """What each method promises on the test set beside what came; empty where that is not known.

    The interval is that of the level, over what :func:`~unskew.report.finding.interval_over` says, turned
    into conversions that were to come.
    """
    came = real((metrics.get("data") or {}).get("test_conversions"))
    found = {}
    for key, of in filled(metrics.get("methods")).items():
        level, low, high = (real(of.get(LEVEL, {}).get(name)) for name in ("mean", "low", "high"))
        if math.isfinite(level) and math.isfinite(came):
            promised = level * came
            # excess_low is promised − high: the level's own interval in conversions.
            found[key] = Promise(promised, came, promised - (high - 1) * came, promised - (low - 1) * came)
    return found


def main_method(methods: Mapping[str, Any]) -> str | None:
    """The method that a run is about: that with calibrated propensities before others; None if only naive."""
    others = [key for key in methods if key != "naive"]
    return min(others, key=lambda key: method_parts(key)[1] not in ("calibrated", "known"), default=None)


def run_cost(metrics: Mapping[str, Any], sketches: Mapping[str, CalibrationSketch]) -> Finding:
    """Conversions that the models promise too many or too few on the test set, in one sentence."""
    found = promises(metrics)
    if not found:
        return _without_test(metrics, sketches)
    data = metrics.get("data") or {}
    main = main_method(found)
    shown = [key for key in ("naive", main) if key in found]
    of = interval_over(metrics)
    each = [
        f"{method_phrase(key)} promises {excess_words(found[key], over=of)}"
        for key in shown
        if key is not None
    ]
    came = next(iter(found.values())).came
    where = f"{number(data.get('test_rows_judged'), 0)} {tested_on(metrics).removeprefix('the ')}"
    said = f"{counted(came, 'conversion')} came on {where}: {listed(each)}.{without_seeds(metrics)}"
    if not is_random(metrics):
        return Finding(
            QUESTION,
            "undecided",
            "undecided: the test set is logged",
            (f"{said} These were chosen as the training clicks were: what it costs elsewhere is undecided.",),
        )
    last = found[shown[-1] or "naive"]
    return Finding(QUESTION, judge_promise(last), excess_words(last, over=of), (said,))


def _without_test(metrics: Mapping[str, Any], sketches: Mapping[str, CalibrationSketch]) -> Finding:
    """Where conversions cannot be counted: what the propensities promise in clicks."""
    kind = "calibrated" if "calibrated" in sketches else next(iter(sketches), None)
    unknown = (
        "There is no test set to count the conversions on that the models promise too many or too few:"
        " undecided."
    )
    if kind is None or not sketches[kind].rows:
        return Finding(QUESTION, "undecided", "undecided: no test set", (unknown,))
    clicks = sketch_cost(
        sketches[kind],
        what="clicks",
        rows=f"held-out {units(metrics)}",
        tolerance=LEVEL_TOLERANCE,
        whose=f"The {kind} propensities",
    )
    return Finding(QUESTION, "undecided", "undecided: no test set", (f"{clicks} {unknown}",))
