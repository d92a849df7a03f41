"""What scores promise beside what came: sums, and intervals that cover."""

from __future__ import annotations

import numpy as np
import pytest

from unskew.metrics import CalibrationSketch
from unskew.metrics.reliability import promise


def test_the_interval_of_the_excess_covers_0_for_honest_scores():
    random = np.random.default_rng(0)
    score = random.beta(1.0, 12.0, 2000)
    covered = 0
    for _ in range(300):
        found = promise(CalibrationSketch.of(score=score, outcome=random.random(2000) < score))
        assert found.excess == pytest.approx(found.promised - found.came)
        covered += found.excess_low <= 0 <= found.excess_high
    assert covered / 300 == pytest.approx(0.95, abs=0.03)


def test_a_row_of_weight_2_counts_as_two_rows_and_tells_as_much_as_one():
    score, outcome = np.full(400, 0.25), np.arange(400) < 150
    plain = promise(CalibrationSketch.of(score=score, outcome=outcome))
    doubled = promise(CalibrationSketch.of(score=score, outcome=outcome, weight=np.full(400, 2.0)))
    assert doubled == pytest.approx([2 * value for value in plain])


def test_without_an_outcome_the_interval_still_has_a_width():
    none = promise(CalibrationSketch.of(score=np.full(50, 0.02), outcome=np.zeros(50)))
    assert none.came == none.low == 0
    assert none.excess_low < 0 < none.excess_high, "1 promised of 50, none came: it may be chance"
    many = promise(CalibrationSketch.of(score=np.full(5000, 0.02), outcome=np.zeros(5000)))
    assert many.excess_low > 0
