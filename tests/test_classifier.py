"""DebiasedClassifier: scikit-learn's habits, where propensities come from, and that it debiases."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
import sklearn
from sklearn.base import clone
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.model_selection import GridSearchCV, StratifiedKFold, cross_val_predict, cross_validate
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import check_estimator

import unskew as us
from unskew.base.errors import DataError, ParameterError

ROWS = 8000
BASE = LogisticRegression()


class Shown:
    """Rows whose clicks and conversions have a cause in common, half of which the features show."""

    def __init__(self, rows: int = ROWS, seed: int = 0) -> None:
        random = np.random.default_rng(seed)
        self.x = random.normal(size=(rows, 2))
        self.p = np.where(self.x[:, 1] > 0, 0.5, 0.1) * np.where(random.random(rows) < 0.5, 1.0, 0.3)
        self.click = random.random(rows) < self.p
        # What is bought depends on p beyond what a line in x can say.
        self.rate = np.clip(0.1 + 1.2 * self.p + 0.05 * self.x[:, 0], 0.01, 0.99)
        self.bought = random.random(rows) < self.rate
        self.y = np.where(self.click, self.bought, np.nan)


SHOWN = Shown()


@pytest.mark.parametrize(
    "classifier",
    [
        us.DebiasedClassifier(BASE, propensity=0.5),
        us.DebiasedClassifier(BASE, method="naive"),
        us.DebiasedClassifier(BASE, propensity=0.5, method="snips"),
    ],
)
def test_passes_scikit_learns_estimator_checks(classifier):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        results = check_estimator(classifier, on_fail=None, on_skip=None)
    assert [r["check_name"] for r in results if r["status"] not in ("passed", "skipped")] == []
    assert len(results) > 40


@pytest.mark.parametrize("method", ["ips", "snips"])
def test_the_mean_prediction_is_that_of_all_rows_and_naive_is_not(method):
    naive = us.DebiasedClassifier(BASE, method="naive").fit(SHOWN.x, SHOWN.y, click=SHOWN.click)
    debiased = us.DebiasedClassifier(BASE, method=method)
    debiased.fit(SHOWN.x, SHOWN.y, click=SHOWN.click, propensity=SHOWN.p)
    off = [abs(each.predict_proba(SHOWN.x)[:, 1].mean() - SHOWN.rate.mean()) for each in (naive, debiased)]
    assert off[0] > 0.07
    assert off[1] < 0.03
    assert debiased.weights_.rows == SHOWN.click.sum()
    assert naive.weights_ is None


def folds_of(click, folds):
    """Folds with equal shares of clicks, as the classifier makes them by default."""
    return list(StratifiedKFold(folds, shuffle=True, random_state=0).split(click, click))


def test_ips_is_the_estimator_with_sample_weights_of_clicks():
    c = SHOWN.click
    ours = us.DebiasedClassifier(BASE, p_min=0.1).fit(SHOWN.x, SHOWN.y, click=c, propensity=SHOWN.p)
    weight = us.sample_weight(None, SHOWN.p[c], p_min=0.1)
    theirs = clone(BASE).fit(SHOWN.x[c], SHOWN.bought[c], sample_weight=weight)
    np.testing.assert_allclose(ours.predict_proba(SHOWN.x), theirs.predict_proba(SHOWN.x))


def test_a_classifier_of_clicks_is_cross_fitted():
    given = us.DebiasedClassifier(BASE, folds=4)
    folds = folds_of(SHOWN.click, 4)
    p = cross_val_predict(BASE, SHOWN.x, SHOWN.click, cv=folds, method="predict_proba")[:, 1]
    given.fit(SHOWN.x, SHOWN.y, click=SHOWN.click, propensity=p)
    inside = us.DebiasedClassifier(BASE, propensity=BASE, folds=4).fit(SHOWN.x, SHOWN.y, click=SHOWN.click)
    np.testing.assert_allclose(inside.estimator_.coef_, given.estimator_.coef_)


def test_clicks_and_propensities_are_routed_through_pipelines_and_searches():
    click, p = SHOWN.click, SHOWN.p
    inner = us.DebiasedClassifier(BASE, p_min=0.05)
    pipeline = make_pipeline(StandardScaler(), inner)
    step = "debiasedclassifier"
    pipeline.fit(SHOWN.x, SHOWN.y, **{f"{step}__click": click, f"{step}__propensity": p})
    assert pipeline.predict_proba(SHOWN.x).shape == (ROWS, 2)
    params = {"click": click, "propensity": p, "sample_weight": np.ones(ROWS)}
    bought = SHOWN.bought.astype(int)
    with sklearn.config_context(enable_metadata_routing=True):
        routed = us.DebiasedClassifier(BASE, p_min=0.05).set_fit_request(click=True, propensity=True)
        scores = cross_validate(routed, SHOWN.x, bought, params={"click": click, "propensity": p}, cv=3)
        search = GridSearchCV(
            routed, {"p_min": [0.05, 0.2], "estimator__C": [1e-6, 1.0]}, scoring="neg_log_loss", cv=3
        )
        search.fit(SHOWN.x, bought, click=params["click"], propensity=p)
    assert np.isfinite(scores["test_score"]).all()
    assert search.best_params_["estimator__C"] == 1.0


def test_further_weights_multiply():
    first = SHOWN.x[:, 0] > 0
    fitted = us.DebiasedClassifier(BASE).fit(
        SHOWN.x, SHOWN.y, click=SHOWN.click, propensity=0.5, sample_weight=first.astype(float)
    )
    alone = us.DebiasedClassifier(BASE).fit(
        SHOWN.x[first], SHOWN.y[first], click=SHOWN.click[first], propensity=0.5
    )
    np.testing.assert_allclose(fitted.estimator_.coef_, alone.estimator_.coef_, atol=1e-3)


def test_text_labels_and_rows_that_are_all_clicks():
    c = SHOWN.click
    names = np.array(["no", "yes"])[SHOWN.bought[c].astype(int)]
    fitted = us.DebiasedClassifier(BASE).fit(SHOWN.x[c], names, propensity=SHOWN.p[c])
    assert list(fitted.classes_) == ["no", "yes"]
    assert set(fitted.predict(SHOWN.x)) <= {"no", "yes"}
    same = us.DebiasedClassifier(BASE).fit(SHOWN.x, SHOWN.y, click=c, propensity=SHOWN.p)
    np.testing.assert_allclose(fitted.predict_proba(SHOWN.x), same.predict_proba(SHOWN.x))


@pytest.mark.parametrize(
    ("params", "given", "message"),
    [
        ({"method": "mrdr"}, {}, "method must be 'naive', 'ips' or 'snips', not 'mrdr'"),
        ({}, {"click": SHOWN.click}, "method 'ips' needs propensities"),
        ({"estimator": LinearRegression()}, {}, r"LinearRegression\(\) is no classifier"),
        ({"propensity": BASE}, {}, "needs rows without a click"),
        ({"folds": 1}, {}, "folds must be at least 2"),
        (
            {"estimator": KNeighborsClassifier()},
            {"propensity": 0.5},
            "KNeighborsClassifier.fit takes no sample_w",
        ),
        ({}, {"propensity": [0.5]}, "propensity has 1 values for 8000 rows"),
        ({}, {"propensity": 0.5, "click": SHOWN.p}, r"click, row 0: click is 0\.\d+, not 0 or 1"),
        ({}, {"propensity": 0.5, "click": [1, 0]}, "click has 2 values for 8000 rows"),
        ({}, {"propensity": 0.5, "click": np.zeros(ROWS)}, "no row is clicked"),
        ({}, {"propensity": 1.5, "click": SHOWN.click}, r"propensity 1.5 is not in \[0, 1\]"),
    ],
)
def test_mistakes_are_named(params, given, message):
    classifier = us.DebiasedClassifier(**{"estimator": BASE, **params})
    with pytest.raises((DataError, ParameterError), match=message):
        classifier.fit(SHOWN.x, SHOWN.bought, **given)
