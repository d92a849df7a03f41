"""The classifier wrapper against CalibratedClassifierCV and scikit-learn's own estimator checks."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from sklearn.calibration import CalibratedClassifierCV
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression
from sklearn.naive_bayes import GaussianNB
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import LinearSVC
from sklearn.utils.estimator_checks import check_estimator

from unskew.base.errors import DataError, ParameterError
from unskew.calibration import CalibratedClassifier, Isotonic, Platt


def binary_rows(rows=1200, seed=0):
    random = np.random.default_rng(seed)
    features = random.normal(size=(rows, 3))
    features[:, 2] = features[:, 0] + 0.1 * features[:, 2]
    target = random.random(rows) < 1 / (1 + np.exp(1.5 - features[:, :2].sum(axis=1)))
    return features, target.astype(int)


@pytest.mark.parametrize("ensemble", [True, False])
def test_equals_scikit_learn_with_the_same_calibrator(ensemble):
    features, target = binary_rows()
    plain = Isotonic(smoothing=0, interpolation="linear")
    ours = CalibratedClassifier(GaussianNB(), calibrator=plain, cv=4, ensemble=ensemble).fit(features, target)
    theirs = CalibratedClassifierCV(GaussianNB(), method="isotonic", cv=4, ensemble=ensemble)
    theirs.fit(features, target)
    np.testing.assert_allclose(ours.predict_proba(features), theirs.predict_proba(features), atol=1e-9)


def test_passes_scikit_learns_estimator_checks():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        results = check_estimator(
            CalibratedClassifier(LogisticRegression(), cv=3), on_fail=None, on_skip=None
        )
    assert [r["check_name"] for r in results if r["status"] not in ("passed", "skipped")] == []
    assert len(results) > 40


def test_calibrates_naive_bayes_out_of_fold():
    features, target = binary_rows(6000)
    new, new_target = binary_rows(20_000, seed=1)
    raw = GaussianNB().fit(features, target).predict_proba(new)[:, 1]
    calibrated = CalibratedClassifier(GaussianNB(), calibrator="beta").fit(features, target)
    honest = calibrated.predict_proba(new)[:, 1]

    def loss(p):
        return -np.log(np.where(new_target == 1, p, 1 - p)).mean()

    assert loss(honest) < loss(raw) - 0.01
    assert honest.mean() == pytest.approx(new_target.mean(), abs=0.015)


def test_takes_decision_functions_frozen_models_pipelines_and_text_labels():
    features, target = binary_rows()
    names = np.array(["no", "yes"])[target]
    machine = CalibratedClassifier(LinearSVC(random_state=0), cv=3).fit(features, names)
    assert set(machine.predict(features)) == {"no", "yes"}
    assert machine.predict_proba(features)[:, 1].mean() == pytest.approx(target.mean(), abs=0.02)
    fitted = GaussianNB().fit(features[:600], target[:600])
    frozen = CalibratedClassifier(FrozenEstimator(fitted), calibrator=Platt()).fit(
        features[600:], target[600:]
    )
    assert len(frozen.calibrated_classifiers_) == 1
    expected = Platt().fit(fitted.predict_proba(features[600:])[:, 1], target[600:])
    assert frozen.calibrated_classifiers_[0].calibrator.slope_ == pytest.approx(expected.slope_)
    pipeline = make_pipeline(StandardScaler(), CalibratedClassifier(GaussianNB(), cv=3))
    assert pipeline.fit(features, target).predict_proba(features).shape == (1200, 2)


def test_mistakes_are_told():
    features, target = binary_rows(90)
    with pytest.raises(DataError, match="Only binary classification"):
        CalibratedClassifier(GaussianNB()).fit(features, np.arange(90) % 3)
    with pytest.raises(ParameterError, match="ensemble"):
        CalibratedClassifier(GaussianNB(), ensemble="some").fit(features, target)
    with pytest.raises(ParameterError, match="unknown calibrator 'sigmoid'"):
        CalibratedClassifier(GaussianNB(), calibrator="sigmoid").fit(features, target)
