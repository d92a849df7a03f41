"""DebiasedClassifier: scikit-learn's habits, where propensities come from, and that it debiases."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
import sklearn
from sklearn.base import clone
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.model_selection import GridSearchCV, StratifiedKFold, cross_val_predict, cross_validate
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import check_estimator

import unskew as us
from unskew.base.errors import DataError, ParameterError

pd, pl = pytest.importorskip("pandas"), pytest.importorskip("polars")

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


@pytest.mark.parametrize("method", ["ips", "snips", "dr"])
def test_the_mean_prediction_is_that_of_all_rows_and_naive_is_not(method):
    naive = us.DebiasedClassifier(BASE, method="naive").fit(SHOWN.x, SHOWN.y, click=SHOWN.click)
    if method == "dr":
        debiased = us.DebiasedClassifier(LinearRegression(), method="dr", imputer=BASE)
    else:
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


def test_dr_regresses_the_pseudo_outcome_with_an_imputer_that_did_not_see_the_row():
    few = Shown(600, seed=3)
    trees = HistGradientBoostingRegressor(max_iter=5, random_state=0)
    ours = us.DebiasedClassifier(trees, method="dr", imputer=KNeighborsClassifier(1), p_min=None, folds=3)
    ours.fit(few.x, few.y, click=few.click, propensity=few.p)
    label = np.empty(600)
    for training, held_out in folds_of(few.click, 3):
        clicks = training[few.click[training]]
        label[held_out] = (
            KNeighborsClassifier(1).fit(few.x[clicks], few.bought[clicks]).predict(few.x[held_out])
        )
    target = label + np.where(few.click, (few.bought - label) / few.p, 0.0)
    assert target.min() < 0
    assert target.max() > 1
    expected = np.clip(clone(trees).fit(few.x, target).predict(few.x), 0, 1)
    np.testing.assert_allclose(ours.predict_proba(few.x)[:, 1], expected)


@pytest.mark.parametrize("right", ["propensity", "imputer"])
def test_dr_is_right_if_either_is(right):
    """A linear world: the imputer may be right, or predict one rate for all."""
    random = np.random.default_rng(1)
    x = (random.random((40_000, 1)) < 0.5).astype(float)
    p, rate = np.where(x[:, 0] == 1, 0.6, 0.1), np.where(x[:, 0] == 1, 0.7, 0.2)
    click = random.random(len(x)) < p
    y = np.where(click, random.random(len(x)) < rate, np.nan)
    imputer = BASE if right == "imputer" else LogisticRegression(C=1e-9)
    classifier = us.DebiasedClassifier(LinearRegression(), method="dr", imputer=imputer)
    classifier.fit(
        x, y, click=click, propensity=p if right == "propensity" else np.full(len(x), click.mean())
    )
    predicted = classifier.predict_proba(np.array([[0.0], [1.0]]))[:, 1]
    np.testing.assert_allclose(predicted, [0.2, 0.7], atol=0.03)


def test_a_classifier_of_clicks_is_cross_fitted():
    given = us.DebiasedClassifier(BASE, folds=4)
    folds = folds_of(SHOWN.click, 4)
    p = cross_val_predict(BASE, SHOWN.x, SHOWN.click, cv=folds, method="predict_proba")[:, 1]
    given.fit(SHOWN.x, SHOWN.y, click=SHOWN.click, propensity=p)
    inside = us.DebiasedClassifier(BASE, propensity=BASE, folds=4).fit(SHOWN.x, SHOWN.y, click=SHOWN.click)
    np.testing.assert_allclose(inside.estimator_.coef_, given.estimator_.coef_)


@pytest.mark.parametrize("library", [pd.DataFrame, pl.DataFrame])
def test_a_column_of_propensities_is_read_and_not_shown_to_the_estimator(library):
    frame = library({"a": SHOWN.x[:, 0], "b": SHOWN.x[:, 1], "p": SHOWN.p})
    named = us.DebiasedClassifier(BASE, propensity="p").fit(frame, SHOWN.y, click=SHOWN.click)
    assert list(named.feature_names_in_) == ["a", "b"]
    given = us.DebiasedClassifier(BASE).fit(SHOWN.x, SHOWN.y, click=SHOWN.click, propensity=SHOWN.p)
    for rows in (frame, frame[["a", "b"]]):
        np.testing.assert_allclose(named.predict_proba(rows), given.predict_proba(SHOWN.x))


def test_a_fitted_propensity_reads_the_ids_and_survives_clones_if_frozen():
    data = us.load("synthetic", n_users=40, n_items=30, density=0.3, seed=1)
    p = us.PopularityPropensity(crossfit=2).fit(data.train)
    user, item = np.indices((40, 30)).reshape(2, -1)
    frame = pd.DataFrame({"user": user, "item": item})
    click = np.isin(np.arange(1200), data.train.cell)
    y = np.where(click, data.truth.labels.ravel(), np.nan)
    expected = us.DebiasedClassifier(BASE).fit(
        frame, y, click=click, propensity=p.predict_matrix_each()[0].ravel()
    )
    for source in (p, FrozenEstimator(p)):
        fitted = us.DebiasedClassifier(BASE, propensity=source).fit(frame, y, click=click)
        np.testing.assert_allclose(fitted.estimator_.coef_, expected.estimator_.coef_)
    clone(us.DebiasedClassifier(BASE, propensity=FrozenEstimator(p))).fit(frame, y, click=click)
    with pytest.raises(ParameterError, match=r"not fitted.*FrozenEstimator"):
        clone(us.DebiasedClassifier(BASE, propensity=p)).fit(frame, y, click=click)


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
        ({"method": "mrdr"}, {}, "method must be 'naive', 'ips', 'snips' or 'dr', not 'mrdr'"),
        ({}, {"click": SHOWN.click}, "method 'ips' needs propensities"),
        ({"estimator": LinearRegression()}, {}, "method 'ips' needs a classifier"),
        ({"method": "dr"}, {}, "method 'dr' needs a regressor"),
        ({"method": "dr", "estimator": LinearRegression()}, {}, "'dr' needs an imputer"),
        (
            {"method": "dr", "estimator": LinearRegression(), "imputer": BASE},
            {"propensity": 0.5},
            "none is without a click",
        ),
        ({"propensity": BASE}, {}, "needs rows without a click"),
        ({"folds": 1}, {}, "folds must be at least 2"),
        (
            {"estimator": KNeighborsClassifier()},
            {"propensity": 0.5},
            "KNeighborsClassifier.fit takes no sample_w",
        ),
        ({"propensity": "p"}, {}, "X has no columns with names"),
        ({}, {"propensity": [0.5]}, "1 propensities for 8000 rows"),
        ({}, {"propensity": 0.5, "click": SHOWN.p}, r"click, row 0: click is 0\.\d+, not 0 or 1"),
        ({}, {"propensity": 0.5, "click": [1, 0]}, "2 clicks for 8000 rows"),
        ({}, {"propensity": 0.5, "click": np.zeros(ROWS)}, "no row is clicked"),
        ({}, {"propensity": 1.5, "click": SHOWN.click}, r"propensity 1.5 is not in \[0, 1\]"),
    ],
)
def test_mistakes_are_named(params, given, message):
    classifier = us.DebiasedClassifier(**{"estimator": BASE, **params})
    with pytest.raises((DataError, ParameterError), match=message):
        classifier.fit(SHOWN.x, SHOWN.bought, **given)
    with pytest.raises(DataError, match=r"X has no column 'q'.*it has a"):
        us.DebiasedClassifier(BASE, propensity="q").fit(pd.DataFrame({"a": SHOWN.p}), SHOWN.bought)
