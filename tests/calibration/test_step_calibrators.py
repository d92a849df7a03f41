"""Histogram, scaling-binning and IC-IPW, and edges between scores."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from contracts.calibrator_contract import skewed_rows
from unskew.calibration import ICIPW, Histogram, Platt, ScalingBinning
from unskew.calibration.step_calibrator import edges_between
from unskew.metrics.sketch import CalibrationSketch

unit = st.one_of(st.sampled_from([0.0, 1.0, 0.01, 0.5, 1e-38, 5e-324]), st.floats(0, 1))


@given(pair=st.tuples(unit, unit).filter(lambda pair: pair[0] != pair[1]))
@settings(max_examples=300, deadline=None, derandomize=True)
def test_an_edge_separates_its_neighbours(pair):
    left, right = np.array([min(pair)]), np.array([max(pair)])
    edge = edges_between(left, right)
    assert left[0] < edge[0] <= right[0]


@pytest.mark.parametrize("upper", [False, True])
def test_an_edge_between_cells_of_a_sketch_is_their_own(upper):
    """Scores on the edge of a cell (few bits) stay with it, at both ends."""
    random = np.random.default_rng(1)
    tail = np.concatenate(
        [
            random.integers(1, 128, 4_000) / 2.0 ** random.integers(8, 20, 4_000),
            np.exp(random.uniform(-12, -1, 8_000)),
        ]
    )
    score = 1 - tail if upper else tail
    sketch = CalibrationSketch.of(score=score, outcome=np.zeros(len(score)))
    means = sketch.points().score
    edges = edges_between(means[:-1], means[1:])
    np.testing.assert_array_equal(
        np.bincount(np.searchsorted(edges, score, side="right")), sketch.points().rows
    )


class TestHistogram:
    def test_equal_width_bins_are_right_closed_and_empty_ones_get_their_centre(self):
        score = np.array([0.0, 0.1, 0.25, 0.25, 0.3, 0.9, 0.9])
        outcome = np.array([0, 1, 1, 0, 1, 1, 0])
        histogram = Histogram(bins=4, spacing="width", smoothing=0).fit(score, outcome)
        np.testing.assert_allclose(histogram.predict([0, 0.25]), [0.5, 0.5])
        np.testing.assert_allclose(histogram.predict([0.26, 0.5]), 1 - 1e-12)
        assert histogram.predict([0.6])[0] == 0.625
        assert histogram.predict([1.0])[0] == 0.5

    def test_equal_mass_bins_hold_equal_mass_and_split_no_tie(self):
        score, outcome = skewed_rows(10_000)
        histogram = Histogram(bins=10).fit(score, outcome)
        bin_of = np.searchsorted(histogram.edges_, score, side="right")
        np.testing.assert_allclose(np.bincount(bin_of), 1000, atol=1)
        frequency = np.bincount(bin_of, outcome) / np.bincount(bin_of)
        np.testing.assert_allclose(histogram.predict(score), frequency[bin_of])
        tied = Histogram(bins=10).fit(np.full(100, 0.3), np.arange(100) < 20)
        assert tied.values_ == pytest.approx([0.2])

    def test_the_papers_hundred_bins_are_exact_from_a_sketch(self):
        score, outcome = skewed_rows(20_000, level=-0.5)
        score[::2] = np.round(score[::2], 2)
        exact = Histogram(bins=100, spacing="width").fit(score, outcome)
        sketched = Histogram(bins=100, spacing="width").fit(
            CalibrationSketch.of(score=score, outcome=outcome)
        )
        np.testing.assert_allclose(sketched.values_, exact.values_, rtol=1e-12)


class TestScalingBinning:
    def test_answers_the_mean_of_platts_curve_in_each_bin(self):
        score, outcome = skewed_rows(5000)
        binned = ScalingBinning(bins=10).fit(score, outcome).predict(score)
        curve = Platt().fit(score, outcome).predict(score)
        assert len(np.unique(binned)) == 10
        for value in np.unique(binned):
            assert curve[binned == value].mean() == pytest.approx(value, abs=1e-12)


class TestICIPW:
    def test_no_other_monotone_weight_has_a_lower_criterion(self):
        """E[o·α² − 2α] at the calibrated weights, against 2,000 monotone changes of them."""
        random = np.random.default_rng(0)
        score = np.sort(random.random(60))
        outcome = (random.random(60) < 0.2 + 0.6 * score).astype(float)
        outcome[:5] = 1, 0, 0, 1, 0  # positives from the first score on: no pooling of empty blocks
        alpha = ICIPW().fit(score, outcome).weight(score)

        def criterion(weight):
            return (outcome * weight**2 - 2 * weight).sum()

        for _ in range(2000):
            change = np.sort(random.normal(0, random.choice([0.01, 0.1, 1.0]), 60))[::-1]
            other = alpha + change + random.normal(0, 0.05)
            assert criterion(other) >= criterion(alpha) - 1e-9

    @pytest.mark.parametrize("level", [-7.0, -2.5])
    @pytest.mark.parametrize("through_sketch", [False, True])
    def test_the_weights_of_the_clicked_add_up_to_the_population(self, level, through_sketch):
        score, outcome = skewed_rows(20_000, level=level)
        calibrator = ICIPW()
        if through_sketch:
            calibrator.fit(CalibrationSketch.of(score=score, outcome=outcome))
        else:
            calibrator.fit(score, outcome)
        alpha = calibrator.weight(score)
        assert alpha[outcome == 1].sum() == pytest.approx(len(score), rel=1e-9)
        for block in np.unique(alpha):
            inside = alpha == block
            assert (outcome[inside] * block).sum() == pytest.approx(inside.sum(), rel=1e-9)
