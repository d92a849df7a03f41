"""The monotone spline: between Platt and the bend of the data."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.interpolate import BSpline
from scipy.special import expit, logit

from contracts.calibrator_contract import skewed_rows
from unskew.calibration import Platt, Spline
from unskew.calibration.spline import SplineBasis


def bent_rows(rows, seed=0):
    random = np.random.default_rng(seed)
    z = random.normal(-2, 2, rows)
    truth = expit(np.where(z < -2, 0.3 * (z + 2) - 2, 1.4 * (z + 2) - 2))
    return expit(z), random.random(rows) < truth, truth


@pytest.mark.parametrize("breaks", [[-1.0, 0.5], [-6.0, -5.9, -3.0, 0.0, 2.5]])
def test_the_features_are_integrals_of_scipys_splines(breaks):
    knots = np.array([breaks[0]] * 2 + breaks + [breaks[-1]] * 2)
    z = np.linspace(breaks[0] - 2, breaks[-1] + 2, 101)
    integral = BSpline(knots, np.eye(len(breaks) + 1), 2).antiderivative()
    expected = integral(z.clip(breaks[0], breaks[-1])) - integral(breaks[0])
    expected[:, 0] += np.minimum(z - breaks[0], 0)
    expected[:, -1] += np.maximum(z - breaks[-1], 0)
    np.testing.assert_allclose(SplineBasis(knots).features(z), expected, atol=1e-12)


def test_an_infinite_penalty_is_platt():
    score, outcome = skewed_rows(3000)
    spline, platt = Spline(penalty=1e12).fit(score, outcome), Platt().fit(score, outcome)
    np.testing.assert_allclose(spline.predict(score), platt.predict(score), rtol=1e-5)


def test_the_penalty_is_chosen_to_fit_the_data():
    score, outcome, _ = bent_rows(40_000)
    straight = Spline().fit(*skewed_rows(40_000)).penalty_
    assert Spline().fit(score, outcome).penalty_ < straight
    assert Spline(penalty=3.0).fit(score, outcome).penalty_ == 3.0


def test_is_a_straight_line_on_logits_beyond_its_knots():
    score, outcome, _ = bent_rows(5000)
    spline = Spline(penalty=1.0).fit(score, outcome)
    for z in (spline.breaks_[0] - np.arange(1.0, 4.0), spline.breaks_[-1] + np.arange(1.0, 4.0)):
        eta = logit(spline.predict(expit(z)))
        assert np.diff(eta, 2) == pytest.approx([0], abs=1e-7)
        assert np.all(np.diff(eta) * np.diff(z) >= 0)
