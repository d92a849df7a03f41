"""The judgement of weights: its power is what simulation says, and few rows decide nothing."""

from __future__ import annotations

import numpy as np
import pytest

from unskew.metrics import CalibrationSketch
from unskew.metrics.judgement import judge_weights, may_be_honest
from unskew.metrics.weight_calibration import power

LIMITS = {"tolerance": 0.05, "significance": 0.01}


def drawn(generator: np.random.Generator, rows: int, factor: float = 1.0) -> CalibrationSketch:
    truth = generator.beta(1, 9, rows)
    return CalibrationSketch.of(score=np.clip(truth * factor, 0, 1), outcome=generator.random(rows) < truth)


@pytest.mark.parametrize("rows", [4_000, 16_000, 40_000])
def test_the_power_is_how_often_an_error_of_that_size_is_found(rows):
    generator = np.random.default_rng(rows)
    told = power(drawn(generator, rows), **LIMITS, error=1.2)
    found = [
        np.mean([judge_weights(drawn(generator, rows, factor), **LIMITS).healthy is False for _ in range(30)])
        for factor in (1.2, 1 / 1.2)
    ]
    # S of a bin is skewed with few clicks, and power drawn from normal errors is near, not exact.
    assert min(found) - 0.35 < told < max(found) + 0.35
    assert (told > 0.99) == (rows == 40_000)
    assert (told < 0.1) == (rows == 4_000)


def test_more_rows_turn_undecided_into_honest_or_off():
    generator = np.random.default_rng(1)
    assert judge_weights(drawn(generator, 1_000), **LIMITS).reason == "too few rows"
    assert judge_weights(drawn(generator, 1_000, 1.2), **LIMITS).level == "undecided"
    assert judge_weights(drawn(generator, 60_000), **LIMITS).level == "good"
    assert judge_weights(drawn(generator, 60_000, 1.2), **LIMITS).reason == "off"


def test_an_error_is_found_though_the_smallest_scores_are_all_noise():
    """1/p of the smallest scores makes WCE without noise mostly 0; an error of 1.2 elsewhere still counts."""
    generator = np.random.default_rng(3)
    sketches = [drawn(generator, 40_000, 1.2) for _ in range(10)]
    assert not any(may_be_honest(sketch, **LIMITS) for sketch in sketches)


def test_scores_that_are_right_on_average_and_know_nothing_are_not_called_honest():
    generator = np.random.default_rng(4)
    clicked = generator.random(60_000) < 0.1
    noise = 0.1 * np.exp(generator.normal(0, 0.02, 60_000))
    found = judge_weights(CalibrationSketch.of(score=noise, outcome=clicked), **LIMITS)
    assert (found.healthy, found.reason) == (None, "not beyond chance")
    assert not found.chance.beyond


def test_scores_of_one_and_of_zero_are_judged_without_rows_that_would_tell():
    certain = CalibrationSketch.of(score=[1.0] * 50, outcome=[1] * 50)
    found = judge_weights(certain, **LIMITS)
    assert (found.healthy, found.rows_needed) == (None, None)
    infinite = CalibrationSketch.of(score=[0.0, 0.5, 0.5], outcome=[1, 0, 1])
    assert judge_weights(infinite, **LIMITS).reason == "infinite weight"
