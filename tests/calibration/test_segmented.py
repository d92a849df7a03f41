"""Platt by segment: follows rich segments, shrinks poor ones."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.special import expit, logit

from contracts.calibrator_contract import skewed_rows
from unskew.base.errors import DataError
from unskew.calibration import Platt, Segmented, load_calibrator
from unskew.metrics.sketch import CalibrationSketch


def segmented_rows(sizes, seed=0):
    random = np.random.default_rng(seed)
    segment = np.repeat(np.arange(len(sizes)), sizes)
    z = random.normal(-1, 1.5, len(segment))
    shift, slope = np.array([-1.0, 0.0, 1.0, 0.5])[segment], np.array([0.6, 1.0, 1.3, 0.8])[segment]
    return expit(z), (random.random(len(z)) < expit(slope * z + shift)).astype(float), segment


def test_rich_segments_get_their_own_map():
    score, outcome, segment = segmented_rows([30_000, 30_000, 30_000])
    segmented = Segmented().fit(score, outcome, segment=segment)
    for code in range(3):
        own = Platt().fit(score[segment == code], outcome[segment == code])
        assert segmented.slopes_[code] == pytest.approx(own.slope_, abs=0.01)
        assert segmented.intercepts_[code] == pytest.approx(own.intercept_, abs=0.01)


def test_is_the_optimum_of_likelihood_and_prior():
    score, outcome, segment = segmented_rows([3000, 40])
    segmented = Segmented(strength=7.0).fit(score, outcome, segment=segment)
    z = logit(score)
    theta = np.array([segmented.slope_, segmented.intercept_])
    q = expit(theta[0] * z + theta[1])
    features = np.stack([z, np.ones_like(z)])
    rarer = min(outcome.mean(), 1 - outcome.mean())
    prior = 7.0 / rarer * (features * q * (1 - q)) @ features.T / len(z)

    def loss(candidate):
        eta = candidate[0] * z[segment == 1] + candidate[1]
        pull = candidate - theta
        return (np.logaddexp(0, eta) - outcome[segment == 1] * eta).sum() + 0.5 * pull @ prior @ pull

    oracle = minimize(loss, theta, method="BFGS", options={"gtol": 1e-8})
    found = (segmented.slopes_[1], segmented.intercepts_[1])
    assert found == pytest.approx(oracle.x, abs=1e-5)


def test_strength_moves_a_segment_from_its_own_map_to_the_global_one():
    score, outcome, segment = segmented_rows([5000, 500])
    own = Platt().fit(score[segment == 1], outcome[segment == 1])
    loose = Segmented(strength=1e-6).fit(score, outcome, segment=segment)
    assert loose.slopes_[1] == pytest.approx(own.slope_, abs=1e-4)
    tight = Segmented(strength=1e9).fit(score, outcome, segment=segment)
    np.testing.assert_allclose(tight.slopes_, tight.slope_, atol=1e-4)
    np.testing.assert_allclose(tight.intercepts_, tight.intercept_, atol=1e-4)


def test_poor_and_one_sided_segments_stay_near_the_global_map():
    score, outcome, segment = segmented_rows([20_000, 3])
    outcome[segment == 1] = 1
    segmented = Segmented().fit(score, outcome, segment=segment)
    together = segmented.predict(score[segment == 1])
    apart = segmented.predict(score[segment == 1], segment=segment[segment == 1])
    assert np.all(apart > together)
    assert np.abs(apart - together).max() < 0.1


def test_calibrates_every_segment_better_than_one_map():
    score, outcome, segment = segmented_rows([8000, 8000, 8000, 300])
    new_score, new_outcome, new_segment = segmented_rows([8000, 8000, 8000, 8000], seed=1)
    segmented = Segmented().fit(score, outcome, segment=segment)

    def loss(p):
        return -np.log(np.where(new_outcome == 1, p, 1 - p))

    gain = loss(segmented.predict(new_score)) - loss(segmented.predict(new_score, segment=new_segment))
    for code in (0, 2, 3):
        assert gain[new_segment == code].mean() > 0.005
    assert gain.mean() > 0.03


def test_unseen_segments_and_no_segments_get_the_global_map():
    score, outcome, segment = segmented_rows([2000, 2000])
    segmented = Segmented().fit(score, outcome, segment=segment)
    expected = Platt().fit(score, outcome).predict(score[:5])
    np.testing.assert_allclose(segmented.predict(score[:5]), expected, rtol=1e-12)
    np.testing.assert_allclose(segmented.predict(score[:5], segment=np.full(5, 99)), expected, rtol=1e-12)


def test_many_rows_are_grouped_by_cell_with_the_same_result():
    score, outcome, segment = segmented_rows([20_000, 20_000])
    exact = Segmented().fit(score, outcome, segment=segment)
    grouped = Segmented(exact_below=1000).fit(score, outcome, segment=segment)
    np.testing.assert_allclose(grouped.slopes_, exact.slopes_, atol=1e-3)
    np.testing.assert_allclose(grouped.intercepts_, exact.intercepts_, atol=1e-3)


def test_a_segment_that_ranks_backwards_is_flattened():
    score, outcome, segment = segmented_rows([5000, 5000])
    score[segment == 1] = 1 - score[segment == 1]
    segmented = Segmented(strength=1.0).fit(score, outcome, segment=segment)
    assert segmented.slopes_[1] == pytest.approx(1e-6)
    predicted = segmented.predict(score[segment == 1], segment=segment[segment == 1])
    assert predicted.mean() == pytest.approx(outcome[segment == 1].mean(), abs=0.01)


@pytest.mark.parametrize("labels", [["a", "b"], [3, 7]])
def test_segments_are_saved_with_their_labels(tmp_path, labels):
    score, outcome, segment = segmented_rows([500, 500])
    names = np.array(labels)[segment]
    segmented = Segmented().fit(score, outcome, segment=names)
    segmented.save(tmp_path / "calibrator.json")
    loaded = load_calibrator(tmp_path / "calibrator.json")
    np.testing.assert_array_equal(
        loaded.predict(score, segment=names), segmented.predict(score, segment=names)
    )


def test_mistakes_with_segments_are_told():
    score, outcome = skewed_rows(200)
    with pytest.raises(DataError, match="a sketch does not tell its segments"):
        Segmented().fit(CalibrationSketch.of(score=score, outcome=outcome), segment=np.zeros(200, int))
    with pytest.raises(DataError, match=r"segment has shape \(3,\) where score has 200 rows"):
        Segmented().fit(score, outcome, segment=["a", "b", "c"])
    with pytest.raises(DataError, match="give text or whole numbers"):
        Segmented().fit(score, outcome, segment=np.linspace(0, 1, 200))
    segmented = Segmented().fit(score, outcome, segment=np.arange(200) % 2)
    with pytest.raises(DataError, match="were whole numbers in fit"):
        segmented.predict([0.5], segment=["a"])
    with pytest.raises(DataError, match="fitted without segments"):
        Segmented().fit(score, outcome).predict([0.5], segment=[1])
