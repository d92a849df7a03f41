"""Beta calibration against a direct optimum of its likelihood."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.special import expit

from contracts.calibrator_contract import skewed_rows
from unskew.calibration import Beta, Platt


def mean_loss(a, b, c, score, outcome):
    eta = a * np.log(score) - b * np.log1p(-score) + c
    return (np.logaddexp(0, eta) - outcome * eta).mean()


def bent_rows(rows, seed=0):
    random = np.random.default_rng(seed)
    score = random.beta(0.7, 3, rows).clip(1e-6, 1 - 1e-6)
    truth = expit(0.5 * np.log(score) - 1.8 * np.log1p(-score) - 0.4)
    return score, (random.random(rows) < truth).astype(float)


@pytest.mark.parametrize("variant", ["abm", "am", "ab"])
def test_is_the_likelihoods_optimum(variant):
    score, outcome = bent_rows(5000)
    parameters = {
        "abm": lambda theta: theta,
        "am": lambda theta: (theta[0], theta[0], theta[1]),
        "ab": lambda theta: (theta[0], theta[1], (theta[0] - theta[1]) * np.log(2)),
    }[variant]
    oracle = minimize(
        lambda theta: mean_loss(*parameters(theta), score, outcome),
        np.ones(3 if variant == "abm" else 2),
        method="BFGS",
        options={"gtol": 1e-9},
    )
    beta = Beta(variant=variant).fit(score, outcome)
    found = (beta.a_, beta.b_, beta.intercept_)
    assert found == pytest.approx(tuple(parameters(oracle.x)), abs=1e-4)
    assert mean_loss(*found, score, outcome) <= oracle.fun + 1e-13


def test_one_slope_is_platt_on_logits():
    score, outcome = skewed_rows(5000)
    beta, platt = Beta(variant="am").fit(score, outcome), Platt().fit(score, outcome)
    assert beta.a_ == beta.b_ == pytest.approx(platt.slope_, abs=1e-10)
    assert beta.intercept_ == pytest.approx(platt.intercept_, abs=1e-10)


def test_slopes_stay_at_zero_where_the_likelihood_wants_them_negative():
    """With a at its bound, b and c are the optimum of what is left (betacal's rule, solved exactly)."""
    random = np.random.default_rng(0)
    score = random.uniform(0.02, 0.98, 20_000)
    truth = expit(-0.6 * np.log(score) - 1.5 * np.log1p(-score) - 1.5)
    outcome = (random.random(len(score)) < truth).astype(float)
    beta = Beta().fit(score, outcome)
    assert beta.a_ == 0
    oracle = minimize(
        lambda theta: mean_loss(0, *theta, score, outcome), [1.0, 0.0], method="BFGS", options={"gtol": 1e-9}
    )
    assert (beta.b_, beta.intercept_) == pytest.approx(oracle.x, abs=1e-4)
