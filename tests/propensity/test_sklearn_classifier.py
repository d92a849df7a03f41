"""Any classifier: what it is given, and what is made of its answers."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression, RidgeClassifier
from sklearn.metrics import roc_auc_score
from sklearn.naive_bayes import GaussianNB

import unskew as us
from unskew.base.errors import DataError, ParameterError
from unskew.propensity.per_replica import ReplicaCells
from unskew.propensity.popularity import ClickRates


def clicks_of(log):
    clicks = np.zeros(log.population_size)
    clicks[log.cell[log.clicked]] = 1
    return clicks


def test_a_classifier_without_probabilities_is_calibrated(log):
    propensity = us.SklearnPropensity(estimator=RidgeClassifier(), crossfit=3).fit(log)
    figures = propensity.diagnose()
    assert figures["raw"]["mean_over_base_rate"] > 2
    assert figures["calibrated"]["mean_over_base_rate"] == pytest.approx(1, abs=0.02)
    assert figures["calibrated"]["auc"] > 0.6


def test_certainty_is_limited_by_the_rows_seen_and_clones_differ_by_seed(log):
    forest = RandomForestClassifier(5)
    propensity = us.SklearnPropensity(estimator=forest, crossfit=2, calibrator=None).fit(log, seeds=2)
    p = propensity.predict_matrix_each()
    assert 0.4 / log.population_size < p.min() < 2 / log.population_size
    assert not hasattr(forest, "classes_")
    again = clone(propensity).fit(log, seeds=2)
    np.testing.assert_array_equal(again.predict_matrix_each(), p)


def test_no_click_tells_on_itself_through_the_rates():
    log = us.load("synthetic", n_users=60, n_items=50, density=0.2, bias=0.0, seed=3).train
    deep = us.SklearnPropensity(estimator=RandomForestClassifier(30), crossfit=2, calibrator=None)
    assert 0.45 < roc_auc_score(clicks_of(log), deep.fit(log).predict_matrix_each().ravel()) < 0.55
    replica = ReplicaCells(deep.cells_, 0, "x")
    rates = ClickRates.of(replica.blocks(), users=60, items=50, smoothing=1.0, parts=4)
    cells = replica.training(None)
    tells = np.corrcoef(rates.of_side(0, cells.user, cells.slot), cells.click)[0, 1]
    told = np.corrcoef(rates.of_side(0, cells.user), cells.click)[0, 1]
    assert abs(tells) < 0.1 < told


def test_ids_and_features_side_by_side(log):
    inputs = ("popularity", "features", "ids")
    for estimator in (LogisticRegression(max_iter=500), RandomForestClassifier(20, min_samples_leaf=20)):
        propensity = us.SklearnPropensity(estimator=estimator, inputs=inputs, crossfit=None).fit(log)
        assert propensity.diagnose()["calibrated"]["auc"] > 0.6


def test_bad_estimators_and_inputs_are_told(log, impressions):
    with pytest.raises(ParameterError, match="is not a scikit-learn classifier"):
        us.SklearnPropensity(estimator="forest").fit(log)
    with pytest.raises(ParameterError, match="inputs must be some of"):
        us.SklearnPropensity(estimator=GaussianNB(), inputs=("age",)).fit(log)
    with pytest.raises(DataError, match="no features of users or items"):
        us.SklearnPropensity(estimator=GaussianNB(), inputs=("features",)).fit(impressions)
