"""The cost of a wrong level: outcomes predicted too many or too few on the rows at hand."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from unskew.metrics import CalibrationSketch
from unskew.metrics.judgement import LEVEL_TOLERANCE, Level, judge_level
from unskew.metrics.reliability import Promise, promise
from unskew.report.facts import LEVEL, filled
from unskew.report.numbers import number, percent, real


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


def sketch_cost(
    sketch: CalibrationSketch, *, what: str, rows: str, tolerance: float, whose: str = "The scores"
) -> str:
    """Return the sentence for one column of scores: what it predicts, on which kind of rows."""
    promised = promise(sketch)
    return (
        f"{whose} predict {number(promised.promised, 0)} {what} on {number(sketch.rows, 0)} {rows}, and"
        f" {number(promised.came, 0)} occurred: {excess_words(promised, tolerance)}."
    )


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
