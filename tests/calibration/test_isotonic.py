"""Isotonic regression against scikit-learn's, and what zero-safety adds."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.isotonic import IsotonicRegression

from contracts.calibrator_contract import skewed_rows
from unskew.calibration import Isotonic
from unskew.metrics.sketch import CalibrationSketch


@pytest.mark.parametrize("ties", [None, 30])
@pytest.mark.parametrize("weighted", [False, True])
def test_without_smoothing_it_is_scikit_learns(ties, weighted):
    score, outcome = skewed_rows(4000, ties=ties)
    weight = np.random.default_rng(1).uniform(0.1, 3, len(score)) if weighted else None
    oracle = IsotonicRegression(out_of_bounds="clip").fit(score, outcome, sample_weight=weight)
    new = np.concatenate([np.random.default_rng(2).random(2000), score, [0, 1]])
    linear = Isotonic(smoothing=0, interpolation="linear").fit(score, outcome, weight)
    np.testing.assert_allclose(linear.predict(new), oracle.predict(new), atol=1e-9)
    step = Isotonic(smoothing=0).fit(score, outcome, weight)
    np.testing.assert_allclose(step.predict(score), oracle.predict(score), atol=1e-9)


def test_the_end_blocks_are_smoothed_and_the_base_rate_restored():
    score = np.repeat([0.1, 0.3, 0.6, 0.9], [8, 10, 10, 6])
    outcome = np.concatenate([np.zeros(8), np.arange(10) < 3, np.arange(10) < 6, np.ones(6)])
    safe = Isotonic().fit(score, outcome)
    plain = Isotonic(smoothing=0).fit(score, outcome)
    np.testing.assert_allclose(plain.values_, [0, 0.3, 0.6, 1])
    shift = np.log(safe.values_ / (1 - safe.values_)) - np.log(
        np.array([1 / 10, 0.3, 0.6, 7 / 8]) / (1 - np.array([1 / 10, 0.3, 0.6, 7 / 8]))
    )
    np.testing.assert_allclose(shift, shift[0], atol=1e-9)
    assert safe.predict(score).mean() == pytest.approx(outcome.mean(), abs=1e-12)


def test_a_sketch_of_a_million_rows_is_within_one_percent_of_the_mean():
    score, outcome = skewed_rows(1_000_000)
    exact = Isotonic(exact_below=len(score)).fit(score, outcome).predict(score)
    sketched = Isotonic().fit(CalibrationSketch.of(score=score, outcome=outcome)).predict(score)
    assert np.abs(sketched - exact).mean() <= 0.01 * outcome.mean()
    assert sketched.mean() == pytest.approx(outcome.mean(), abs=1e-9)
