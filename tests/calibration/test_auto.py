"""Auto chooses what the truth calls for, and says why."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.special import expit

from contracts.calibrator_contract import skewed_rows
from unskew.calibration import AutoCalibrator, calibrator_from_dict
from unskew.calibration.grouping import group
from unskew.metrics.sketch import CalibrationSketch


def rows_of(truth_of, rows=20_000, seed=0):
    random = np.random.default_rng(seed)
    z = random.normal(-1.5, 1.5, rows)
    return expit(z), random.random(rows) < truth_of(z)


@pytest.mark.parametrize(
    ("truth_of", "expected"),
    [
        (expit, {"none", "platt"}),
        (lambda z: expit(z / 1.7), {"platt", "beta"}),
        (lambda z: expit(0.6 * z - 1), {"platt"}),
        (lambda z: np.where(z < -1.5, 0.05, np.where(z < 0, 0.3, 0.6)), {"isotonic", "spline"}),
    ],
)
def test_chooses_the_simplest_map_that_fits(truth_of, expected):
    auto = AutoCalibrator().fit(*rows_of(truth_of))
    assert auto.choice_.name in expected
    assert auto.reason_.startswith(f"{auto.choice_.name}: cross-validated NLL")


def test_the_reason_tells_every_loss():
    auto = AutoCalibrator(candidates=("none", "platt")).fit(*skewed_rows(5000))
    assert auto.choice_.name == "platt"
    assert "the lowest" in auto.reason_
    assert f"none {auto.losses_['none']:.6g}" in auto.reason_
    assert "5,000 rows" in auto.reason_


def test_a_sketch_is_divided_as_its_rows_are():
    score, outcome = skewed_rows(100_000)
    from_rows = AutoCalibrator().fit(score, outcome)
    from_sketch = AutoCalibrator().fit(CalibrationSketch.of(score=score, outcome=outcome))
    assert from_sketch.choice_.name == from_rows.choice_.name
    for name, loss in from_rows.losses_.items():
        assert from_sketch.losses_[name] == pytest.approx(loss, rel=2e-3)


def test_a_sketch_of_sampled_negatives_tells_its_positive_rows():
    score, outcome = skewed_rows(20_000)
    weight = np.where(outcome == 1, 1.0, 25.0)
    sketch = CalibrationSketch.of(score=score, outcome=outcome, weight=weight)
    points = group(sketch, None, None, exact_below=0)
    np.testing.assert_array_equal(points.positive_rows, points.positive)
    assert points.positive_rows.sum() == outcome.sum()


@pytest.mark.parametrize("folds", [2, 5])
def test_with_too_few_rows_to_choose_it_is_platt_and_says_so(folds):
    auto = AutoCalibrator(folds=folds).fit([0.1, 0.9], [0, 1])
    assert auto.choice_.name == "platt"
    assert auto.reason_ == "platt: too few rows of one class to choose by cross-validation"


def test_a_map_that_makes_weights_worse_is_left_out_though_its_log_loss_is_as_good():
    """The lowest scores hold the most weight and next to nothing of the log loss."""
    random = np.random.default_rng(1)
    score = np.where(random.random(60_000) < 0.5, 0.002, random.uniform(0.2, 0.8, 60_000))
    truth = np.where(score < 0.1, 0.005, score)
    outcome = random.random(60_000) < truth
    auto = AutoCalibrator(candidates=("none", "isotonic"), standard_errors=1e3).fit(score, outcome)
    assert auto.left_out_ == ("none",)
    assert auto.choice_.name == "isotonic"
    assert auto.reason_.endswith("weights worse beyond noise: none")
    again = calibrator_from_dict(auto.to_dict())
    assert again.left_out_ == ("none",)


def test_candidates_with_honest_weights_are_left_out_by_chance_alone():
    """The raw scores are off, and Platt and beta contain the truth."""
    left_out = []
    for seed in range(12):
        score, outcome = rows_of(lambda z: expit(0.6 * z - 1), rows=60_000, seed=seed)
        auto = AutoCalibrator(candidates=("none", "platt", "beta", "isotonic")).fit(score, outcome)
        left_out += auto.left_out_
    assert left_out.count("none") >= 11
    assert left_out.count("platt") <= 1
    assert left_out.count("beta") <= 1
