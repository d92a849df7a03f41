"""Platt scaling against scikit-learn's logistic regression, and its edges."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.special import expit, logit
from sklearn.linear_model import LogisticRegression

from contracts.calibrator_contract import skewed_rows
from unskew.calibration import Platt


def unpenalised(feature, outcome, weight=None):
    model = LogisticRegression(C=np.inf, solver="newton-cholesky", tol=1e-12, max_iter=1000)
    model.fit(feature[:, None], outcome, sample_weight=weight)
    return model.coef_[0, 0], model.intercept_[0]


@pytest.mark.parametrize("level", [-6.0, -2.5, 1.0])
@pytest.mark.parametrize("weighted", [False, True])
def test_equals_logistic_regression_on_logits(level, weighted):
    score, outcome = skewed_rows(20_000, level=level)
    weight = np.random.default_rng(1).uniform(0.1, 3, len(score)) if weighted else None
    platt = Platt().fit(score, outcome, weight)
    slope, intercept = unpenalised(logit(score), outcome, weight)
    assert platt.slope_ == pytest.approx(slope, abs=1e-8)
    assert platt.intercept_ == pytest.approx(intercept, abs=1e-8)
    np.testing.assert_allclose(platt.predict(score), expit(slope * logit(score) + intercept), rtol=1e-8)


def test_reads_logits_unless_told_otherwise_because_probabilities_bound_the_answer():
    """On probabilities the answer stays in [σ(c), σ(b+c)], and the weights of low scores stay wrong."""
    score, outcome = skewed_rows(200_000, level=-4.5)
    default, literal = Platt(), Platt(input="prob")
    assert default.input == "logit"
    by_logit = default.fit(score, outcome).predict(score)
    by_probability = literal.fit(score, outcome).predict(score)
    assert by_probability.min() >= expit(literal.intercept_)
    low = score < np.quantile(score, 0.2)
    assert (outcome / by_logit)[low].mean() == pytest.approx(1, abs=0.1)
    assert (outcome / by_probability)[low].mean() < 0.6


def test_target_smoothing_is_platts():
    score, outcome = skewed_rows(300)
    positives, negatives = outcome.sum(), len(outcome) - outcome.sum()
    target = np.where(outcome == 1, (positives + 1) / (positives + 2), 1 / (negatives + 2))
    z = logit(score)

    def loss(theta):
        eta = theta[0] * z + theta[1]
        return (np.logaddexp(0, eta) - target * eta).sum()

    oracle = minimize(loss, [1.0, 0.0], method="BFGS", options={"gtol": 1e-8})
    platt = Platt(target_smoothing=True).fit(score, outcome)
    assert loss([platt.slope_, platt.intercept_]) <= loss(oracle.x) + 1e-9
    assert (platt.slope_, platt.intercept_) == pytest.approx(oracle.x, abs=1e-4)


def test_scores_that_rank_backwards_are_flattened_and_told():
    score, outcome = skewed_rows(2000)
    platt = Platt().fit(1 - score, outcome)
    assert platt.slope_ == platt.smallest_slope
    assert "did not have more positives" in platt.message_
    np.testing.assert_allclose(platt.predict(score), outcome.mean(), rtol=1e-4)


def test_a_constant_score_keeps_the_slope_and_says_so():
    platt = Platt().fit(np.full(10, 0.2), np.arange(10) < 3)
    assert platt.slope_ == 1
    assert "every score is the same" in platt.message_
    assert platt.predict([0.2])[0] == pytest.approx(0.3)


def test_sampled_negatives_are_undone_by_their_weights():
    """Keeping a tenth of the negatives and weighting them tenfold is the fit on all rows."""
    score, outcome = skewed_rows(200_000)
    kept = (outcome == 1) | (np.random.default_rng(5).random(len(score)) < 0.1)
    weight = np.where(outcome == 1, 1.0, 10.0)
    whole = Platt().fit(score, outcome)
    sampled = Platt().fit(score[kept], outcome[kept], weight[kept])
    assert sampled.slope_ == pytest.approx(whole.slope_, abs=0.02)
    assert sampled.intercept_ == pytest.approx(whole.intercept_, abs=0.05)
